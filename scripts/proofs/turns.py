#!/usr/bin/env python3
"""
turns.py - speed of two programs that take turns, as a ratio with its error, for an idle machine.

    turns.py elementwise OLD NEW [--isa avx512]   elementwise ops of two builds (build folders in their source trees)
    turns.py profile BUILD [--steps 30]           steps of gpt_train without --profile, and with it: its cost and its sum
    turns.py context BUILD                        steps of long sequences: --tp 8 with --sequence-parallel and --cp 8, by the clock and by
                                                  processor time; --exact off and on at 4,096 tokens, which has the cost of their chunks
    turns.py documents BUILD [--count]            attention, forward and backward, of documents of 1,024 and of 1,000 tokens: a sequence
                                                  each, and all in one sequence

A row is the time of the first over that of the second, above 1 where the second is faster: the mean of the turns' ratios, and twice its
standard error. Times are processor times of one thread, which a busy machine changes little: of an op and of its gradient, and of the
steps that a long run has more than a short one. profile also prints the share of a step's time that the profile explains. --turns N (default 12) makes errors
smaller; --count compares instructions instead, by valgrind.
"""
import argparse
import math
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

OPS = {"add": "wf_add(x, y)", "mul": "wf_mul(x, y)", "scale": "wf_scale(x, 3)", "silu": "wf_silu(x)",
       "gelu": "wf_gelu(x)", "swiglu": "wf_swiglu(x, y)"}
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "core/tape.h"
#include "kernels/devices.h"
#include "kernels/ops.h"

enum { N = 1 << 14 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static wf_tensor *operand(wf_context *ctx, int seed)
{
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_width(N)};
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION);

    for (int i = 0; i < N; i++)
        ((float *)t->data)[i] = (float)((i * 7 + seed) % 101) / 25 - 2;
    return t;
}

int main(int argc, char **argv)
{
    wf_error error = {WF_OK, ""};
    wf_context *ctx = wf_context_open(wf_cpu_device(1, &error), NULL, &error);
    int repeat = atoi(argv[2]);
    double begin = 0;
    wf_tensor *a, *b;

    wf_scope_open(ctx);
    a = operand(ctx, 0), b = operand(ctx, 50);
    for (int i = -repeat / 8; i < repeat; i++) {
        wf_tape *tape = strcmp(argv[3], "op") ? wf_tape_open(ctx) : NULL;
        wf_tensor *x, *y, *z = NULL;

        if (i == 0)
            begin = now();
        wf_scope_open(ctx);
        x = tape ? wf_leaf(a) : a, y = tape ? wf_leaf(b) : b;
        (void)y;
CASES
        if (z && tape)
            wf_backward(z, a, false);
        wf_scope_close(ctx);
        if (tape)
            wf_tape_close(tape);
        if (!z)
            return 1;
    }
    printf("%.9f\n", (now() - begin) / repeat);
    wf_scope_close(ctx);
    wf_context_close(ctx);
    return argc == 4 ? 0 : 1;
}
"""

DOCUMENTS = r"""
#include <stdlib.h>
#include "core/tape.h"
#include "kernels/devices.h"
#include "kernels/ops.h"

static wf_tensor *operand(wf_context *ctx, wf_dtype dtype, int64_t batch, int64_t tokens, int seed)
{
    const wf_dim dims[] = {wf_dim_batch(batch), wf_dim_chunked(tokens), wf_dim_chunked(2), wf_dim_width(64)};
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 4, dims, NULL, WF_MEMORY_ACTIVATION);

    for (int64_t i = 0; i < batch * tokens * 2 * 64; i++)
        ((float *)t->data)[i] = (float)((i * 7 + seed) % 101) / 25 - 2;
    return dtype == WF_F32 ? t : wf_cast(t, dtype);
}

