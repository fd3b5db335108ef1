"""
check_faults.py - faults for check.py, a function each: it makes a step with the fault, which gpt_check has to name.
"""
import math

from check_steps import F, TOKENS, SEQUENCES, RATE, mean, torch

# Faults: (name, families, kind of batch, the ids that are found, words of the cause, what is done). Those that begin
# with "loss" or "token-losses" may come beside.
ALL = ("gpt2", "llama", "qwen3")
FAULTS = []


def fault(ids, cause, families=ALL, kind="masked", flags=()):
    def add(function):
        FAULTS.append((function.__name__, families, kind, set(ids.split()), cause, list(flags), function))
        return function
    return add


def half_sum_linear(linear, rows_are_outputs=True):
    """A column-parallel linear whose input gets the gradient of one rank of two alone."""
    inner = linear.forward

    def forward(x):
        y = inner(x)
        part = inner(x.detach())
        half = y.shape[-1] // 2
        return torch.cat([y[..., :half], part[..., half:]], -1)
    linear.forward = forward


@fault("factor", "not divided by their number", flags=["--dp", "4"])
def summed_over_ranks(step):
    step.backward().scale("", 4)


@fault("factor", "once too often", flags=["--micro-batches", "2"])
def divided_twice(step):
    step.backward().scale("", 0.5)


@fault("factor", "another group")
def mlp_doubled(step):  # pytorch#160285: doubled at ep 2, and Adam hides it
    step.backward().scale(r"mlp\..*weight", 2)


@fault("factor", "another group")
def square_root_of_tp(step):
    step.backward().scale(r"mlp\..*weight", math.sqrt(2))


@fault("factor", "bias after a row-parallel linear", ("gpt2",), flags=["--tp", "2"])
def bias_on_every_rank(step):  # torchtitan#4245
    step.backward().scale(r"c_proj\.bias", 2)


@fault("factor", "each has all of it", flags=["--tp", "4"])
def norms_summed(step):
    step.backward().scale(r"norm|ln_", 4)


@fault("factor", "averaged over ranks", flags=["--tp", "4"])
def norms_averaged(step):
    step.backward().scale(r"norm|ln_", 0.25)


@fault("factor", "copies", ("llama", "qwen3"))
def kv_heads_summed(step):
    step.backward().scale(r"[kv]_proj", 2)


