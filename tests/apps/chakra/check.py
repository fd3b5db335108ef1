#!/usr/bin/env python3
"""
check.py GPT_TRAIN CHAKRA_READ FOLDER FLAG... - the traces that --plan FLAG... --chakra FOLDER has written: is each whole, do their bytes equal
those of a plan of each rank, do all ends of messages and collectives meet, and can all ranks go through them?
"""
import collections
import json
import pathlib
import subprocess
import sys

TYPES = {0: "all_reduce", 2: "all_gather", 5: "broadcast", 6: "all_to_all", 7: "reduce_scatter", 9: "barrier"}


def read(program, file):
    lines = subprocess.run([program, file], capture_output=True, text=True, check=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def kind(node):
    if node["type"] == "COMM_COLL_NODE":
        return TYPES[node["attr"]["comm_type"]]
    return {"COMM_SEND_NODE": "send", "COMM_RECV_NODE": "recv", "COMP_NODE": "op"}[node["type"]]


def group_of(name, rank, node, groups):
    if node["type"] != "COMM_COLL_NODE":
        return None
    members = groups[node["attr"]["pg_name"]]
    assert rank in members, f"{name}: rank {rank} is not in group {node['attr']['pg_name']}"
    return len(members)


def check_order(rank, nodes):
    for i, node in enumerate(nodes):
        assert node["id"] == i, f"rank {rank}: node {i} is number {node['id']}"
        assert all(0 <= d < i for d in node["data"] + node["ctrl"]), f"rank {rank}: node {i} waits for a later one"
        assert node["attr"]["is_cpu_op"] is False
    ops = [n for n in nodes if n["type"] == "COMP_NODE"]
    assert ops and all(n["attr"]["tensor_size"] > 0 for n in ops)


def totals(rank, nodes, groups):
    """(axis, kind) -> [calls, bytes received], as a plan has them."""
    found = collections.defaultdict(lambda: [0, 0])
    for node in nodes:
        if node["type"] == "COMP_NODE":
            continue
        axis = node["name"].split()[-1]
        group_of(node["name"], rank, node, groups)
        found[axis, kind(node)][0] += 1
        found[axis, kind(node)][1] += node["attr"]["received"]
    return dict(found)


def planned(program, rank, flags):
    done = subprocess.run([program, "--plan", *flags, "--rank", str(rank), "--json", "rank.json"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    plan = json.load(open("rank.json", encoding="utf-8"))
    return {(c["axis"], c["kind"]): [c["calls"], c["bytes"]] for c in plan["collectives"]}


def sizes_add_up(nodes, groups):
    """What a rank receives follows from what it brings, where parts are even."""
    for node in nodes:
        size, attr = node["attr"].get("comm_size"), node["attr"]
        if kind(node) == "all_gather":
            n = len(groups[attr["pg_name"]])
            assert abs(attr["received"] - (n - 1) * size) <= 64 * n, node
        if kind(node) == "reduce_scatter":
            n = len(groups[attr["pg_name"]])
            assert abs(attr["received"] - size * (n - 1) / n) <= 64 * n, node
        if kind(node) == "recv":
            assert attr["received"] == size, node


def walk(traces, groups):
    """Every rank begins a node when those that it waits for are over; a collective is over when all members have begun the same one,
    a message when both ends have. True where all come to their ends."""
    over = [set() for _ in traces]
    met = collections.defaultdict(dict)
    count = collections.Counter()
    begun = [set() for _ in traces]
    tags = collections.Counter()
    for rank, nodes in enumerate(traces):
        tags.update((kind(n), n["attr"]["comm_src"], n["attr"]["comm_dst"], n["attr"]["comm_tag"]) for n in nodes
                    if kind(n) in ("send", "recv"))
    assert all(v == 1 for v in tags.values()), "two messages have one tag"
    moved = True
    while moved:
        moved = False
        for rank, nodes in enumerate(traces):
            for node in nodes:
                i = node["id"]
                if i in begun[rank] or not all(d in over[rank] for d in node["data"] + node["ctrl"]):
                    continue
                begun[rank].add(i)
                moved = True
                attr = node["attr"]
                if kind(node) == "op":
                    over[rank].add(i)
                    continue
                if kind(node) in ("send", "recv"):
                    key, n = (attr["comm_src"], attr["comm_dst"], attr["comm_tag"]), 2
                    what = attr["comm_size"]
                else:
                    count[rank, attr["pg_name"]] += 1
                    key, n = (attr["pg_name"], count[rank, attr["pg_name"]]), len(groups[attr["pg_name"]])
                    what = kind(node), attr["comm_size"] if kind(node) != "all_gather" else None, attr.get("root")
                met[key][rank] = (i, what)
                if len(met[key]) == n:
                    assert len({w for _, w in met[key].values()}) == 1, f"{key}: members differ: {met[key]}"
                    for other, (j, _) in met[key].items():
                        over[other].add(j)
    stuck = [(r, len(n) - len(over[r])) for r, n in enumerate(traces) if len(over[r]) < len(n)]
    assert not stuck, f"ranks stand still with so many nodes left: {stuck}"


def main():
    program, reader, folder, *flags = sys.argv[1:]
    groups = json.load(open(f"{folder}/weft.groups.json", encoding="utf-8"))
    files = sorted(pathlib.Path(folder).glob("weft.*.et"), key=lambda p: int(p.name.split(".")[1]))
    assert [int(p.name.split(".")[1]) for p in files] == list(range(len(files)))
    traces = []
    for rank, file in enumerate(files):
        metadata, *nodes = read(reader, file)
        assert metadata["attr"] == {"generator": "weft", "rank": rank, "ranks": len(files)}, metadata
        check_order(rank, nodes)
        sizes_add_up(nodes, groups)
        reported, found = planned(program, rank, flags), totals(rank, nodes, groups)
        assert reported == found, f"rank {rank}: the plan says {reported}, the trace {found}"
        traces.append(nodes)
    assert not list(pathlib.Path(folder).glob("*.partial*")), "partial files are left"
    walk(traces, groups)
    print(f"{len(files)} ranks, {sum(map(len, traces))} nodes")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as wrong:
        sys.exit(f"{wrong}")
