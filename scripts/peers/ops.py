#!/usr/bin/env python3
"""
ops.py [--weft BUILD] [NAME..] - every op of docs/torch.md beside PyTorch's, values and gradients.

Each row below is an op as C has it, as torch has it, and its operands. A program made of the rows runs them on this
machine's CPU in fp32; torch computes the same in double. The error is the largest difference of a tensor over its
largest element, and may be 1e-6. Names (parts of them) choose rows. An op that docs/torch.md names and no row calls is
a fault, too. Needs torch, a C compiler and a build of Weft. Status 1: something is wrong, 2: something is missing.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"ops.py: {error}; it needs torch and numpy", file=sys.stderr)
    sys.exit(2)

from ops_program import PROGRAM

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOUND = 1e-6
KINDS = {"b": "{%d, 1, WF_CHUNKS_EACH}", "c": "{%d, 1, WF_CHUNKS_8}", "w": "{%d, 1, WF_CHUNKS_1}",
         "h": "{4 * %d, 4, WF_CHUNKS_8}"}

# An operand: dims, each a kind and a size (h: heads of 4), and how it is drawn: nothing for [-2, 2), "positive" for
# [0.5, 2), "i<N" for integers, "f<N" for whole numbers in floats, "mask" for 0 and 1. The last two and integers have no
# gradient.
X, Y = "b3 c5 w7", "b3 c5 w7"
ROWS, Q, K = "b3 c5 w9", "b2 c5 c4 w6", "b2 c5 c2 w6"
OTHER, BIAS, HEADS = "b2 c9 c2 w6", "c4 c5 c9", "b2 c5 h3"


def heads(x):
    return x.transpose(1, 2)


def attend(q, k, v, hidden=None, bias=None, sinks=None):
    """Softmax attention; hidden: True where a token does not see a key, [.., tokens, keys]; sinks: a score of each head that
    is in the softmax and has no value, a column that is dropped (transformers' eager attention of gpt-oss)."""
    groups = q.shape[2] // k.shape[2]
    k, v = (heads(t).repeat_interleave(groups, 1) for t in (k, v))
    s = heads(q) @ k.transpose(2, 3) / q.shape[3] ** 0.5
    s = s if bias is None else s + bias
    s = s if hidden is None else s.masked_fill(hidden, float("-inf"))
    if sinks is not None:
        column = sinks[None, :, None, None].expand(s.shape[0], -1, s.shape[2], 1)
        return heads(torch.softmax(torch.cat([s, column], 3), 3)[..., :-1] @ v)
    return heads(torch.softmax(s, 3) @ v)


def causal(n, window=0):
    ones = torch.ones(n, n, dtype=torch.bool)
    return ~ones.tril() | ones.tril(-window) if window else ~ones.tril()


def after(first):
    """Tokens before the first one that each sees."""
    n = first.shape[1]
    return (causal(n) | (torch.arange(n) < torch.minimum(first, torch.arange(n))[:, :, None]))[:, None]


def channels(f, x, w, **options):
    """A convolution whose channels are the last dim."""
    return f(x.movedim(-1, 1), w, **options).movedim(1, -1)


def taps(x, size):
    """[batch, positions, channels, taps] of a sequence, stride 2 and one of padding."""
    return F.pad(x, (0, 0, 1, 1)).unfold(1, size, 2)


def folded(x, n):
    """What taps are of: their sum at each position, without the padding."""
    y = x.new_zeros(x.shape[0], n + 2, x.shape[2])
    for tap in range(x.shape[3]):
        y[:, tap : tap + 2 * x.shape[1] : 2] += x[..., tap]
    return y[:, 1:-1]


def dropped(y, x):
    """The mask is Weft's own."""
    return x * (y != 0) / (1 - 0.25)


# name, C (out[0] alone has a gradient), torch, operands
TABLE = [
    ("a + b", "wf_add(a, b)", lambda a, b: a + b, (X, Y)),
    ("a + b, broadcast", "wf_add(a, b)", lambda a, b: a + b, (X, "c5 w1")),
    ("a - b", "wf_sub(a, b)", lambda a, b: a - b, (X, Y)),
    ("a * b", "wf_mul(a, b)", lambda a, b: a * b, (X, Y)),
    ("a * b, broadcast", "wf_mul(a, b)", lambda a, b: a * b, (X, "b3 w1 w1")),
    ("a / b", "wf_div(a, b)", lambda a, b: a / b, (X, Y + " positive")),
    ("x * 2.5", "wf_scale(a, 2.5f)", lambda a: a * 2.5, (X,)),
    ("x + 2.5", "wf_add_constant(a, 2.5f)", lambda a: a + 2.5, (X,)),
    *((name, f"wf_{name}(a)", getattr(torch, name), (X,)) for name in ("exp", "abs", "relu", "tanh", "sigmoid")),
    *((name, f"wf_{name}(a)", getattr(torch, name), (X + " positive",)) for name in ("log", "sqrt", "rsqrt")),
    *((name, f"wf_{name}(a)", getattr(torch, name), (X,)) for name in ("sin", "cos", "erf", "expm1")),
    ("log1p", "wf_log1p(a)", torch.log1p, (X + " positive",)),
    ("leaky_relu", "wf_leaky_relu(a, 0.1f)", lambda a: F.leaky_relu(a, 0.1), (X,)),
    ("elu", "wf_elu(a, 0.75f)", lambda a: F.elu(a, 0.75), (X,)),
    *((name, f"wf_{name}(wf_scale(a, 0.75f))", lambda a, f=getattr(torch, name): f(a * 0.75), (X + " f<9",))
      for name in ("floor", "ceil", "round")),
    ("sign", "wf_sign(wf_add_constant(a, -1))", lambda a: torch.sign(a - 1), (X + " f<3",)),
    ("isnan", "wf_is_nan(wf_log(wf_add_constant(a, -1)))", lambda a: torch.isnan(torch.log(a - 1)).double(), (X + " f<3",)),
    ("reciprocal", "wf_pow(a, -1)", torch.reciprocal, (X + " positive",)),
    ("norm", "wf_sqrt(wf_sum(wf_mul(a, a), 1))", lambda a: a.norm(dim=1), (X,)),
    ("logsigmoid", "wf_neg(wf_softplus(wf_neg(a)))", F.logsigmoid, (X,)),
    ("mish", "wf_mul(a, wf_tanh(wf_softplus(a)))", F.mish, (X,)),
    ("hardswish", "wf_mul(a, wf_scale(wf_clamp(wf_add_constant(a, 3), 0, 6), 1.0f / 6))", F.hardswish, (X,)),
    ("glu", "(wf_split(a, 2, 4, 2, out), wf_mul(out[0], wf_sigmoid(out[1])))", F.glu, ("b3 c5 w8",)),
    ("bce_with_logits", "wf_sub(wf_softplus(a), wf_mul(a, b))",
     lambda a, b: F.binary_cross_entropy_with_logits(a, b, reduction="none"), (X, X + " mask")),
    ("kl_div", "wf_mul(b, wf_sub(wf_log(b), a))", lambda a, b: F.kl_div(a, b, reduction="none"), (X, X + " positive")),
    ("pow", "wf_pow(a, 2.5f)", lambda a: a ** 2.5, (X + " positive",)),
    ("gelu, tanh", "wf_gelu(a)", lambda a: F.gelu(a, approximate="tanh"), (X,)),
    *((name, f"wf_{name}({more})", f, (X,)) for name, more, f in (
        ("neg", "a", torch.neg), ("gelu_erf", "a", F.gelu), ("silu", "a", F.silu), ("softplus", "a", F.softplus),
        ("log_softmax", "a", lambda a: a.log_softmax(-1)), ("logsumexp", "a, 1", lambda a: a.logsumexp(1)))),
    ("silu(a) * b", "wf_swiglu(a, b)", lambda a, b: F.silu(a) * b, (X, Y)),
    ("clamp", "wf_clamp(a, -0.5f, 0.75f)", lambda a: a.clamp(-0.5, 0.75), (X,)),
    ("maximum", "wf_maximum(a, b)", torch.maximum, (X, Y)),
    ("minimum", "wf_minimum(a, b)", torch.minimum, (X, Y)),
    ("where", "wf_where(a, b, c)", lambda a, b, c: torch.where(a != 0, b, c), (X + " mask", X, X)),
    *((f"a.{f.__name__}(b)", f"wf_{name}(a, b)", lambda a, b, f=f: f(a, b).double(), (X + " f<3", Y + " f<3"))
      for name, f in (("greater", torch.gt), ("greater_equal", torch.ge), ("less", torch.lt), ("less_equal", torch.le),
                      ("equal", torch.eq))),
    *((f"x.{f.__name__}(1)", f"wf_{name}(a, 1)", lambda a, f=f: f(a, 1).double(), (X + " f<3",))
      for name, f in (("greater_than", torch.gt), ("less_than", torch.lt), ("equal_to", torch.eq))),
    ("dropout", "wf_dropout(a, 0.25f, 3)", dropped, (X,)),
    ("expand", "wf_broadcast_like(a, b)", lambda a, b: a.expand_as(b), ("c5 w1", Y + " mask")),
    ("expand of a dim", "wf_expand(a, b, 1)", lambda a, b: a[:, None].expand_as(b), ("b3 w7", Y + " mask")),
    ("x + bias", "wf_bias_add(a, b)", lambda a, b: a + b, (X, "w7")),
    ("permute", "wf_permute(a, (int[]){2, 0, 1})", lambda a: a.permute(2, 0, 1), (X,)),
    ("transpose", "wf_transpose(a, 0, 2)", lambda a: a.transpose(0, 2), (X,)),
    ("x[:, 1:4]", "wf_slice(a, 1, 1, 3)", lambda a: a[:, 1:4], (X,)),
    ("split", "(wf_split(a, 2, 3, 3, out), out[0])", lambda a: a.split(3, 2), (ROWS,)),
    ("cat", "wf_concat(2, in, 1)", lambda a, b: torch.cat((a, b), 1), (X, "b3 c4 w7")),
    ("pad", "wf_pad(a, 1, 2, 1, 0.5f)", lambda a: F.pad(a, (0, 0, 2, 1), value=0.5), (X,)),
    ("reshape", "wf_reshape(a, 2, (wf_dim[]){wf_dim_batch(3), wf_dim_width(35)})", lambda a: a.reshape(3, 35), (X,)),
    ("unsqueeze", "wf_unsqueeze(a, 1)", lambda a: a.unsqueeze(1), (X,)),
    ("squeeze", "wf_squeeze(a, 1)", lambda a: a.squeeze(1), ("b3 w1 w7",)),
    ("flatten", "wf_flatten(a, 1, 2)", lambda a: a.flatten(1, 2), (X,)),
    ("heads as a view", "wf_split_heads(a, 4)", lambda a: a.unflatten(2, (3, 4)), (HEADS,)),
    ("heads as a dim", "wf_merge_heads(a)", lambda a: a.flatten(2), (Q,)),
    ("stack", "wf_stack(2, in, 1)", lambda a, b: torch.stack((a, b), 1), (X, Y)),
    ("sum", "wf_sum(a, 1)", lambda a: a.sum(1), (X,)),
    ("mean", "wf_mean(a, 2)", lambda a: a.mean(2), (X,)),
    ("var", "wf_variance(a, 1, 1)", lambda a: a.var(1), (X,)),
    ("max", "wf_max(a, 2)", lambda a: a.max(2).values, (X,)),
    ("min", "wf_min(a, 1)", lambda a: a.min(1).values, (X,)),
    ("argmax", "wf_argmax(a, 2)", lambda a: a.argmax(2).double(), (X + " f<4",)),
    ("softmax", "wf_softmax(a, 2)", lambda a: a.softmax(2), (X,)),
    ("softmax of an inner dim", "wf_softmax(a, 1)", lambda a: a.softmax(1), (X,)),
    ("cumsum", "wf_cumsum(a)", lambda a: a.cumsum(2), (X,)),
    ("topk", "(wf_topk(a, 4, &out[0], &out[1]), out[0])", lambda a: tuple(a.topk(4)), (ROWS,)),
    ("sort", "(wf_sort(a, true, &out[0], &out[1]), out[0])", lambda a: tuple(a.sort(descending=True)), (ROWS,)),
    ("gather", "wf_gather(a, b)", lambda a, b: a.gather(2, b.long()), (ROWS, "b3 c5 w4 f<9")),
    ("scatter_add", "wf_scatter(c, a, b)", lambda a, b, c: torch.zeros_like(c).scatter_add(2, a.long(), b),
     ("b3 c5 w4 f<9", "b3 c5 w4", ROWS + " mask")),
    ("median", "(wf_sort(a, false, &out[0], &out[1]), wf_slice(out[0], 2, 4, 1))",
     lambda a: a.median(2, keepdim=True).values, (ROWS,)),
    ("index_put, accumulate", "wf_add(c, wf_scatter(c, a, b))", lambda a, b, c: c.scatter_add(2, a.long(), b),
     ("b3 c5 w4 f<9", "b3 c5 w4", ROWS)),
    ("one_hot", "wf_one_hot(a, 9)", lambda a: F.one_hot(a.long(), 9).double(), ("b3 c5 f<9",)),
    ("tril", "wf_tril(a, 1)", lambda a: a.tril(1), (X,)),
    ("triu", "wf_triu(a, -1)", lambda a: a.triu(-1), (X,)),
    ("embedding", "wf_embedding(a, b)", lambda a, b: F.embedding(b.long(), a), ("c11 w7", "b3 c5 i<11")),
    ("linear", "wf_linear(a, b)", F.linear, (X, "c6 w7")),
    ("linear with a bias", "(wf_linear_bias(a, 1, &in[1], &in[2], out), out[0])", F.linear, (X, "c6 w7", "c6")),
    ("matmul", "wf_matmul(a, b, NULL)", torch.matmul, ("b3 c5 w7", "b3 w7 c6")),
    ("layer_norm", "wf_layernorm(a, b, c, 1e-5f)", lambda a, b, c: F.layer_norm(a, (7,), b, c), (X, "w7", "w7")),
    ("rms_norm", "wf_rmsnorm(a, b, 1e-5f)", lambda a, b: a * (a.square().mean(2, True) + 1e-5).rsqrt() * b, (X, "w7")),
    ("attention, causal", "wf_attention(a, b, c, &(wf_attention_options){.causal = true})",
     lambda q, k, v: attend(q, k, v, causal(5)), (Q, K, K)),
    ("attention, all tokens", "wf_attention(a, b, c, NULL)", attend, (Q, K, K)),
    ("attention, window", "wf_attention(a, b, c, &(wf_attention_options){.causal = true, .window = 2})",
     lambda q, k, v: attend(q, k, v, causal(5, 2)), (Q, K, K)),
    ("attention, documents", "wf_attention(a, b, c, &(wf_attention_options){.causal = true, .first = in[3]})",
     lambda q, k, v, first: attend(q, k, v, after(first)), (Q, K, K, "b2 c5 i<5")),
    ("attention, sinks", "wf_attention(a, b, c, &(wf_attention_options){.causal = true, .sinks = in[3]})",
     lambda q, k, v, sinks: attend(q, k, v, causal(5), sinks=sinks), (Q, K, K, "c4")),
    ("attention, sinks and a window", "wf_attention(a, b, c, &(wf_attention_options){.causal = true, .window = 2, .sinks = in[3]})",
     lambda q, k, v, sinks: attend(q, k, v, causal(5, 2), sinks=sinks), (Q, K, K, "c4")),
    ("attention, other keys", "wf_attention(a, b, c, NULL)", attend, (Q, OTHER, OTHER)),
    ("attention, padding mask", "wf_attention(a, b, c, &(wf_attention_options){.mask = in[3]})",
     lambda q, k, v, mask: attend(q, k, v, (mask == 0)[:, None, None]), (Q, OTHER, OTHER, "b2 c9 mask")),
    ("attention, bias", "wf_attention(a, b, c, &(wf_attention_options){.bias = in[3]})",
     lambda q, k, v, bias: attend(q, k, v, bias=bias), (Q, OTHER, OTHER, BIAS)),
    ("attention, bias of each sequence", "wf_attention(a, b, c, &(wf_attention_options){.bias = in[3]})",
     lambda q, k, v, bias: attend(q, k, v, bias=bias), (Q, OTHER, OTHER, "b2 " + BIAS)),
    ("attention, causal with a bias", "wf_attention(a, b, c, &(wf_attention_options){.causal = true, .bias = in[3]})",
     lambda q, k, v, bias: attend(q, k, v, causal(5), bias), (Q, K, K, "c4 c5 c5")),
    ("conv1d", "wf_conv(a, b, &(wf_conv_options){.stride = {2}, .padding = {1}})",
     lambda a, b: channels(F.conv1d, a, b, stride=2, padding=1), ("b3 c9 w4", "c6 w4 w3")),
    ("conv2d", "wf_conv(a, b, &(wf_conv_options){.padding = {1, 1}, .dilation = {1, 2}})",
     lambda a, b: channels(F.conv2d, a, b, padding=1, dilation=(1, 2)), ("b2 c6 w7 w4", "c6 w4 w3 w3")),
    ("unfold", "wf_patches(a, (int[]){3}, &(wf_conv_options){.stride = {2}, .padding = {1}})",
     lambda a: taps(a, 3), ("b3 c9 w4",)),
    ("fold", "wf_patches_grad(b, a, (int[]){3}, &(wf_conv_options){.stride = {2}, .padding = {1}})",
     lambda a, b: folded(a, 9), ("b3 c5 w4 w3", "b3 c9 w4 mask")),
    ("conv_transpose1d", "wf_conv_transpose(a, b, &(wf_conv_options){.stride = {3}, .padding = {1}}, (int[]){2})",
     lambda a, b: channels(F.conv_transpose1d, a, b, stride=3, padding=1, output_padding=2), ("b3 c5 w4", "w4 c6 w5")),
    ("conv_transpose2d", "wf_conv_transpose(a, b, &(wf_conv_options){.stride = {2, 1}, .dilation = {1, 2}}, NULL)",
     lambda a, b: channels(F.conv_transpose2d, a, b, stride=(2, 1), dilation=(1, 2)), ("b2 c3 w4 w4", "w4 c5 w3 w2")),
    ("avg_pool1d", "wf_avg_pool(a, (int[]){3}, &(wf_conv_options){.stride = {2}, .padding = {1}})",
     lambda a: channels(F.avg_pool1d, a, 3, stride=2, padding=1), ("b3 c9 w4",)),
    ("avg_pool2d", "wf_avg_pool(a, (int[]){2, 3}, NULL)",
     lambda a: channels(F.avg_pool2d, a, (2, 3)), ("b2 c6 w7 w4",)),
    ("max_pool1d", "wf_max_pool(a, (int[]){3}, &(wf_conv_options){.padding = {1}, .dilation = {2}})",
     lambda a: channels(F.max_pool1d, a, 3, padding=1, dilation=2), ("b3 c9 w4",)),
    ("max_pool2d", "wf_max_pool(a, (int[]){3, 2}, &(wf_conv_options){.stride = {2, 1}, .padding = {1, 1}})",
     lambda a: channels(F.max_pool2d, a, (3, 2), stride=(2, 1), padding=(1, 1)), ("b2 c6 w7 w4",)),
    ("interpolate, nearest", "wf_upsample(a, (int[]){3, 2})",
     lambda a: channels(lambda x, _: F.interpolate(x, scale_factor=(3.0, 2.0)), a, None), ("b2 c3 w4 w5",)),
    ("interpolate, linear", "wf_upsample_linear(a, (int[]){4})",
     lambda a: channels(lambda x, _: F.interpolate(x, scale_factor=4.0, mode="linear"), a, None), ("b2 c5 w3",)),
    ("interpolate, bilinear", "wf_upsample_linear(a, (int[]){3, 2})",
     lambda a: channels(lambda x, _: F.interpolate(x, scale_factor=(3.0, 2.0), mode="bilinear"), a, None), ("b2 c3 w4 w5",)),
    ("group_norm", "wf_group_norm(a, 2, b, c, 1e-5f)", lambda a, b, c: channels(
        lambda x, w: F.group_norm(x, 2, w, c, 1e-5), a, b), ("b2 c3 w5 w8", "w8", "w8")),
    ("instance_norm", "wf_group_norm(a, 4, NULL, NULL, 1e-5f)",
     lambda a: channels(lambda x, _: F.instance_norm(x), a, None), ("b2 c9 w4",)),
    *((f"cross_entropy, smoothing {e}", f"loss_of(a, in[1], {e}f)", lambda a, b, e=e: F.cross_entropy(
        a.movedim(2, 1), b.long(), reduction="none", label_smoothing=e), ("b3 c5 c11", "b3 c5 i<11")) for e in (0.0, 0.25)),
]

class Failure(Exception):
    pass


class Operand:
    def __init__(self, text, random):
        words = text.split()
        dims = [word for word in words if word[0] in KINDS and word[1:].isdigit()]
        how = words[len(dims)] if len(words) > len(dims) else ""
        shape = [int(word[1:]) * (4 if word[0] == "h" else 1) for word in dims]
        below = int(how[2:]) if "<" in how else 2 if how == "mask" else 0
        self.integers = how.startswith("i<")
        self.wanted = how in ("", "positive")
        self.c = "{%d, %d, %d, {%s}}" % (self.integers, self.wanted, len(dims),
                                         ", ".join(KINDS[word[0]] % int(word[1:]) for word in dims))
        if below:
            x = random.integers(0, below, shape)
        else:
            x = random.uniform(0.5 if how == "positive" else -2, 2, shape)
        if how == "mask":
            x[..., 0] = 1  # a row without any is no number in torch
        self.data = x.astype(numpy.int32 if self.integers else numpy.float32)
        self.tensor = torch.tensor(self.data.astype(numpy.int64 if self.integers else numpy.float64),
                                   requires_grad=self.wanted)


def program(table, operands, outputs):
    functions, rows = "", []
    for i, ((_, code, _, _), ins, outs) in enumerate(zip(table, operands, outputs)):
        functions += ("static wf_tensor *op_%d(wf_tensor *const *in, wf_tensor **out)\n{\n    (void)in, (void)out;\n"
                      "    return %s;\n}\n\n" % (i, code))
        rows.append("{op_%d, %d, %d, %d, {%s}}" % (i, len(ins), len(outs), outs[0].requires_grad,
                                                   ", ".join(o.c for o in ins)))
    return PROGRAM.replace("FUNCTIONS", functions).replace("ROWS", ",\n    ".join(rows))


def run(build, text, data):
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        (at / "ops.c").write_text(text)
        (at / "in").write_bytes(data)
        compiler = os.environ.get("CC", "cc")
        link = ["-L", build, "-lweft", f"-Wl,-rpath,{build}"]
        for command in ([compiler, "-std=gnu11", "-O1", "-I", ROOT, at / "ops.c", "-o", at / "ops", *link],
                        [at / "ops", at / "in", at / "out"]):
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
            if done.returncode:
                raise Failure(f"{command[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return numpy.frombuffer((at / "out").read_bytes(), numpy.float32)


def apart(x, want):
    """The largest difference, over the largest element."""
    if not want.size:
        return 0.0
    most = float(numpy.abs(want).max())
    return float(numpy.abs(x - want).max()) / (most if most > 0 else 1)


class Reader:
    def __init__(self, x):
        self.x, self.at = x, 0

    def take(self, shape):
        n = int(numpy.prod(shape, dtype=int))
        self.at += n
        return self.x[self.at - n : self.at].astype(numpy.float64).reshape(tuple(shape))


def compare(row, operands, outputs, seed, reader):
    """The errors of a row: values, gradients."""
    name, _, torch_op, _ = row
    got = [reader.take(o.shape) for o in outputs]
    if name == "dropout":
        outputs = (torch_op(torch.tensor(got[0]), operands[0].tensor),)
    values = max(apart(x, o.detach().double().numpy()) for x, o in zip(got, outputs))
    wanted = [o for o in operands if o.wanted] if outputs[0].requires_grad else []
    if wanted:
        outputs[0].backward(torch.tensor(seed.astype(numpy.float64)))
    gradients = [apart(reader.take(o.data.shape), o.tensor.grad.numpy()) for o in wanted]
    return values, max(gradients) if gradients else None


def documented():
    text = (ROOT / "docs/torch.md").read_text()
    names = re.findall(r"`(wf_[a-z_0-9]+)", text)
    return {name for name in names if not name.startswith("wf_nn_")}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--weft", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    table = [row for row in TABLE if not args.names or any(name in row[0] for name in args.names)]
    random = numpy.random.default_rng(20261129)
    torch.set_num_threads(1)
    operands = [[Operand(text, random) for text in row[3]] for row in table]
    outputs = [row[2](*([o.tensor for o in ins] if row[0] != "dropout" else [ins[0].tensor] * 2))
               for row, ins in zip(table, operands)]
    outputs = [y if isinstance(y, tuple) else (y,) for y in outputs]
    seeds = [random.uniform(-1, 1, outs[0].shape).astype(numpy.float32) for outs in outputs]
    data = b"".join(b"".join(o.data.tobytes() for o in ins) + seed.tobytes() for ins, seed in zip(operands, seeds))
    reader = Reader(run(args.weft.resolve(), program(table, operands, outputs), data))
    wrong = 0
    print(f"torch {torch.__version__}, in double\n\n{'op':36}{'values':>10}{'gradients':>12}")
    for row, ins, outs, seed in zip(table, operands, outputs, seeds):
        values, gradients = compare(row, ins, outs, seed, reader)
        bad = not values <= BOUND or not (gradients is None or gradients <= BOUND)
        wrong += bad
        text = "-" if gradients is None else f"{gradients:.1e}"
        print(f"{row[0]:36}{values:10.1e}{text:>12}{'  WRONG' if bad else ''}")
    if reader.at != len(reader.x):
        raise Failure(f"{len(reader.x) - reader.at} numbers are left: a gradient that torch has not")
    called = set(re.findall(r"wf_[a-z_0-9]+", " ".join(row[1] for row in TABLE) + PROGRAM))
    left = sorted(documented() - called)
    for name in left:
        print(f"{name} of docs/torch.md has no row")
    print(f"\n{len(table)} ops, {wrong} of them wrong (above {BOUND:.0e}); {len(left)} without a row")
    return 1 if wrong or left else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"ops.py: {failure}", file=sys.stderr)
        sys.exit(2)
