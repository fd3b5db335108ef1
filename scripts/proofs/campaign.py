#!/usr/bin/env python3
"""
campaign.py NAME [--trials N] [--seed S] [--state DIR] [--jobs J] [--only NUMBER] [BUILD] - long campaigns that show
that Weft is reliable, with one driver. NAME is one of:

    kills   SIGKILL at random instants of runs that save all the time; a trial is a chain of 20 kills
    faults  one to three faults of a run at random moments: ranks, signals, file calls, checkpoints, disks,
            data, consoles
    fuzz    the fuzzers of tests/fuzz, in a build with sanitizers and in a fast one, until --inputs N were
            tried
    soak    10,000 steps with saves, evaluations and lost ranks: memory, descriptors and threads stay what
            they are

What a trial draws follows from the seed and its number, so --only NUMBER repeats one. DIR keeps which were done:
the same command continues where it was stopped, and more trials are added to those that are there. What is left of a
trial that fails is in DIR/failed/NAME-NUMBER; a line on stderr says what failed. Ends with a line of counts; status
1 where a trial failed.
"""
import argparse
import importlib
import pathlib
import sys

from training_runs import ROOT

TRIALS = {"kills": 500, "faults": 1000, "fuzz": 0, "soak": 2}


def main():
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=TRIALS)
    parser.add_argument("--trials", type=int, help=f"default: {', '.join(f'{k} {v}' for k, v in TRIALS.items() if v)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state", default="campaign", help="default: campaign")
    parser.add_argument("--jobs", type=int, default=2, help="trials at a time")
    parser.add_argument("--only", type=int, help="the number of the one trial to run, even if it was run before")
    parser.add_argument("--on", choices=("threads", "mpi"), help="faults: one way to run; default: both")
    parser.add_argument("--hosts", action="store_true", help="faults: two simulated hosts, too, which takes root")
    parser.add_argument("--steps", type=int, default=10000, help="soak: steps of a run")
    parser.add_argument("--inputs", type=float, default=1e9, help="fuzz: how many in all, over all calls")
    parser.add_argument("--minutes", type=float, default=10, help="fuzz: how long this call tries")
    parser.add_argument("--build-fuzz", type=pathlib.Path, default=ROOT / "build-fuzz", help="fuzz: the two builds")
    parser.add_argument("build", nargs="?", default=ROOT / "build", type=pathlib.Path)
    options = parser.parse_intermixed_args()
    options.build = options.build.resolve()
    options.trials = TRIALS[options.name] if options.trials is None else options.trials
    return importlib.import_module(f"campaign_{options.name}").main(options)


if __name__ == "__main__":
    sys.exit(main())
