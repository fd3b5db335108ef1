#!/bin/bash
# wheel_root.sh [--suite NAME] [--mirror URL] [--corpus FILE] ROOT WHEEL - a wheel in a bare Debian or Ubuntu, as root: Python, venv and pip
# are there, and no compiler. Installs it, trains on real text, continues a text with what it has trained, plans, and makes steps in
# Python on tp 4 x dp 2; says how long each took.
#
# Makes ROOT by debootstrap (a ROOT with a system in it is kept): --suite bookworm by default, --suite noble with
# --mirror http://archive.ubuntu.com/ubuntu. pip gets numpy from where it is configured to. --corpus: text, as scripts/corpus.sh makes
# it (which is called without it). Status 1: something fails; 2: something is missing.
set -euo pipefail

# shellcheck source=scripts/bare_root.sh
. "$(dirname "$0")/../bare_root.sh"
take_options "$@"
set -- "${rest[@]}"
if [ $# != 2 ] || [ ! -f "$2" ]; then
    show_usage "$0"
    exit 2
fi
root=$1
for program in debootstrap unshare; do
    command -v $program >/dev/null || { echo "wheel_root: no $program: apt-get install debootstrap util-linux" >&2 && exit 2; }
done
make_root "$root" --components=main,universe --include=python3,python3-venv,python3-pip,ca-certificates
rm -rf "$root/root/weft"
mkdir "$root/root/weft"
cp "$2" /etc/ssl/certs/ca-certificates.crt "$root/root/weft/"
bring_corpus "$root/root/weft/corpus.txt"
cat >"$root/root/weft/do.sh" <<'END_OF_ROOT'
cd /root/weft
export PIP_CERT=/root/weft/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1
failed=0
for compiler in cc gcc clang tcc; do
    ! command -v $compiler || failed=1
done
TIMEFORMAT='    %R s, %U s of a processor'
# step NAME COMMAND..
step()
{
    echo "$1"
    shift
    time "$@" >out 2>&1 || { failed=1 && echo "    FAILED" && tail -n 5 out; }
}
. /etc/os-release
echo "$PRETTY_NAME, $(python3 --version)"
begin=$(date +%s%N)
step "a virtual environment" python3 -m venv venv
. venv/bin/activate
step "pip install" pip install --quiet weft-*.whl
step "weft train, 30 steps on tp 2 x dp 2" weft train --data corpus.txt --tp 2 --dp 2 --steps 30 --n-layer 2 --n-embd 128 --n-head 4 \
    --seq-len 128 --global-batch-size 8 --save run
grep -E '^step( 1|30)/' out
step "weft generate" weft generate run --tokenizer bytes --prompt "In the beginning" --max-new-tokens 40
step "weft plan" weft plan --model llama-3.1-8b --dp 8 --tp 8
step "import weft, 3 steps on tp 4 x dp 2, a plan" python3 -c '
import numpy, weft
with weft.Run(n_layer=2, n_head=8, n_embd=64, seq_len=32, global_batch_size=8, tp=4, dp=2, lr=1e-3) as run:
    for step in range(3):
        print(run.step(numpy.random.default_rng(step).integers(0, 256, (8, 33))).digest)
weft.plan(model="llama-3.1-8b", tp=8, dp=8, machine="h100")'
cat out
echo "together $((($(date +%s%N) - begin) / 1000000)) ms"
exit $failed
END_OF_ROOT
in_root "$root" "bash /root/weft/do.sh"
