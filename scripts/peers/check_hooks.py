#!/usr/bin/env python3
"""
check_hooks.py trainer|wrapped|torchtitan FOLDER - a step of a trainer whose model has other names than its files, dumped by weft_hooks into
FOLDER/dump, with the model before it in FOLDER/model: for check.py --hooks.

    trainer     transformers' Trainer with its callback (needs accelerate)
    wrapped     a loop over blocks inside of torch's checkpoint wrappers
    torchtitan  a Trainer of torchtitan 0.3 on the CPU, which it is not for: attention by a dense mask, and a device that answers what it asks
"""
import collections
import json
import os
import pathlib
import sys
import types

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

import check_steps as check
from check_steps import F, torch, transformers, weft_hooks


def trainer(folder):
    batch = check.make_batch("masked")
    rows = [{k: v[i] for k, v in batch.items()} for i in range(check.SEQUENCES)]
    model = check.make("llama")
    model.save_pretrained(folder / "model")
    options = transformers.TrainingArguments(output_dir=str(folder / "out"), per_device_train_batch_size=check.SEQUENCES, max_steps=1,
                                             report_to=[], use_cpu=True, save_strategy="no", max_grad_norm=0, disable_tqdm=True)
    transformers.Trainer(model, options, train_dataset=rows,
                         callbacks=[weft_hooks.trainer_callback(str(folder / "dump"))]).train()


def wrapped(folder):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    model, batch = check.make("qwen3"), check.make_batch("plain")
    model.save_pretrained(folder / "model")
    for i, layer in enumerate(model.model.layers):
        model.model.layers[i] = checkpoint_wrapper(layer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=check.RATE)
    weft_hooks.attach(model, optimizer, folder / "dump")
    model(**batch, use_cache=False).loss.backward()
    optimizer.step()


class Device:
    """torch.cpu as torchtitan wants a device."""

    def __getattr__(self, name):
        return getattr(torch.cpu, name, lambda *_args, **_options: None)

    def get_device_name(self, *_):
        return "cpu"

    def get_device_properties(self, *_):
        return types.SimpleNamespace(total_memory=1 << 34)

    def memory_stats(self, *_):
        return collections.defaultdict(int)

    def device_count(self):
        return 1

    def current_device(self):
        return 0


def dense_attention(q, k, v, *, block_mask, scale, enable_gqa, **_):
    from torch.nn.attention.flex_attention import create_mask
    mask = create_mask(block_mask.mask_mod, q.shape[0], 1, q.shape[2], k.shape[2], device="cpu")
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=enable_gqa), types.SimpleNamespace(lse=None)


def make_text(folder):
    """A tokenizer of bytes, and rows of the data set that torchtitan's tests have."""
    import tokenizers
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    bytes_alone = tokenizers.Tokenizer(tokenizers.models.BPE(
        vocab={c: i for i, c in enumerate(letters)} | {"<s>": 256, "</s>": 257}, merges=[]))
    bytes_alone.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    (folder / "tests/assets/c4_test").mkdir(parents=True)
    bytes_alone.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    (folder / "tests/assets/c4_test/data.json").write_text(
        "".join(json.dumps({"text": f"row {i}, {i} times {i} is {i * i}"}) + "\n" for i in range(400)))


def torchtitan(folder):
    make_text(folder)
    os.chdir(folder)
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29771"}
    import torchtitan.tools.utils as utils
    utils.device_type, utils.device_module, utils.get_peak_flops = "cpu", Device(), lambda *_: 1e12
    import torchtitan.models.common.attention as attention
    from torchtitan.models.llama3.config_registry import llama3_debugmodel
    import weft_hooks.torchtitan as hooks
    attention.FlexAttention._compiled_flex_attn = staticmethod(dense_attention)
    config = llama3_debugmodel()
    config.hf_assets_path, config.validator.enable = ".", False
    config.training.local_batch_size, config.training.seq_len, config.training.steps = 2, 64, 1
    config.training.mixed_precision_param = "float32"
    made = config.build()
    weights = hooks.renaming_of(made)(weft_hooks.weights(made.model_parts[0]))
    weft_hooks.write(folder / "model/model.safetensors", {name: w.clone() for name, w in weights.items()})
    transformers.LlamaConfig(
        vocab_size=2048, hidden_size=256, intermediate_size=len(weights["model.layers.0.mlp.gate_proj.weight"]), num_hidden_layers=6,
        num_attention_heads=16, max_position_embeddings=131072, rms_norm_eps=1e-5, tie_word_embeddings=False,
        architectures=["LlamaForCausalLM"],
        rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192}).save_pretrained(folder / "model")
    hooks.attach(made, folder / "dump")
    made.train()


if __name__ == "__main__":
    {f.__name__: f for f in (trainer, wrapped, torchtitan)}[sys.argv[1]](pathlib.Path(sys.argv[2]).resolve())
