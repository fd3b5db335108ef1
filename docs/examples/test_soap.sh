#!/bin/sh
# test_soap.sh SOAP - soap.c on meshes of tp, dp and pp: the digest of one rank, from a checkpoint of another mesh too, and
# traffic as planned.
# shellcheck disable=SC2086
set -eu
program=$1 mesh="--pp 2 --tp 2 --dp 2 --micro-batch-size 1"
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=docs/examples/layouts.sh
. "$here/layouts.sh"

one=$("$program" 2>/dev/null | tail -1)
case $one in digest*) ;; *) fail "no digest" ;; esac
for layout in "--dp 2 --tp 2" "--dp 4" "--pp 2 --micro-batch-size 2"; do
    [ "$("$program" $layout 2>/dev/null | tail -1)" = "$one" ] || fail "another digest with $layout"
done
"$program" $mesh --save saved --save-interval 6 --rank 7 --comm-report >run 2>/dev/null
[ "$(grep '^digest' run)" = "$one" ] || fail "another digest on eight ranks"
[ "$("$program" --resume saved/step-00000006 --dp 4 2>/dev/null | tail -1)" = "$one" ] ||
    fail "another digest on four ranks from a checkpoint of eight"
moves_as_planned $mesh --rank 7
