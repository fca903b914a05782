#!/bin/sh
# Takes from a folder of installed packages what nothing here uses: symbols, and what `tokenizers` would fetch models with.
# Libraries that a wheel brings along for its own (*.libs) do not bear it.
set -eu
cd "$1"
rm -rf huggingface_hub hf_xet fsspec
find . -name '*.so*' -not -path '*.libs/*' -not -path './torch/*' -exec strip --strip-unneeded {} +
