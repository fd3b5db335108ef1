#!/usr/bin/env python3
"""gguf_check.py GPT_EXPORT FOLDER [ORIGINAL.gguf] [--llama-cpp SOURCE] - what gpt_export --gguf writes, seen by others, and what it reads.

For the models of tests/reference, three small mixtures of experts, and for FOLDER, a model of Hugging Face with its tokenizer:

  - gguf's reader takes the files; tensors are the folder's, rotation undone, and blocks of q8_0 those of gguf, byte for byte;
  - transformers loads the file, with the logits of the folder's model, and makes the same ids of some texts by its tokenizer;
  - a folder that is made back from the file has every tensor byte for byte (of q8_0: as gguf dequantises it);
  - numbers in blocks of every type that is read are those that gguf makes of them;
  - llama.cpp, built anywhere in SOURCE, has of the files the logits that transformers have of the folders, 1e-5 (of a Phi-3 with two lists, twice);
  - keys are those of ORIGINAL, a file that llama.cpp's converter has made of the same model, or the difference is printed.

It needs gguf, torch, transformers, accelerate and safetensors, and says what is missing."""
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

if len(sys.argv) < 3:  # --help too
    sys.exit(print(__doc__.strip()))

sys.path.pop(0)  # scripts beside this one have the names of packages
missing = [m for m in ("gguf", "torch", "transformers", "accelerate", "safetensors") if not importlib.util.find_spec(m)]
if missing:
    sys.exit("gguf_check.py: missing: " + ", ".join(missing) + " (pip install gguf==0.19.* torch transformers accelerate safetensors)")

import gguf
import numpy as np
import torch
import transformers
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = ["The capital of France is", "<|im_start|>user\nHi 123, it's\t me!<|im_end|>\n", "naïve café 東京 \U0001f600  x",
         "for (int i = 0; i < 1024; i++)\n\n    x += 3.14;", "A"]
NOT_LOADED = ("phi", "granite", "smollm3", "mixtral", "gemma", "olmo", "glm4", "stablelm", "cohere", "gpt_neox", "llama4")  # transformers has no such configs for GGUF files
MIXTURES = {
    "mixtral": dict(num_local_experts=4, num_experts_per_tok=2),
    "qwen3_moe": dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=64, norm_topk_prob=True, head_dim=16),
    "llama4_text": dict(num_local_experts=4, intermediate_size=64, intermediate_size_mlp=96, num_hidden_layers=4, interleave_moe_layer_step=2),
}
YARN_FAMILIES = ("llama", "qwen2", "qwen3", "granite", "gemma", "gemma2", "gemma3", "olmo2", "olmo3", "glm4", "stablelm", "cohere", "phi", "gpt_neox")
LONG_FACTORS = {"rope_factors_long.weight": "long_factor", "rope_factors_short.weight": "short_factor"}
bad = 0


def say(ok, text):
    global bad
    bad += not ok
    print(("ok    " if ok else "FALSE ") + text, flush=True)


def weights(folder, split):
    found = {}
    for path in sorted(folder.glob("model*.safetensors")):
        found.update(load_file(path))
    found = {k: v.float().numpy() for k, v in found.items()}
    config = json.loads((folder / "config.json").read_text())
    apart = {}  # experts, which are one tensor of all there
    for name in [k for k in found if re.search(r"\.experts\.\d+\.", k)]:
        before, number, after = re.split(r"\.experts\.(\d+)\.", name)
        apart.setdefault(f"{before}.experts.{after}", {})[int(number)] = found.pop(name)
    found |= {name: np.stack([x[e] for e in range(len(x))]) for name, x in apart.items()}
    for name in [k for k in found if re.search(r"\.feed_forward\.experts\.\w+_proj$", k)]:  # Llama 4's, [experts, in, out]
        found[f"{name}.weight"] = found.pop(name).swapaxes(1, 2)
    for name in [k for k in found if split and ("qkv_proj" in k or "gate_up_proj" in k)]:  # Phi-3's tensors are several
        x = found.pop(name)
        if "qkv_proj" in name:
            head = config["hidden_size"] // config["num_attention_heads"]
            cuts = np.cumsum([config["num_attention_heads"] * head, config["num_key_value_heads"] * head])
            parts = dict(zip(("q_proj", "k_proj", "v_proj"), np.split(x, cuts)))
        else:
            parts = dict(zip(("gate_proj", "up_proj"), np.split(x, 2, axis=x.ndim - 2)))
        found |= {name.replace("qkv_proj", p).replace("gate_up_proj", p): v for p, v in parts.items()}
    return found


