#!/usr/bin/env python3
"""
sass.py [--all] FILE... - the machine code of kernels, against what is expected of it.

FILE: objects of nvcc, cubins, or libweft_cuda.so, of a release build (CI's has no optimisation of machine code). Looks at each kernel on each architecture: the tensor
cores' instructions where a product or attention should have them, accesses of 16 bytes, no memory of a
thread's own (registers that were spilled, arrays that are indexed). EXPECTED has what is asked of which.
cuobjdump and nvdisasm are on PATH, or in the folder that $CUDA_TOOLS names
(pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm).

--all prints a row for each kernel. Status 0, 1 where something is amiss, 77 without the tools.
"""
import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys

WIDE = ("LDG.E.128", "STG.E.128")

# Kernel (of the demangled name), architectures, what its code has. In this order, the first that fits.
EXPECTED = [
    (r"\bhopper_kernel<", "sm_90a", ("HGMMA", "UTMALDG", "USETMAXREG")),
    (r"\bpersistent_kernel<", "sm_90a", ("HGMMA", "UTMALDG", "UTMASTG", "USETMAXREG")),
    (r"\btensor_kernel<.*group_shape", "sm_90a", ("HGMMA", "LDGSTS.E.BYPASS.128", "STS.128")),
    (r"\btensor_kernel<.*wf_coded_weights", "sm_", ("HMMA.16816.F32.BF16", "LDGSTS.E.BYPASS.128", "STS.128")),
    (r"\btensor_kernel<", "sm_", ("HMMA.16816.F32.BF16", "LDGSTS.E.BYPASS.128")),
    (r"\btensor_(forward|dq|dkv)_kernel<attention_wgmma\b", "sm_90a", ("HGMMA", "LDGSTS.E.BYPASS.128", WIDE[1])),
    (r"\btensor_forward_kernel<|\btensor_cached_kernel<|\btensor_dq_kernel<|\btensor_dkv_kernel<", "sm_",
     ("HMMA.16816.F32.BF16", "LDGSTS.E.BYPASS.128", "LDSM", WIDE[1])),
    (r"\btensor_delta_kernel\b", "sm_", WIDE[:1]),
    (r"\bexpert_rows_kernel<group_wgmma, \w+, true,|\bexpert_weights_kernel<group_wgmma, true>", "sm_90a", ("HGMMA", "LDGSTS.E.BYPASS.128", "STG.E.128")),
    (r"\bexpert_rows_kernel<group_wgmma,|\bexpert_weights_kernel<group_wgmma,", "sm_90a", ("HGMMA", "STG.E.128")),
    (r"\bexpert_rows_kernel<\w+, \w+, true,|\bexpert_weights_kernel<\w+, true>", "sm_", ("HMMA.16816.F32.BF16", "LDGSTS.E.BYPASS.128", "STG.E.128")),
    (r"\bexpert_rows_kernel<|\bexpert_weights_kernel<", "sm_", ("HMMA.16816.F32.BF16", "STG.E.128")),
    (r"\bfloat_kernel<.*wf_coded_weights", "sm_", ("FFMA", "LDGSTS.E.BYPASS.128", "STS.128")),
    (r"\bupdate_kernel<", "sm_", WIDE),
    (r"\bupdate8_kernel<", "sm_", WIDE),
    (r"\bnf4_kernel<", "sm_", WIDE[1:]),
    (r"\bnarrow_kernel|\bwiden_kernel", "sm_", WIDE),
    (r"\btree_kernel<", "sm_", WIDE),
    (r"\bwf_norm_kernel<|\bwf_norm_backward_kernel<|\blanes_kernel<", "sm_", WIDE),
    (r"\brotate_kernel<", "sm_", WIDE),
    (r"\blogit_loss_kernel<|\bgrad_kernel<", "sm_", WIDE),
    (r"\bmax_kernel<", "sm_", WIDE[:1]),
    (r"\badd_sinks_kernel\b", "sm_", WIDE),
    (r"\bwf_map_kernel<", "sm_", WIDE),
]

# Kernels that may have memory of a thread's own: how many accesses at most, and why.
LOCAL = [
    (r"\bfloat_kernel<", 1 << 12, "the tree's waiting sums have no room in registers (kernels/cuda/DECISIONS.md, 2026-11-28)"),
    (r"\bweight_product_kernel\(", 32, "experts of f32: sums of the tree over tokens that wait are an array, indexed by how many there are"),
    (r"\bwf_column_sum_kernel<", 32, "a few registers are spilled before and behind the loop over rows"),
    (r"\bsum_kernel<float>", 9, "four registers are spilled"),
    (r"\bany_kernel<", 11, "a tree over any number of sources has its open sums in an array"),
    (r"\btensor_dkv_kernel<attention_mma, 128,", 2, "one register is spilled, on sm_80"),
    (r"\bunit_kernel\(", 10, "a few registers are spilled by the thread that has the factor, on sm_80"),
    (r"\bpart_kernel\(", 4, "two registers are spilled by the thread that carries limbs, on sm_80"),
    (r"\btable_kernel\(", 5, "angles beyond 2^16 are reduced by words of an array"),
]


