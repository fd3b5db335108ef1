"""
weft_hooks - what `weft check` compares, written by a trainer of PyTorch: the batch of a step, its gradients, and the
weights after it.

    import weft_hooks
    dump = weft_hooks.attach(model, optimizer, "dump")      # before the first step; all else is the trainer's own
    ...
    weft check MODEL --batch dump/batch.safetensors --gradients dump/gradients.safetensors \\
        --updated dump/updated.safetensors --lr 1e-4

It needs torch and safetensors. Gradients are dumped as the optimizer gets them: after clipping (give `weft check` the
same --clip), and summed over ranks as the trainer does it; DTensors (FSDP2, tensor parallelism) are put together by all
ranks, and rank 0 writes.
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file

FIELDS = ("input_ids", "labels", "loss_mask", "position_ids", "documents", "attention_mask", "routed_experts")
WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def plain_name(name):
    """A parameter's name without what DDP, torch.compile, FSDP1 and checkpointing put into it."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def whole(tensor):
    """A tensor on the CPU; a DTensor is gathered, which all ranks have to do."""
    tensor = tensor.detach()
    if hasattr(tensor, "full_tensor"):
        tensor = tensor.full_tensor()
    return tensor.to("cpu", copy=True).contiguous()


def is_writer():
    """True on the rank that writes files."""
    return not torch.distributed.is_available() or not torch.distributed.is_initialized() \
        or torch.distributed.get_rank() == 0


def write(path, tensors):
    """Writes tensors to a safetensors file, on rank 0."""
    if is_writer():
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, str(path), metadata={"format": "pt"})


def as_saved(model, tensors):
    """Tensors by the names in files of transformers, whose models may have others: all experts of a layer are one tensor there."""
    if "transformers" not in sys.modules:
        return tensors
    from transformers import PreTrainedModel
    inner = next((m for m in model.modules() if isinstance(m, PreTrainedModel)), None)
    if inner is None:
        return tensors
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:  # before version 5 they are the same
        return tensors
    return {name: t.clone().contiguous() for name, t in revert_weight_conversion(inner, tensors).items()}


def gradients(model):
    """The gradients of a model by the parameters' names; a parameter without one has zeros, as the loss does not see it."""
    return as_saved(model, {plain_name(name): whole(p.grad if p.grad is not None else torch.zeros_like(p))
                            for name, p in model.named_parameters() if p.requires_grad})


def weights(model):
    """The trained weights of a model by their names."""
    return as_saved(model, {plain_name(name): whole(p) for name, p in model.named_parameters() if p.requires_grad})


def batch_of(micro_batches):
    """A step's batch of the micro-batches that the model has seen: dicts of the fields of FIELDS."""
    fields = [f for f in FIELDS if any(m.get(f) is not None for m in micro_batches)]
    whole_fields = {f: [whole(m[f]) for m in micro_batches if m.get(f) is not None] for f in fields}
    return {f: torch.cat([t if f == "routed_experts" else t.reshape(-1, t.shape[-1]) for t in parts]).contiguous()
            for f, parts in whole_fields.items()}


