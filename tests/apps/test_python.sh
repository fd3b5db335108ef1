#!/bin/bash
# test_python.sh TOP BUILD - the Python module (apps/python/weft) by pytest, and its types by mypy where that is there.
#
# ctest: arguments source build, builds plain
set -uo pipefail

top=$1
build=$2
# shellcheck source=tests/cases.sh
. "$top/tests/cases.sh"

# Debian's python3 has the packages of Debian, and may not be the first one.
python=
for one in ${WEFT_PYTHON:-} python3 /usr/bin/python3; do
    if "$one" -c "import numpy, pytest" 2>/dev/null; then
        python=$one
        break
    fi
done
[ -n "$python" ] || skip "no python3 has numpy and pytest (Debian: python3-numpy, python3-pytest)"

export PYTHONPATH=$top/apps/python WEFT_LIBRARY=$build/apps/libweft_python.so WEFT_TRAIN=$build/apps/gpt_train
export PYTHONDONTWRITEBYTECODE=1
problem=
"$python" -m pytest -q -p no:cacheprovider "$top/tests/apps/python_module.py" >out 2>err || problem="it fails"
result "pytest: $(tail -n 1 out)" "$problem"
if "$python" -c "import mypy" 2>/dev/null; then
    problem=
    "$python" -m mypy --strict --cache-dir "$work/mypy" "$top/apps/python/weft" >out 2>err || problem="types are wrong"
    result "mypy --strict" "$problem"
else
    echo "skipped: mypy is not there"
fi
finish
