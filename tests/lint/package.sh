#!/bin/bash
# package.sh BUILD WORK CC - the Debian packages of a built tree, unpacked in a root of their own: what they depend on
# is what their files need, all is where Debian has it, the docs/examples build against it, and its programs run.
set -euo pipefail

build=$1 work=$2 cc=$3
for program in dpkg-deb dpkg-shlibdeps cpack; do
    command -v $program >/dev/null || { echo "package: skipped: there is no $program"; exit 77; }
done
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$work"
mkdir -p "$work"
# As Ninja it takes the tree as it is, and builds nothing.
(cd "$build" && cpack -G DEB -D CPACK_CMAKE_GENERATOR=Ninja -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip -B "$work/packages" >"$work/log" 2>&1) ||
    { cat "$work/log"; exit 1; }
root=$work/root
shopt -s nullglob
for package in "$work"/packages/*.deb; do
    echo "package: ${package##*/} depends on $(dpkg-deb -f "$package" Depends)"
    dpkg-deb -x "$package" "$root"
done

# depends PACKAGE NAME...: the package says that it needs each of them.
depends()
{
    local all name
    all=$(dpkg-deb -f "$work/packages/$1"_*.deb Depends)
    for name in "${@:2}"; do
        [[ ", $all" == *", $name"[\ ,\)]* || ", $all" == *", $name" ]] ||
            { echo "package: $1 does not depend on $name, but on: $all" >&2; exit 1; }
    done
}
if (depends weft libnothing) 2>/dev/null; then
    echo "package: a dependency was found that is not there, so this check is blind" >&2
    exit 1
fi
depends weft libc6 libhwloc15 libjansson4
! dpkg-deb -f "$work"/packages/weft_*.deb Depends | grep -E 'mpi|cuda|nccl' # those are of plugins
for plugin in mpi nccl cuda; do
    if [ -e "$build/libweft_$plugin.so" ]; then
        depends "weft-$plugin" weft
        [ -e "$root/usr/lib/libweft_$plugin.so" ] || { echo "package: no plugin for $plugin" >&2; exit 1; }
    elif [ -e "$root/usr/lib/libweft_$plugin.so" ]; then
        echo "package: a plugin for $plugin that was not built" >&2
        exit 1
    fi
done
dpkg-deb --ctrl-tarfile "$work"/packages/weft_*.deb | tar -tf - >"$work/control"
for file in ./shlibs ./postinst ./md5sums; do # postinst calls ldconfig
    grep -qx "$file" "$work/control" || { echo "package: no $file" >&2; exit 1; }
done
for file in bin/gpt_train bin/weft lib/libweft.so.0.1 include/weft/weft.h lib/pkgconfig/weft.pc lib/cmake/weft/weft-config.cmake \
    share/man/man1/gpt_train.1 share/bash-completion/completions/gpt_train share/zsh/site-functions/_gpt_train \
    share/doc/weft/copyright share/doc/weft/docs/README.md; do
    [ -e "$root/usr/$file" ] || { echo "package: no /usr/$file" >&2; exit 1; }
done
# all headers, which lint.install compiles
diff <(cd "$build/include" && find . -name '*.h' | sort) <(cd "$root/usr/include" && find . -name '*.h' | sort)
if find "$root/usr/bin" "$root/usr/lib" -type f -print0 | xargs -0 file | grep 'not stripped'; then
    echo "package: what it installs is not stripped" >&2
    exit 1
fi

cmake -S "$here/../../docs/examples" -B "$work/examples" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CUDA_COMPILER=NOTFOUND \
    -DCMAKE_PREFIX_PATH="$root/usr" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake --build "$work/examples" -j 2 --target tiny --target dtensor >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
ctest --test-dir "$work/examples" -R '^(tiny|dtensor)$' --output-on-failure --no-tests=error
# shellcheck disable=SC2046 # the flags are words
PKG_CONFIG_SYSROOT_DIR='' PKG_CONFIG_PATH=$root/usr/lib/pkgconfig \
    "$cc" -std=c11 "$here/consumer.c" -o "$work/consumer" $(PKG_CONFIG_PATH=$root/usr/lib/pkgconfig pkg-config --cflags --libs weft)
LD_LIBRARY_PATH=$root/usr/lib "$work/consumer"
head -c 20000 "$here/../../README.md" >"$work/text"
"$root/usr/bin/weft" train --data "$work/text" --arch llama --n-layer 1 --n-head 2 --n-embd 16 --seq-len 32 --steps 2 --tp 2 \
    --eval-interval 0 >"$work/log" || { cat "$work/log"; exit 1; }
grep -q '^step 2/2  *loss' "$work/log"
