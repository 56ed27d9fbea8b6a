#!/bin/sh
# build-image.sh DIR: the image of deploy/Dockerfile without a registry, for `make test-image`: its base is made here of
# Debian's Python in place of python:3.12-slim. The engine's store and settings are below DIR too, so that removing DIR
# removes all of it. Needs root, and from Debian: buildah, mmdebstrap; podman and runc to start it.
set -eu
mkdir -p "$1"
dir=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/.." && pwd)
for program in buildah mmdebstrap podman runc conmon; do
    command -v $program >/dev/null || { echo "there is no $program: apt-get install buildah mmdebstrap podman runc" >&2; exit 1; }
done

printf '[storage]\ndriver = "overlay"\ngraphroot = "%s"\nrunroot = "%s"\n' "$dir/images" "$dir/run" >"$dir/storage.conf"
printf 'unqualified-search-registries = []\n' >"$dir/registries.conf"
printf '{"default": [{"type": "insecureAcceptAnything"}]}\n' >"$dir/policy.json"
# runc: crun does not run where versions 1 and 2 of control groups are mixed.
printf '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\ntmp_dir = "%s"\nconmon_path = ["%s"]\n' \
    "$dir/run/libpod" "$(command -v conmon)" >"$dir/containers.conf"
printf '[engine.runtimes]\nrunc = ["%s"]\n' "$(command -v runc)" >>"$dir/containers.conf"
export CONTAINERS_STORAGE_CONF="$dir/storage.conf" CONTAINERS_REGISTRIES_CONF="$dir/registries.conf"

build() { buildah bud --isolation chroot --signature-policy "$dir/policy.json" "$@"; }

if ! buildah inspect localhost/python >/dev/null 2>&1; then
    mkdir -p "$dir/base"
    mmdebstrap --quiet --variant=minbase --mode=root \
        --include=python3,python3-venv,python3-dev,python-is-python3,ca-certificates bookworm "$dir/base/base.tar"
    # What this machine trusts, and where its pip looks: the build asks for the same packages.
    cp /etc/ssl/certs/ca-certificates.crt "$dir/base/"
    echo '[global]' >"$dir/base/pip.conf"
    for name in cert index-url trusted-host; do
        value=$(python3 -m pip config get "global.$name" 2>/dev/null) && echo "$name = $value" >>"$dir/base/pip.conf"
    done
    printf 'FROM scratch\nADD base.tar /\nCOPY pip.conf /etc/pip.conf\nCOPY ca-certificates.crt /etc/ssl/certs/\n' >"$dir/base/Dockerfile"
    build --quiet --tag localhost/python "$dir/base"
    rm -r "$dir/base"
fi
build --tag localhost/inferometer --build-arg PYTHON=localhost/python --file "$source/deploy/Dockerfile" \
    --ignorefile "$source/deploy/Dockerfile.dockerignore" "$source"
