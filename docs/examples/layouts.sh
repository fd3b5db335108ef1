# layouts.sh - read by tests that run $program, an example, on other layouts: in a folder of their own, which is gone with them.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

fail()
{
    echo "${program##*/}: $1" >&2
    exit 1
}

# moves_as_planned FLAG..: what a run moves over each axis, in the file run, is what its plan says, in the file plan.
moves_as_planned()
{
    "$program" --plan "$@" >plan
    "$program" "$@" --comm-report >run 2>/dev/null
    for file in plan run; do
        sed -n '/axis  *ranks/,/^$/p' $file | grep -E '^  (pp|dp|tp|world) ' >$file.moved
    done
    [ -s plan.moved ] && cmp -s plan.moved run.moved || fail "a run moves what its plan does not say"
}
