#!/bin/bash
# install.sh BUILD WORK CC CXX - installs a built tree below WORK and uses it as a stranger would:
# every header compiles alone as C11, and as C++11; a program builds and runs through CMake's
# find_package and through pkg-config; after the installed tree was moved, too; the examples of
# docs/examples, which bring an op (for GPUs too, by nvcc), a module and a style of their own, build and
# pass; the library shows wf_ symbols only; programs have their manual pages, with all flags, and
# completion; license and documentation are there. First of all, a header that does not compile has
# to be found.
set -euo pipefail

build=$1 work=$2 cc=$3 cxx=$4
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/prefix"
include=$work/prefix/include

# whole LIST: every header of a list is a whole in C11 by itself, and all are one in C++11, whose compiler needs what C's
# does.
whole()
{
    local header n=0
    rm -rf "$work/alone"
    mkdir "$work/alone"
    while IFS= read -r header; do
        n=$((n + 1))
        printf '#include "%s"\nint not_empty;\n' "$header" >"$work/alone/$n.c"
        printf '#include "%s"\n' "$header" >>"$work/alone/all.cc"
    done <"$1"
    "$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$include" -fsyntax-only "$work"/alone/*.c &&
        "$cxx" -std=c++11 -Wall -Wextra -Wpedantic -Werror -I"$include" -fsyntax-only "$work/alone/all.cc"
}

echo 'int half(void' >"$work/broken.h"
echo 'size_t leans_on_others(void);' >"$work/leans.h"
echo 'static inline int *new(void *class) { return class; }' >"$work/only_c.h"
find "$include" -name '*.h' | sort >"$work/headers"
for bad in broken leans only_c; do
    (head -2 "$work/headers" && echo "$work/$bad.h") >"$work/with_bad"
    if whole "$work/with_bad" 2>/dev/null; then
        echo "install: $bad.h compiled, so this check is blind" >&2
        exit 1
    fi
done
whole "$work/headers"
echo "install: $(wc -l <"$work/headers") headers compile alone"
[ "$(wc -l <"$work/headers")" -gt 1 ]

cat >"$work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES C)
find_package(weft 0.1 REQUIRED)
add_executable(consumer $here/consumer.c)
target_link_libraries(consumer weft::weft)
END
cmake -S "$work" -B "$work/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$work/prefix" \
    >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/consumer"

nvcc=$(command -v nvcc || compgen -G '/usr/local/cuda*/bin/nvcc' | head -1 || true)
# What is built runs for moments, and code for GPUs not at all: optimisers take longer than they save.
flags=(-DCMAKE_C_FLAGS=-Werror "-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG")
if [ -n "$nvcc" ]; then
    export CUDACXX=$nvcc
    flags+=(-DCMAKE_CUDA_FLAGS=-Werror=all-warnings "-DCMAKE_CUDA_FLAGS_RELEASE=-O1 -DNDEBUG -Xcicc=-O1 -Xptxas=-O0")
fi
cmake -S "$here/../../docs/examples" -B "$work/examples" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_PREFIX_PATH="$work/prefix" "${flags[@]}" >/dev/null
cmake --build "$work/examples" -j 2 >/dev/null
if [ -z "$nvcc" ]; then
    echo "install: SKIPPED: no nvcc, so my_op.cu and the headers in CUDA C++ are not compiled"
elif [ -z "$(find "$work/examples" -name my_op.cu.o)" ]; then
    echo "install: $nvcc is here, and the examples left my_op.cu out" >&2
    exit 1
fi
# A tenth of the steps that digits takes until it reads well (`ctest -R digits` takes all): the digests are equal from the first.
sh "$here/../../docs/examples/test_digits.sh" "$work/examples/digits" "$here/../../docs/examples/digits.txt" 40
ctest --test-dir "$work/examples" -E '^digits$' --output-on-failure --no-tests=error -j 2

pc=$(find "$work/prefix" -name weft.pc)
library=$(cd "$(dirname "$pc")/.." && pwd)
export PKG_CONFIG_PATH=${pc%/*}
# shellcheck disable=SC2046 # the flags are words
"$cc" -std=c11 "$here/consumer.c" -o "$work/by_pkg_config" $(pkg-config --cflags --libs weft)
LD_LIBRARY_PATH=$library "$work/by_pkg_config"
# shellcheck disable=SC2046 # as docs/quickstart.md says, the flags are words
"$cc" -std=c11 "$here/consumer.c" -o "$work/by_rpath" $(pkg-config --cflags --libs weft) \
    -Wl,-rpath,"$(pkg-config --variable=libdir weft)"
"$work/by_rpath"

# shellcheck disable=SC2046 # the flags are words
"$cc" -std=c11 "$here/text_consumer.c" -o "$work/of_text" $(pkg-config --cflags --libs weft-text)
LD_LIBRARY_PATH=$library "$work/of_text"
needs=$(ldd "$library/libweft.so")
if grep -q 'pcre2\|utf8proc' <<<"$needs"; then
    echo "install: libweft needs what is libweft_text's" >&2
    exit 1
fi

names=$(nm -D --defined-only "$library/libweft.so" "$library/libweft_text.so" | awk '{ print $3 }')
# _exit and _Exit stand before libc's for ranks that call it and for lost hosts (parallel/recovery/outlast.c).
strangers=$(grep -v '^\(wf_\|_init$\|_fini$\|_exit$\|_Exit$\|$\)' <<<"$names" || true)
for prefix in wf_tok_ wf_chat_ wf_gen_ wf_dataset_ wf_plan_ wf_par_run wf_run_log_; do
    grep -q "^$prefix" <<<"$names" ||
        { echo "install: no function of the libraries begins with $prefix" >&2; exit 1; }
done
if [ -n "$strangers" ]; then
    echo "install: the library shows symbols that are not wf_: $strangers" >&2
    exit 1
fi

# pages BIN MAN: every program in BIN runs, and MAN has its page, with all flags of its help.
pages()
{
    local program page text flag bad=0

    for program in "$1"/*; do
        page=$2/${program##*/}.1
        [ -s "$page" ] || { echo "install: no page for ${program##*/}" >&2; bad=1; continue; }
        text=$(sed 's/\\-/-/g' "$page")
        while IFS= read -r flag; do
            [[ $text == *"$flag"* ]] ||
                { echo "install: $page does not have $flag" >&2; bad=1; }
        done < <("$program" --help | grep -o -e '--[a-z][a-z-]*' | sort -u)
    done
    return $bad
}

