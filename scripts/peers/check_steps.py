"""
check_steps.py - for check.py: tiny models and batches of PyTorch, a training step that is right until a fault is put in, and
what gpt_check says of it.
"""
import json
import math
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = str(ROOT / "scripts" / "peers")
sys.path[:] = [p for p in sys.path if p != HERE]  # it has a tokenizers.py, and transformers mean the package of that name
sys.path.insert(0, str(ROOT / "apps" / "python"))
try:
    import torch
    import torch.nn.functional as F
    import transformers
    from safetensors.torch import save_file
except ImportError as missing:
    print(f"check.py: {missing}: pip install torch transformers safetensors", file=sys.stderr)
    sys.exit(2)
import weft_hooks  # noqa: E402
sys.path.append(HERE)

SEQUENCES, TOKENS, VOCABULARY, RATE, DECAY = 8, 24, 101, 1e-3, 0.1
COMMON = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32, "bos_token_id": 0,
          "eos_token_id": 0, "attn_implementation": "eager"}
GPT2 = {"n_layer": 3, "n_head": 4, "n_embd": 32, "n_positions": 32, "vocab_size": VOCABULARY, "bos_token_id": 0,
        "eos_token_id": 0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "attn_implementation": "eager"}
ATTENTION = re.compile(r"attn\.c_attn|[qkv]_proj")


def make(family):
    """A model of random weights, of which none is what it begins as."""
    torch.manual_seed(20251129)
    config = {"gpt2": lambda: transformers.GPT2Config(**GPT2),
              "llama": lambda: transformers.LlamaConfig(**COMMON, tie_word_embeddings=False),
              "mha": lambda: transformers.LlamaConfig(**COMMON | {"num_key_value_heads": 4}, tie_word_embeddings=False),
              "qwen3": lambda: transformers.Qwen3Config(**COMMON, head_dim=8, tie_word_embeddings=True),
              "mixtral": lambda: transformers.MixtralConfig(**COMMON, num_local_experts=4, num_experts_per_tok=2),
              "qwen3_moe": lambda: transformers.Qwen3MoeConfig(**COMMON, head_dim=8, num_experts=8, num_experts_per_tok=2,
                                                               moe_intermediate_size=24)}[family]()
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").train()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    return model


def make_batch(kind="masked"):
    """Token ids and what is predicted of them; sequences count differently where they are masked."""
    generator = torch.Generator().manual_seed(7)
    batch = {"input_ids": torch.randint(1, VOCABULARY, (SEQUENCES, TOKENS), generator=generator)}
    batch["labels"] = batch["input_ids"].clone()
    if kind != "plain":
        for i in range(SEQUENCES):
            batch["labels"][i, :2 * i] = -100
            batch["labels"][i, 20:21] = -100
    if kind == "packed":
        bounds = torch.tensor([[0, 5 + i % 3, 15] for i in range(SEQUENCES)])
        positions = torch.arange(TOKENS).repeat(SEQUENCES, 1)
        begins = torch.stack([(positions >= bounds[:, k:k + 1]) * bounds[:, k:k + 1] for k in range(3)]).amax(0)
        batch["position_ids"] = positions - begins
    return batch


def document_mask(positions):
    """[batch, 1, tokens, tokens], 0 where a token sees another one."""
    document = (positions == 0).cumsum(1)
    sees = (document[:, :, None] == document[:, None, :]) & torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    return torch.where(sees, 0.0, torch.finfo(torch.float32).min)[:, None]


def token_losses(model, batch, shift=1, documents=True):
    """The loss of every token, [sequences, tokens - shift], and which of them count."""
    inputs = {"input_ids": batch["input_ids"]}
    if "position_ids" in batch:
        inputs["position_ids"] = batch["position_ids"]
        inputs["attention_mask"] = document_mask(batch["position_ids"] if documents else
                                                 torch.arange(TOKENS).repeat(len(batch["input_ids"]), 1))
    logits = model(**inputs).logits.float()
    labels = batch["labels"][:, shift:]
    losses = F.cross_entropy(logits[:, :TOKENS - shift].transpose(1, 2), labels, ignore_index=-100, reduction="none")
    return losses, labels != -100