def expected(folder, reader):
    """Of each tensor of the file what the folder has for it."""
    config = json.loads((folder / "config.json").read_text())
    arch = reader.fields["general.architecture"].contents()
    have = weights(folder, arch not in ("phi3", "glm4"))
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    names = gguf.get_tensor_name_map({v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[arch], layers)
    result = {}
    for name, x in have.items():
        base, suffix = name.rsplit(".", 1)
        if arch == "gpt2" and x.ndim == 2 and ("c_" in name):
            x = x.T
        if arch == "gptneox" and ".query_key_value." in name:  # a head's queries, keys and values lie together in the folder
            x = x.reshape(config["num_attention_heads"], 3, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            x = x + np.float32(1)
        mapped = names.get_name(base)
        if mapped is None:
            continue
        result[f"{mapped}.{suffix}"] = x
    return config, arch, result


def check_tensors(name, folder, reader, kind):
    config, arch, want = expected(folder, reader)
    got = {t.name: t for t in reader.tensors}
    extra = set(got) - set(want)
    say(extra <= {"rope_freqs.weight", *LONG_FACTORS} and set(want) - set(got) <= {"output.weight"},
        f"{name} {kind}: {len(got)} tensors; beside the folder's: {sorted(extra)}")
    wrong = []
    for tensor in got.values():
        if tensor.name not in want:
            continue
        x = np.ascontiguousarray(want[tensor.name])
        heads = {"attn_q": config.get("num_attention_heads"), "attn_k": config.get("num_key_value_heads")}
        part = tensor.name.split(".")[-2]
        if arch in ("llama", "granite", "smollm3") and part in heads:  # neighbours are rotated there
            x = np.ascontiguousarray(x.reshape(heads[part], 2, -1, x.shape[1]).swapaxes(1, 2).reshape(x.shape))
        data = quantize(x, tensor.tensor_type)
        if data.tobytes() != tensor.data.tobytes():
            wrong.append(tensor.name)
    say(not wrong, f"{name} {kind}: tensors byte for byte {sorted({t.tensor_type.name for t in got.values()})} {wrong[:3]}")


def logits(model, ids):
    with torch.no_grad():
        return model(ids).logits.float().numpy()


def check_logits(name, folder, path, ids, most, own_config):
    load = transformers.AutoModelForCausalLM.from_pretrained
    ours = load(folder, dtype=torch.float32)
    # what transformers does not read of a file: the width of a GPT-2's MLP, how RoPE is scaled
    given = {} if own_config else {"config": transformers.AutoConfig.from_pretrained(folder)}
    if not own_config and given["config"].model_type == "mistral":  # gguf calls it a llama, and transformers not
        keys = json.loads((folder / "config.json").read_text())
        given["config"] = transformers.LlamaConfig(**{k: v for k, v in keys.items() if k != "model_type"})
    theirs = load(path.parent, gguf_file=path.name, dtype=torch.float32, **given)
    off = float(np.abs(logits(ours, ids) - logits(theirs, ids)).max())
    where = "its own keys" if own_config else "the folder's config"
    say(off <= most, f"{name}: logits of the file, by {where}, and of the folder differ by {off:g} at most")


def check_phi3(name, config, reader):
    """What llama.cpp's converter (conversion/phi.py) writes of two lists of factors, and of a part that is rotated."""
    rope = config.rope_parameters
    key = {k.removeprefix("phi3."): f.contents() for k, f in reader.fields.items() if k.startswith("phi3.")}
    scale, original = config.max_position_embeddings / rope["original_max_position_embeddings"], rope["original_max_position_embeddings"]
    want = {"rope.scaling.original_context_length": original, "context_length": config.max_position_embeddings,
            "rope.dimension_count": int(rope.get("partial_rotary_factor", 1) * config.hidden_size) // config.num_attention_heads,
            "rope.scaling.attn_factor": float(np.float32(np.sqrt(1 + np.log(scale) / np.log(original)))),
            "rope.freq_base": rope["rope_theta"], "attention.sliding_window": config.sliding_window or 0}
    off = {k: (key.get(k), v) for k, v in want.items() if key.get(k) != v}
    lists = all(np.array_equal(t.data, np.float32(rope[LONG_FACTORS[t.name]])) for t in reader.tensors if t.name in LONG_FACTORS)
    say(not off and lists, f"{name}: keys and lists of factors as llama.cpp's converter has them {off or ''}")


def check_factors(name, folder, reader):
    config = transformers.AutoConfig.from_pretrained(folder)
    tensors = {t.name: t for t in reader.tensors}
    if "rope_factors_long.weight" in tensors:
        return check_phi3(name, config, reader)
    if "rope_freqs.weight" not in tensors:
        return
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    n = 2 * len(scaled)
    base = (config.rope_parameters or {}).get("rope_theta", 10000.0)
    plain = 1.0 / base ** (np.arange(0, n, 2) / n)
    off = np.abs(plain / tensors["rope_freqs.weight"].data / scaled.numpy() - 1).max()
    say(off < 1e-6, f"{name}: frequencies divided by rope_freqs.weight are transformers', off by {off:g} at most")


def check_tokenizer(folder, path):
    if not (folder / "tokenizer.json").exists():
        return
    ours = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    same = [ours.encode(t, add_special_tokens=False) == theirs.encode(t, add_special_tokens=False) for t in TEXTS]
    say(all(same), f"{folder.name}: ids of {len(TEXTS)} texts by the file's tokenizer: {same}")


def export(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)


def check_back(program, name, folder, path, reader, kind):
    """The file converted back to a folder, beside the folder that it was made of."""
    back = path.parent / "back"
    said = export(program, path, back, "--tokenizer", "none", "--overwrite")
    if "rope_freqs.weight" in said.stderr and "llama31" in name:  # its four numbers are no published model's
        return say(True, f"{name} {kind}: a folder is not made of it")
    if said.returncode:
        return say(False, f"{name} {kind} back: {said.stderr.strip()}")
    have, arch, want = expected(folder, reader)
    got = expected(back, reader)[2]
    types = {t.name: t.tensor_type for t in reader.tensors}
    wrong = [n for n, x in got.items() if n in types and
             dequantize(quantize(np.ascontiguousarray(want[n]), types[n]), types[n]).tobytes() != np.ascontiguousarray(x).tobytes()]
    say(not wrong and set(types) - set(got) <= {"rope_freqs.weight", *LONG_FACTORS}, f"{name} {kind}: a folder made of it has its {len(got)} tensors {wrong[:3]}")


def check_blocks(program, where):
    """A Llama whose matrices are random blocks of each type."""
    kinds = [gguf.GGMLQuantizationType[k] for k in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")]
    scales = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
    random = np.random.default_rng(7)
    for kind, experts in [(kind, 0) for kind in kinds] + [(kind, 3) for kind in kinds]:
        block, size = gguf.GGML_QUANT_SIZES[kind]
        path, raw = where / f"blocks-{kind.name}.gguf", {}
        shapes = {"token_embd": (512, 256), "output": (512, 256)}
        shapes |= {f"blk.0.{n}": (256, 256) for n in ("attn_q", "attn_k", "attn_v", "attn_output")}
        of = "_exps" if experts else ""
        shapes |= {f"blk.0.ffn_{n}{of}": (*[experts] * bool(experts), 256, 256) for n in ("gate", "up", "down")}
        writer = gguf.GGUFWriter(path, "llama")
        for key, value in (("block_count", 1), ("context_length", 16), ("embedding_length", 256), ("feed_forward_length", 256)):
            writer.add_uint32(f"llama.{key}", value)
        writer.add_uint32("llama.attention.head_count", 4)
        if experts:
            writer.add_uint32("llama.expert_count", experts)
            writer.add_uint32("llama.expert_used_count", 2)
            writer.add_tensor("blk.0.ffn_gate_inp.weight", random.normal(size=(experts, 256)).astype(np.float32))
        writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        for name, shape in shapes.items():
            if kind.name in ("F32", "F16", "BF16"):
                data = quantize(random.normal(size=shape).astype(np.float32), kind)
            else:
                data = random.integers(0, 256, (*shape[:-1], shape[-1] // block * size), dtype=np.uint8)
                for at in scales[kind.name]:  # no scale is an infinity or none
                    data.reshape(-1, size)[:, at + 1] &= 0xbf
            raw[name] = dequantize(data, kind)
            writer.add_tensor(name + ".weight", data, raw_dtype=None if data.dtype != np.uint8 else kind)
        for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
            writer.add_tensor(name + ".weight", np.ones(256, np.float32))
        for step in ("header", "kv_data", "tensors"):
            getattr(writer, f"write_{step}_to_file")()
        writer.close()
        said = export(program, path, where / "blocks", "--tokenizer", "none", "--overwrite")
        if said.returncode:
            say(False, f"{kind.name}: {said.stderr.strip()}")
            continue
        got = load_file(where / "blocks" / "model.safetensors")
        names = {"token_embd": "model.embed_tokens", "output": "lm_head"}
        got |= {k: v for k, v in weights(where / "blocks", False).items() if ".experts." in k}
        names |= {f"blk.0.ffn_{a}_exps": f"model.layers.0.block_sparse_moe.experts.{b}" for a, b in (("gate", "w1"), ("up", "w3"), ("down", "w2"))}
        names |= {f"blk.0.{a}": f"model.layers.0.{b}" for a, b in (
            ("attn_q", "self_attn.q_proj"), ("attn_k", "self_attn.k_proj"), ("attn_v", "self_attn.v_proj"), ("attn_output", "self_attn.o_proj"),
            ("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"), ("ffn_down", "mlp.down_proj"))}
        wrong = []
        for name, x in raw.items():
            if name.endswith(("attn_q", "attn_k")):
                x = x.reshape(4, 32, 2, 256).swapaxes(1, 2).reshape(256, 256)
            if np.ascontiguousarray(x).tobytes() != np.asarray(got[names[name] + ".weight"]).tobytes():
                wrong.append(name)
        say(not wrong, f"numbers of {kind.name} are gguf's{', of experts' if experts else ''}, {sum(x.size for x in raw.values())} of them {wrong}")


class LlamaCpp:
    """tests/campaign/llama_logits.c, built against a llama.cpp."""

    def __init__(self, source, where):
        self.program = where / "llama_logits"
        c, o = ROOT / "tests/campaign/llama_logits.c", where / "llama_logits.o"
        subprocess.run(["cc", "-std=c11", "-c", f"-I{source}/include", f"-I{source}/ggml/include", c, "-o", o], check=True)
        libraries = [next(iter(sorted(source.rglob(f"lib{name}.so")) + sorted(source.rglob(f"lib{name}.a"))), None)
                     for name in ("llama", "ggml", "ggml-cpu", "ggml-base")]
        subprocess.run(["c++", o, "-o", self.program, "-Wl,--start-group", *filter(None, libraries), "-Wl,--end-group", "-fopenmp", "-lpthread",
                        "-ldl", "-lm", *(f"-Wl,-rpath,{x.parent}" for x in libraries if x)], check=True)

    def check(self, name, path, ids, want, context, has_tokenizer, most=2e-6):
        """Differences of at most so much of the largest logit; llama.cpp looks GELU up in a table of f16, and has one for both kinds."""
        gelu = any(x in name for x in ("gemma", "gpt_neox")) or name.endswith("phi")
        most, off = 5e-4 if "gpt2" in name else 2e-3 if gelu else 1e-5 if "yarn_factor" in name else most, 0  # a product of more f32
        for row, expected in zip(ids.numpy(), want):
            said = subprocess.run([self.program, path, str(context), *([] if has_tokenizer else ["none"])], input=row.astype(np.int32).tobytes(),
                                  capture_output=True)
            if said.returncode:
                return say(False, f"{name}: llama.cpp: {said.stderr.decode().strip()}")
            off = max(off, np.abs(np.frombuffer(said.stdout, np.float32).reshape(expected.shape) - expected).max())
        say(off <= most * np.abs(want).max(), f"{name}: logits of llama.cpp and of the folder differ by {off:g} at most, the largest is {np.abs(want).max():.3g}")

    def check_lengths(self, program, where):
        """llama.cpp takes the factors by the length that a context may have, transformers by the text's. Its angles are
        products of f32, one by the other, so that a token is the farther off the later it comes, a Llama's too."""
        half = 4
        rope = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 300, "partial_rotary_factor": 0.5,
                "short_factor": [1.0 + 0.1 * i for i in range(half)], "long_factor": [1.5 + 2.0 * i for i in range(half)]}
        torch.manual_seed(5)
        model = transformers.Phi3ForCausalLM(transformers.Phi3Config(
            hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=300,
            max_position_embeddings=1200, original_max_position_embeddings=300, rope_parameters=rope, pad_token_id=0)).eval()
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(0.2 * torch.randn(p.shape) + (1.0 if p.dim() == 1 else 0.0))
        model.save_pretrained(where / "phi3")
        export(program, where / "phi3", "--gguf", where / "phi3.gguf", "--tokenizer", "none").check_returncode()
        for length, context in ((200, 256), (400, 512)):
            ids = torch.randint(300, (2, length))
            self.check(f"phi3 with two lists of factors, {length} tokens", where / "phi3.gguf", ids, logits(model, ids), context, False, 1e-4)


def check_original(path, original):
    a, b = (gguf.GGUFReader(p) for p in (path, original))
    fields = [{k: f.contents() for k, f in r.fields.items() if not k.startswith("GGUF.")} for r in (a, b)]
    for key in sorted(fields[0].keys() | fields[1].keys()):
        x, y = (f.get(key) for f in fields)
        if x != y:
            short = [str(v)[:60] if not isinstance(v, list) else f"{len(v)} values" for v in (x, y)]
            print(f"      {key}: {short[0]} here, {short[1]} there")
    need = [k for k in fields[1] if k.split(".")[0] not in ("general", "tokenizer")]
    need += ["tokenizer.ggml." + k for k in ("model", "pre", "tokens", "token_type", "merges", "bos_token_id",
                                             "eos_token_id", "add_bos_token", "add_space_prefix")]
    wrong = [k for k in need if fields[0].get(k) != fields[1].get(k)]
    say(not wrong, f"{path.name}: sizes, tokens and merges are those of {pathlib.Path(original).name} {wrong}")
    shapes = [{t.name: t.shape.tolist() for t in r.tensors} for r in (a, b)]
    say(shapes[0] == shapes[1], f"names and shapes of {len(shapes[0])} tensors are the same")


def changed(folder, to, change):
    """A copy of a folder with another config."""
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text())
    change(config)
    (to / "config.json").write_text(json.dumps(config))
    return to


def usual_scales(where):
    """The Gemmas with the factor of scores that llama.cpp takes for granted."""
    for name in ("gemma2", "gemma3"):
        yield changed(ROOT / f"tests/reference/hf_{name}", where / f"hf_{name}_usual", lambda c: c.update(query_pre_attn_scalar=c["head_dim"]))


def other_scalings(where):
    """Families with linear scaling and with YaRN, plain and with a factor of cosines and sines; a Gemma's own factor is refused."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0}
    scalings = {"linear": {"rope_type": "linear", "factor": 4.0}, "yarn": yarn, "yarn_factor": yarn | {"factor": 2.5, "attention_factor": 1.35}}
    for name in YARN_FAMILIES:
        model = where / f"hf_{name}_usual" if name in ("gemma2", "gemma3") else ROOT / f"tests/reference/hf_{name}"
        for kind, scaling in list(scalings.items())[:2 if name.startswith("gemma") else 3]:
            yield changed(model, where / f"hf_{name}_{kind}", lambda c: c["rope_parameters"].get("full_attention", c["rope_parameters"]).update(scaling))


def mixtures(where):
    """Folders of small random mixtures."""
    for family, sizes in MIXTURES.items():
        torch.manual_seed(5)
        config = transformers.AutoConfig.for_model(family, **dict(vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                                                                  num_attention_heads=4, num_key_value_heads=2, initializer_range=0.2) | sizes)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(where / f"hf_{family}")
        yield where / f"hf_{family}"


def main():
    arguments = sys.argv[1:]
    at = arguments.index("--llama-cpp") if "--llama-cpp" in arguments else len(arguments)
    llama_cpp = arguments[at + 1:at + 2]
    program, folder, *original = arguments[:at] + arguments[at + 2:]
    folder = pathlib.Path(folder)
    references = sorted(p for p in (ROOT / "tests/reference").glob("hf_*") if (p / "config.json").exists())
    with tempfile.TemporaryDirectory() as where:
        check_blocks(program, pathlib.Path(where))
        llama_cpp = LlamaCpp(pathlib.Path(llama_cpp[0]), pathlib.Path(where)) if llama_cpp else None
        if llama_cpp:
            llama_cpp.check_lengths(program, pathlib.Path(where))
        for model in references + [m for make in (usual_scales, other_scalings, mixtures) for m in make(pathlib.Path(where))] + [folder]:
            has = (model / "tokenizer.json").exists()
            for kind in ("stored", "f32", "f16", "q8_0"):
                path = pathlib.Path(where) / f"{model.name.replace('mistral', 'm')}-{kind}.gguf"
                flags = [] if kind == "stored" else ["--gguf-type", kind]
                flags += [] if has else ["--tokenizer", "none"]
                said = export(program, model, "--gguf", path, *flags)
                if said.returncode == 2:  # norms of another kind, for instance
                    say("GGUF is written of models" in said.stderr, f"{model.name} {kind} is refused")
                    continue
                said.check_returncode()
                reader = gguf.GGUFReader(path)
                check_tensors(model.name, model, reader, kind)
                check_back(program, model.name, model, path, reader, kind)
                if kind == "f32":
                    check_factors(model.name, model, reader)
                    vocabulary = int(reader.fields[reader.fields["general.architecture"].contents() + ".vocab_size"].contents())
                    ids = torch.from_numpy(np.random.default_rng(1).integers(0, vocabulary, (2, 12)))
                    if not any(x in model.name for x in NOT_LOADED):
                        check_logits(model.name, model, path, ids, 1e-4, model == folder)
                    check_tokenizer(model, path)
                    if llama_cpp:
                        ours = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
                        llama_cpp.check(model.name, path, ids, logits(ours, ids), 256, has)
                    if model == folder and original:
                        check_original(path, original[0])
                del reader
                path.unlink()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
