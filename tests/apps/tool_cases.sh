# tests/apps/tool_cases.sh - cases of a tool, a program that is called and ends: `program` is which one.
# shellcheck shell=bash
# shellcheck source=tests/cases.sh
. "$(dirname "$0")/../cases.sh"

# tool NAME STATUS FLAG...: stdout is in out, stderr in err.
tool()
{
    name=$1
    local status=$2 got problem=''
    shift 2
    "$program" "$@" >out 2>err
    got=$?
    [ $got = "$status" ] || problem="exit status $got, not $status"
    result "$name" "$problem"
}

# says FILE PATTERN...: the last one's file has each of them.
says()
{
    local file=$1 pattern problem=''
    shift
    for pattern in "$@"; do
        grep -qE -- "$pattern" "$file" || problem+=" '$pattern' is not in $file;"
    done
    result "$name: $file" "$problem"
}
