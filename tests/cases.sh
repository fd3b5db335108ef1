# shellcheck shell=bash disable=SC2034 # for files that source it
# tests/cases.sh - sourced by tests that are scripts: a folder to work in, which goes with the test, a
# line per case with its time, and the sum. The last program run has left its output in out and err.
cases=0 failures=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

skip()
{
    echo "skipped: $1"
    exit 77
}

# choose_python MODULE..: sets python to a python3 that has the modules. Debian's has the packages of Debian, and may not be the
# first one.
choose_python()
{
    for python in ${WEFT_PYTHON:-} python3 /usr/bin/python3; do
        if "$python" -c "import $(IFS=,; echo "$*")" 2>/dev/null; then
            return
        fi
    done
    skip "no python3 has $* (Debian: $(printf 'python3-%s ' "$@"))"
}

# result NAME PROBLEM: no problem is a pass; printed with the time since the last one.
last=$(date +%s%N)
result()
{
    local now file
    now=$(date +%s%N)
    cases=$((cases + 1))
    if [ -z "$2" ]; then
        echo "ok    $1 ($(((now - last) / 1000000)) ms)"
    else
        failures=$((failures + 1))
        echo "FAIL  $1: $2"
        for file in err out; do
            [ ! -e $file ] || tail -n 10 $file | sed "s/^/      $file: /"
        done
    fi
    last=$now
}

# change FILE PROGRAM: an index with `o`, the parsed one, changed by a line of Python, and signed.
change()
{
    python3 - "$1" "$2" <<'END'
import ctypes, json, sys
xxh = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
xxh.restype, xxh.argtypes = ctypes.c_uint64, (ctypes.c_char_p, ctypes.c_size_t)
o = json.load(open(sys.argv[1]))
exec(sys.argv[2])
o["checksum"] = "0" * 16
text = json.dumps(o, ensure_ascii=False).encode()
open(sys.argv[1], "wb").write(text.replace(b'"checksum": "' + b"0" * 16,
                              b'"checksum": "%016x' % xxh(text, len(text)), 1))
END
}

finish()
{
    echo "$((cases - failures)) of $cases cases passed"
    [ $failures = 0 ]
    exit
}