def tools():
    """The environment for cuobjdump, and its path; None: it is not here."""
    folder = os.environ.get("CUDA_TOOLS")
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PATH"), "/usr/local/cuda/bin")))
    found = shutil.which("cuobjdump", path=path), shutil.which("nvdisasm", path=path)
    return ({**os.environ, "PATH": path}, found[0]) if all(found) else None


def kernels(text):
    """{(architecture, name): {opcode: times}} of what cuobjdump -sass says."""
    found, arch, code = {}, None, None
    for line in text.splitlines():
        if match := re.match(r"\s*(?:arch =|code for) (\S+)", line):  # of objects and of cubins
            arch, code = match[1], None
        elif match := re.match(r"\s*Function : (\S+)", line):
            code = found[arch, match[1]] = collections.Counter()
        elif code is not None and (match := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", line)):
            code[match[1]] += 1
    return found


def demangled(names):
    """{name: readable name}, without nvcc's words for an anonymous namespace."""
    if not shutil.which("c++filt"):
        return dict(zip(names, names))
    said = subprocess.run(["c++filt"], input="\n".join(names), text=True, capture_output=True, check=True).stdout
    return {name: re.sub(r"\(anonymous namespace\)::|_GLOBAL__N__\w+::", "", line) for name, line in zip(names, said.splitlines())}


def has(code, opcode):
    """Modifiers may follow, and stand in between."""
    words = opcode.split(".")
    return any(name.split(".")[0] == words[0] and set(words) <= set(name.split(".")) for name in code)


def code_count(code, opcode):
    return sum(times for name, times in code.items() if name.split(".")[0] == opcode)


def faults(name, arch, code):
    """What is amiss with a kernel, a text each."""
    for pattern, archs, needs in EXPECTED:
        if re.search(pattern, name) and arch.startswith(archs):
            yield from (f"no {opcode}" for opcode in needs if not has(code, opcode))
            break
    local = code_count(code, "LDL") + code_count(code, "STL")
    most = next((most for pattern, most, _ in LOCAL if re.search(pattern, name)), 0)
    if local > most:
        yield f"{local} accesses of memory of a thread's own, at most {most}"


def row(name, arch, code):
    counts = {word: sum(t for op, t in code.items() if re.match(word, op)) for word in ("HGMMA", "HMMA", "UTMA", "LDL|STL")}
    wide = sum(times for op, times in code.items() if op.startswith(("LDG", "STG", "LDGSTS")) and "128" in op.split("."))
    memory = sum(times for op, times in code.items() if op.startswith(("LDG", "STG", "LDGSTS")))
    reported = ", ".join(f"{times} {word}" for word, times in counts.items() if times)
    return f"{arch:8} {sum(code.values()):6} instructions, {wide} of {memory} accesses of 16 bytes{', ' if reported else ''}{reported}  {name[:150]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--all", action="store_true", help="a row for each kernel")
    options = parser.parse_args()
    found = tools()
    if not found:
        print("sass: cuobjdump and nvdisasm are not here: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm, and name their "
              "folder by CUDA_TOOLS")
        return 77
    environment, cuobjdump = found
    looked, bad, met = 0, 0, set()
    for file in options.files:
        text = subprocess.run([cuobjdump, "-sass", str(file)], text=True, capture_output=True, env=environment, check=True).stdout
        codes = kernels(text)
        names = demangled([name for _, name in codes])
        for (arch, mangled), code in codes.items():
            name = names[mangled]
            looked += 1
            met |= {i for i, (pattern, archs, _) in enumerate(EXPECTED) if re.search(pattern, name) and arch.startswith(archs)}
            if options.all:
                print(row(name, arch, code))
            for fault in faults(name, arch, code):
                bad += 1
                print(f"{file.name}: {arch} {name[:150]}: {fault}")
    print(f"{looked} kernels on {len(options.files)} files, {bad} faults; {len(met)} of {len(EXPECTED)} expectations met a kernel")
    return int(bad > 0 or looked == 0)


if __name__ == "__main__":
    sys.exit(main())
