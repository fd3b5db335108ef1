#!/bin/bash
# man.sh DIR - the manual pages in DIR are what mandoc takes without a warning, and it has warnings to give.
# Skipped (77) where there is no mandoc.
set -euo pipefail

if ! command -v mandoc >/dev/null; then
    echo "skipped: no mandoc (Debian: mandoc)"
    exit 77
fi
if printf '.TH BAD 1 "" x\n.SH Name\nbad\n.NOPE\n' | mandoc -T lint -W warning >/dev/null; then
    echo "mandoc says nothing of a bad page" >&2
    exit 1
fi
pages=("$1"/*.1)
mandoc -T lint -W warning "${pages[@]}"
echo "${#pages[@]} pages without a warning"
