"""
exact_tp_choices.py - the part of exactness.py that compares layouts under each --exact-tp.
"""
import collections

from training_runs import ARCHS, FAMILIES, Failure, Progress, Trainer, all_of, first_difference

STEPS = 8
TPS = (1, 2, 4, 8)
DTYPES = {"fp32": [], "bf16": ["--dtype", "bf16"]}


def layout_flags(tp, dp, micro, sequence, threads):
    """Flags of a layout."""
    return ["--tp", str(tp), "--dp", str(dp), "--micro-batch-size", str(micro), "--threads-per-rank", str(threads),
            *(["--sequence-parallel"] if sequence and tp > 1 else [])]


def check_larger(trainer, flags, most, reference):
    """A tp above --exact-tp says so, and has other bits."""
    text = f"not layout-exact: tp {2 * most} is above exact_tp {most}"
    steps, errors = trainer.run_with_errors([*flags, "--tp", str(2 * most)])
    if text not in errors:
        raise Failure(f"{' '.join(flags)} --tp {2 * most} does not say: {text}\n{errors}")
    if steps[-1] == reference[-1]:
        raise Failure(f"{' '.join(flags)}: tp {2 * most} has the bits of one rank, so that equal bits prove nothing")


def compare(program, folder, model, jobs, quick):
    """Each --exact-tp on the layouts that it is for."""
    trainer = Trainer(program, folder, model, STEPS)
    kinds = [(arch, dtype, most) for arch in (ARCHS if quick else FAMILIES) for dtype in ("fp32", "bf16") for most in TPS]
    reference, equal = {}, collections.Counter()
    progress = Progress(len(kinds))
    for kind in kinds:
        arch, dtype, most = kind
        flags = [*FAMILIES[arch], *DTYPES[dtype], "--exact-tp", str(most)]
        reference[kind] = trainer.run([*flags, "--threads-per-rank", "1"])
        if most == max(TPS) and trainer.run(flags[:-2]) != reference[kind]:
            raise Failure(f"{' '.join(flags)} is not the default")
        for other in TPS[:TPS.index(most)]:
            if reference[arch, dtype, other][-1] == reference[kind][-1]:
                raise Failure(f"{arch}, {dtype}: --exact-tp {other} and {most} have the same bits")
        layouts = [(tp, *rest) for i, tp in enumerate(tp for tp in TPS if tp <= most)
                   for rest in ((2, 1, tp > 1, 1 + i % 2), (1, 4, False, 2 - i % 2))]

        def done(layout, steps, kind=kind, flags=flags):
            difference = first_difference(steps, reference[kind])
            if difference:
                raise Failure(f"{' '.join(flags + layout_flags(*layout))} differs from one rank at {difference}")
            equal[kind] += 1

        all_of(jobs, [(layout, lambda f=flags, l=layout: trainer.run(f + layout_flags(*l))) for layout in layouts], done)
        if most < max(TPS):
            check_larger(trainer, flags, most, reference[kind])
        progress.step(f"{arch} {dtype} --exact-tp {most}: {equal[kind]} layouts, digest {reference[kind][-1][1]}")
    for (arch, dtype, most), count in equal.items():
        print(f"{arch:12} {dtype} --exact-tp {most}: {count} layouts, digest {reference[arch, dtype, most][-1][1]}")
    print(f"{equal.total()} runs of {trainer.steps} steps on layouts up to their --exact-tp have the bits of one rank, and "
          f"no two settings have the same ({progress.seconds():.0f} s)")
