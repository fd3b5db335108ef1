#!/bin/bash
# test_wheel.sh TOP BUILD - scripts/wheel.sh makes a wheel of the build; pip installs it, and its programs and its module work from
# where they lie then, with the digests of the build.
#
# ctest: arguments source build, builds plain, cost 20
set -uo pipefail

top=$1
build=$2
# shellcheck source=tests/cases.sh
. "$top/tests/cases.sh"

command -v patchelf >/dev/null || skip "there is no patchelf (Debian: patchelf)"
choose_python numpy pip

problem=
"$top/scripts/wheel.sh" --no-build "$build" "$work" >out 2>err || problem="it fails"
result "a wheel: $(sed -n '1s/.*\///p' out)" "$problem"
problem=
"$python" -m pip install --quiet --no-index --no-deps --no-compile --disable-pip-version-check --root-user-action=ignore \
    --target "$work/site" "$work"/weft-*.whl >out 2>err || problem="it fails"
result "pip installs it" "$problem"

# in_site COMMAND..: with what is installed there, and nothing of the build.
in_site()
{
    env -u LD_LIBRARY_PATH -u WEFT_LIBRARY PYTHONPATH="$work/site" "$@"
}

seq 20000 >text
train=(--data text --n-layer 1 --n-head 2 --n-embd 16 --seq-len 32 --global-batch-size 4 --steps 2 --digest=on)
"$build/apps/gpt_train" "${train[@]}" --log-jsonl wanted.jsonl >out 2>err
in_site "$work/site/bin/weft" train "${train[@]}" --dp 2 --log-jsonl found.jsonl --save saved >out 2>err
result "weft train has the digest of the build" "$("$python" - <<'END'
import json
wanted, found = ([json.loads(row).get("digest") for row in open(name)][1:] for name in ("wanted.jsonl", "found.jsonl"))
if wanted != found or None in wanted or len(wanted) != 2:
    print(wanted, found)
END
)"
problem=
in_site "$python" -m weft generate saved --tokenizer bytes --prompt 12 --max-new-tokens 4 >out 2>err && [ -s out ] || problem="it fails"
result "python -m weft generate" "$problem"
result "its version has no plugins" "$(in_site "$work/site/bin/weft" --version | grep -q 'plugins here: none$' || echo "it names some")"
problem=
in_site "$work/site/bin/weft" plan --tp 2 --n-layer 2 --machine "$work/site/weft/machines/h100.json" >out 2>err || problem="it fails"
result "weft plan" "$problem"
problem=
in_site "$python" -c '
import json, weft
run = weft.Run(data="text", n_layer=1, n_head=2, n_embd=16, seq_len=32, global_batch_size=4, steps=2, tp=2, eval_interval=100, lr=1e-3)
print(weft.__file__, run.step().step, weft.plan(tp=2, machine="h100").report[:20])
run.close()' >out 2>err || problem="it fails"
result "import weft" "$problem"
result "names of its own" "$(in_site ldd "$work"/site/weft/bin/* "$work"/site/weft/lib/* |
    grep -E 'not found|=>.*(jansson|hwloc|pcre2|utf8proc|xxhash|protobuf|udev)' | grep -v "=> $work/site/weft/" | head -n 3)"
finish
