#!/usr/bin/env python3
"""
make_tied.py - hf_llama_tied/, a Llama whose head is its embedding, from hf_llama/.

    tests/reference/make_tied.py

takes the weights that make_pretrained.py wrote, but for lm_head.weight, and writes beside this file
config.json with tie_word_embeddings, model.safetensors (bf16) as transformers would save it, and
logits.safetensors: the same tokens, and their logits. Those are computed here in double from
Llama's formulas; that they are transformers', hf_llama's own logits show first. Needs Python alone.
"""
import json
import math
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
FROM, TO = HERE / "hf_llama", HERE / "hf_llama_tied"
CLOSE = 1e-4


def read(path):
    """name -> (dtype, shape, bytes)"""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"],
                   data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
            for name, t in header.items()}


def write(path, tensors):
    """The reverse."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text
                     + b"".join(data for _, _, data in tensors.values()))


def numbers(tensor):
    """The rows of a tensor as lists; of one dim, one row."""
    dtype, shape, data = tensor
    if dtype == "BF16":
        flat = [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    else:
        flat = list(struct.unpack(f"<{len(data) // 4}{'i' if dtype == 'I32' else 'f'}", data))
    width = shape[-1]
    return [flat[i:i + width] for i in range(0, len(flat), width)]


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def linear(weight, x):
    return [[dot(row, v) for row in weight] for v in x]


def rmsnorm(gain, x, eps):
    return [[g * v / math.sqrt(dot(row, row) / len(row) + eps) for g, v in zip(gain[0], row)]
            for row in x]


def rotate(x, head_dim, base):
    """Of every head, feature i with feature i + half a head."""
    half, out = head_dim // 2, []
    for position, row in enumerate(x):
        turned = list(row)
        for head in range(0, len(row), head_dim):
            for i in range(half):
                angle = position * base ** (-2.0 * i / head_dim)
                a, b = row[head + i], row[head + i + half]
                turned[head + i] = a * math.cos(angle) - b * math.sin(angle)
                turned[head + i + half] = b * math.cos(angle) + a * math.sin(angle)
        out.append(turned)
    return out


def attention(q, k, v, heads, groups):
    dim, out = len(q[0]) // heads, []
    for i, row in enumerate(q):
        y = []
        for head in range(heads):
            at, of = head * dim, head // (heads // groups) * dim
            score = [dot(row[at:at + dim], k[j][of:of + dim]) / math.sqrt(dim)
                     for j in range(i + 1)]
            power = [math.exp(s - max(score)) for s in score]
            y += [math.fsum(p * v[j][of + d] for j, p in enumerate(power)) / math.fsum(power)
                  for d in range(dim)]
        out.append(y)
    return out


def add(a, b):
    return [[x + y for x, y in zip(*rows)] for rows in zip(a, b)]


def logits(config, w, tokens, head):
    """Of one sequence: a row for each token."""
    x = [w["model.embed_tokens.weight"][t] for t in tokens]
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    dim, eps, base = config["hidden_size"] // heads, config["rms_norm_eps"], rope_base(config)
    for n in range(config["num_hidden_layers"]):
        p = f"model.layers.{n}."
        y = rmsnorm(w[p + "input_layernorm.weight"], x, eps)
        q, k, v = (linear(w[f"{p}self_attn.{name}_proj.weight"], y) for name in "qkv")
        y = attention(rotate(q, dim, base), rotate(k, dim, base), v, heads, groups)
        x = add(x, linear(w[p + "self_attn.o_proj.weight"], y))
        y = rmsnorm(w[p + "post_attention_layernorm.weight"], x, eps)
        gate, up = (linear(w[f"{p}mlp.{name}_proj.weight"], y) for name in ("gate", "up"))
        y = [[g / (1 + math.exp(-g)) * u for g, u in zip(*rows)] for rows in zip(gate, up)]
        x = add(x, linear(w[p + "mlp.down_proj.weight"], y))
    return linear(w[head], rmsnorm(w["model.norm.weight"], x, eps))


def rope_base(config):
    return (config.get("rope_parameters") or {}).get("rope_theta") or config["rope_theta"]


def main():
    """See the head of this file."""
    index = json.loads((FROM / "model.safetensors.index.json").read_text())["weight_map"]
    tensors = {k: v for file in sorted(set(index.values())) for k, v in read(FROM / file).items()}
    config = json.loads((FROM / "config.json").read_text())
    reference = read(FROM / "logits.safetensors")
    weights = {name: numbers(tensor) for name, tensor in tensors.items()}
    tokens, right = numbers(reference["tokens"]), numbers(reference["logits"])

    ours = [row for sequence in tokens
            for row in logits(config, weights, sequence, "lm_head.weight")]
    off = max(abs(a - b) for rows in zip(ours, right) for a, b in zip(*rows))
    print(f"hf_llama: logits differ from transformers' by {off:.1e} at most")
    if off > CLOSE:
        raise SystemExit("these are not Llama's formulas")
    tied = [value for sequence in tokens
            for row in logits(config, weights, sequence, "model.embed_tokens.weight")
            for value in row]
    TO.mkdir(exist_ok=True)
    config["tie_word_embeddings"] = True
    (TO / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    del tensors["lm_head.weight"]
    write(TO / "model.safetensors", dict(sorted(tensors.items())))
    write(TO / "logits.safetensors",
          {"logits": ("F32", reference["logits"][1], struct.pack(f"<{len(tied)}f", *tied)),
           "tokens": reference["tokens"]})


if __name__ == "__main__":
    main()
