#!/bin/sh
# Builds llama.cpp's server from the sources in llama-cpp-python, and a model file for it, next to what install-engines.sh made.
# Use: install-llama.sh FOLDER. Needs a C++ compiler; ten minutes on two cores.
set -eu
folder=$(cd "$1" && pwd)
version=0.3.36
pip="$folder/bin/python -m pip --disable-pip-version-check"
sources=$folder/llama_cpp_python-$version/vendor/llama.cpp

command -v c++ >/dev/null || {
    echo "error: no C++ compiler" >&2
    echo "hint: apt install g++" >&2
    exit 2
}
[ -e "$folder/tiny-qwen3/config.json" ] || {
    echo "error: there is no model in $folder" >&2
    echo "hint: make test-engines makes it" >&2
    exit 2
}
if [ ! -e "$sources" ]; then
    $pip install --quiet cmake ninja scikit-build-core
    $pip download --quiet --no-deps --no-build-isolation --no-binary llama-cpp-python -d "$folder" "llama-cpp-python==$version"
    tar xzf "$folder/llama_cpp_python-$version.tar.gz" -C "$folder"
fi
PATH=$folder/bin:$PATH
cmake -S "$sources" -B "$folder/llama" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_SERVER=ON -DLLAMA_OPENSSL=OFF -DGGML_OPENMP=OFF >"$folder/llama.log"
cmake --build "$folder/llama" --target llama-server >>"$folder/llama.log"
[ -e "$folder/tiny-qwen3.gguf" ] || PYTHONPATH=$sources/gguf-py "$folder/bin/python" "$sources/convert_hf_to_gguf.py" \
    "$folder/tiny-qwen3" --outfile "$folder/tiny-qwen3.gguf" --outtype f32
