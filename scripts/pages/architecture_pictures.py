#!/usr/bin/env python3
"""
architecture_pictures.py - draws the pictures of docs/architecture.md, docs/architecture/*.svg.

A picture is a list of boxes, arrows and words in pixels, kept by hand below: it has to be read, not
laid out by a program.
"""
import html
import pathlib
import sys

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "architecture"
PLAIN, BLUE, ORANGE, GREEN = "#ffffff", "#dce8f8", "#fbe8d0", "#dff0e0"


class Picture:
    """What is drawn so far."""

    def __init__(self, name, width, height):
        self.name, self.width, self.height, self.parts = name, width, height, []

    def text(self, x, y, words, anchor="middle", size=12, colour="#202020"):
        """Lines of words, the first with its middle at y."""
        for number, line in enumerate(words.split("\n")):
            self.parts.append(f'<text x="{x}" y="{y + 4 + 15 * number}" text-anchor="{anchor}" '
                              f'font-size="{size}" fill="{colour}">{html.escape(line)}</text>')

    def box(self, x, y, width, height, words, fill=PLAIN):
        """A box with its words in the middle."""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" '
                          f'fill="{fill}" stroke="#405070"/>')
        lines = words.count("\n")
        self.text(x + width / 2, y + height / 2 - 7.5 * lines, words)

    def arrow(self, x, y, to_x, to_y, words="", dashed=False):
        """An arrow, with words above its middle where it lies, to its right where it stands."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="#405070" '
                          f'stroke-width="1.5" marker-end="url(#tip)"{dash}/>')
        if words and x == to_x:
            self.text(x + 8, (y + to_y) / 2, words, "start", 11, "#506080")
        elif words:
            self.text((x + to_x) / 2, (y + to_y) / 2 - 10, words, "middle", 11, "#506080")

    def write(self):
        """The file."""
        FOLDER.mkdir(parents=True, exist_ok=True)
        tip = ('<defs><marker id="tip" markerWidth="9" markerHeight="8" refX="8" refY="4" '
               'orient="auto"><path d="M0,0 L9,4 L0,8 z" fill="#405070"/></marker></defs>')
        (FOLDER / f"{self.name}.svg").write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" font-family="sans-serif">\n'
            f'<rect width="100%" height="100%" fill="#ffffff"/>\n{tip}\n' +
            "\n".join(self.parts) + "\n</svg>\n", encoding="utf-8")


def dispatch():
    """One op from call to result."""
    p = Picture("dispatch", 760, 250)
    steps = (("signature", "letters name\nthe dims", PLAIN), ("sharding rule", "is this layout\nlegal?", BLUE),
             ("outputs", "shape, layout,\nmemory", PLAIN), ("kernel", "reference, CPU\nor CUDA", ORANGE),
             ("tape", "what backward\nwill need", GREEN))
    for i, (name, what, fill) in enumerate(steps):
        p.box(20 + 148 * i, 90, 120, 76, f"{name}\n{what}", fill)
        if i:
            p.arrow(20 + 148 * i - 28, 128, 20 + 148 * i, 128)
    p.text(20, 40, "y = wf_linear(x, w)", "start", 14)
    p.arrow(80, 52, 80, 90)
    p.text(80, 200, "core/signature.c", "middle", 11, "#506080")
    p.text(228, 200, "mesh, by a table of\nfunctions in the context", "middle", 11, "#506080")
    p.text(376, 200, "core/dispatch.c", "middle", 11, "#506080")
    p.text(524, 200, "the device's table", "middle", 11, "#506080")
    p.text(672, 200, "core/tape.c", "middle", 11, "#506080")
    p.write()


def tape():
    """Autograd: forward writes the list, backward walks it."""
    p = Picture("tape", 760, 290)
    p.text(20, 25, "forward: every op adds an entry", "start", 12)
    names = ("embedding", "rmsnorm", "linear", "redistribute", "loss")
    for i, name in enumerate(names):
        p.box(20 + 148 * i, 45, 120, 40, name, GREEN)
        if i:
            p.arrow(20 + 148 * i - 28, 65, 20 + 148 * i, 65)
    p.text(600, 115, "backward: the walk back, entry by entry", "end", 12)
    for i, name in enumerate(names):
        p.box(20 + 148 * i, 140, 120, 40, f"{name}\nbackward", ORANGE)
        if i:
            p.arrow(20 + 148 * i, 160, 20 + 148 * i - 28, 160)
    p.arrow(672, 85, 672, 140, "seed")
    for i, name in ((0, "table"), (1, "gain"), (2, "weight")):
        p.arrow(80 + 148 * i, 180, 80 + 148 * i, 225, "", True)
        p.box(20 + 148 * i, 225, 120, 40, f"gradient of a leaf:\n{name}", BLUE)
    p.text(460, 245, "a step of its own: it can be deferred", "start", 12, "#506080")
    p.write()


def hooks():
    """Points of a module, and who listens there."""
    p = Picture("hooks", 760, 260)
    p.box(170, 20, 420, 130, "", PLAIN)
    p.text(185, 38, 'linear: model code, which knows no mesh', "start")
    p.box(190, 70, 90, 50, 'point "in"', BLUE)
    p.box(335, 70, 90, 50, "matrix\nproduct", ORANGE)
    p.box(480, 70, 90, 50, 'point "sum"', BLUE)
    p.arrow(100, 95, 190, 95, "x")
    p.arrow(280, 95, 335, 95)
    p.arrow(425, 95, 480, 95)
    p.arrow(570, 95, 670, 95, "y")
    p.box(150, 195, 170, 46, "column: x becomes whole\n(a border)", GREEN)
    p.box(440, 195, 170, 46, "row: partial sums become\nthe residual's layout", GREEN)
    p.arrow(235, 195, 235, 120)
    p.arrow(525, 195, 525, 120)
    p.text(380, 218, "styles of the\nsharding plan", "middle", 11, "#506080")
    p.write()


def units():
    """FSDP over time."""
    p = Picture("units", 760, 230)
    for row, name in enumerate(("compute", "all-gather", "reduce-scatter")):
        p.text(110, 55 + 55 * row, name, "end")
    lanes = ((("block 0", 175, ORANGE), ("block 1", 275, ORANGE), ("block 2", 375, ORANGE),
              ("block 2 back", 475, ORANGE), ("block 1 back", 575, ORANGE)),
             (("0", 125, BLUE), ("1", 175, BLUE), ("2", 275, BLUE), ("1", 475, BLUE), ("0", 575, BLUE)),
             (("2", 575, GREEN), ("1", 675, GREEN)))
    for row, lane in enumerate(lanes):
        for name, x, fill in lane:
            p.box(x, 35 + 55 * row, 96 if row == 0 else 46, 40, name, fill)
    p.arrow(125, 205, 740, 205)
    p.text(430, 220, "time: the next unit is prefetched while this one computes; one is freed when it has run",
           "middle", 11, "#506080")
    p.write()


def parameter():
    """The states of a parameter, from one step to the next."""
    p = Picture("parameter", 860, 250)
    for x, name, what, fill in ((20, "sharded", "f32, 1/N a rank", BLUE), (260, "compute copy", "bf16, 1/N a rank", BLUE),
                                (500, "gathered", "whole, as modules\ncompute with it", ORANGE)):
        p.box(x, 40, 140, 60, f"{name}\n{what}", fill)
    p.box(500, 170, 140, 60, "gradient\none a use and\nmicro-step, partial", ORANGE)
    p.box(260, 170, 140, 60, "reduced\nsummed, 1/N a rank", GREEN)
    p.arrow(160, 70, 260, 70, "cast")
    p.arrow(400, 70, 500, 70, "all-gather")
    p.arrow(570, 100, 570, 170, "forward, backward")
    p.arrow(500, 200, 400, 200, "reduce-scatter")
    p.arrow(260, 185, 90, 100)
    p.text(95, 160, "optimizer\n(its state: 1/N)", "middle", 11, "#506080")
    p.arrow(640, 70, 715, 70, "", True)
    p.text(723, 66, "freed when its\nunit has run", "start", 11, "#506080")
    p.write()


def collectives():
    """One tree of sums over chunks and ranks."""
    p = Picture("collectives", 760, 270)
    for i in range(8):
        p.box(25 + 90 * i, 200, 80, 34, f"chunk {i}", (BLUE, GREEN, ORANGE, PLAIN)[i // 2])
    for i in range(4):
        p.box(70 + 180 * i, 140, 80, 34, "+", (BLUE, GREEN, ORANGE, PLAIN)[i])
        p.arrow(65 + 180 * i, 200, 95 + 180 * i, 174)
        p.arrow(155 + 180 * i, 200, 125 + 180 * i, 174)
    for i in range(2):
        p.box(160 + 360 * i, 80, 80, 34, "+")
        p.arrow(120 + 360 * i, 140, 180 + 360 * i, 114)
        p.arrow(280 + 360 * i, 140, 220 + 360 * i, 114)
    p.box(340, 20, 80, 34, "sum")
    p.arrow(220, 80, 350, 54)
    p.arrow(540, 80, 410, 54)
    p.text(380, 253, "four ranks hold two chunks each: a rank adds up its own subtree, the collective adds what is "
           "above", "middle", 11, "#506080")
    p.write()


for draw in (dispatch, tape, hooks, units, parameter, collectives):
    draw()
