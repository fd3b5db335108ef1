"""
What torchtitan reserves on a device: allocations of a rank in their order, on a model of PyTorch's allocator. For planning.py.

Read from torchtitan's benchmark's commit 9dec370 (train.py, metrics.py, parallelize_llama.py, pipelining_utils.py), PyTorch 2.6
(CUDACachingAllocator.cpp, _fsdp_collectives.py, _fsdp_param_group.py, pipelining/stage.py and schedules.py,
distributed/tensor/parallel/loss.py) and torchao; what a compiled block does is in titan_blocks.txt. Nothing is set for a row.
"""
import bisect
import pathlib

MIB = 1 << 20
BLOCKS = pathlib.Path(__file__).with_name("titan_blocks.txt")
STEPS = 3  # the second one has the optimizer's state in it; later ones add nothing


class Piece:
    """A part of a segment; neighbours are of the same segment."""

    def __init__(self, place, size):
        self.place, self.size, self.free, self.before, self.after = place, size, True, None, None


class Pool:
    """A stream's segments, of small (up to 1 MiB) or of large tensors. A tensor takes the smallest piece that is free and large
    enough, or a new segment: 2 MiB for small ones, 20 MiB below 10 MiB, else its size in whole 2 MiB. What is left of a piece stays
    free if it is 512 bytes, or more than 1 MiB for large ones. Free neighbours become one; segments never do, and none is given back.
    A pool that grows (expandable_segments) has one segment, at whose end 2 or 20 MiB are added; its last piece is taken if no other fits."""

    def __init__(self, small, grows):
        self.small, self.grows, self.free, self.reserved, self.segments, self.last = small, grows, [], 0, 0, None

    def new_segment(self, size):
        size = 2 * MIB if self.small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        self.reserved += size
        self.segments += 1
        return Piece(self.segments << 44, size)

    def grow(self, size):
        unit, last = 2 * MIB if self.small else 20 * MIB, self.last
        if last and last.free:
            self.free.remove((last.size, last.place, last))
            more = -(-(size - last.size) // unit) * unit
            last.size += more
        else:
            more = -(-size // unit) * unit
            self.last = Piece(self.reserved, more)
            self.last.before = last
            if last:
                last.after = self.last
        self.reserved += more
        return self.last

    def smallest(self, size):
        i = bisect.bisect_left(self.free, (size,))
        if i + 1 < len(self.free) and self.free[i][2] is self.last:
            i += 1
        if i < len(self.free):
            return self.free.pop(i)[2]
        return self.grow(size) if self.grows else self.new_segment(size)

    def take(self, size):
        size = max(512, -(-size // 512) * 512)
        piece = self.smallest(size)
        rest = piece.size - size
        if rest >= 512 if self.small or self.grows else rest > MIB:
            other = Piece(piece.place + size, rest)
            other.before, other.after, piece.after, piece.size = piece, piece.after, other, size
            if other.after:
                other.after.before = other
            if piece is self.last:
                self.last = other
            self.put(other)
        piece.free = False
        return piece

    def put(self, piece):
        piece.free = True
        bisect.insort(self.free, (piece.size, piece.place, piece))

    def give_back(self, piece):
        before, after = piece.before, piece.after
        if before and before.free:
            self.free.remove((before.size, before.place, before))
            piece.place, piece.size, piece.before = before.place, piece.size + before.size, before.before
            if piece.before:
                piece.before.after = piece
        if after and after.free:
            self.free.remove((after.size, after.place, after))
            piece.size, piece.after = piece.size + after.size, after.after
            if piece.after:
                piece.after.before = piece
            if after is self.last:
                self.last = piece
        self.put(piece)


class Device:
    """The pools of all streams."""

    def __init__(self, grows):
        self.pools, self.grows = {}, grows

    def take(self, size, stream="compute"):
        small = size <= MIB
        pool = self.pools.setdefault((stream, small), Pool(small, self.grows))
        return pool, pool.take(int(size))

    def free(self, *tensors):
        for pool, piece in tensors:
            pool.give_back(piece)

    def passing(self, *sizes):
        """Tensors that are gone when the last of them is there."""
        self.free(*[self.take(size) for size in sizes])

    def reserved(self):
        return sum(pool.reserved for pool in self.pools.values())


class Block:
    """A compiled block, checkpointed as its row has it."""

    def __init__(self, device, width, micro, tokens):
        self.device, self.ways = device, {}
        for line in BLOCKS.read_text(encoding="utf-8").splitlines():
            name, _, does = line.partition(":")
            words = name.split()
            if words[:3] == [str(width), str(micro), str(tokens)]:
                self.gathered, self.ways[words[4]] = int(words[3]), does.split()

    def play(self, way, kept=(), block_input=None):
        """What it gives, and what it keeps: gradients come last weight first."""
        taken, output, kept = {}, None, dict(kept)
        for word in self.ways[way]:
            if word[0] == "+":
                output = len(taken) if word[-1] == "o" else output
                taken[len(taken)] = self.device.take(int(word[1:].rstrip("o")) * MIB)
            elif word[0] == "-":
                self.device.free(taken[int(word[1:])])
                taken[int(word[1:])] = None
            elif word[0] == "s":
                self.device.free(kept.pop(int(word[1:])))
            elif block_input:
                self.device.free(block_input)
        given = taken.pop(output)
        return given, {i: tensor for i, tensor in reversed(taken.items()) if tensor}


class Unit:
    """A unit of fully_shard: fp32 shards of parameters and of AdamW's state, and gradients that are views of what a reduction gives.
    Gathers and reductions are allocated on streams of their own, what goes into a reduction is not."""

    def __init__(self, device, numbers, gathered, ranks):
        self.device, self.numbers, self.gathered, self.ranks = device, numbers, gathered, ranks
        self.shards = [device.take(4 * n / ranks) for n in numbers]
        self.state = self.whole = self.buffer = self.gradient = None

    def gather(self):
        if not self.whole and not self.buffer:
            casts = [self.device.take(self.gathered * n / self.ranks, "gathers") for n in self.numbers]
            self.buffer = self.device.take(self.gathered * sum(self.numbers), "gathers")
            self.device.free(*casts)

    def copy_out(self, held, forward):
        """In forward a buffer is held until the next one is copied out."""
        if not self.buffer:
            return
        if forward and "gather" in held:
            self.device.free(held.pop("gather"))
        self.whole = [self.device.take(self.gathered * n) for n in self.numbers]
        if forward:
            held["gather"] = self.buffer
        else:
            self.device.free(self.buffer)
        self.buffer = None

    def reshard(self):
        if self.whole:
            self.device.free(*self.whole)
        self.whole = None

    def reduce(self, held, gradients):
        """What went into a reduction is held until the next one."""
        if "reduction" in held:
            self.device.free(held.pop("reduction"))
        held["reduction"] = self.device.take(4 * sum(self.numbers))
        self.device.free(*gradients)
        self.gradient = self.device.take(4 * sum(self.numbers) / self.ranks, "reductions")

    def zero_gradient(self):
        if self.gradient:
            self.device.free(self.gradient)
        self.gradient = None


class Head:
    """Embedding, last norm, head and loss, none of which is compiled. Over tensor-parallel ranks what goes into the head is gathered and put
    in order by a copy, and the loss is parallel."""

    def __init__(self, device, model, tokens, tp):
        self.device, self.tp = device, tp
        self.logits, self.width = tokens * model["vocabulary"] // tp, 2 * tokens * model["width"]
        self.own, self.weight = self.width // tp, 2 * model["vocabulary"] * model["width"] // tp
        self.kept = {}

    def embed(self):
        whole = [self.device.take(self.width), self.device.take(self.width)] if self.tp > 1 else []
        output = self.device.take(self.own)
        self.device.free(*whole)
        return output

    def embed_backward(self, gradient):
        """Gives the gradient of the table, which over tensor-parallel ranks is that of the whole one on each of them. Its kernel has
        a sum in fp32 for each token."""
        if self.tp > 1:
            gathered, ordered = self.device.take(self.width), self.device.take(self.width)
            self.device.free(gathered, gradient)
            gradient = ordered
        table = self.device.take(self.weight * self.tp)
        self.device.passing(2 * self.width)
        self.device.free(gradient)
        return table

    def own_rows(self, table):
        """Of that, before it is reduced."""
        if self.tp == 1:
            return table
        rows = self.device.take(table[1].size // self.tp)
        self.device.free(table)
        return rows

    def forward(self, key, block_output, keeps_logits=False):
        """Logits in bf16, if they are kept. The loss has three of fp32 at once, of which log-softmax stays."""
        take, free = self.device.take, self.device.free
        norm = [take(2 * self.own)]
        self.device.passing(2 * self.own)
        product = take(2 * self.own)
        norm.append(take(self.own))
        free(product)
        inputs = take(self.own)
        if self.tp > 1:
            gathered, ordered = take(self.width), take(self.width)
            free(gathered)
        logits = take(2 * self.logits)
        if self.tp > 1:
            free(inputs)
            inputs = ordered
        free(block_output)
        floats = take(4 * self.logits)
        if self.tp > 1:
            shifted = take(4 * self.logits)
            self.device.passing(4 * self.logits)
        softmax = take(4 * self.logits)
        free(floats, *([shifted] if self.tp > 1 else []), *([] if keeps_logits else [logits]))
        self.kept[key] = norm, inputs, softmax
        return logits if keeps_logits else None

    def backward(self, key):
        """Gives gradients of the last block's output and of the head."""
        take, free = self.device.take, self.device.free
        norm, inputs, softmax = self.kept.pop(key)
        first = take(4 * self.logits)
        if self.tp > 1:
            exponentials, total = take(4 * self.logits), take(4 * self.logits)
            free(exponentials)
        second = take(4 * self.logits)
        free(first, softmax, *([total] if self.tp > 1 else []))
        logits = take(2 * self.logits)
        free(second)
        head, gradient = take(self.weight), take(self.width)
        free(logits, inputs)
        if self.tp > 1:
            ordered = take(self.width)
            free(gradient)
            gradient = take(self.own)
            free(ordered)
        self.device.passing(self.own, 2 * self.own, 2 * self.own, 2 * self.own)  # the norm's, in fp32
        output = take(self.own)
        free(gradient, *norm)
        return output, head


def numbers_of_block(model, tp):
    width, keys, inner = model["width"], model["width"] // model["heads"] * model["kv_heads"], model["ffn"]
    return [n * width // tp for n in (width, keys, keys, width, inner, inner, inner)] + [width, width]


def optimize(device, units):
    """AdamW of torch, not fused: square roots of the whole state are there at once."""
    for unit in units:
        if not unit.state:
            unit.state = [device.take(4 * n / unit.ranks) for n in unit.numbers for _ in range(2)]
    device.passing(*[4 * n / unit.ranks for unit in units for n in unit.numbers])


def sharded(model, micro, tokens, tp, dp, grows=False):
    """Bytes reserved without a pipeline. Blocks are freed behind forward, but the last one, and the root, which is embedding and head."""
    device = Device(grows)
    block, head = Block(device, model["width"], micro, tokens), Head(device, model, micro * tokens, tp)
    units = [Unit(device, numbers_of_block(model, tp), block.gathered, dp) for _ in range(model["layers"])]
    words = model["vocabulary"] * model["width"] // tp
    root = Unit(device, [words, model["width"], words], 2, dp)
    for _ in range(STEPS):
        held, kept = {}, []
        for unit in [root] + units:
            unit.zero_gradient()
        root.gather()
        root.copy_out(held, True)
        x = head.embed()
        for unit in units:
            unit.gather()
            unit.copy_out(held, True)
            output, saved = block.play("forward")
            kept.append((x, saved))
            x = output
            if unit is not units[-1]:
                unit.reshard()
        device.free(held.pop("gather"))
        head.forward(0, x)
        gradient, of_head = head.backward(0)
        for i, unit in reversed(list(enumerate(units))):
            unit.gather()
            unit.copy_out(held, False)
            if i:
                units[i - 1].gather()
            before, weights = block.play("backward", kept[i][1], kept[i][0])
            device.free(gradient)
            gradient = before
            unit.reshard()
            unit.reduce(held, weights.values())
        of_table = head.own_rows(head.embed_backward(gradient))
        root.reshard()
        root.reduce(held, [of_head, of_table])
        device.free(held.pop("reduction"))
        optimize(device, [root] + units)
    return device.reserved()
