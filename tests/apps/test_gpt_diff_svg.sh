#!/bin/bash
# test_gpt_diff_svg.sh GPT_DIFF - gpt_diff --svg: curves lie where their numbers are, gaps stay gaps, names are text and
# nothing else, many steps become few points, and mistakes are reported.
#
# ctest: arguments gpt_diff, timeout 60, builds plain
set -uo pipefail

program=$1
# shellcheck source=tests/apps/tool_cases.sh
. "$(dirname "$0")/tool_cases.sh"

python3 - <<'END'
import json
def log(path, rows):
    with open(path, "w") as out:
        out.write(json.dumps({"mesh": {"dp": 1}, "numerics": "00"}) + "\n")
        for row in rows:
            out.write(json.dumps(row) + "\n")
def row(step, loss, validation=None):
    return {"step": step, "loss": loss, "loss_bits": str(loss), "val_loss": validation}
log("a.jsonl", [row(n, 5.0 - n / 25, 4.5 - n / 25 if n % 25 == 0 else None) for n in range(1, 101)])
log("b.jsonl", [row(n, 5.0 - n / 25 - (n > 60) / 10) for n in range(1, 101)])
log("a&<b>.jsonl", [row(1, 3.0), row(2, None), row(3, 2.0), row(4, 1.5)])
log("long.jsonl", [row(n, 3 + (n * 7919 % 100) / 1000) for n in range(1, 100001)])
log("one.jsonl", [row(7, 2.5)])
log("none.jsonl", [row(1, None)])
END

tool "one run" 0 --svg one.svg a.jsonl
says one.svg '^<svg ' '>Loss by step<' '>step<' '>loss, nats a token<' '>a.jsonl: loss 1.0000 at last, of validation 0.5000<' '^</svg>$'
python3 - >problem <<'END'
import re, xml.etree.ElementTree as tree
root = tree.parse("one.svg").getroot()
space = "{http://www.w3.org/2000/svg}"
paths = [p.get("d") for p in root.iter(space + "path")]
if len(paths) != 2 or len(list(root.iter(space + "circle"))) != 4: print("curves:", len(paths))
if root.find(space + "rect").get("fill") != "white": print("it is not on white")
# Ticks say what a pixel means; the curve has to agree with them.
words = [(float(t.get("x")), float(t.get("y")), t.text) for t in root.iter(space + "text")]
ys = sorted((y - 4, float(w)) for x, y, w in words if re.fullmatch(r"[\d.]+", w) and x < 70)
xs = sorted((x, float(w)) for x, y, w in words if re.fullmatch(r"[\d.]+", w) and x >= 70)
def value(at, ticks): return ticks[0][1] + (at - ticks[0][0]) / (ticks[-1][0] - ticks[0][0]) * (ticks[-1][1] - ticks[0][1])
points = [tuple(map(float, p.split(","))) for p in re.findall(r"[-\d.]+,[-\d.]+", paths[0])]
if len(points) != 100: print("points:", len(points))
for n, (x, y) in enumerate(points, 1):
    if abs(value(x, xs) - n) > 0.2 or abs(value(y, ys) - (5 - n / 25)) > 0.01: print("step", n, "is at", value(x, xs), value(y, ys))
END
result "the curve is where its numbers are" "$(cat problem)"

tool "two runs that differ" 1 --svg two.svg a.jsonl b.jsonl
says out '^step 61: loss is'
says two.svg '>they differ from step 61 on<' '>b.jsonl: loss 0.9000 at last<'
tool "two runs alike" 0 --svg same.svg a.jsonl a.jsonl
result "nothing is marked" "$(grep -o 'they differ' same.svg)"
tool "a gap and a name" 0 --svg gap.svg 'a&<b>.jsonl'
says gap.svg '>a&amp;&lt;b>.jsonl: ' 'd="M[0-9.]+,[0-9.]+ M[0-9.]+,[0-9.]+ L[0-9.]+,[0-9.]+"'
tool "many steps" 0 --svg long.svg long.jsonl
result "few points" "$([ "$(wc -c <long.svg)" -lt 200000 ] || wc -c long.svg)"
tool "one step" 0 --svg step.svg one.jsonl
says step.svg '<circle|<path[^>]*d="M'
tool "eight runs" 0 --svg eight.svg a.jsonl b.jsonl a.jsonl b.jsonl a.jsonl b.jsonl a.jsonl b.jsonl
result "eight colours" "$([ "$(grep -o '<path[^>]*stroke="#[0-9a-f]*"' eight.svg | sort -u | wc -l)" = 8 ] || echo no)"
tool "nine runs" 2 --svg nine.svg a.jsonl b.jsonl a.jsonl b.jsonl a.jsonl b.jsonl a.jsonl b.jsonl a.jsonl
says err 'one to 8 files'
tool "no run" 2 --svg none.svg
tool "no loss" 3 --svg none.svg none.jsonl
says err 'no step has a loss'
tool "a log that is missing" 3 --svg none.svg nowhere.jsonl
says err 'cannot read nowhere.jsonl'
tool "a picture nowhere" 3 --svg nowhere/a.svg a.jsonl
says err 'cannot write nowhere/a.svg'
# Files that may not become larger are reported by each program, and no signal ends it.
(ulimit -f 4 && exec "$program" --svg large.svg long.jsonl) >out 2>err
result "no room" "$([ $? = 3 ] || echo "exit status $?"; grep -q 'cannot write large.svg: File too large' err || cat err)"
finish
