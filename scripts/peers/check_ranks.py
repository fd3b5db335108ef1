#!/usr/bin/env python3
"""
check_ranks.py ddp|fsdp2|tp FAMILY FOLDER - a step of several processes, under torchrun, dumped by weft_hooks: for
check.py --gloo. dp ranks have a share of the sequences each, as many tokens of them are predicted on every rank.
"""
import os
import sys

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

import check_steps as check
from check_steps import torch, weft_hooks
import torch.distributed as dist


def split_tp(model, mesh):
    """Megatron's split: columns, then rows, by torch's own styles."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    plan = {}
    for i, _ in enumerate(model.model.layers):
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
            plan[f"model.layers.{i}.{name}"] = ColwiseParallel()
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            plan[f"model.layers.{i}.{name}"] = RowwiseParallel()
    parallelize_module(model, mesh, plan)


def main():
    way, family, folder = sys.argv[1:]
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model, batch = check.make(family), check.make_batch("plain")
    if way != "tp":
        share = check.SEQUENCES // ranks
        batch = {k: v[rank * share:(rank + 1) * share] for k, v in batch.items()}
    mesh = dist.device_mesh.init_device_mesh("cpu", (ranks,))
    wrapped = model
    if way == "ddp":
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
    elif way == "fsdp2":
        from torch.distributed.fsdp import fully_shard
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        split_tp(model, mesh)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=check.RATE)
    weft_hooks.attach(wrapped, optimizer, folder, data_group=False if way == "tp" else None)
    wrapped(**batch).loss.backward()
    for name, p in model.named_parameters():
        if way == "tp" and ("q_norm" in name or "k_norm" in name):
            dist.all_reduce(p.grad)  # each rank has the sum over its own heads
    optimizer.step()
    dist.destroy_process_group()
    os._exit(0)  # torch's threads of FSDP2 over gloo at times end an interpreter that exits by std::terminate


if __name__ == "__main__":
    main()
