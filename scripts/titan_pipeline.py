"""
What torchtitan reserves on the fullest rank of a pipeline, by titan_memory.py.

Micro-batches are as many as ranks, the default. Stages are gathered by the first micro-batch and stay so to the last one, and sum gradients
whole, in fp32, until a stage has all of them; the block that is reduced last leaves what went into its reduction until the next step. A stage
first runs forward once for its shapes; it has a buffer for each micro-batch's input and its output's gradient, and keeps outputs, of the last
stage logits, and gradients of inputs until the next step. The last one joins all logits then. The first rank has the gradient of the whole
embedding (Head.embed_backward), in fp32 as all of them.
"""
import titan_memory
from titan_memory import STEPS, Block, Device, Head, Unit, numbers_of_block


def stages_of(layers, stages):
    """Blocks of each stage: those in the middle have one more as long as there are any left."""
    base, more = divmod(layers, stages)
    inner = [base + (0 < i <= more) for i in range(stages - 1)]
    return inner + [layers - sum(inner)]


def order(rank, ranks, interleaved):
    """(forward, stage of the rank, micro-batch), as many as ranks. Of two stages the first goes first in forward, and last in backward."""
    chunks = (0, 1) if interleaved else (0,)
    forward = [(True, c, m) for c in chunks for m in range(ranks)]
    backward = [(False, c, m) for c in reversed(chunks) for m in range(ranks)]
    ahead = min(len(forward), ranks + 2 * (ranks - 1 - rank) if interleaved else ranks - rank)
    if not interleaved:
        ahead -= 1  # a backward comes first there, behind as many
    actions = forward[:ahead]
    for i, one in enumerate(backward):
        actions += [*forward[ahead + i:ahead + i + 1], one]
    return actions


class Stage:
    def __init__(self, device, model, place, micro, tokens, tp, dp):
        """place: number, stages, ranks and blocks."""
        number, stages, self.ranks, blocks = place
        self.first, self.last = number == 0, number == stages - 1
        self.device, self.block = device, Block(device, model["width"], micro, tokens)
        self.head, self.own = Head(device, model, micro * tokens, tp), 2 * micro * tokens * model["width"] // tp
        self.units = {i: Unit(device, numbers_of_block(model, tp), self.block.gathered, dp) for i in range(blocks)}
        self.all = dict(self.units)
        if self.first or self.last:
            words = [model["vocabulary"] * model["width"] // tp] + [model["width"]] * self.last
            self.all = {"root": Unit(device, words, 2, dp), **self.units}
        self.held, self.kept, self.outputs, self.gradients, self.sums, self.inputs = {}, {}, [], [], {}, None
        self.forward_for_shapes()
        self.inputs = None if self.first else [device.take(self.own) for _ in range(self.ranks)]
        self.buffers = [] if self.last else [device.take(self.own) for _ in range(self.ranks)]

    def gathered(self, name):
        """A unit, which only the first forward of a step has to gather."""
        self.all[name].gather()
        self.all[name].copy_out(self.held, True)

    def let_go(self):
        if "gather" in self.held:
            self.device.free(self.held.pop("gather"))

    def forward_for_shapes(self):
        """Without gradients, so that nothing is kept."""
        if "root" in self.all:
            self.gathered("root")
        x = self.head.embed() if self.first else self.device.take(self.own)
        for i in self.units:
            self.gathered(i)
            output, _ = self.block.play("forward")
            self.device.free(x)
            x = output
        if self.last:
            self.device.passing(self.head.width, self.head.width, 2 * self.head.logits)
        self.device.free(x)
        self.let_go()

    def forward(self, micro):
        if "root" in self.all:
            self.gathered("root")
        x = self.head.embed() if self.first else self.inputs[micro]
        self.kept[micro] = []
        for i in self.units:
            self.gathered(i)
            output, saved = self.block.play("forward")
            self.kept[micro].append((i, x if self.first or i else None, saved))
            x = output
        self.outputs.append(self.head.forward(micro, x, True) if self.last else x)
        self.let_go()

    def add(self, key, gradients):
        """The first micro-batch's become sums in fp32."""
        if key in self.sums:
            self.device.free(*gradients)
            return
        self.sums[key] = []
        for pool, piece in gradients:
            self.sums[key].append(self.device.take(2 * piece.size))
            self.device.free((pool, piece))

    def backward(self, micro, last):
        gradient = None
        if self.last:
            gradient, of_head = self.head.backward(micro)
        for i, x, saved in reversed(self.kept.pop(micro)):
            before, weights = self.block.play("backward", saved, x)
            if gradient:
                self.device.free(gradient)
            gradient = before
            self.add(i, weights.values())
        if self.first:
            self.add("root", [self.head.embed_backward(gradient)])
        else:
            self.gradients.append(gradient)
        if self.last:
            self.add("root", [of_head])
        for key, unit in self.all.items() if last else ():
            sums = self.sums.pop(key)
            if key == "root" and self.first:
                sums = [self.head.own_rows(sums[0])]
            unit.reshard()
            unit.reduce(self.held, sums)

    def begin(self):
        for unit in self.all.values():
            unit.zero_gradient()
        self.device.free(*self.outputs, *self.gradients)
        self.outputs, self.gradients = [], []


def rank_reserves(model, micro, tokens, tp, dp, pp, interleaved, rank, grows=False):
    device, blocks = Device(grows), stages_of(model["layers"], pp * (1 + interleaved))
    stages = [Stage(device, model, (i, len(blocks), pp, blocks[i]), micro, tokens, tp, dp) for i in range(rank, len(blocks), pp)]
    for _ in range(STEPS):
        for stage in stages:
            stage.begin()
        for forward, chunk, number in order(rank, pp, interleaved):
            if forward:
                stages[chunk].forward(number)
            else:
                stages[chunk].backward(number, number == pp - 1)
        if stages[-1].last:
            device.passing(2 * pp * stages[-1].head.logits)
        for stage in stages:
            titan_memory.optimize(device, stage.all.values())
    return device.reserved()


def reserved(model, micro, tokens, tp, dp, pp, interleaved, grows=False):
    return max(rank_reserves(model, micro, tokens, tp, dp, pp, interleaved, rank, grows) for rank in range(pp))
