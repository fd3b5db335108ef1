#!/bin/bash
# test_neon.sh TOP - the vectors of NEON beside those of portable C, where no AArch64 processor is: the inner loops of
# kernels/cpu/simd compile for it, and each vector operation (vectors/vectors.c) has the same bits under qemu. Skipped where
# Debian's cross compiler or qemu is missing; scripts/proofs/aarch64.sh builds and tries everything.
#
# ctest: arguments source, builds plain
set -uo pipefail

# shellcheck source=tests/cases.sh
. "$1/tests/cases.sh"

command -v aarch64-linux-gnu-gcc >/dev/null || skip "there is no aarch64-linux-gnu-gcc (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross)"
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static) || skip "there is no qemu-aarch64 (Debian: qemu-user)"
flags=(-std=gnu11 -D_GNU_SOURCE "-I$1" -Wall -Wextra -Wconversion -Werror)

problem=
aarch64-linux-gnu-gcc "${flags[@]}" -DWF_ISA=neon -fsyntax-only "$1"/kernels/cpu/simd/*.c 2>err || problem="$(head -n 3 err)"
result "the inner loops compile for NEON" "$problem"

# vectors COMPILER ISA OUT: compiles vectors.c without a library.
vectors()
{
    "$1" "${flags[@]}" -DWF_ISA="$2" -O1 -ffp-contract=off -static -o "$3" "$top/tests/kernels/vectors/vectors.c" -lm 2>err
}
top=$1
problem=
vectors cc portable here || problem="it does not compile: $(head -n 3 err)"
vectors aarch64-linux-gnu-gcc neon there || problem="it does not compile: $(head -n 3 err)"
[ -n "$problem" ] || { ./here >wanted && "$qemu" -cpu max ./there >found; } || problem="it does not run"
[ -n "$problem" ] || problem=$(diff wanted found | grep '^[<>]' | head -n 4)
[ -n "$problem" ] || [ "$(wc -l <wanted)" -gt 30 ] || problem="it prints few operations"
result "vector operations of NEON have the bits of portable C" "$problem"
finish
