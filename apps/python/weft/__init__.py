"""
weft - trains models whose tensors are spread over a mesh of ranks, which are threads of this process; the layout never
changes the numbers.

    run = weft.Run(n_layer=4, n_head=8, n_embd=256, seq_len=128, global_batch_size=16, tp=4, dp=2, lr=1e-3)
    for ids in batches:                    # [16, 129] ids: numpy, lists, torch or jax on the CPU
        out = run.step(ids)                # .loss .grad_norm .digest
    run.generate(["Once"], temperature=0)
    weft.plan(model="llama-3.1-70b", tp=8, dp=8, machine="h100")
"""
from ._library import Error, library
from ._pack import pack
from ._plan import Plan, plan, search
from ._results import Step, Text
from ._run import Run

__version__: str = library.weft_python_version().decode()
__all__ = ["Error", "Plan", "Run", "Step", "Text", "pack", "plan", "search", "__version__"]
