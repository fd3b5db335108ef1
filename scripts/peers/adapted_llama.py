"""
adapted_llama.py - what lora_peft.py and nf4.py have in common: a small random Llama, its data, and 50 steps on it, of torch and
of gpt_train. Imported first, since it takes the folder of scripts, which have the names of packages, off the path.
"""
import json
import pathlib
import subprocess
import sys

sys.path.pop(0)
SCRIPT = pathlib.Path(sys.argv[0]).name


def needs(*packages):
    """End with status 2 where a package is missing."""
    for package in ("torch", "transformers", "peft", "numpy", *packages):
        try:
            __import__(package)
        except ImportError as missing:
            print(f"{SCRIPT}: {missing}: pip install torch transformers peft {' '.join(packages)}", file=sys.stderr)
            sys.exit(2)
    import transformers
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


VOCABULARY, LENGTH, BATCH, STEPS, LR, DECAY = 300, 32, 8, 50, 3e-3, 0.01
SIZES = dict(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=176, num_hidden_layers=3, num_attention_heads=8,
             num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, initializer_range=0.1)
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LAYOUTS = [[], ["--tp", "4", "--dp", "2", "--sequence-parallel", "--micro-batch-size", "2"]]
wrong = False


def run(program, *arguments):
    """What a program of BUILD says."""
    done = subprocess.run([str(pathlib.Path(sys.argv[1]).resolve() / "apps" / program), *map(str, arguments)], capture_output=True,
                          text=True)
    if done.returncode:
        sys.exit(f"{SCRIPT}: {program}: {done.stderr.strip()}")
    return done.stdout


def report(what, good, figures):
    """A line of the report; status 1 in the end where it is not good."""
    global wrong
    wrong |= not good
    print(f"{what:17} {'ok  ' if good else 'WRONG'} {figures}", flush=True)


def begin(folder, family="llama", **sizes):
    """The model, in folder/base, and data of BATCH windows, in folder/data.bin; the windows."""
    import numpy
    import torch
    import transformers
    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(family, **(SIZES | sizes))
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder / "base")
    ids = numpy.random.default_rng(1).integers(0, VOCABULARY, BATCH * LENGTH + 1)
    head = numpy.zeros(256, numpy.int32)
    head[:3] = 20240520, 1, len(ids)
    (folder / "data.bin").write_bytes(head.tobytes() + ids.astype(numpy.uint16).tobytes())
    return torch.tensor(numpy.stack([ids[i * LENGTH:(i + 1) * LENGTH + 1] for i in range(BATCH)]))


def torch_losses(model, windows):
    """All steps of torch's AdamW on what is trained of a model."""
    import torch
    x, y = windows[:, :-1], windows[:, 1:]
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW([{"params": [p for p in trained if p.ndim > 1], "weight_decay": DECAY},
                                   {"params": [p for p in trained if p.ndim == 1], "weight_decay": 0}],
                                  lr=LR, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(model(input_ids=x).logits.reshape(-1, VOCABULARY).double(), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def weft_losses(folder, base, adapters, save, *flags):
    """The same of gpt_train, from a base and adapters; its checkpoint is in folder/save."""
    log = folder / f"{save}.jsonl"
    run("gpt_train", "--init-from", folder / base, "--lora-init", folder / adapters, "--data", folder / "data.bin",
        "--val-fraction", 0, "--seq-len", LENGTH, "--global-batch-size", BATCH, "--steps", STEPS, "--lr", LR, "--min-lr", LR,
        "--warmup-steps", 0, "--weight-decay", DECAY, "--clip-grad", 0, "--eval-interval", 0, "--log-jsonl", log, "--save",
        folder / save, *flags)
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    return [row["loss"] for row in rows if "step" in row and "loss" in row]


def report_losses(what, mine, theirs, most, layout):
    """Losses of every step beside torch's."""
    worst = max(abs(a - b) / abs(b) for a, b in zip(mine, theirs))
    report(what, len(mine) == STEPS and worst <= most,
         f"{len(mine)} steps {' '.join(layout) or 'on one rank'}: {mine[0]:.6f} to {mine[-1]:.6f}, at most {worst:.1e} apart")