def gathered(batch, group):
    """The batch of all data-parallel ranks, in the order of ranks; `group`: those, or None for all ranks."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return batch
    parts = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(parts, batch, group=group)
    return {f: torch.cat([p[f] for p in parts]).contiguous() for f in batch}


class Routes:
    """The experts that a model's routers choose in a forward pass: modules whose class is called a Router, and whose outputs have a
    tensor of indices, [.., a token's experts]. One that is recomputed in backward has them once."""

    def __init__(self, model):
        self.layers = None
        self.hooks = [m.register_forward_hook(self.chosen) for m in model.modules() if type(m).__name__.endswith("Router")]

    def chosen(self, _module, _args, out):
        """A router has chosen."""
        found = [t for t in (out if isinstance(out, (tuple, list)) else [out])
                 if torch.is_tensor(t) and not t.is_floating_point() and t.ndim > 1]
        if self.layers is not None and found:
            self.layers.append(whole(found[0]).reshape(-1, found[0].shape[-1]).int())

    def begin(self):
        """A forward pass begins."""
        self.layers = []

    def end(self, sequences, tokens):
        """A forward pass has ended. Returns [sequences, tokens, layers, a token's experts]; None: there are none, or of other tokens."""
        layers, self.layers = self.layers, None
        if not layers or any(t.shape != (sequences * tokens, layers[0].shape[1]) for t in layers):
            return None
        return torch.stack(layers, 1).reshape(sequences, tokens, len(layers), -1).contiguous()

    def remove(self):
        """Takes the hooks away."""
        for hook in self.hooks:
            hook.remove()


def with_routes(said, seen):
    """A micro-batch that a trainer has said, with the choices of the forward pass over it: of its last token, which the model may not
    have had, they are those of the token before."""
    routes = seen.get("routed_experts")
    if routes is None or "routed_experts" in said or not torch.is_tensor(said.get("input_ids")):
        return said
    more = said["input_ids"].shape[-1] - routes.shape[1]
    if more not in (0, 1) or said["input_ids"].numel() // said["input_ids"].shape[-1] != len(routes):
        return said
    return said | {"routed_experts": torch.cat([routes] + [routes[:, -1:]] * more, 1)}


class Dump:
    """What `attach` returns: writes the files of one step, and takes its hooks away afterwards."""

    def __init__(self, model, optimizer, folder, step, rename, data_group):
        self.model, self.folder, self.left, self.rename = model, pathlib.Path(folder), step, rename
        self.group, self.micro_batches, self.said, self.loss = data_group, [], [], None
        self.routes = Routes(model)
        self.hooks = [model.register_forward_pre_hook(self.forward, with_kwargs=True), model.register_forward_hook(self.ran),
                      self.routes, optimizer.register_step_pre_hook(self.before), optimizer.register_step_post_hook(self.after)]

    def forward(self, _module, args, kwargs):
        """Keeps the model's inputs, of training alone."""
        if torch.is_grad_enabled() and self.left == 1:
            inputs = dict(kwargs)
            if args:
                inputs["input_ids"] = args[0]
            self.micro_batches.append({f: inputs[f].detach() for f in FIELDS if torch.is_tensor(inputs.get(f))})
            self.routes.begin()

    def ran(self, *_):
        """Keeps what the routers have chosen."""
        ids = self.micro_batches[-1].get("input_ids") if self.micro_batches else None
        if self.routes.layers is not None and ids is not None:
            routes = self.routes.end(ids.numel() // ids.shape[-1], ids.shape[-1])
            if routes is not None:
                self.micro_batches[-1]["routed_experts"] = routes

    def batch(self, **fields):
        """Says what a micro-batch of this step is, where the model does not get it (labels that the trainer keeps)."""
        if self.left == 1:
            self.said.append(fields)

    def before(self, *_):
        """The optimizer is about to step."""
        if self.left != 1:
            return
        found = gradients(self.model)
        found = self.rename(found) if self.rename else found
        if self.loss is not None:
            found["loss"] = torch.as_tensor(self.loss, dtype=torch.float32).reshape(1)
        seen, said = self.micro_batches, self.said
        if len(said) == len(seen):
            said = [with_routes(*pair) for pair in zip(said, seen)]
        batch = batch_of(said or seen)
        write(self.folder / "batch.safetensors", batch if self.group is False else gathered(batch, self.group))
        write(self.folder / "gradients.safetensors", found)

    def after(self, *_):
        """The optimizer has stepped."""
        self.left -= 1
        if self.left == 0:
            found = weights(self.model)
            write(self.folder / "updated.safetensors", self.rename(found) if self.rename else found)
            for hook in self.hooks:
                hook.remove()


def attach(model, optimizer, folder, *, step=1, rename=None, data_group=None):
    """
    Dumps batch, gradients and updated weights of one optimizer step of a trainer.

    step        1: the next one, whose moments are zero, as `weft check --updated` has them
    rename      converts a dict of tensors by the model's names to one by Hugging Face's: torchtitan's
                `model_spec.state_dict_adapter(..).to_hf`; None: they are the same
    data_group  the process group of the ranks that have different sequences; None: all ranks; False: only this one's
    """
    return Dump(model, optimizer, folder, step, rename, data_group)


def trainer_callback(folder, **options):
    """A callback for transformers' Trainer: Trainer(.., callbacks=[weft_hooks.trainer_callback("dump")])."""
    from transformers import TrainerCallback

    class Callback(TrainerCallback):
        """Attaches once the optimizer is there."""

        def on_train_begin(self, _args, _state, _control, model=None, optimizer=None, **_):
            inner = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper steps the one inside
            self.dump = attach(model, inner, folder, **options)

    return Callback()
