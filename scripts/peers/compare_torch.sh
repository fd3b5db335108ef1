#!/bin/bash
# compare_torch.sh [OPTION...] - trains the same GPT-2 in Weft and in PyTorch and compares time,
# memory and losses. Builds Weft into build/ and makes a virtual environment with the current
# PyTorch under build/ (some 6 GB, the first time). The options, and --help, are those of
# compare_torch.py.
set -euo pipefail

cd "$(dirname "$0")/../.."
venv=build/compare-torch/venv
for option in "$@"; do
    case $option in
    -h | --help) exec python3 scripts/peers/compare_torch.py --help ;;
    esac
done

scripts/install_packages.sh --no-tests
scripts/build.sh build -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF
scripts/corpus.sh build/corpus.txt
if ! "$venv/bin/python" -c 'import torch, numpy, safetensors' 2>/dev/null; then
    if ! python3 -m venv "$venv"; then
        echo "compare_torch: Debian has venv in a package of its own:" \
            "apt-get install python3-venv python3-dev" >&2
        exit 1
    fi
    "$venv/bin/pip" install --quiet torch numpy safetensors
fi
exec "$venv/bin/python" scripts/peers/compare_torch.py "$@"
