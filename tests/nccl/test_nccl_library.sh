#!/bin/bash
# test_nccl_library.sh BUILD - the real libweft_nccl.so: it loads, exports one symbol, never stands on
# the driver, and says in one line that there is no GPU.
set -uo pipefail
build=$1 bad=0
library=$build/libweft_nccl.so
[ -e "$library" ] || {
    echo "libweft_nccl.so was not built: CUDA or NCCL not found"
    exit 77
}

# check NAME CONDITION...: a line of the report.
check()
{
    local name=$1
    shift
    if "$@"; then
        echo "ok: $name"
    else
        echo "FAILED: $name"
        bad=1
    fi
}

check "exports wf_plugin alone" \
    [ "$(nm -D --defined-only "$library" | awk '{print $3}')" = wf_plugin ]
check "needs no driver" [ -z "$(readelf -d "$library" | grep -E 'NEEDED.*libcuda\.so')" ]
check "needs NCCL" [ -n "$(readelf -d "$library" | grep -E 'NEEDED.*libnccl')" ]
check "all symbols are there" [ -z "$(ldd -r "$library" 2>&1 | grep -E 'undefined|not found')" ]
if [ -e /dev/nvidiactl ]; then
    echo "there is a GPU here: scripts/gpu_check.sh goes on"
    exit $bad
fi
for n in 1 2; do
    text=$(head -c 4000 "$0" >"/tmp/weft-nccl-$$.txt" &&
        "$build/apps/gpt_train" --data "/tmp/weft-nccl-$$.txt" --steps 1 --tp $n --dp 1 --n-layer 1 \
            --n-head 2 --n-embd 16 --seq-len 16 --device cpu --transport nccl 2>&1 >/dev/null)
    status=$?
    rm -f "/tmp/weft-nccl-$$.txt"
    check "no GPU is a failure ($n ranks)" [ $status != 0 ]
    check "no GPU is one line: $text" \
        [ "$(grep -cE 'transport nccl joins GPUs, and there is none here \(.*\); use --transport threads' <<<"$text") $(wc -l <<<"$text")" = "1 1" ]
done
exit $bad
