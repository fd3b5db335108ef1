#!/usr/bin/env python3
"""
performance.py [--only NAME,...] [--render] [--bench FILE] [--quick] - measures what
docs/performance.md shows, and writes its tables and plots.

Each measurement's rows go to docs/performance/NAME.jsonl, as `bench --json` (or compare_torch.sh
--json) prints them; the tables between the markers "<!-- NAME -->" and "<!-- end -->" of
docs/performance.md and the plots docs/performance/*.svg are made from these files alone, so that
--render remakes them without measuring. Plots need gnuplot (Debian: gnuplot-nox).

Measurements: gemm1 gemm2 ranks2 attention step exact layouts comm dispatch memory init, and
torch-small, torch-256, torch-1024, which run only where they are named: they take long and install
PyTorch.
"""
import argparse
import json
import math
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "performance"
PAGE = ROOT / "docs" / "performance.md"
LAYOUTS = "1x1t2,2x1,1x2,4x1,1x4,2x2,8x1,1x8,4x4,8x4,8x4sp"
SHAPES = ",".join(f"{m}x{k}x{n}" for k, n in ((768, 768), (768, 3072), (3072, 768), (256, 1024),
                                              (768, 50304)) for m in (256, 1024, 4096))
# name: command lines of bench, whose rows are put together
BENCHES = {
    "gemm1": [["gemm", "--threads", "1", "--shapes", SHAPES, "--seconds", "0.5"]],
    "gemm2": [["gemm", "--threads", "2", "--shapes", SHAPES, "--seconds", "0.5"]],
    "ranks2": [["gemm", "--shapes", "1024x768x768,1024x768x3072", "--forms", "NT"]],
    "attention": [["attention"]],
    "step": [["step", "--libraries", "--model", model, "--layouts", "1x1,1x1off,1x1t2",
              "--seconds", seconds]
             for model, seconds in (("small", "40"), ("gpt2-256", "120"), ("gpt2-1024", "240"))],
    "exact": [["step", "--model", "small", "--layouts", "1x1,1x1off,2x1,2x1off,1x2,1x2off",
               "--seconds", "40"]],
    "layouts": [["step", "--model", model, "--layouts", LAYOUTS, "--seconds", "60"]
                for model in ("demo", "wide")],
    "comm": [["comm"]],
    "dispatch": [["dispatch"]],
    "memory": [["memory"]],
    "init": [["init"]],
}
TORCH = {"torch-small": "small", "torch-256": "124m-256", "torch-1024": "124m-1024"}


