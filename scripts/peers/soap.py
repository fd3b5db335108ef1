#!/usr/bin/env python3
"""
soap.py - the updates of docs/examples/soap.c beside SOAP's published formula (Vyas et al. 2024, algorithm 3) in numpy
and double: a matrix, 20 steps of the same gradients, eigenvectors anew every 4.

    scripts/peers/soap.py [BUILD]

BUILD is build where it is left out. The first gradient is square and its singular values differ clearly, since
eigenvectors of what is alike are any; and epsilon is no dot beside the gradients, since Adam makes whole steps of
elements that are rounding: in both two right programs differ. Fails where a direction is more than 1e-5 of its largest
away.
"""
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIDE, STEPS, EVERY, BOUND = 12, 20, 4, 1e-5
BETA1, BETA2, EPS = 0.9, 0.95, 0.3
WRAPPER = """
#define main example_main
#include "soap.c"
void soap_step(float *g, float *moments, float *left, float *right, float *room, int n, int step)
{
    wf_update u = {.beta1 = BETA1, .beta2 = BETA2, .eps = EPS, .grad_scale = 1, .step = step, .own = {EVERY}};
    matrix x = {n, n, g, moments, moments + n * n, left, right, room, room + n * n, room + 2 * n * n};

    u.bias1 = (float)(1 / (1 - pow(BETA1, step)));
    u.bias2 = (float)(1 / (1 - pow(BETA2, step)));
    update_matrix(&x, &u);
}
"""


def library(build, folder):
    text = "".join(f"#define {name} {globals()[name]}\n" for name in ("BETA1", "BETA2", "EPS", "EVERY")) + WRAPPER
    (folder / "soap_step.c").write_text(text)
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O2", "-ffp-contract=off", "-shared", "-fPIC",
                    "-I", ROOT / "docs/examples", "-I", build / "include", folder / "soap_step.c", "-o",
                    folder / "soap.so", "-L", build, "-lweft", "-lm", f"-Wl,-rpath,{build}"], check=True)
    return ctypes.CDLL(str(folder / "soap.so"))


class Soap:
    """Algorithm 3, with bias corrections; the first gradient makes the first eigenvectors."""

    def __init__(self):
        self.m, self.v, self.l, self.r = (numpy.zeros((SIDE, SIDE)) for _ in range(4))

    def step(self, g, t):
        self.m = BETA1 * self.m + (1 - BETA1) * g
        direction = numpy.zeros_like(g)
        if t > 1:
            self.v = BETA2 * self.v + (1 - BETA2) * (self.ql.T @ g @ self.qr) ** 2
            m = self.ql.T @ self.m @ self.qr / (1 - BETA1 ** t)
            direction = self.ql @ (m / (numpy.sqrt(self.v / (1 - BETA2 ** t)) + EPS)) @ self.qr.T
        self.l = BETA2 * self.l + (1 - BETA2) * g @ g.T
        self.r = BETA2 * self.r + (1 - BETA2) * g.T @ g
        if t == 1:
            self.ql, self.qr = (numpy.linalg.eigh(p)[1][:, ::-1] for p in (self.l, self.r))
        elif t % EVERY == 0:
            self.ql, self.qr = (numpy.linalg.qr(p @ q)[0] for p, q in ((self.l, self.ql), (self.r, self.qr)))
        return direction


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    random = numpy.random.default_rng(7)
    basis = [numpy.linalg.qr(random.normal(size=(SIDE, SIDE)))[0] for _ in range(2)]
    first = basis[0] * numpy.linspace(2, 0.5, SIDE) @ basis[1].T
    state = [numpy.zeros(n * SIDE * SIDE, numpy.float32) for n in (2, 2, 2, 3)]
    peer, worst = Soap(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        soap = library(build, pathlib.Path(folder))
        for step in range(1, STEPS + 1):
            g = (first if step == 1 else random.normal(size=first.shape)).astype(numpy.float32)
            want = peer.step(g.astype(float), step)
            got = g.copy()
            soap.soap_step(*(ctypes.c_void_p(a.ctypes.data) for a in (got, *state)), SIDE, step)
            worst = max(worst, float(abs(got - want).max() / max(1, abs(want).max())))
            if step % 5 == 0 or step < 3:
                print(f"step {step}: largest direction {abs(want).max():.3f}, largest difference so far {worst:.1e}")
    return worst > BOUND


if __name__ == "__main__":
    sys.exit(main())
