#!/bin/bash
# format.sh [--check] - formats every C and CUDA file with clang-format 14, or only says which are not.
# Other versions format differently: without 14, --check says that it is skipped and exits with 77.
set -euo pipefail

cd "$(dirname "$0")/.."
tool=
for name in clang-format-14 clang-format; do
    if command -v $name >/dev/null && $name --version | grep -q 'version 14\.'; then
        tool=$name
        break
    fi
done
if [ -z "$tool" ]; then
    echo "format: SKIPPED, clang-format 14 is not on this machine"
    exit 77
fi

if [ "${1:-}" = --check ]; then
    mode=(--dry-run --Werror)
else
    mode=(-i)
fi
find . \( -name .git -o -name 'build*' -type d \) -prune -o \( -name '*.[ch]' -o -name '*.cu' \) -print0 |
    xargs -0 -r $tool --style=file "${mode[@]}"
