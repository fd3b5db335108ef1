"""rooms.py - which folders and rooms of the library may include which: the arrows of the house."""

# What each folder may include by path.
FOLDERS = {
    "core": {"core"},
    "kernels": {"core", "kernels"},
    "mesh": {"core", "mesh"},
    "nn": {"core", "kernels", "nn"},
    "parallel": {"core", "kernels", "mesh", "nn", "parallel"},
}
# What each room of a folder may include of that folder, beside itself and the rooms inside it; what lies
# at the top of a folder includes only the rooms that its row names.
ROOMS = {
    "core": {"core/memory", "core/numerics"},
    "core/files": {"core", "core/memory", "core/numerics"},
    "core/memory": {"core"},
    "core/numerics": {"core"},
    "kernels": set(),
    "kernels/cpu": {"kernels"},
    "kernels/cpu/simd": {"kernels", "kernels/cpu"},
    "kernels/cuda": {"kernels"},
    "kernels/cuda/cudnn": {"kernels", "kernels/cuda"},
    "nn": set(),
    "nn/layers": {"nn"},
    "nn/optim": {"nn"},
    "nn/models/gpt": {"nn", "nn/layers"},
    "nn/dataset": set(),
    "nn/text": set(),
    "nn/text/jinja": {"nn/text"},
    "nn/text/tokenizer": {"nn/text"},
    "nn/text/chat": {"nn/text", "nn/text/jinja", "nn/text/tokenizer"},
    "parallel": set(),
    "parallel/formats": set(),
    "parallel/pipeline": set(),
    "parallel/shard": {"parallel"},
    "parallel/simulate": {"parallel/pipeline"},
    "parallel/train": {"parallel", "parallel/shard"},
    "parallel/stages": {"parallel", "parallel/pipeline", "parallel/shard", "parallel/train"},
    "parallel/report": {"parallel", "parallel/formats", "parallel/pipeline", "parallel/shard", "parallel/stages",
                        "parallel/train"},
    "parallel/plan": {"parallel", "parallel/formats", "parallel/pipeline", "parallel/report", "parallel/shard",
                      "parallel/simulate", "parallel/stages", "parallel/train"},
    "parallel/program": {"parallel", "parallel/checkpoint", "parallel/plan", "parallel/recovery", "parallel/report",
                         "parallel/simulate", "parallel/stages", "parallel/train", "parallel/models/gpt"},
    "parallel/recovery": {"parallel", "parallel/formats", "parallel/report", "parallel/shard",
                          "parallel/train"},
    "parallel/checkpoint": {"parallel", "parallel/formats", "parallel/shard",
                            "parallel/train"},
    "parallel/models/gpt": {"parallel", "parallel/formats", "parallel/shard", "parallel/simulate",
                            "parallel/train", "parallel/checkpoint"},
    "parallel/check": {"parallel", "parallel/formats", "parallel/shard", "parallel/train", "parallel/models/gpt"},
    "parallel/generate": {"parallel", "parallel/formats", "parallel/shard", "parallel/train", "parallel/stages",
                          "parallel/checkpoint", "parallel/models/gpt"},
    "mesh/array": {"mesh/comm"},
    "mesh/comm": set(),
    "mesh/transport": {"mesh/comm"},
    "mesh/transport/threads": {"mesh/comm", "mesh/transport"},
    "mesh/transport/mpi": {"mesh/comm", "mesh/transport"},
    "mesh/transport/nccl": {"mesh/comm", "mesh/transport"},
    "mesh/health": {"mesh/comm", "mesh/transport"},
    "mesh/cluster": {"mesh/array", "mesh/comm", "mesh/transport", "mesh/health"},
}

# Rooms that include other folders less than their folder may: nn/text is a library of its own.
ONLY = {"nn/dataset": {"core", "nn/dataset"}, "nn/text": {"core", "nn/text"}}
# Rooms whose internal headers serve all folders of the library.
SHARED = ("core/files",)