def mean(losses, counts):
    return losses.sum() / counts.sum()


class Step:
    """A step that is right, until a fault changes what it dumps or how it computes."""

    def __init__(self, family, kind, bf16=False):
        self.family, self.kind, self.bf16 = family, kind, bf16
        self.model, self.batch = make(family), make_batch(kind)
        self.seen = {k: v.clone() for k, v in self.batch.items()}  # by the trainer
        self.flags, self.dump, self.after, self.clip = [], {}, {}, 0
        self.routes, self.routed = weft_hooks.Routes(self.model), []
        self.decays = lambda name, p: p.ndim > 1

    def losses(self, batch, **options):
        """token_losses, with the choices of routers."""
        self.routes.begin()
        found = token_losses(self.model, batch, **options)
        self.routed.append(self.routes.end(*batch["input_ids"].shape))
        return found

    def loss(self):
        losses, counts = self.losses(self.seen)
        self.dump["token_losses"] = losses.detach()
        return mean(losses, counts)

    def backward(self):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss = self.loss()
        loss.backward()
        self.dump["loss"] = loss.detach().reshape(1)
        self.dump |= weft_hooks.gradients(self.model)
        return self

    def grads(self):
        return {k: v for k, v in self.dump.items() if k not in ("loss", "token_losses")}

    def pick(self, pattern):
        found = [k for k in self.grads() if re.search(pattern, k)]
        assert found, pattern
        return found

    def scale(self, pattern, factor):
        for name in self.pick(pattern):
            self.dump[name] = self.dump[name] * factor

    def norm(self, pattern="", copies=1, copied="$^"):
        return math.sqrt(sum(float(g.double().square().sum()) * (copies if re.search(copied, k) else 1)
                             for k, g in self.grads().items() if re.search(pattern, k)))

    def update(self, correction=(True, True), eps="outside", epsilon=1e-8, l2=False, rate=RATE):
        """AdamW's first step of the dumped gradients, as some have written it."""
        for name, p in weft_hooks.weights(self.model).items():
            w, g = p.double(), self.dump[name].double()
            decay = DECAY if self.decays(name, p) else 0
            g = g + decay * w if l2 else g
            m, v = (g if correction[0] else g * 0.1), (g * g if correction[1] else g * g * 0.001)
            if eps == "inside":
                root = (v + epsilon).sqrt()
            else:
                root = v.sqrt() + (epsilon if eps == "outside" else epsilon / math.sqrt(0.001))
            self.after[name] = (w - rate * (m / root + (0 if l2 else decay * w))).float()
        self.flags += ["--lr", str(RATE), "--weight-decay", str(DECAY)]
        return self

    def check(self, gpt_check, folder, *flags):
        routed = {"routed_experts": torch.cat(self.routed)} if self.routed and self.routed[0] is not None else {}
        routed = routed if not routed or len(routed["routed_experts"]) == SEQUENCES else {}
        for name, tensors in (("gradients", self.dump), ("updated", self.after), ("batch", self.batch | routed)):
            if tensors:
                save_file({k: v.clone().contiguous() for k, v in tensors.items()}, folder / f"{name}.safetensors")
        flags = [*flags, *self.flags, *(["--precision", "bf16"] if self.bf16 else []),
                 *(["--updated", str(folder / "updated.safetensors")] if self.after else [])]
        model = folder.parent / self.family
        if not model.exists():
            make(self.family).save_pretrained(model)
        return run(gpt_check, model, folder, flags)


def run(gpt_check, model, folder, flags):
    command = [str(gpt_check), str(model), "--batch", str(folder / "batch.safetensors"), "--gradients",
               str(folder / "gradients.safetensors"), "--threads", "1", "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    report = json.loads(done.stdout) if done.stdout else {"findings": [], "error": done.stderr}
    if done.returncode > 1 or report.get("equal") != (done.returncode == 0):
        report["error"] = f"status {done.returncode}: {done.stderr}"
    report["shown"] = " ".join(command[:-1 - len(flags)] + flags)
    return report
