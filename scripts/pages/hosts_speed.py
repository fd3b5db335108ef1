#!/usr/bin/env python3
"""hosts_speed.py [BUILD] - what it is worth that tp sits inside hosts, on two simulated ones.

A small GPT is trained with tp 4 x dp 2 as one process of 4 ranks per host, by the placement that Weft
chooses and by the transposed one (--rank-order), over links without a limit and of 1 Gbit/s. What a
step takes over the slow link is predicted from what it takes over the fast one and from the bytes
that the plan says a host receives:

    predicted = unlimited + bytes into a host * 8 / (1 Gbit/s * 1448 / 1514, what TCP leaves of a frame)

Writes build/hosts_speed.jsonl, a row per run, and docs/hosts_speed.svg (with gnuplot); prints the table
of docs/hosts.md. Takes root and network namespaces, as tests/hosts/hosts.sh does.
"""
import json
import os
import re
import subprocess
import sys

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HOSTS = os.path.join(ROOT, "tests/hosts/hosts.sh")
ORDERS = ("near", "transposed")
RATES = ("-", "1gbit")
STEPS, WARM = 6, 1
LINK = 1e9 / 8 * 1448 / 1514
MODEL = (
    "--tp 4 --dp 2 --strategy no_shard --n-layer 4 --n-embd 256 --n-head 8 --vocab-size 257 "
    "--seq-len 128 --global-batch-size 16 --eval-interval 0"
).split()


def received(host):
    """Bytes that a host's card has received since it is there."""
    out = subprocess.run(
        [HOSTS, "--on", host, "ip -s -j link show eth0"], capture_output=True, check=True, text=True
    ).stdout
    return json.loads(out)[0]["stats64"]["rx"]["bytes"]


def train(build, work, order):
    """Milliseconds of the fastest step (what else runs here only adds), and bytes in one into a host."""
    log = os.path.join(work, "log")
    if os.path.exists(log):
        os.remove(log)
    before = [received(h) for h in ("node0", "node1")]
    line = (
        f"cd {work} && exec mpirun --allow-run-as-root --bind-to none "
        f"--mca plm_rsh_agent '{HOSTS} --on' --mca btl_tcp_if_include 10.77.0.0/24 "
        f"--mca oob_tcp_if_include 10.77.0.0/24 -x WEFT_PLUGINS --host node0:1,node1:1 "
        f"{build}/apps/gpt_train {' '.join(MODEL)} --data text --steps {STEPS} "
        f"--rank-order {order} --log-jsonl {log}"
    )
    subprocess.run([HOSTS, "--on", "node0", line], check=True, stdout=subprocess.DEVNULL)
    after = [received(h) for h in ("node0", "node1")]
    with open(log, encoding="utf-8") as file:
        rows = [json.loads(row) for row in file]
    ms = [row["ms"] for row in rows if row.get("step", 0) > WARM]
    return min(ms), max(b - a for a, b in zip(before, after)) / STEPS


def inside(build, work, rate, path):
    """Where the hosts exist: a row for each order."""
    os.environ["WEFT_PLUGINS"] = build
    with open(path, "a", encoding="utf-8") as out:
        for order in ORDERS:
            ms, counted = train(build, work, order)
            row = {"rate": rate, "order": order, "ms": ms, "counted": counted}
            out.write(json.dumps(row) + "\n")


def planned(build, work):
    """Bytes that the plan says a host receives in a step, by order; and mesh_info's picture."""
    plan = os.path.join(work, "plan.json")
    subprocess.run(
        [f"{build}/apps/gpt_train", *MODEL, "--plan", "--json", plan],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    text = subprocess.run(
        [f"{build}/apps/mesh_info", "--hosts", "2", "--topology", "core:4 pu:1", "--plan", plan]
        + ["--network", "1", "--svg", f"{ROOT}/docs/hosts_mesh.svg"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    found = re.search(r"into one host, at most +([\d.]+) (\w+) +([\d.]+) (\w+)", text)
    return dict(
        zip(ORDERS, (float(found[1]) * units[found[2]], float(found[3]) * units[found[4]]))
    )


def picture(rows, path):
    """Bars of both orders: unlimited, predicted, measured."""
    lines = [f'"{r["order"]}" {r["unlimited"]:.1f} {r["predicted"]:.1f} {r["ms"]:.1f}' for r in rows]
    script = (
        f"set terminal svg size 640,360 font 'sans,13'\nset output '{path}'\n"
        "set style data histograms\nset style fill solid 0.8 noborder\nset boxwidth 0.9\n"
        "set ylabel 'ms a step'\nset yrange [0:*]\nset key top left\nset grid ytics\n"
        "$rows << END\n" + "\n".join(lines) + "\nEND\n"
        "plot $rows using 2:xtic(1) title 'without a limit' lc rgb '#9ab', "
        "'' using 3 title 'predicted at 1 Gbit/s' lc rgb '#fb4', "
        "'' using 4 title 'measured at 1 Gbit/s' lc rgb '#36a'\n"
    )
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def table(rows):
    """For docs/hosts.md; returns measured / predicted factor."""
    print("| order | MB into a host: plan | counted | ms, no limit | predicted | measured |")
    print("|---|---|---|---|---|---|")
    for r in rows:
        print(
            f"| {r['order']} | {r['bytes'] / 1e6:.1f} | {r['counted'] / 1e6:.1f} "
            f"| {r['unlimited']:.0f} | {r['predicted']:.0f} | {r['ms']:.0f} |"
        )
    near, transposed = rows
    factors = [transposed[key] / near[key] for key in ("bytes", "predicted", "ms")]
    links = [(r["ms"] - r["unlimited"]) for r in rows]
    print(
        f"\ntransposed / near: bytes {factors[0]:.2f}, step predicted {factors[1]:.2f}, "
        f"measured {factors[2]:.2f}; time on the link alone {links[1] / links[0]:.2f}"
    )
    return factors[2] / factors[1]


def main():
    """Both rates, then the table, the rows and the picture; 1 where the prediction is off."""
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build"))
    work = os.path.join(build, "hosts_speed")
    path = os.path.join(build, "hosts_speed.jsonl")
    if sys.argv[2:3] == ["--inside"]:
        inside(build, work, sys.argv[3], path)
        return 0
    os.makedirs(work, exist_ok=True)
    with open(os.path.join(work, "text"), "w", encoding="utf-8") as text:
        text.write(" ".join(f"{i * 7919 % 10007:x}" for i in range(20000)))
    open(path, "w", encoding="utf-8").close()
    for rate in RATES:
        status = subprocess.run([HOSTS, "2", rate, sys.executable, __file__, build, "--inside", rate])
        if status.returncode != 0:
            return status.returncode
    with open(path, encoding="utf-8") as file:
        run = {(r["rate"], r["order"]): r for r in map(json.loads, file)}
    plan = planned(build, work)
    rows = [dict(run[RATES[1], order], bytes=plan[order]) for order in ORDERS]
    for row in rows:
        row["unlimited"] = run[RATES[0], row["order"]]["ms"]
        row["predicted"] = row["unlimited"] + row["bytes"] / LINK * 1e3
    off = table(rows)
    picture(rows, f"{ROOT}/docs/hosts_speed.svg")
    print(f"the measured factor is {off:.2f} of the predicted one")
    return 0 if 0.8 <= off <= 1.2 else 1


if __name__ == "__main__":
    sys.exit(main())