@fault("unknown", "sum over tokens is incomplete", ("llama", "qwen3"))
def norms_of_one_rank(step):
    """Sequence parallelism without the all-reduce of norms: the gain's gradient is of half of the tokens."""
    for name, module in step.model.named_modules():
        if name.endswith("layernorm"):
            inner = module.forward

            def forward(x, inner=inner, module=module):
                y, gain = inner(x), module.weight.detach()
                other = y / module.weight * gain
                return torch.cat([y[:, :TOKENS // 2], (other + (y - other).detach())[:, TOKENS // 2:]], 1)
            module.forward = forward
    step.backward()


@fault("unknown", "column-parallel")
def input_not_reduced(step):  # torchtitan#1805
    block = (step.model.transformer.h if step.family == "gpt2" else step.model.model.layers)[1]
    for name, module in block.named_modules():
        if name in ("mlp.c_fc", "mlp.gate_proj", "mlp.up_proj"):
            half_sum_linear(module)
    step.backward()


@fault("rows columns", "share")
def one_rank_of_queries(step):
    step.backward()
    for name in step.pick(r"layers?\.1\..*q_proj|h\.1\.attn\.c_attn\.weight"):
        g = step.dump[name]
        if step.family == "gpt2":
            g[:, 16:32] = 0
        else:
            g[16:] = 0


@fault("rows columns", "share")
def one_rank_of_output(step):
    step.backward()
    for name in step.pick(r"o_proj\.weight|attn\.c_proj\.weight"):
        if step.family == "gpt2":
            step.dump[name][16:] = 0
        else:
            step.dump[name][:, 16:] = 0


@fault("rows columns", "scale of its own|fused")
def one_part_doubled(step):
    step.backward()
    for name in step.pick(r"down_proj\.weight|mlp\.c_proj\.weight"):
        step.dump[name][:, :8] *= 2


@fault("rows", "vocabulary")
def vocabulary_of_one_rank(step):
    step.backward()
    for name in step.pick(r"wte|embed_tokens"):
        step.dump[name][51:] = 0


@fault("rows", "padding", ("llama",))
def padding_token(step):
    step.model.model.embed_tokens.padding_idx = int(step.seen["input_ids"][0, 0])
    step.backward()


@fault("exchanged", "exchanged", ("llama", "qwen3"))
def gate_and_up(step):
    step.backward()
    for gate in step.pick("gate_proj"):
        up = gate.replace("gate", "up")
        step.dump[gate], step.dump[up] = step.dump[up], step.dump[gate]


@fault("exchanged", "exchanged")
def layers_exchanged(step):
    step.backward()
    for name in step.pick(r"(layers|h)\.1\..*mlp.*weight"):
        other = name.replace(".1.", ".2.")
        step.dump[name], step.dump[other] = step.dump[other], step.dump[name]


@fault("columns-moved", "put together in another order", ("gpt2",))
def fused_by_rank(step):
    """q, k, v of rank 0, then those of rank 1."""
    step.backward()
    for name in step.pick(r"c_attn\.weight"):
        step.dump[name] = torch.cat([step.dump[name][:, i * 16:(i + 1) * 16] for i in (0, 2, 4, 1, 3, 5)], 1)


@fault("rows-moved", "rotary", ("llama", "qwen3"))
def rotary_order(step):
    step.backward()
    for name in step.pick(r"[qk]_proj\.weight"):
        g = step.dump[name]
        step.dump[name] = g.view(-1, 2, 4, 32).transpose(1, 2).reshape(g.shape)


@fault("rows-moved", "put together", ("llama", "qwen3"))
def ranks_in_another_order(step):
    step.backward()
    for name in step.pick(r"gate_proj\.weight"):
        g = step.dump[name]
        step.dump[name] = torch.cat([g[12 * i:12 * i + 12] for i in (0, 2, 1, 3)])


@fault("transposed", "mixed up")
def transposed(step):
    step.backward()
    for name in step.pick(r"o_proj\.weight|attn\.c_proj\.weight"):
        step.dump[name] = step.dump[name].T.contiguous()


@fault("tied", "not summed", ("gpt2", "qwen3"))
def embedding_not_tied(step):
    embed = step.model.get_input_embeddings()
    embed.forward = lambda ids: F.embedding(ids, embed.weight.detach()).requires_grad_()
    step.backward()


@fault("zero", "no gradient")
def layer_detached(step):
    step.backward().scale(r"(layers|h)\.2\.", 0)


@fault("not-finite", "overflow")
def overflow(step):
    step.backward()
    step.dump[step.pick("mlp")[0]][3, 4] = math.nan


@fault("mean-of-means", "mean of 4 means")
def mean_of_means(step):
    def loss():
        losses, counts = step.losses(step.seen)
        return sum(mean(a, b) for a, b in zip(losses.split(2), counts.split(2))) / 4
    step.loss = loss
    step.backward()


@fault("sequences-missing", "4 of 8 sequences")
def rank_not_summed(step):
    def loss():
        losses, counts = step.losses(step.seen)
        return mean(losses[:4], counts[:4])
    step.loss = loss
    step.backward()


@fault("sequences-missing", "6 of 8 sequences")
def last_micro_batch(step):
    def loss():
        losses, counts = step.losses(step.seen)
        return losses[6:].sum() / counts.sum()
    step.loss = loss
    step.backward()


@fault("labels-unshifted", "not shifted")
def labels_not_shifted(step):
    step.loss = lambda: mean(*step.losses(step.seen, shift=0))
    step.backward()


@fault("labels-shifted-twice", "once more")
def labels_shifted_twice(step):
    step.loss = lambda: mean(*step.losses(step.seen, shift=2))
    step.backward()


@fault("mask-ignored", "does not reach")
def mask_ignored(step):
    step.seen["labels"] = step.seen["input_ids"]
    step.backward()


@fault("documents-ignored", "bounds", kind="packed", families=("llama", "qwen3", "gpt2"))
def documents_ignored(step):
    step.seen["position_ids"] = torch.arange(TOKENS).repeat(SEQUENCES, 1)
    step.backward()


@fault("factor", "summed", kind="masked")
def sum_of_losses(step):
    def loss():
        return step.losses(step.seen)[0].sum()
    step.loss = loss
    step.backward()


@fault("factor", "once too often")
def all_tokens_divide(step):
    step.loss = lambda: step.losses(step.seen)[0].mean()
    step.backward()


@fault("clip", "tables of the vocabulary", flags=["--clip", "0.25"])
def clip_without_tables(step):
    step.backward()
    step.scale("", 0.25 / step.norm(r"^(?!.*(wte|embed_tokens|lm_head))"))


@fault("clip", "counts twice", flags=["--clip", "0.25"])
def clip_counts_copies(step):
    step.backward()
    step.scale("", 0.25 / step.norm(copies=2, copied=r"norm|ln_|c_proj\.bias"))


@fault("clip", "not been clipped", flags=["--clip", "0.25"])
def not_clipped(step):
    step.backward()


@fault("decayed", "weight decay")
def decay_in_gradient(step):
    step.backward()
    for name, p in step.model.named_parameters():
        if p.ndim > 1:
            step.dump[name] = step.dump[name] + 0.1 * p.detach()


@fault("unknown", "losses differ already", ("llama",))
def dropout_left_on(step):
    step.model.config.attention_dropout = 0.1
    for module in step.model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.1
    step.backward()


@fault("unknown", "losses differ already", ("llama",))
def another_rotation(step):
    step.model.model.rotary_emb.inv_freq = 1 / 500 ** (torch.arange(0, 8, 2).float() / 8)
    step.backward()


@fault("update-decay", "biases and norms")
def decay_of_norms(step):
    step.decays = lambda name, p: True
    step.backward().update()


@fault("update-l2", "L2")
def adam_with_l2(step):
    step.backward().update(l2=True)


@fault("update-correction", "beta\\^step")
def no_correction(step):
    step.backward().update(correction=(False, False))


@fault("update-correction", "beta2")
def second_moment_not_corrected(step):
    step.backward().update(correction=(True, False))


@fault("update-epsilon", "root|sqrt")
def epsilon_inside(step):
    step.backward().update(eps="inside")


@fault("update-epsilon", "another epsilon|TensorFlow")
def another_epsilon(step):
    step.backward().update(epsilon=1e-5)


@fault("update-rate", "warm-up")
def rate_of_next_step(step):
    step.backward().update(rate=RATE / 2)


@fault("update-none", "no parameter group")
def not_in_a_group(step):
    step.backward().update()
    for name in step.pick(r"(layers|h)\.0\..*(norm|ln_)"):
        step.after[name] = dict(step.model.named_parameters())[name].detach().clone()
