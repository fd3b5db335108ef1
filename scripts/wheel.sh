#!/bin/bash
# wheel.sh [--no-build] BUILD [OUT] - makes a Python wheel of a build: weft-<version>-py3-none-manylinux_*.whl in OUT (BUILD/wheel).
#
# It has the module weft, the hooks of `weft check`, all programs (the command weft, python -m weft), and the shared libraries that they
# need beside the C library's own: under names of their own, so that no other version of one that is in the process is taken
# for it, each with its licence in the wheel's metadata. The tag has the newest version of glibc that a symbol asks for, and the
# processor that BUILD is for: a cross build (cmake/aarch64.cmake) makes the wheel of that one, with qemu to load its libraries. It
# needs patchelf, binutils and python3; --no-build takes what lies in BUILD. Plugins (MPI, CUDA, NCCL) are not in it: they stand on
# libraries of the machine (scripts/build.sh --all builds them there).
set -euo pipefail

build_it=yes
if [ "${1:-}" = --no-build ]; then
    build_it=no
    shift
fi
if [ $# -lt 1 ] || [ $# -gt 2 ] || [[ ${1:-} == -* ]]; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
for program in patchelf readelf objcopy python3; do
    if ! command -v $program >/dev/null; then
        echo "wheel: no $program (Debian: patchelf, binutils, python3)" >&2
        exit 2
    fi
done
top=$(cd "$(dirname "$0")/.." && pwd)
build=$1
programs=(ckpt gpt_check gpt_data gpt_diff gpt_eval gpt_export gpt_generate gpt_train mesh_info recorder_diff schedule weft)
if [ $build_it = yes ]; then
    for target in weft_python "${programs[@]}"; do
        [ "$target" != weft ] || target=weft_command
        "$top/scripts/build.sh" --only "$target" "$build" >/dev/null
    done
fi
build=$(cd "$build" && pwd)
out=${2:-$build/wheel}

# cached NAME: a variable of the build, "" where it has none.
cached()
{
    sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}
objcopy=$(cached CMAKE_OBJCOPY)
case $(readelf -h "$build/apps/weft" | sed -n 's/.*Machine: *//p') in
*X86-64) machine=x86_64 ;;
AArch64) machine=aarch64 ;;
*)
    echo "wheel: $build/apps/weft is of a processor whose wheels have no name here" >&2
    exit 1
    ;;
esac
emulator=$(cached WEFT_QEMU)
mkdir -p "$out"
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

# ---- Python, and what is ours ----
mkdir -p "$tree/weft/lib" "$tree/weft/bin" "$tree/weft/machines" "$tree/weft_hooks" "$tree/licences"
cp "$top"/apps/python/weft/*.py "$top/apps/python/weft/py.typed" "$tree/weft/"
cp "$top"/apps/python/weft_command.py "$top"/apps/python/weft_lm_eval.py "$tree/"
cp "$top"/apps/python/weft_hooks/*.py "$tree/weft_hooks/"
cp "$top"/docs/machines/*.json "$tree/weft/machines/"
cp "$top/LICENSE" "$tree/licences/LICENSE"
for program in "${programs[@]}"; do
    cp "$build/apps/$program" "$tree/weft/bin/"
done
for library in libweft.so libweft_text.so; do
    cp "$build/$(readelf -d "$build/$library" | sed -n 's/.*SONAME.*\[\(.*\)\].*/\1/p')" "$tree/weft/lib/"
