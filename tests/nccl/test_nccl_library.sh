#!/bin/bash
# test_nccl_library.sh BUILD - the real libweft_nccl.so: it loads, exports one symbol, never stands on
# the driver, and says in one line that there is no GPU.
#
# ctest: arguments build, builds plain, timeout 120
set -uo pipefail
self=$(readlink -f "$0") build=$1
library=$build/libweft_nccl.so
# shellcheck source=tests/cases.sh
. "$(dirname "$0")/../cases.sh"
[ -e "$library" ] || skip "libweft_nccl.so was not built: CUDA or NCCL not found"

# check NAME CONDITION...
check()
{
    local name=$1 problem=''
    shift
    "$@" || problem="it is not so"
    result "$name" "$problem"
}

check "exports wf_plugin alone" \
    [ "$(nm -D --defined-only "$library" | awk '{print $3}')" = wf_plugin ]
check "needs no driver" [ -z "$(readelf -d "$library" | grep -E 'NEEDED.*libcuda\.so')" ]
check "needs NCCL" [ -n "$(readelf -d "$library" | grep -E 'NEEDED.*libnccl')" ]
check "all symbols are there" [ -z "$(ldd -r "$library" 2>&1 | grep -E 'undefined|not found')" ]
if [ -e /dev/nvidiactl ]; then
    echo "there is a GPU here: scripts/proofs/gpu_check.sh continues"
    finish
fi
head -c 4000 "$self" >text.txt
for n in 1 2; do
    "$build/apps/gpt_train" --data text.txt --steps 1 --tp $n --dp 1 --n-layer 1 --n-head 2 --n-embd 16 \
        --seq-len 16 --device cpu --transport nccl >out 2>err
    check "no GPU is a failure ($n ranks)" [ $? != 0 ]
    check "no GPU is one line" \
        [ "$(grep -cE 'transport nccl joins GPUs, and there is none here \(.*\); use --transport threads' err) $(wc -l <err)" = "1 1" ]
done
finish
