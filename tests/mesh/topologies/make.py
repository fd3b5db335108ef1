#!/usr/bin/env python3
"""
make.py [DIR] - write the hosts of test_placement.c as files in hwloc's XML (version 2), small ones:
the parts that placement looks at and no others. Their names say what they are; MACHINES says how.

A machine is packages of cores, switches and what hangs on each: g a GPU, n an InfiniBand card,
e an Ethernet card, a a display that is no GPU. `islands` lists the GPUs that NVLink joins.
"""
import pathlib
import sys

MACHINES = {
    # name: (cores of a package, [[what hangs on each switch] of each package], NVLink islands)
    "dgx_8gpu_8nic": (4, [["gn"] * 4, ["gn"] * 4], [range(8)]),
    "pcie_8gpu_2nic": (4, [["gg", "gg", "n"], ["gg", "gg", "n"]], []),
    "pairs_4gpu": (4, [["g", "g", "e"], ["g", "g"]], [range(0, 2), range(2, 4)]),
    "crossed_pairs_4gpu": (4, [["g", "g"], ["g", "g"]], [(0, 2), (1, 3)]),
    "quads_8gpu": (4, [["gg", "gg", "n"], ["gg", "gg", "n"]], [range(0, 4), range(4, 8)]),
    "odd_3gpu": (4, [["g", "g", "n"], ["g"]], []),
    "odd_5gpu": (4, [["ggg", "n"], ["gg"]], []),
    "odd_7gpu": (2, [["gg", "g", "n"], ["gggg", "n"]], [range(0, 3), range(3, 7)]),
    "one_package_2gpu": (8, [["g", "g", "e", "a"]], []),
    "display_only": (2, [["a", "e"]], []),
}

CLASSES = {"g": "0302 [10de:2330]", "n": "0207 [15b3:1021]", "e": "0200 [8086:1572]",
           "a": "0300 [1a03:2000]"}
NAMES = {"g": ("nvml", 1), "n": ("mlx5_", 3), "e": ("eth", 2), "a": ("card", 1)}


class Writer:
    def __init__(self, cores, packages, islands):
        self.lines, self.id, self.bus, self.gpus = [], 0, 0, []
        self.seen = dict.fromkeys(NAMES, 0)
        whole, nodes = (1 << cores * len(packages)) - 1, (1 << len(packages)) - 1
        self.lines += ['<?xml version="1.0" encoding="UTF-8"?>',
                       '<!DOCTYPE topology SYSTEM "hwloc2.dtd">', '<topology version="2.0">']
        self.open("Machine", self.sets(whole, nodes), "os_index", 0)
        for number, switches in enumerate(packages):
            self.package(number, cores, switches)
        self.lines += ["</object>"] + self.nvlink(islands) + ["</topology>", ""]

    def open(self, kind, rest, index=None, value=None, end=">"):
        self.id += 1
        number = f' {index}="{value}"' if index else ""
        self.lines.append(f'<object type="{kind}"{number} gp_index="{self.id}" {rest}{end}')

    @staticmethod
    def sets(cpus, nodes):
        return (f'cpuset="0x{cpus:08x}" complete_cpuset="0x{cpus:08x}" '
                f'nodeset="0x{nodes:08x}" complete_nodeset="0x{nodes:08x}"')

    def package(self, number, cores, switches):
        node = 1 << number
        mine = self.sets(((1 << cores) - 1) << number * cores, node)
        self.open("Package", mine, "os_index", number)
        self.open("NUMANode", mine + ' local_memory="68719476736"', "os_index", number, "/>")
        for core in range(cores):
            cpu = number * cores + core
            self.open("Core", self.sets(1 << cpu, node), "os_index", core)
            self.open("PU", self.sets(1 << cpu, node), "os_index", cpu, "/>")
            self.lines.append("</object>")
        for devices in switches:
            self.switch(devices)
        self.lines.append("</object>")

    def switch(self, devices):
        bus = self.bus = self.bus + 8
        self.open("Bridge", f'bridge_type="0-1" depth="0" bridge_pci="0000:[{bus:02x}-{bus + 7:02x}]"')
        self.open("Bridge", f'bridge_type="1-1" depth="1" bridge_pci="0000:[{bus + 1:02x}-{bus + 7:02x}]" '
                  f'pci_busid="0000:{bus:02x}:01.0" pci_type="0604 [1000:c030] [0000:0000] 00" '
                  'pci_link_speed="63.0"')
        for number, kind in enumerate(devices):
            name, os_type = NAMES[kind]
            self.open("PCIDev", f'pci_busid="0000:{bus + 1 + number:02x}:00.0" '
                      f'pci_type="{CLASSES[kind]} [0000:0000] 00" pci_link_speed="63.0"')
            self.open("OSDev", f'name="{name}{self.seen[kind]}" osdev_type="{os_type}"', end="/>")
            self.seen[kind] += 1
            if kind == "g":
                self.gpus.append(self.id)
            self.lines.append("</object>")
        self.lines += ["</object>"] * 2

    def nvlink(self, islands):
        if not islands:
            return []
        n = len(self.gpus)
        joined = {(a, b) for island in islands for a in island for b in island}
        rates = " ".join("150000" if (a, b) in joined else "0"
                         for a in range(n) for b in range(n)) + " "
        ids = " ".join(map(str, self.gpus)) + " "
        return [f'<distances2 type="OSDev" nbobjs="{n}" kind="9" name="NVLinkBandwidth" indexing="gp">',
                f'<indexes length="{len(ids)}">{ids}</indexes>',
                f'<u64values length="{len(rates)}">{rates}</u64values>', "</distances2>"]


def main():
    if len(sys.argv) > 2 or "--help" in sys.argv:
        sys.exit(__doc__.strip())
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else pathlib.Path(__file__).parent
    for name, machine in MACHINES.items():
        (folder / f"{name}.xml").write_text("\n".join(Writer(*machine).lines), encoding="utf-8")


if __name__ == "__main__":
    main()
