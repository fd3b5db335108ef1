#!/usr/bin/env python3
"""
nf4.py BUILD [--weights N] - is Weft's NF4 that of bitsandbytes?

  codes     the linears of a model of N weights (10,000,000) as gpt_export --dtype nf4 writes them: every number of 4 bits
            equal, scales within 1e-6 of the largest after they are widened (their mean may differ in the last bit)
  values    what bitsandbytes has written is read bit by bit: by gpt_export, as floats
  loads     transformers loads what Weft has written, as Linear4bit, with the numbers that Weft reads, bit by bit (products of
            Linear4bit on a CPU may be made in bf16, so logits within 5e-2)
  losses    50 steps of QLoRA on a folder of bitsandbytes, on two layouts: every loss within 1e-5, relatively, of those of
            PEFT and torch on a base of the widened weights
  merge     gpt_export --merge of that run: widened weights and adapters, within 1e-5 of PEFT's merge_and_unload
  moments   the levels of --optimizer adamw8bit are those of create_dynamic_map, all 512
  quantised the same from the folder of floats, whose scales Weft has made: losses within 1e-3

BUILD is a folder of Weft. It needs torch, transformers, peft and bitsandbytes. Status 1: something is wrong, 2: something is
missing.
"""
import ctypes
import json
import pathlib
import sys
import tempfile

import adapted_llama as llama
from adapted_llama import LAYOUTS, SIZES, TARGETS, run, report, report_losses

if len(sys.argv) not in (2, 4) or len(sys.argv) == 4 and sys.argv[2] != "--weights":
    sys.exit(__doc__)
llama.needs("bitsandbytes")
import bitsandbytes.functional as bnb  # noqa: E402 - needs() says what is missing
import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute  # noqa: E402
from safetensors import safe_open  # noqa: E402

WEIGHTS = int(sys.argv[3]) if len(sys.argv) == 4 else 10_000_000
WIDE = dict(hidden_size=96)


def tensors(folder):
    return safe_open(folder / "model.safetensors", "pt")


def widened(file, name):
    """The scales and the numbers of a matrix of 4 bits; the plain path of bitsandbytes, which takes rows of any length."""
    state = bnb.QuantState.from_dict({key: file.get_tensor(key) for key in file.keys() if key.startswith(name + ".")}, torch.device("cpu"))
    scales = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset
    return scales, _dequantize_4bit_compute(file.get_tensor(name).reshape(-1), scales, state.code, 64, state.shape, torch.float32)


def hard_weights(layers):
    """Normal numbers, and blocks of zeros, of denormals, of ties and of one number alone."""
    generator = torch.Generator().manual_seed(1)
    level = bnb.get_4bit_type("nf4", device="cpu")
    ties = (level[:-1] + level[1:]) / 2
    for layer in layers:
        w = torch.randn(layer.weight.shape, generator=generator) * 0.02
        flat = w.view(-1)
        flat[64:128] = 0
        flat[128:192] = torch.arange(64) * 1e-41
        flat[192:207] = ties
        flat[207:222] = torch.nextafter(ties, torch.tensor(2.0))
        flat[222] = 1
        flat[256:320] = 0
        flat[300] = -0.125
        layer.weight.data = w


