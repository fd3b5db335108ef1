#!/usr/bin/env python3
"""
long_texts.py [--weft BUILD] [--tokens N] [SCALING...] - long texts with a needle, of each scaling of RoPE, against transformers.

A text of 8,192 tokens (bytes) says a number somewhere (at 10, 50 and 90 % of its length), goes on about other things, and asks for it at its end. A
Llama of random weights (2 layers, 8 heads of 16 features, 2 of keys) whose scaling takes 2,048 tokens to 8,192 reads it: gpt_generate through
its cache, a chunk of 512 tokens at a time, and transformers in one pass. Compared are

  perplexity   the exponential of the mean loss of all tokens up to a position, at every position: at most 1e-5 apart (relative)
  a token      the log probability of one token, at every position: what is the farthest apart, for the record

in two columns. The first is transformers as it is, whose angles are products of two floats: at position 8,000 they are off by up to 2e-4 rad. The
second has angles in double, as Weft makes them, and else the same transformers. It needs torch and transformers. Status 1 where a perplexity is farther.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.pop(0)  # scripts beside this one have the names of packages
try:
    import torch
    import transformers
except ImportError as missing:
    print(f"long_texts.py: {missing}: pip install torch transformers", file=sys.stderr)
    sys.exit(2)

WANTED, BASE, PAIRS, FACTOR = 1e-5, 10000.0, 8, 4
SENTENCES = ("The grass is green, and the sky above it is blue. ", "A river goes to the sea, and nobody asks it why. ",
             "In the evening the lamps were lit, one after the other. ", "Here we go, there and back again. ")
ASKED = "So the number that opens the vault is 4"


def scalings(trained):
    """rope_parameters and the longest text of the config, by name."""
    return {
        "none": ({"rope_type": "default"}, FACTOR * trained),
        "linear": ({"rope_type": "linear", "factor": float(FACTOR)}, FACTOR * trained),
        "dynamic": ({"rope_type": "dynamic", "factor": float(FACTOR)}, trained),
        "yarn": ({"rope_type": "yarn", "factor": float(FACTOR), "original_max_position_embeddings": trained}, FACTOR * trained),
        "longrope": ({"rope_type": "longrope", "original_max_position_embeddings": trained, "factor": float(FACTOR),
                      "short_factor": [1.0 + 0.02 * i for i in range(PAIRS)], "long_factor": [1.0 + 0.6 * i for i in range(PAIRS)]},
                     FACTOR * trained),
        "llama3": ({"rope_type": "llama3", "factor": float(FACTOR), "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": trained}, FACTOR * trained)}


def text_of(tokens, depth):
    """The ids of a text whose needle lies at a part of its length."""
    needle, filler, i = "The number that opens the vault is 48213. ", "", 0
    while len(filler) < tokens:
        filler += SENTENCES[i * i % len(SENTENCES)]
        i += 1
    filler = filler[:tokens - len(needle) - len(ASKED)]
    at = filler.rfind(". ", 0, max(2, int(depth * len(filler)))) + 2
    return list((filler[:at] + needle + filler[at:] + ASKED).encode())


def make(folder, parameters, longest):
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=260, hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2,
        head_dim=2 * PAIRS, max_position_embeddings=longest, rope_parameters={"rope_theta": BASE, **parameters}, bos_token_id=None,
        eos_token_id=None)
    model = transformers.LlamaForCausalLM(config).float()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.12 * torch.randn(p.shape) + (1.0 if p.dim() == 1 else 0.0))
    model.save_pretrained(folder)


def angles_in_double(model):
    """Frequencies are those of transformers' functions with doubles in them, and so are the products with positions."""
    rope = model.model.rotary_emb
    kind = model.config.rope_parameters["rope_type"]
    init = (rope.compute_default_rope_parameters if kind == "default" else
            transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS[kind])

    def forward(x, position_ids):
        as_float, torch.float, torch.float32 = torch.float32, torch.float64, torch.float64
        try:
            frequency, scale = init(model.config, seq_len=int(position_ids.max()) + 1)
        finally:
            torch.float = torch.float32 = as_float
        angles = position_ids[..., None].double() * frequency.double()
        both = torch.cat((angles, angles), dim=-1)
        return (both.cos() * scale).to(x.dtype), (both.sin() * scale).to(x.dtype)

    rope.forward = forward


def theirs(folder, texts, double):
    """Log probabilities of the tokens of each text, [texts][tokens - 1]."""
    rows = []
    for ids in texts:
        # frequencies of dynamic scaling stay from one text to the next, so that each has a model of its own
        model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
        if double:
            angles_in_double(model)
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, :-1]
        rows.append(torch.log_softmax(logits.double(), -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0])
    return torch.stack(rows)


def ours(build, folder, texts):
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"ids": ids[:-1]}) + "\n" for ids in texts))
    said = subprocess.run([build / "apps/gpt_generate", folder, "--tokenizer", "bytes", "--prompts", prompts, "--json", "--echo", "--logprobs",
                           "0", "--ignore-eos", "--max-new-tokens", "1", "--batch-size", "1"], capture_output=True, text=True, check=False)
    if said.returncode:
        sys.exit(f"long_texts.py: {said.stderr}")
    rows = [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]
    return torch.tensor([row["prompt_logprobs"] for row in rows], dtype=torch.float64)


def apart(a, b):
    """The largest relative distance of perplexities up to a position, and the largest distance of a token's log probability."""
    count = torch.arange(1, a.shape[1] + 1, dtype=torch.float64)
    perplexity = [torch.exp(-x.cumsum(1) / count) for x in (a, b)]
    return ((perplexity[0] - perplexity[1]).abs() / perplexity[1]).max().item(), (a - b).abs().max().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("scaling", nargs="*")
    o = parser.parse_args()
    known, far = scalings(o.tokens // FACTOR), 0
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    texts = [text_of(o.tokens, depth) for depth in (0.1, 0.5, 0.9)]
    print(f"{'scaling':9} {'perplexity':>10} {'apart':>8} {'a token':>8}   {'in double: apart':>16} {'a token':>8}", flush=True)
    with tempfile.TemporaryDirectory() as work:
        for name in o.scaling or known:
            folder = pathlib.Path(work) / name
            make(folder, *known[name])
            got = ours(o.weft.resolve(), folder, texts)
            columns = [apart(got, theirs(folder, [ids[:-1] for ids in texts], double)) for double in (False, True)]
            far += columns[0][0] > WANTED
            print(f"{name:9} {torch.exp(-got.mean()):10.3f} {columns[0][0]:8.1e} {columns[0][1]:8.1e}   {columns[1][0]:16.1e} {columns[1][1]:8.1e}",
                  flush=True)
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