/* LENGTH DOCUMENTS PACKED REPEAT BF16 */
int main(int argc, char **argv)
{
    wf_error error = {WF_OK, ""};
    wf_context *ctx = wf_context_open(wf_cpu_device(1, &error), NULL, &error);
    int64_t length = atoi(argv[1]), documents = atoi(argv[2]), batch = atoi(argv[3]) ? 1 : documents;
    int64_t tokens = length * documents / batch;
    wf_dtype dtype = atoi(argv[argc - 1]) ? WF_BF16 : WF_F32;
    const wf_dim dims[] = {wf_dim_batch(batch), wf_dim_chunked(tokens)};
    wf_attention_options how = {.causal = true};
    wf_tensor *x[4];

    wf_scope_open(ctx);
    for (int i = 0; i < 4; i++)
        x[i] = operand(ctx, dtype, batch, tokens, 17 * i);
    wf_context_storage(ctx, dtype);
    if (batch < documents) {
        how.first = wf_tensor_new(ctx, WF_I32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
        for (int64_t i = 0; i < tokens; i++)
            ((int32_t *)how.first->data)[i] = (int32_t)(i / length * length);
    }
    for (int i = 0; i < atoi(argv[4]); i++) {
        wf_tape *tape = wf_tape_open(ctx);

        wf_scope_open(ctx);
        wf_backward(wf_attention(wf_leaf(x[0]), wf_leaf(x[1]), wf_leaf(x[2]), &how), x[3], false);
        wf_scope_close(ctx);
        wf_tape_close(tape);
    }
    return wf_context_status(ctx);
}
"""


def fail(text):
    sys.exit(f"turns.py: {text}")


def output_of(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode:
        fail(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done


def instructions_of(command, **more):
    text = output_of(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command], **more).stderr
    return int(re.search(r"Collected : (\d+)", text).group(1))


def show(name, ratios, what):
    mean = sum(ratios) / len(ratios)
    spread = math.sqrt(sum((r - mean) ** 2 for r in ratios) / max(1, len(ratios) - 1) / len(ratios))
    print(f"{name:24} {mean:7.3f} +- {2 * spread:.3f}  {what}", flush=True)
    return mean


def take_turns(turns, first, second):
    """The ratios of both in turns, each first as often as second."""
    ratios = []
    for turn in range(turns):
        times = {}
        for run in (first, second) if turn % 2 == 0 else (second, first):
            times[run] = run()
        ratios.append(times[first] / times[second])
    return ratios


def built(folder, build, number, text):
    """Compiles a program for a build, against its headers and its library."""
    source, program = folder / f"{number}.c", folder / f"turns{number}"
    build = pathlib.Path(build).resolve()
    source.write_text(text)
    output_of(["cc", "-O2", "-D_GNU_SOURCE", "-I", build.parent, source, "-o", program, "-L", build, "-lweft",
               f"-Wl,-rpath,{build}"])
    return program


def elementwise(args, folder):
    cases = "".join(f'        if (strcmp(argv[1], "{name}") == 0)\n            z = {call};\n' for name, call in OPS.items())
    programs = [built(folder, b, i, PROGRAM.replace("CASES\n", cases)) for i, b in enumerate((args.old, args.new))]
    env = dict(os.environ, **({"WEFT_CPU_ISA": args.isa} if args.isa else {}))
    worst = math.inf
    for name in OPS:
        for kind in ("op", "gradient"):
            def run(program, repeat):
                command = [program, name, str(repeat), kind]
                if args.count:
                    return instructions_of(command, env=env)
                return float(output_of(command, env=env).stdout)

            if args.count: # what a turn has more than a short one
                counts = [run(p, 400) - run(p, 80) for p in programs]
                ratios = [counts[0] / counts[1]]
            else:
                ratios = take_turns(args.turns, lambda: run(programs[0], 4000), lambda: run(programs[1], 4000))
            worst = min(worst, show(f"{name} {kind}", ratios, "old / new"))
    print(f"worst {worst:.3f}, asked for 0.95")


def profile(args, folder):
    text = folder / "text"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 4000)
    common = [pathlib.Path(args.build) / "apps" / "gpt_train", "--data", text, "--n-layer", "4", "--n-embd", "256", "--n-head", "8",
              "--seq-len", "128", "--global-batch-size", "8", "--eval-interval", "0", "--sample", "0", "--dp",
              "1", "--tp", "1", "--threads-per-rank", "1"]
    explained = []

    def cost_of(command, on):
        if args.count:
            return instructions_of(command)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        said = output_of(command).stdout
        if on:
            explained.append(100 - float(re.search(r"^  neither .*?([\d.]+) %", said, re.M).group(1)))
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    def run(on):
        cost = []
        for steps in (4, args.steps):
            more = ["--profile", "20", "--trace-steps", f"3-{steps}"] if on else []
            cost.append(cost_of([*common, "--steps", str(steps), *more], on))
        return cost[1] - cost[0]

    mean = show("profile on", take_turns(1 if args.count else args.turns, lambda: run(False), lambda: run(True)),
                "off / on, asked for 0.98")
    if not explained:
        return
    print(f"cost {100 * (1 / mean - 1):.2f} %; explained {min(explained):.1f} to {max(explained):.1f} % of a step, asked for 97")


def context(args, folder):
    text = folder / "text"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 4000)
    common = [pathlib.Path(args.build) / "apps" / "gpt_train", "--data", text, "--arch", "llama", "--n-layer", "1", "--n-head", "8",
              "--global-batch-size", "1", "--eval-interval", "0", "--val-fraction", "0", "--threads-per-rank", "1"]
    cases = {
        "--cp 8": (["--n-embd", "256", "--seq-len", "8192"], ["--tp", "8", "--sequence-parallel"], ["--cp", "8"], "sp / cp, asked for 1"),
        "chunks of 4,096 tokens": (["--n-embd", "512", "--seq-len", "4096"], ["--exact", "off"], [], "off / on, asked for 0.99")}

    def run(flags, clock):
        cost = []
        for steps in (1, args.steps):
            before = clock()
            output_of([*common, *flags, "--steps", str(steps)])
            cost.append(clock() - before)
        return cost[1] - cost[0]

    for name, (model, first, second, what) in cases.items():
        for kind, clock in (("", time.monotonic), (", processor", lambda: resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime)):
            show(name + kind, take_turns(args.turns, lambda c=clock, m=model, f=first: run([*m, *f], c),
                                         lambda c=clock, m=model, s=second: run([*m, *s], c)), what)


def documents(args, folder):
    program = built(folder, args.build, 0, DOCUMENTS)

    def run(length, bf16, packed):
        cost = []
        for repeat in (0, 1 if args.count else 20):
            command = [program, str(length), "4", str(packed), str(repeat), str(bf16)]
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            counted = instructions_of(command) if args.count else output_of(command)
            cost.append(counted if args.count else resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
        return cost[1] - cost[0]

    for bf16, kind in enumerate(("fp32", "bf16")):
        for length in (1024, 1000):
            show(f"{length} tokens, {kind}", take_turns(1 if args.count else args.turns, lambda l=length, b=bf16: run(l, b, 0),
                                                        lambda l=length, b=bf16: run(l, b, 1)), "alone / packed, asked for 0.97")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    two, one, long, packed = (kinds.add_parser(name) for name in ("elementwise", "profile", "context", "documents"))
    two.add_argument("old")
    two.add_argument("new")
    two.add_argument("--isa", default="")
    one.add_argument("build")
    one.add_argument("--steps", type=int, default=30)
    long.add_argument("build")
    long.add_argument("--steps", type=int, default=4)
    long.add_argument("--turns", type=int, default=6)
    packed.add_argument("build")
    for kind in (two, one, packed):
        kind.add_argument("--turns", type=int, default=12)
        kind.add_argument("--count", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        {"elementwise": elementwise, "profile": profile, "context": context, "documents": documents}[args.kind](args, pathlib.Path(folder))


if __name__ == "__main__":
    main()
