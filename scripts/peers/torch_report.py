"""What compare_torch.py prints of its runs: tables, and rows of JSON."""
import json
import statistics

from torch_contestants import COMPARISONS, LONG_EAGER_AIM, SKIPPED

MIB = 1 << 20
MEMORY_AIM = 0.6


class Report:
    """Text on stdout, and the same as rows of JSON in a file."""

    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8") if path else None

    @staticmethod
    def say(line):
        """A line of text, at once."""
        print(line, flush=True)

    def row(self, **fields):
        """A row of the file."""
        if self.file:
            self.file.write(json.dumps(fields) + "\n")
            self.file.flush()


def median_and_range(values, digits):
    """Such as 1.23  1.20..1.25"""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f}  {low:.{digits}f}..{high:.{digits}f}"


def show_runs(runs, tokens, report):
    """The table of contestants."""
    report.say(f"\n{'':26}{'ms a step':>22}{'tokens/s':>10}{'peak MiB':>10}{'of training':>13}")
    for name, rounds in runs.items():
        steps = [run.step for run in rounds]
        peak = statistics.median(run.peak for run in rounds)
        above = statistics.median(run.peak - run.base for run in rounds)
        rate = tokens / statistics.median(steps) * 1e3
        report.say(f"{name:26}{median_and_range(steps, 0):>22}{rate:10.0f}{peak / MIB:10.0f}"
                   f"{above / MIB:13.0f}")
        report.row(row="contestant", name=name, ms=statistics.median(steps), rounds=steps,
                   tokens_per_s=rate, peak_bytes=peak, training_bytes=above)


def ratios_of(ours, theirs, turns):
    """Of two runs' medians; of each turn, where steps took turns."""
    if turns:
        return [b / a for a, b in zip(ours.ms[SKIPPED:], theirs.ms[SKIPPED:])]
    return [theirs.step / ours.step]


def show_ratios(runs, comparisons, long_sequences, turns, report):
    """How many times as fast Weft is, and its share of the memory."""
    report.say(f"\n{'':52}{'times as fast':>20}{'aim':>6}{'memory':>9}{'aim':>6}")
    for weft, torch, aim in comparisons:
        if weft not in runs or torch not in runs:
            continue
        if comparisons is COMPARISONS and long_sequences and torch.startswith("eager"):
            aim = LONG_EAGER_AIM
        faster = [ratio for ours, theirs in zip(runs[weft], runs[torch])
                  for ratio in ratios_of(ours, theirs, turns)]
        memory = statistics.median(ours.peak / theirs.peak
                                   for ours, theirs in zip(runs[weft], runs[torch]))
        report.say(f"{f'{weft} : {torch}':52}{median_and_range(faster, 2):>20}{aim:6.2f}"
                   f"{memory:9.2f}{MEMORY_AIM:6.2f}")
        report.row(row="ratio", weft=weft, torch=torch, times_as_fast=statistics.median(faster),
                   rounds=faster, aim=aim, memory=memory, memory_aim=MEMORY_AIM)
