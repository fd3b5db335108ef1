#!/bin/bash
# with_gpu.sh PROGRAM - runs it where there is a GPU; 77 elsewhere.
python3 "$(dirname "$0")/../../scripts/proofs/gpu_check.py" --probe || exit 77
exec "$1"
