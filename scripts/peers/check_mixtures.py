"""
check_mixtures.py - faults of mixtures of experts for check.py, as check_faults.py has those of all models.
"""
from check_faults import fault
from check_steps import torch

MIXTURES = ("mixtral", "qwen3_moe")
EXPERTS = r"\.experts\."
ROUTERS = r"(mlp|moe)\.gate\.weight"


def routers(step):
    return [m for _, m in step.model.named_modules() if type(m).__name__.endswith("Router")]


@fault("factor", "expert-parallel group", MIXTURES)
def experts_doubled(step):  # pytorch#160285: at ep 2
    step.backward().scale(EXPERTS, 2)


@fault("factor", "expert-parallel group", MIXTURES)
def experts_divided_by_dp(step):
    step.backward().scale(EXPERTS, 0.25)


@fault("factor", "reduced as experts are", MIXTURES)
def routers_halved(step):
    step.backward().scale(ROUTERS, 0.5)


@fault("zero", "these experts", MIXTURES)
def experts_of_one_rank(step):
    step.backward()
    half = step.model.config.num_local_experts // 2
    for name in step.pick(EXPERTS):
        if int(name.split(".experts.")[1].split(".")[0]) >= half:
            step.dump[name] = torch.zeros_like(step.dump[name])


@fault("exchanged", "exchanged", MIXTURES)
def experts_in_another_order(step):
    step.backward()
    for name in step.pick(EXPERTS + r"1\."):
        other = name.replace(".experts.1.", ".experts.2.")
        step.dump[name], step.dump[other] = step.dump[other], step.dump[name]


@fault("exchanged", "exchanged", MIXTURES)
def experts_gate_and_up(step):
    step.backward()
    gate, up = ("w1", "w3") if step.family == "mixtral" else ("gate_proj", "up_proj")
    for name in step.pick(EXPERTS + r".*" + gate):
        other = name.replace(gate, up)
        step.dump[name], step.dump[other] = step.dump[other], step.dump[name]


@fault("zero", "chosen experts are detached", MIXTURES)
def router_detached(step):
    for router in routers(step):
        router.register_forward_hook(lambda _m, _i, out: tuple(o.detach() for o in out))
    step.backward()


@fault("unknown", "loss of balance", MIXTURES)
def balance_in_gradient(step):
    kept = []
    for router in routers(step):
        router.register_forward_hook(lambda _m, _i, out: kept.append(out[0]))
    inner = step.loss

    def loss():
        value = inner()
        step.shown = value.detach()
        return value + 0.1 * sum(torch.logsumexp(logits.float(), -1).square().mean() for logits in kept)
    step.loss = loss
    step.backward()
    step.dump["loss"] = step.shown.reshape(1)


@fault("choices", "something else than the scores", MIXTURES)
def experts_chosen_by_noise(step):
    noise = torch.Generator().manual_seed(3)
    for router in routers(step):
        def choose(router, _inputs, out):
            logits, weights, index = out
            scores = torch.softmax(logits.float(), -1)
            index = torch.topk(scores + 0.05 * torch.rand(scores.shape, generator=noise), index.shape[1]).indices
            chosen = scores.gather(1, index)
            if step.family == "mixtral" or router.norm_topk_prob:
                chosen = chosen / chosen.sum(-1, keepdim=True)
            return logits, chosen.to(weights.dtype), index
        router.register_forward_hook(choose, prepend=True)
    step.backward()


@fault("unknown choices", "differ.? already", ("qwen3_moe",))
def weights_of_experts_normalised(step):
    """The weights of the chosen experts add up to one, where the model's do not."""
    for router in routers(step):
        router.norm_topk_prob = not router.norm_topk_prob
    step.backward()


@fault("unknown choices", "differ.? already", MIXTURES)
def tokens_dropped(step):
    """A capacity that some tokens are beyond."""
    for module in step.model.modules():
        if type(module).__name__.endswith("Experts"):
            inner = module.forward

            def forward(hidden, index, weights, inner=inner):
                weights = weights.clone()
                weights[-20:] = 0
                return inner(hidden, index, weights)
            module.forward = forward
    step.backward()
