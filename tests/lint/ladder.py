#!/usr/bin/env python3
"""
ladder.py ROOM.. -- OBJECT.. - rooms whose files call each other in one direction alone.

The symbols of the object files say who calls whom: an include says less, since a header of a room declares what
several of its files define. Prints the circles of each room, and exits with 1 if there is any.
"""
import os
import subprocess
import sys


def symbols(path):
    """What an object file defines, and what it needs."""
    defined, needed = set(), set()
    for line in subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines():
        *_, kind, name = line.split()
        if kind == "U":
            needed.add(name)
        elif kind in "TDBRV":
            defined.add(name)
    return defined, needed


def reached(graph, start):
    """All that a file calls, directly or by way of others."""
    found, left = set(), [start]
    while left:
        for other in graph[left.pop()] - found:
            found.add(other)
            left.append(other)
    return found


def circles(objects):
    """The circles of some object files, each as a sorted list of names."""
    defined, needed = {}, {}
    for path in objects:
        name = path.rpartition("/")[2].partition(".")[0]
        own, needed[name] = symbols(path)
        defined.update(dict.fromkeys(own, name))
    graph = {name: {defined[s] for s in wants if s in defined} - {name} for name, wants in needed.items()}
    below = {name: reached(graph, name) for name in graph}
    return sorted({tuple(sorted(b for b in below[name] if name in below[b])) for name in graph if name in below[name]})


def main():
    cut = sys.argv.index("--")
    rooms, objects = sys.argv[1:cut], [os.path.normpath(o) for o in sys.argv[cut + 1:]]
    wrong = 0
    for room in rooms:
        folder, _, rest = room.partition("/")
        mine = [o for o in objects if f"weft_{folder}.dir/{rest}/" in o and "/" not in o.partition(f".dir/{rest}/")[2]]
        if not mine:
            print(f"{room}: no object file is of it")
            wrong = 1
        for circle in circles(mine):
            print(f"{room}: {', '.join(circle)} call each other in a circle: move what the lower ones need down, or "
                  "what they call up to who calls them")
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
