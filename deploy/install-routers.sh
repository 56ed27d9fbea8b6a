#!/bin/sh
# Makes an environment for each router of others that PyPI has: they do not go together. nginx and HAProxy are Debian's
# or Ubuntu's. Use: install-routers.sh PYTHON FOLDER. Some 1 GB; what is there already is not installed again.
set -eu
python=$1
folder=$2

router() { # router NAME REQUIREMENT
    [ -e "$folder/$1/done" ] && return
    echo "routers: $1" >&2
    "$python" -m venv "$folder/$1"
    "$folder/$1/bin/python" -m pip --disable-pip-version-check install --quiet "$2"
    touch "$folder/$1/done"
}

router vllm-router vllm-router==0.1.16
router sglang-router sglang-router==0.3.2
router smg smg==1.13.0
router litellm 'litellm[proxy]<1.108'

missing=""
for name in nginx haproxy; do
    PATH="$PATH:/usr/sbin" command -v "$name" >/dev/null || missing="$missing $name"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    install="apt-get install -y -q --no-install-recommends$missing"
    $install || { apt-get update -q && $install; }
else
    echo "error: not installed:$missing" >&2
    echo "hint: sudo apt-get install$missing" >&2
    exit 2
fi