def measure(name, arguments):
    """Run one measurement and keep its rows."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    target = FOLDER / f"{name}.jsonl"
    if name in TORCH:
        command = [str(ROOT / "scripts" / "peers" / "compare_torch.sh"), "--model", TORCH[name],
                   "--json", str(target)]
        subprocess.run(command + (["--quick"] if arguments.quick else []), check=True)
        return
    rows = []
    for words in BENCHES[name]:
        command = [str(arguments.bench), words[0], "--json", *words[1:]]
        if arguments.quick:
            command = [str(arguments.bench), words[0], "--json", "--quick"]
        rows.append(subprocess.run(command, check=True, stdout=subprocess.PIPE,
                                   text=True).stdout)
    target.write_text("".join(rows))


def load(name):
    """The rows of a measurement without its notes; none where it was not taken."""
    path = FOLDER / f"{name}.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [row for row in rows if "note" not in row]


def machine():
    """What the machine said of itself in the first measurement that is here."""
    for name in BENCHES:
        path = FOLDER / f"{name}.jsonl"
        if path.exists():
            return json.loads(path.read_text().splitlines()[0])["note"]
    return ""


def table(head, rows):
    """Lines of a Markdown table."""
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head),
            *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)]


def mean(values):
    """The geometric mean."""
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def gemm(name):
    """A row per shape: shares of the best library over the four forms."""
    rows = [row for row in load(name) if row.get("of_best")]
    out = []
    for m, k, n in sorted({(r["m"], r["k"], r["n"]) for r in rows},
                          key=lambda shape: (shape[1] * shape[2], shape)):
        of = {r["form"]: r for r in rows if (r["m"], r["k"], r["n"]) == (m, k, n)}
        shares = [f"{of[f]['of_best']:.2f}" if f in of else "" for f in ("NN", "NT", "TN", "TT")]
        out.append([f"{m} x {k} x {n}", *shares,
                    f"{mean(r['of_peak'] for r in of.values()):.2f}"])
    if rows:
        out.append(["geometric mean", *(f"{mean(r['of_best'] for r in rows if r['form'] == f):.2f}"
                                        for f in ("NN", "NT", "TN", "TT")),
                    f"{mean(r['of_peak'] for r in rows):.2f}"])
        out.append(["**all**", f"**{mean(r['of_best'] for r in rows):.3f}**",
                    f"least {min(r['of_best'] for r in rows):.2f}", "", "", ""])
    return table(["M x K x N", "NN", "NT", "TN", "TT", "of FMA peak"], out)


def ranks2(name):
    """How much of its speed alone a rank keeps beside another."""
    rows = [r for r in load(name) if r.get("kept")]
    return table(["M x K x N", "form", "kept by each of two ranks that call at once",
                  "kept by multiply-adds alone"],
                 [[f"{r['m']} x {r['k']} x {r['n']}", r["form"], f"{r['kept']:.3f}",
                   f"{r['fma_kept']:.3f}" if r.get("fma_kept") else ""] for r in rows])


def plain(head, *fields):
    """A table of some fields, with their formats."""
    def build(name):
        return table(head, [["" if row.get(key) is None else format(row[key], form)
                             for key, form in fields] for row in load(name)
                            if row.get(fields[0][0])])
    return build


def exact(name):
    """Each layout beside itself without exactness, of the measurement of steps too."""
    rows = {(r["model"], r["layout"]): r for r in load("step") + load(name)}
    return table(["model", "layout", "exact ms", "off ms", "cost"],
                 [[model, layout, f"{row['ms']:.1f}", f"{rows[model, layout + 'off']['ms']:.1f}",
                   f"{row['ms'] / rows[model, layout + 'off']['ms'] - 1:+.1%}"]
                  for (model, layout), row in rows.items() if (model, layout + "off") in rows])


def comm(name):
    """Shares of the copy limit by collective and ranks."""
    rows, out = load(name), []
    sizes = sorted({r["bytes"] for r in rows})
    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        for ranks in sorted({r["ranks"] for r in rows}):
            of = {r["bytes"]: r for r in rows if (r["collective"], r["ranks"]) == (kind, ranks)}
            out.append([kind, ranks, *(f"{of[s]['of_copy']:.2f}" if s in of else ""
                                       for s in sizes)])
    lines = table(["share of the copy limit", "ranks", *map(size, sizes)], out)
    faster = [[r["ranks"], size(r["bytes"]), f"{r['us']:.0f}", f"{r['openmpi_us']:.0f}",
               f"{r['times_faster']:.1f}"] for r in rows if r.get("times_faster")]
    return lines + [""] + table(["all-reduce: ranks", "bytes", "Weft us", "OpenMPI us",
                                 "times as fast"], faster)


def size(count):
    """Such as 64 KB."""
    return f"{count >> 20} MB" if count >= 1 << 20 else f"{count >> 10} KB"


def torch(name):
    """Weft beside PyTorch, with what was aimed at."""
    return table(["", "times as fast", "aim", "memory", "aim"],
                 [[f"{r['weft']} : {r['torch']}", f"{r['times_as_fast']:.2f}", f"{r['aim']:.2f}",
                   f"{r['memory']:.2f}", f"{r['memory_aim']:.2f}"]
                  for r in load(name) if r.get("row") == "ratio"])


LAYOUT = (("model", ""), ("layout", ""), ("ms", ".1f"), ("tokens_per_s", ".0f"),
          ("of_peak", ".3f"))
COSTS = (("times_first", ".3f"), ("memory_mb", ".0f"))
TABLES = {
    "gemm1": gemm, "gemm2": gemm, "ranks2": ranks2, "exact": exact,
    "comm": comm, "torch-small": torch, "torch-256": torch, "torch-1024": torch,
    "step": plain(["model", "layout", "ms a step", "tokens/s", "of FMA peak",
                   "of the best library's products", "times the first", "memory MB"],
                  *LAYOUT, ("of_products", ".3f"), *COSTS),
    "layouts": plain(["model", "layout", "ms a step", "tokens/s", "of FMA peak",
                      "times the first", "memory MB"], *LAYOUT, *COSTS),
    "attention": plain(["pass", "type", "tokens", "head dim", "threads", "ms", "GFLOP/s",
                        "of FMA peak", "of fp32"],
                       ("pass", ""), ("type", ""), ("seq", ""), ("dim", ""), ("threads", ""),
                       ("ms", ".2f"), ("gflops", ".0f"), ("of_peak", ".2f"),
                       ("of_fp32", ".2f")),
    "dispatch": plain(["an op of four operands", "ns", "its kernel alone"], ("op_of_four", ""),
                      ("ns", ".0f"), ("floor_ns", ".0f")),
    "memory": plain(["pass", "threads", "MB", "GB/s", "of the fastest copy"], ("kernel", ""),
                    ("threads", ""), ("mb", ".1f"), ("gb_per_s", ".1f"), ("of_copy", ".2f")),
    "init": plain(["", "threads", "MB", "GB/s", "of memset"], ("init", ""), ("threads", ""),
                  ("mb", ".0f"), ("gb_per_s", ".2f"), ("of_memset", ".2f")),
}


def gnuplot(name, commands):
    """A plot, docs/performance/NAME.svg."""
    setup = (f'set terminal svg size 760,420 font "sans,12" background "#ffffff"\n'
             f'set output "{FOLDER / name}.svg"\nset grid ytics lc rgb "#dddddd"\n'
             'set border 3\nset tics nomirror\nset key outside top center horizontal\n')
    subprocess.run(["gnuplot"], input=setup + commands, text=True, check=True)


def block(name, rows):
    """Data of a plot, inline."""
    return f"${name} << end\n" + "".join(" ".join(map(str, row)) + "\n" for row in rows) + "end\n"


def plot_gemm():
    """Throughput beside the peak and the best library, form NT, which a forward pass uses."""
    rows = [r for r in load("gemm1") if r.get("of_best") and r["form"] == "NT"]
    rows.sort(key=lambda r: r["m"] * r["k"] * r["n"])
    data = [[i, f"\"{r['m']}x{r['k']}x{r['n']}\"", r["fma_peak"],
             r["eight_chunks"] / r["of_best"], r["one_chunk"], r["eight_chunks"]]
            for i, r in enumerate(rows)]
    if data:
        gnuplot("gemm", block("d", data) + (
            'set title "Matrix products, one thread (x W^T)"\nset ylabel "GFLOP/s"\n'
            'set yrange [0:*]\nset xtics rotate by -40 left\nset xrange [-0.5:*]\nset rmargin 14\n'
            'set bmargin 7\n'
            'plot $d using 1:3:xtic(2) with lines lw 2 dt 2 lc rgb "#888888" title "FMA peak", '
            '$d using 1:4 with points pt 7 lc rgb "#d08000" title "best library", '
            '$d using 1:5 with points pt 6 lc rgb "#5080c0" title "Weft, one chunk", '
            '$d using 1:6 with linespoints pt 7 lw 2 lc rgb "#1040a0" title "Weft, exact"\n'))


def plot_layouts():
    """Step time by layout, in the order of ranks, as multiples of one rank with two threads."""
    def ranks(layout):
        return math.prod(map(int, re.match(r"(\d+)x(\d+)", layout).groups()))

    every = sorted({r["layout"] for r in load("layouts")},
                   key=lambda name: (ranks(name), LAYOUTS.split(",").index(name)))
    text, plots = "", []
    for model, colour in (("demo", "#1040a0"), ("wide", "#d08000")):
        data = [[every.index(r["layout"]), f"\"{r['layout']}\"", r["times_first"]]
                for r in load("layouts") if r["model"] == model]
        if data:
            text += block(model, data)
            plots.append(f'${model} using 1:3:xtic(2) with points pt 7 lc rgb "{colour}" '
                         f'title "{model}"')
    if plots:
        gnuplot("layouts", text + (
            'set title "The same step on more ranks than the machine has cores (2)"\n'
            'set xlabel "layout: tp x dp ranks, fewest first"\n'
            f'set yrange [0.8:*]\nset xrange [-0.5:{len(every) - 0.5}]\n'
            'set ylabel "times one rank with two threads"\n'
            f'plot 1 with lines dt 2 lc rgb "#888888" notitle, {", ".join(plots)}\n'))


def render():
    """Write all tables that were measured, and the plots."""
    page = PAGE.read_text()
    for name, build in TABLES.items():
        if not load(name):
            continue
        lines = "\n".join(build(name))
        page, found = re.subn(rf"(<!-- {name} -->\n).*?(<!-- end -->)",
                              lambda match, text=lines: f"{match[1]}{text}\n{match[2]}", page,
                              flags=re.S)
        if not found:
            sys.exit(f"performance.py: {PAGE} has no mark for {name}: add <!-- {name} --> and "
                     "<!-- end -->")
    page = re.sub(r"(<!-- machine -->\n).*?(<!-- end -->)",
                  lambda match: f"{match[1]}{machine()}\n{match[2]}", page, flags=re.S)
    PAGE.write_text(page)
    plot_gemm()
    plot_layouts()


def main():
    """Measure, then render."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(BENCHES), help="names, with commas")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--quick", action="store_true", help="a try, no figures")
    parser.add_argument("--bench", type=pathlib.Path,
                        default=ROOT / "build" / "apps" / "bench")
    arguments = parser.parse_args()
    names = [] if arguments.render else arguments.only.split(",")
    for name in names:
        if name not in TABLES:
            sys.exit(f"performance.py: there is no measurement {name}: {', '.join(TABLES)}")
    for name in names:
        print(f"measuring {name}", flush=True)
        measure(name, arguments)
    render()


if __name__ == "__main__":
    main()
