"""
weft_hooks.torchtitan - a step of a trainer of torchtitan (0.3), for `weft check`.

    import weft_hooks.torchtitan
    weft_hooks.torchtitan.attach(trainer, "dump")           # before trainer.train()

Names are those of the model's state dict adapter. The batch has one token more than the model's input: torchtitan hands a model
all tokens but the last, and its loss all but the first.
"""
import torch

import weft_hooks


def batch_of(input_dict, labels):
    """Fields of `weft check`, [sequences, tokens + 1], of an input and its labels, [sequences, tokens]."""
    tokens = input_dict["input"]
    fields = {"input_ids": torch.cat([tokens, labels[:, -1:].clamp(min=0)], 1),
              "labels": torch.cat([torch.full_like(labels[:, :1], -100), labels], 1)}
    positions = input_dict.get("positions")
    if positions is not None:
        fields["position_ids"] = torch.cat([positions, positions[:, -1:] + 1], 1)
    return fields


def renaming_of(trainer):
    """What makes of a dict by the model's parameters one by Hugging Face's names."""
    spec, model = trainer.config.model_spec, trainer.model_parts[0]
    if spec.state_dict_adapter is None:
        raise ValueError(f"{spec.name} has no state dict adapter, which names its parameters as Hugging Face does: use "
                         "weft_hooks.attach with rename=")
    adapter = spec.state_dict_adapter(trainer.model_config, trainer.config.hf_assets_path)

    def rename(tensors):
        tensors = dict(tensors)
        for name, module in model.named_modules():  # a state dict has the parts of fused linears
            for hook in module._state_dict_hooks.values():
                hook(module, tensors, weft_hooks.plain_name(name) + ".", {})
        return {name: tensor.contiguous() for name, tensor in adapter.to_hf(tensors).items()}
    return rename


def attach(trainer, folder, *, step=1):
    """
    Dumps batch, gradients and updated weights of one step of a trainer, which has data, tensor and expert parallelism in any number.

    step        1: the next one, whose moments are zero, as `weft check --updated` has them
    """
    dims = trainer.parallel_dims
    if dims.pp_enabled or dims.cp_enabled:
        raise ValueError("a rank of a pipeline or of context parallelism has a part of the model or batch: dump a step without them")
    group = dims.get_mesh("batch").get_group() if dims.dp_enabled else False
    dump = weft_hooks.attach(trainer.model_parts[0], trainer.optimizers, folder, step=step, rename=renaming_of(trainer),
                             data_group=group)
    inner = trainer.forward_backward_step

    def forward_backward_step(*, input_dict, labels, **rest):
        dump.batch(**batch_of(input_dict, labels))
        return inner(input_dict=input_dict, labels=labels, **rest)

    trainer.forward_backward_step = forward_backward_step
    return dump
