#!/bin/bash
# test_python.sh TOP BUILD - the Python module (apps/python/weft) by pytest, its types by mypy and the notebook by nbclient where these are
# there, and the examples of docs/examples/python.
#
# ctest: arguments source build, builds plain, cost 60
set -uo pipefail

top=$1
build=$2
# shellcheck source=tests/cases.sh
. "$top/tests/cases.sh"

choose_python numpy pytest
export PYTHONPATH=$top/apps/python WEFT_LIBRARY=$build/apps/libweft_python.so WEFT_TRAIN=$build/apps/gpt_train
export PYTHONDONTWRITEBYTECODE=1
problem=
"$python" -m pytest -q -p no:cacheprovider "$top"/tests/apps/python_{module,mistakes}.py >out 2>err || problem="it fails"
result "pytest: $(tail -n 1 out)" "$problem"
if "$python" -c "import mypy" 2>/dev/null; then
    problem=
    "$python" -m mypy --strict --cache-dir "$work/mypy" "$top/apps/python/weft" >out 2>err || problem="types are wrong"
    result "mypy --strict" "$problem"
else
    echo "skipped: mypy is not there"
fi
examples=$top/docs/examples/python
problem=
"$python" "$examples/rl.py" >out 2>err && grep -q "all 480 ratios are 1" out || problem="it fails"
result "rl.py: all ratios are 1" "$problem"
for i in $(seq 60); do
    echo "{\"text\": \"row $i of a small file, $i times $i is $((i * i)): $(seq -s, "$i")\"}"
done >rows.jsonl
problem=
"$python" "$examples/dataset.py" rows.jsonl 3 >out 2>err || problem="it fails"
result "dataset.py" "$problem"
mkdir logger
cat >logger/wandb.py <<'END'
def init(project, config=None): return print("init", project, len(config or {}) > 5) or 1
def log(row, step): print("log", step, sorted(row)[:3])
def finish(): print("finish")
END
seq 20000 >text
"$WEFT_TRAIN" --data text --n-layer 1 --n-head 2 --n-embd 16 --seq-len 16 --steps 2 --eval-interval 0 --log-jsonl run.jsonl >out 2>err
PYTHONPATH=logger "$python" "$examples/log_rows.py" run.jsonl wandb mine 0.5 >out 2>err
result "log_rows.py" "$([ "$(cut -d' ' -f1,2 out | tr '\n' ' ')" = "init mine log 1 log 2 finish " ] || echo "other rows")"
if "$python" -c "import nbclient, ipykernel, matplotlib" 2>/dev/null; then
    problem=
    "$python" - "$examples/weft.ipynb" >out 2>err <<'END' || problem="a cell fails"
import nbclient, nbformat, sys
nbclient.NotebookClient(nbformat.read(sys.argv[1], 4), timeout=120, kernel_name="python3").execute()
END
    result "the notebook" "$problem"
else
    echo "skipped: nbclient, ipykernel or matplotlib is not there for the notebook"
fi
finish