def codes(work):
    hidden = 1024
    layer = 4 * hidden * hidden + 3 * hidden * 2752
    config = transformers.LlamaConfig(**(SIZES | dict(hidden_size=hidden, intermediate_size=2752, num_key_value_heads=8,
                                                      num_hidden_layers=-(-WEIGHTS // layer))))
    model = transformers.LlamaForCausalLM(config)
    linears = {name: m for name, m in model.named_modules() if isinstance(m, torch.nn.Linear) and name != "lm_head"}
    hard_weights(linears.values())
    model.save_pretrained(work / "large")
    run("gpt_export", work / "large", work / "large4", "--dtype", "nf4")
    file, differ, count, off = tensors(work / "large4"), 0, 0, 0
    for name, m in linears.items():
        theirs, state = bnb.quantize_4bit(m.weight.data, compress_statistics=True, quant_type="nf4")
        ours = file.get_tensor(name + ".weight")
        differ += int(((theirs ^ ours) & 15 != 0).sum() + ((theirs ^ ours) > 15).sum())
        count += m.weight.numel()
        scales = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset
        apart = (widened(file, name + ".weight")[0] - scales).abs()
        off = max(off, (apart > 1e-6 * scales.max()).float().mean().item())
    # the CPU's own loop takes the other one of two levels where a scale lies between them
    report("codes", differ == 0 and off < 0.02, f"{differ} of {count} numbers differ; {100 * off:.2f} % of the scales are another level's")


def values(work):
    quantised = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
    transformers.AutoModelForCausalLM.from_pretrained(work / "base", quantization_config=quantised, device_map="cpu",
                                                      dtype=torch.float32).save_pretrained(work / "base4")
    run("gpt_export", work / "base4", work / "wide")
    file, wide = tensors(work / "base4"), tensors(work / "wide")
    differ = count = 0
    for name in wide.keys():
        t = file.get_tensor(name)
        t = widened(file, name)[1] if t.dtype == torch.uint8 else t
        differ += int((t != wide.get_tensor(name)).sum())
        count += t.numel()
    report("values", differ == 0 and "quantization_config" not in json.loads((work / "wide/config.json").read_text()),
         f"{differ} of {count} numbers differ")


def logits(model):
    with torch.no_grad():
        return model(input_ids=WINDOWS[:2, :-1]).logits


def loads(work):
    sizes = transformers.LlamaConfig(**(SIZES | dict(hidden_size=128, intermediate_size=192)))
    transformers.LlamaForCausalLM(sizes).save_pretrained(work / "even")  # rows of whole blocks, as the CPU's own loop has it
    run("gpt_export", work / "even", work / "even4", "--dtype", "nf4")
    run("gpt_export", work / "even4", work / "even32")
    model = transformers.AutoModelForCausalLM.from_pretrained(work / "even4", device_map="cpu")
    floats = transformers.AutoModelForCausalLM.from_pretrained(work / "even32")
    linears = [(m, floats.get_submodule(name)) for name, m in model.named_modules() if type(m).__name__ == "Linear4bit"]
    differ = sum(int((bnb.dequantize_4bit(m.weight.data, m.weight.quant_state) != plain.weight).sum()) for m, plain in linears)
    plain = logits(floats)
    off = ((logits(model) - plain).abs().max() / plain.abs().max()).item()
    report("loads", len(linears) == 7 * sizes.num_hidden_layers and differ == 0 and off <= 5e-2,
         f"{len(linears)} of Linear4bit, {differ} numbers differ; logits {off:.1e} apart")


def moments():
    """The levels of moments in 8 bits, which gpt_train keeps with --optimizer adamw8bit."""
    library = ctypes.CDLL(str(pathlib.Path(sys.argv[1]).resolve() / "libweft.so"))
    tables = {signed: list((ctypes.c_float * 256).in_dll(library, f"wf_dynamic8_{name}"))
              for name, signed in (("signed", True), ("unsigned", False))}
    differ = sum(int((torch.tensor(mine) != bnb.create_dynamic_map(signed=signed)).sum()) for signed, mine in tables.items())
    report("moments", differ == 0, f"{differ} of 512 levels differ")


def training(work):
    model = peft.get_peft_model(transformers.LlamaForCausalLM.from_pretrained(work / "wide"),
                                peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=TARGETS))
    model.save_pretrained(work / "adapters")
    losses = llama.torch_losses(model, WINDOWS)
    for i, layout in enumerate(LAYOUTS):
        report_losses("losses", llama.weft_losses(work, "base4", "adapters", f"run{i}", "--base-dtype", "nf4", *layout), losses, 1e-5, layout)
    run("gpt_export", work / "run1", work / "merged", "--merge")
    run("gpt_export", work / "run1", work / "out")
    merged = logits(transformers.LlamaForCausalLM.from_pretrained(work / "merged"))
    theirs = peft.PeftModel.from_pretrained(transformers.LlamaForCausalLM.from_pretrained(work / "wide"), work / "out")
    off = ((logits(theirs.merge_and_unload()) - merged).abs().max() / merged.abs().max()).item()
    report("merge", off <= 1e-5, f"PEFT's merge and ours: {off:.1e} apart")
    mine = llama.weft_losses(work, "base", "adapters", "run2", "--base-dtype", "nf4", *LAYOUTS[1])
    report_losses("quantised", mine, losses, 1e-3, LAYOUTS[1])


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    WINDOWS = llama.begin(folder, **WIDE)
    moments()
    codes(folder)
    values(folder)
    loads(folder)
    training(folder)
sys.exit(llama.wrong)
