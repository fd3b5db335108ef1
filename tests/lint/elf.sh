#!/bin/bash
# elf.sh FOLDER - programs and libraries below it: the loader looks for what they need in folders that
# are named whole or by their own place ($ORIGIN), never in the working directory, which an empty or
# a relative element means; addresses are resolved before main() and read-only then; no stack can be
# executed; functions with arrays look at their stack; what each thread has of its own is small, since
# every rank is a thread and pays for it at its start. First of all, a program without these has to be
# found.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# problems FILE: what is wrong with it, a word each.
problems()
{
    local all path element
    all=$(readelf -W -d -l "$1" 2>/dev/null)
    if [[ $all =~ \((RPATH|RUNPATH)\)[^[]*\[([^]]*)\] ]]; then
        path=${BASH_REMATCH[2]}
        while IFS= read -r -d : element; do
            [[ $element == /* || $element == "\$ORIGIN"* ]] || echo "path:'$path'"
        done <<<"$path:"
    fi
    [[ $all =~ BIND_NOW|Flags:[^$'\n']*\ NOW ]] || echo "no-now"
    [[ $all == *GNU_RELRO* ]] || echo "no-relro"
    [[ $all =~ GNU_STACK[^$'\n']*\ RW\ +0x ]] || echo "executable-stack"
    if [[ $all =~ [^A-Z]TLS\ +0x[0-9a-f]+\ +0x[0-9a-f]+\ +0x[0-9a-f]+\ +0x[0-9a-f]+\ +(0x[0-9a-f]+) ]]; then
        [ $((BASH_REMATCH[1])) -le 12288 ] || echo "thread-locals:$((BASH_REMATCH[1]))"
    fi
}

echo '_Thread_local char large[20000]; int main(void) { return 0; }' >"$work/bad.c"
if cc "$work/bad.c" -o "$work/bad" -Wl,-rpath,/lib:,-z,lazy,-z,norelro,-z,execstack 2>/dev/null; then
    found=$(problems "$work/bad" | wc -l)
    [ "$found" = 5 ] || { echo "elf: $found of 5 problems found, so this check is blind"; exit 1; }
fi

files=0 failed=0
while IFS= read -r -d '' file; do
    LC_ALL=C IFS= read -r -n 4 -d '' first <"$file" 2>/dev/null
    [ "${first:1}" = ELF ] || continue
    files=$((files + 1))
    said=$(problems "$file" | tr '\n' ' ')
    [ -z "$said" ] || { echo "elf: $file: $said"; failed=$((failed + 1)); }
done < <(find "$1" -type f \( -perm -u+x -o -name '*.so*' \) \
    ! -path '*/CMakeFiles/*' ! -path '*/site-packages/*' ! -path '*/compare-torch/*' ! -path '*/tests/lint/*' -print0)
for library in "$1"/libweft.so.*; do
    grep -q __stack_chk_fail < <(readelf -W -s "$library") ||
        { echo "elf: $library: no stack protector" && failed=1; }
done
echo "elf: $files files, $failed of them with a problem"
[ $files -gt 10 ] && [ $failed = 0 ]
