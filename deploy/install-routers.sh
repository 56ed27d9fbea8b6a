#!/bin/sh
# Makes an environment for each router of others that PyPI has: they do not go together.
# Use: install-routers.sh PYTHON FOLDER. Some 1 GB; what is there already is not installed again.
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
