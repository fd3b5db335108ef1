#!/bin/bash
# debian_root.sh [--suite NAME] [--mirror URL] [--corpus FILE] ROOT WEFT.deb [PLUGIN.deb...] - installs Weft's Debian packages in a
# clean Debian and does there what README.md and docs/quickstart.md say, as root.
#
# Makes ROOT by debootstrap (a ROOT with a system in it is kept), installs the packages with apt, which finds what they depend on,
# and then: the first two commands of README.md, whose output has to be what stands there; the program of docs/quickstart.md,
# built by pkg-config and by CMake; pages of the manual, checked by mandoc; a transport or device for each plugin, which has to
# work or to say what is missing; at last they are purged, and nothing of theirs may be left. lintian looks at the packages where
# it is installed; what it says of a package of a distribution alone is not asked: see `aside`.
#
# --corpus: the text that README.md trains on, as scripts/corpus.sh makes it (which is called without it).
# Status 1: something is wrong; 2: something is missing.
set -euo pipefail

# shellcheck source=scripts/bare_root.sh
. "$(dirname "$0")/bare_root.sh"
take_options "$@"
set -- "${rest[@]}"
if [ $# -lt 2 ] || [ ! -f "$2" ]; then
    show_usage "$0"
    exit 2
fi
tree=$(cd "$(dirname "$0")/.." && pwd)
root=$1
shift
wrong=0

for program in debootstrap unshare mandoc; do
    if ! command -v $program >/dev/null; then
        echo "debian_root: no $program: apt-get install debootstrap util-linux mandoc" >&2
        exit 2
    fi
done

say()
{
    if [ "$2" = 0 ]; then
        echo "ok    $1"
    else
        echo "FALSE $1"
        sed 's/^/      /' "$root/tmp/said" 2>/dev/null | tail -n 20
        wrong=1
    fi
}

check()
{
    local status=0

    in_root "$root" "$2" >"$root/tmp/said" 2>&1 || status=1
    say "$1" $status
}

# What is said of a package for a distribution, or of plugins, which are no libraries to link with and look where CUDA and MPI are.
aside=no-changelog,uncompressed-manual-page,package-name-doesnt-match-sonames,link-to-shared-library-in-wrong-package
aside+=,sharedobject-in-library-directory-missing-soname,custom-library-search-path,maintscript-calls-ldconfig
aside+=,copyright-without-copyright-notice,pkg-config-unavailable-for-cross-compilation
make_root "$root"
if command -v lintian >/dev/null; then
    status=0
    lintian --allow-root --fail-on error,warning --suppress-tags "$aside" "$@" >"$root/tmp/said" 2>&1 || status=1
    say "lintian" "$status"
fi
in_root "$root" "apt-get update -qq && apt-get purge -y -qq 'weft*' && apt-get autoremove -y -qq" >"$root/tmp/said" 2>&1 || true
mkdir -p "$root/tmp/weft"
rm -rf "$root"/tmp/weft/*
cp "$@" "$root/tmp/weft"
in_root "$root" "find /usr /etc /var/lib -name '*weft*' | sort" >"$root/tmp/before"
check "apt installs $(printf '%s ' "$@" | sed 's:[^ ]*/::g')" "apt-get install -y --no-install-recommends /tmp/weft/*.deb"
check "libraries are found" "ldd /usr/bin/gpt_train /usr/lib/libweft.so.0.1 | grep 'not found' && exit 1; weft --version"

# README.md: commands begin with $, what follows is what they print.
bring_corpus "$root/tmp/corpus.txt"
awk '/^```console/ { on = 1; next } /^```/ { if (on) exit } on' "$tree/README.md" |
    sed 's:build/apps/::; s:build/corpus.txt:/tmp/corpus.txt:' >"$root/tmp/session"
sed -n 's/^\$ //p' "$root/tmp/session" >"$root/tmp/commands.sh"
grep -v '^\$' "$root/tmp/session" >"$root/tmp/wanted"
check "README.md's first commands print what stands there" "bash /tmp/commands.sh | diff /tmp/wanted -"

for page in "$root"/usr/share/man/man1/*.1; do
    mandoc -T lint -W warning "$page"
done >"$root/tmp/said" 2>&1 && status=0 || status=1
say "pages of the manual are clean" "$status"

# docs/quickstart.md
awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' "$tree/docs/quickstart.md" >"$root/tmp/weft/quickstart.c"
sed -n 's/^    \(\(cmake_minimum_required\|project\|find_package\|add_executable\|target_link_libraries\)(.*\)/\1/p' \
    "$tree/docs/quickstart.md" >"$root/tmp/weft/CMakeLists.txt"
check "a compiler, pkg-config and CMake" "apt-get install -y --no-install-recommends gcc libc6-dev make cmake pkg-config"
# shellcheck disable=SC2016 # the root's shell expands it
check "quickstart.c by pkg-config" 'cd /tmp/weft && cc quickstart.c $(pkg-config --cflags --libs weft) -o plain && ./plain >plain.txt'
check "quickstart.c by CMake" 'cd /tmp/weft && cmake -S . -B made >/dev/null && cmake --build made && made/quickstart --tp 4 --dp 1 |
    diff plain.txt - && grep "^step 100" plain.txt'

# Plugins: ranks over MPI where that is installed; a device that is not there is reported.
for package in "$@"; do
    case $(dpkg-deb -f "$package" Package) in
    weft-mpi)
        check "weft-mpi: two processes" "apt-get install -y --no-install-recommends openmpi-bin openssh-client && cd /tmp &&
            mpirun --allow-run-as-root --oversubscribe -np 2 gpt_train --data corpus.txt --n-head 8 --n-embd 128 --n-layer 2 \
            --steps 3 --digest --tp 2 --dp 1 | sed 's/^.*step/step/' | awk '/^step [0-9]/ { print \$1, \$2, \$3, \$4, \"digest\", \$NF }' | diff <(head -n 3 wanted) -"
        ;;
    weft-cuda)
        if ! in_root "$root" "gpt_train --device cuda --data /tmp/corpus.txt --steps 1" >"$root/tmp/said" 2>&1 &&
            grep -qE 'cannot be loaded: libcu|no NVIDIA driver' "$root/tmp/said"; then
            status=0
            sed 's/^/      /' "$root/tmp/said"
        else
            status=1
        fi
        say "weft-cuda: without a GPU it says so" "$status"
        ;;
    esac
done

check "they are purged" "apt-get purge -y 'weft*' && ldconfig"
in_root "$root" "find /usr /etc /var/lib -name '*weft*' | sort" | diff "$root/tmp/before" - >"$root/tmp/said" && status=0 || status=1
say "and leave nothing" "$status"
exit $wrong
