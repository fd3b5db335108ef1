#!/bin/bash
# test_bench.sh BENCH - every subcommand of bench, with small sizes: each line of --json is an object
# of that command, figures are positive, and a limit stands beside them; tables have titles and rows;
# what is wrong on the command line is said, with status 2.
#
# ctest: arguments bench, heavy, timeout 120
set -uo pipefail

bench=$1
failed=0

fail()
{
    echo "FAILED: $*" >&2
    failed=1
}

command -v python3 >/dev/null || {
    echo "skipped: no python3"
    exit 77
}

# rows COMMAND COLUMN...: the command may have flags; some row has all of these columns, as positive numbers.
rows()
{
    local command=$1 lines words
    shift
    read -ra words <<<"$command"
    lines=$("$bench" "${words[@]}" --quick --json </dev/null) || fail "$command: status $?"
    printf '%s\n' "$lines" | python3 -c '
import json
import sys

command, columns = sys.argv[1], sys.argv[2:]
rows = [json.loads(line) for line in sys.stdin]
assert all(row["bench"] == command for row in rows), "a line of another command"
results = [row for row in rows if "note" not in row]
good = [row for row in results if all((row.get(c) or 0) > 0 for c in columns)]
assert good, f"no row has {columns} above 0"
for row in results:
    for key, value in row.items():
        assert not isinstance(value, float) or value >= 0, f"{key} is {value}"
' "${words[0]}" "$@" || fail "$command: rows"
}

rows gemm m k n fma_peak one_chunk eight_chunks of_peak
rows "gemm --dtype bf16" fp32_one bf16_one fp32_eight bf16_eight of_fp32_eight
rows attention seq dim gflops fma_peak of_peak of_fp32
rows step ms tokens_per_s gflops fma_peak of_peak times_first memory_mb
rows pipeline ms tokens_per_s of_threads limit of_limit processor peak_mb
rows comm ranks bytes us copy_us of_copy
rows cached keys heads groups dim read fp32 bf16 of_read bf16_of_read
rows dispatch ns floor_ns times_floor
rows experts tokens ms gflops dense_ms of_dense
rows memory mb ms gb_per_s copy_gb_per_s of_copy
rows init mb gb_per_s memset_gb_per_s of_memset
rows checkpoint mb ms gb_s plain_ms plain_gb_s of_plain

# The losses of exact layouts are compared, and those of layouts that are not exact are not.
losses=$("$bench" step --quick --json --layouts 1x1,2x2sp,1x1off |
    sed -n 's/.*"same_losses":"\([^"]*\)".*/\1/p' | tr '\n' ' ')
[ "$losses" = "yes yes - " ] || fail "step: same losses: $losses"

# So are those of schedules.
losses=$("$bench" pipeline --quick --json --schedules zb-v@2x1x1,1f1b@4x2x2b |
    sed -n 's/.*"same_losses":"\([^"]*\)".*/\1/p' | tr '\n' ' ')
[ "$losses" = "yes yes yes yes " ] || fail "pipeline: same losses: $losses"

# Other libraries' products of a step, or the rule where there are none.
step=$("$bench" step --quick --json --layouts 1x1 --libraries 2>&1)
case $step in
*'"products":null'*) fail "step --libraries: no products" ;;
*'"products":'*) ;;
*'--libraries needs one of OpenBLAS, oneDNN and BLIS'*) ;;
*) fail "step --libraries: $step" ;;
esac

# A library that multiplies right races; one that takes a transposed B for a plain one is left out before.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/openblas.c" <<'EOF'
#include <stdlib.h>
void openblas_set_num_threads(int threads) { (void)threads; }
char *openblas_get_corename(void) { return "loops"; }
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                 int ldb, float beta, float *c, int ldc)
{
    (void)order, (void)alpha, (void)beta;
    if (getenv("WRONG_PRODUCT"))
        tb = 111;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int p = 0; p < k; p++)
                sum += (ta == 112 ? a[p * lda + i] : a[i * lda + p]) * (tb == 112 ? b[j * ldb + p] : b[p * ldb + j]);
            c[i * ldc + j] = sum;
        }
}
EOF
if cc -O2 -shared -fPIC -o "$folder/libopenblas.so.0" "$folder/openblas.c"; then
    library=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    LD_LIBRARY_PATH=$library rows "gemm --threads 1 --forms NN,NT" openblas of_best
    lines=$(LD_LIBRARY_PATH=$library WRONG_PRODUCT=1 "$bench" gemm --quick --json --threads 1 --forms NN)
    grep -q '"openblas is left out: its product NT of fp32, 37 x 53 x 41, is wrong"' <<<"$lines" || fail "a wrong library: no note"
    grep -q '"openblas":' <<<"$lines" && fail "a wrong library races"
fi

table=$("$bench" memory --quick --threads 1) || fail "memory: status $?"
grep -q '^kernel .*of copy$' <<<"$table" || fail "no titles"
grep -q '^adamw  *1 ' <<<"$table" || fail "no row of adamw"

for words in "" "nothing" "gemm --tp 2" "gemm --device gpu" "gemm --device cuda --dtype fp32" "gemm --shapes 4x5" "experts --shapes 4x5x6x2x3" "decode --shapes 9x64x96" "cached --shapes 70x4x3x16" \
    "attention --shapes 48" "attention --quick --shapes $(printf '48x16,%.0s' {1..65})" "gemm --forms NX" "step --layouts 2y2" \
    "step --model none" "step --exact maybe" "comm --ranks 1" "comm --sizes 3K3" "init --threads 0" \
    "step --layouts 1x1 --seconds" "pipeline --schedules nothing" "pipeline --schedules 1f1b@2x2"; do
    # shellcheck disable=SC2086 # the words are arguments
    "$bench" $words >/dev/null 2>&1
    status=$?
    [ $status = 2 ] || fail "bench $words: status $status, not 2"
done
for command in gemm decode attention step pipeline comm dispatch memory init experts; do
    "$bench" --help | grep "^  $command " >/dev/null || fail "help lacks $command"
    "$bench" $command --help | grep "^  bench $command" >/dev/null || fail "$command: no example in its help"
done
exit $failed
