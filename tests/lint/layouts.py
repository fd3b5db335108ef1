#!/usr/bin/env python3
"""
layouts.py COMPILER INCLUDE [--write] - the layouts of public structs that callers fill in, beside those of
layouts.txt: a field that moves breaks programs that were compiled before, so it must not go unseen.

The compiler's own description (DWARF, read with readelf) of each struct in INCLUDE/weft/weft.h whose name ends with _options or _config, or is one of OTHERS: its bytes, and offset and name of each
field. --write writes layouts.txt again. Within a minor version that was released a layout stays:
raise the minor version in CMakeLists.txt first, with which the libraries get another soname.
"""
import difflib
import pathlib
import re
import subprocess
import sys
import tempfile

LIST = pathlib.Path(__file__).with_name("layouts.txt")
OTHERS = {"wf_par_job", "wf_par_program", "wf_par_data", "wf_par_field", "wf_par_batch", "wf_flag", "wf_axis", "wf_run",
          "wf_run_hooks", "wf_process", "wf_plan_request", "wf_op", "wf_call", "wf_tensor", "wf_log_scalar"}
ENTRY = re.compile(r"^ *<(\d+)><([0-9a-f]+)>: .*\((DW_TAG_\w+)\)", re.M)


def is_filled_in(name):
    return name in OTHERS or re.fullmatch(r"wf_\w+_(options|config)", name) is not None


def attribute(text, name):
    """Returns an attribute's value, as text without its form, which versions of readelf print; None: it has none."""
    match = re.search(rf"DW_AT_{name} *: *(?:\([^)]*\) *)*:? *(\S+)", text)
    return match.group(1) if match else None


def structs(dump):
    """Returns {name: (bytes, [(offset, field)])} of the named structs in readelf's text."""
    entries = list(ENTRY.finditer(dump))
    found, inside = {}, {}  # inside: by the depth of a type that is not at its end, its members
    for i, entry in enumerate(entries):
        text = dump[entry.end():entries[i + 1].start() if i + 1 < len(entries) else len(dump)]
        depth = int(entry.group(1))
        inside = {at: members for at, members in inside.items() if at < depth}
        if entry.group(3) == "DW_TAG_structure_type":
            name, size = attribute(text, "name"), attribute(text, "byte_size")
            inside[depth] = []
            if name and size:
                found[name] = (int(size, 0), inside[depth])
        elif entry.group(3) == "DW_TAG_member" and depth - 1 in inside:
            offset = int(attribute(text, "data_member_location") or "0", 0)
            inside[depth - 1].append((offset, attribute(text, "name") or "(union)"))
    return found


def layouts(compiler, include):
    """Returns the lines of the list."""
    with tempfile.TemporaryDirectory() as folder:
        source, compiled = pathlib.Path(folder, "all.c"), pathlib.Path(folder, "all.o")
        source.write_text("#include <weft/weft.h>\n", encoding="utf-8")
        subprocess.run([compiler, "-std=gnu11", "-g", "-gdwarf-4", "-fno-eliminate-unused-debug-types", "-I", include, "-c", source,
                        "-o", compiled], check=True)
        dump = subprocess.run(["readelf", "-W", "--debug-dump=info", compiled], check=True, capture_output=True,
                              text=True).stdout
    lines = []
    for name, (size, members) in sorted(structs(dump).items()):
        if is_filled_in(name):
            lines += [f"{name} {size}"] + [f"    {offset:4} {field}" for offset, field in members]
    return lines


def main():
    compiler, include, *rest = sys.argv[1:]
    lines = layouts(compiler, include)
    if len(lines) < 300:
        sys.exit(f"layouts.py: {len(lines)} lines of layouts alone: this check is blind")
    if rest == ["--write"]:
        LIST.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    committed = LIST.read_text(encoding="utf-8").splitlines()
    changes = [line for line in difflib.unified_diff(committed, lines, "layouts.txt", "the headers", n=1, lineterm="")]
    if changes:
        print("\n".join(changes[:40]))
        sys.exit("layouts.py: a public struct has another layout: a program that was compiled before breaks. Where this "
                 f"minor version is released, raise it in CMakeLists.txt; then layouts.py {compiler} {include} --write")


if __name__ == "__main__":
    main()
