"""
python3 -m weft_hooks.convert OUT.safetensors FILE.. [--key NAME] [--axis NAME=DIM].. - makes dumps of torch safetensors.

FILE.. is one of
    a file of torch.save                 a dict of tensors, or one that has it under --key (a state_dict)
    a folder of torch.distributed.checkpoint (FSDP2, torchtitan)
    files of torch.save, one a rank      parts of tensors: a name that several have is put together along --axis
                                         ("q_proj.weight=0": names that end so are split along dim 0); parts that are
                                         alike on all ranks, of names without --axis, are taken once

Pickles are read with weights_only: no code of theirs runs.
"""
import argparse
import pathlib
import sys

import torch
from safetensors.torch import save_file

from weft_hooks import plain_name


def tensors_of(loaded, key, path):
    """The dict of tensors of what a file had."""
    for part in key.split(".") if key else ():
        if part not in loaded:
            sys.exit(f"convert: {path} has no \"{part}\": it has {', '.join(map(str, loaded))}")
        loaded = loaded[part]
    wrong = [k for k, v in loaded.items() if not torch.is_tensor(v)]
    if wrong:
        sys.exit(f"convert: {path}: \"{wrong[0]}\" is no tensor: name the dict of tensors by --key")
    return {plain_name(k): v for k, v in loaded.items()}


def read(path, key):
    """The tensors of a file, or of a folder of torch.distributed.checkpoint."""
    if not pathlib.Path(path).is_dir():
        return tensors_of(torch.load(path, map_location="cpu", weights_only=True), key, path)
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
    state = {}
    _load_state_dict(state, storage_reader=FileSystemReader(path), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    return tensors_of(state, key, path)


def together(name, parts, axes):
    """The whole of the parts that ranks have of a tensor."""
    for end, dim in axes.items():
        if name.endswith(end):
            return torch.cat(parts, dim=dim)
    if all(torch.equal(p, parts[0]) for p in parts):
        return parts[0]
    sys.exit(f"convert: \"{name}\" differs between files: say along which dim it is split by --axis {name}=DIM")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--key", default="")
    parser.add_argument("--axis", action="append", default=[], metavar="NAME=DIM")
    args = parser.parse_args()
    axes = {a.rpartition("=")[0]: int(a.rpartition("=")[2]) for a in args.axis}
    ranks = [read(f, args.key) for f in args.files]
    names = dict.fromkeys(n for r in ranks for n in r)
    save_file({n: together(n, [r[n] for r in ranks if n in r], axes).clone().contiguous() for n in names}, args.out,
              metadata={"format": "pt"})


if __name__ == "__main__":
    main()