if [ -x "$work/prefix/bin/gpt_train" ]; then
    for program in ckpt gpt_data gpt_diff gpt_export gpt_train mesh_info recorder_diff schedule weft; do
        [ -x "$work/prefix/bin/$program" ] || { echo "install: no $program" >&2; exit 1; }
    done
    share=$work/prefix/share
    if pages "$work/prefix/bin" "$work" 2>/dev/null; then
        echo "install: pages were found where there are none, so this check is blind" >&2
        exit 1
    fi
    pages "$work/prefix/bin" "$share/man/man1"
    # shellcheck disable=SC1091 # it is made by the build
    (source "$share/bash-completion/completions/gpt_train" && complete -p gpt_train >/dev/null)
    head -1 "$share/zsh/site-functions/_gpt_train" | grep -q '^#compdef gpt_train$'
fi
# links PAGES: every link between files leads to one. First one that does not has to be found.
links()
{
    python3 - "$1" <<'END'
import pathlib, re, sys
dead, seen = 0, 0
for page in sorted(pathlib.Path(sys.argv[1]).rglob("*.md")):
    for target in re.findall(r"\]\(([^)#: ]+)[)#]", page.read_text()):
        seen += 1
        if not (page.parent / target).exists():
            print(f"install: {page.name} has a link to {target}, which is not installed", file=sys.stderr)
            dead += 1
sys.exit(dead > 0 or seen == 0)
END
}
mkdir "$work/links"
echo '[nothing](nothing.md)' >"$work/links/page.md"
if links "$work/links" 2>/dev/null; then
    echo "install: a link that leads nowhere was not found, so this check is blind" >&2
    exit 1
fi
links "$work/prefix/share/doc/weft"
for file in LICENSE README.md SECURITY.md docs/README.md docs/examples/CMakeLists.txt; do
    [ -s "$(find "$work/prefix" -path "*/doc/weft/$file")" ] ||
        { echo "install: $file is not there" >&2; exit 1; }
done