done
cp "$build/apps/libweft_python.so" "$tree/weft/lib/"
ours=("$tree"/weft/bin/* "$tree"/weft/lib/*)

# ---- what they need, under names of its own ----
# What any glibc of the tag's version has, with its loader and the compiler's library.
given='^(lib(c|m|pthread|dl|rt|gcc_s)\.so\.[0-9]+|ld-linux-.*)$'
declare -A renamed=()
loader=$(readelf -l "$tree/weft/bin/weft" | sed -n 's/.*program interpreter: \(.*\)\]/\1/p')

# libraries FILE..: what each is loaded with, "NAME PATH", by the loader of the build's processor.
libraries()
{
    local file
    for file; do
        if [ -n "$emulator" ]; then
            "$emulator" -E LD_LIBRARY_PATH="$build" -E LD_TRACE_LOADED_OBJECTS=1 "$loader" "$file"
        else
            LD_LIBRARY_PATH=$build LD_TRACE_LOADED_OBJECTS=1 "$loader" "$file"
        fi
    done | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u
}
while read -r name path; do
    if [[ $name =~ $given ]] || [[ $name == libweft* ]] || [ -n "${renamed[$name]:-}" ]; then
        continue
    fi
    if [[ $name != lib* ]]; then
        echo "wheel: $path: only names that begin with lib are known how to change" >&2
        exit 1
    fi
    renamed[$name]=wft${name#lib}
    cp -L "$path" "$tree/weft/lib/${renamed[$name]}"
    chmod u+w "$tree/weft/lib/${renamed[$name]}"
    package=$({ dpkg -S "$(readlink -f "$path")" 2>/dev/null || dpkg -S "$path" 2>/dev/null || true; } | head -n 1 | cut -d: -f1)
    if [ ! -e "/usr/share/doc/$package/copyright" ]; then
        echo "wheel: the licence of $path is not in /usr/share/doc: it could not be given along" >&2
        exit 1
    fi
    cp "/usr/share/doc/$package/copyright" "$tree/licences/$package.txt"
done < <(libraries "${ours[@]}")

for file in "$tree"/weft/bin/* "$tree"/weft/lib/*; do
    "$objcopy" -S "$file" # without symbols that no loader reads
    # shellcheck disable=SC2016 # the loader's own word
    case $file in
    */bin/*) patchelf --set-rpath '$ORIGIN/../lib' "$file" ;;
    *) patchelf --set-rpath '$ORIGIN' "$file" ;;
    esac
done
# Names of the same length replace them, wherever a file has one: what it needs, its own, and those whose versions it asks
# for, which Debian 12's patchelf forgets.
python3 - "${!renamed[@]}" "$tree"/weft/bin/* "$tree"/weft/lib/* <<'END'
import pathlib, sys

names = [word for word in sys.argv[1:] if "/" not in word]
for path in (pathlib.Path(word) for word in sys.argv[1:] if "/" in word):
    content = old = path.read_bytes()
    for name in names:
        content = content.replace(b"\0" + name.encode() + b"\0", b"\0" + b"wft" + name[3:].encode() + b"\0")
    if content != old:
        path.write_bytes(content)
END

# ---- the wheel: a zip with a list of what is in it ----
glibc=$(readelf -V "$tree"/weft/bin/* "$tree"/weft/lib/* 2>/dev/null | grep -oE 'GLIBC_[0-9]+\.[0-9]+' | sort -uV | tail -n 1)
version=$(sed -n 's/^project(weft VERSION \([0-9.]*\).*/\1/p' "$top/CMakeLists.txt")
python3 - "$tree" "$out" "$version" "manylinux_${glibc#GLIBC_}_$machine" <<'END'
import base64, hashlib, pathlib, stat, sys, zipfile

tree, out, version, platform = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4].replace(".", "_")
info = tree / f"weft-{version}.dist-info"
info.mkdir()
(tree / "licences").rename(info / "licenses")
licences = sorted((info / "licenses").iterdir())
(info / "METADATA").write_text(f"""Metadata-Version: 2.1
Name: weft
Version: {version}
Summary: Trains models whose tensors are spread over a mesh of devices; the layout never changes the numbers
License: MIT; of the libraries inside, see the files of licences
""" + "".join(f"License-File: {path.name}\n" for path in licences) + """Requires-Python: >=3.9
Requires-Dist: numpy >=1.21
""")
(info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: weft\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n")
(info / "entry_points.txt").write_text("[console_scripts]\nweft = weft_command:main\n")
(info / "top_level.txt").write_text("weft\nweft_command\nweft_hooks\nweft_lm_eval\n")
wheel = out / f"weft-{version}-py3-none-{platform}.whl"
rows = []
with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
    for path in sorted(p for p in tree.rglob("*") if p.is_file()):
        name, content = path.relative_to(tree).as_posix(), path.read_bytes()
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)) # one wheel of one build
        runs = path.stat().st_mode & stat.S_IXUSR
        entry.external_attr = (stat.S_IFREG | (0o755 if runs else 0o644)) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(content)}")
    record = f"{info.name}/RECORD"
    archive.writestr(zipfile.ZipInfo(record, (1980, 1, 1, 0, 0, 0)), "\n".join(rows + [f"{record},,"]) + "\n")
print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB, {len(rows)} files, licences: " + ", ".join(p.stem for p in licences))
END
echo "without plugins: MPI, CUDA and NCCL stand on libraries of the machine, and come with a build (scripts/build.sh --all)"
