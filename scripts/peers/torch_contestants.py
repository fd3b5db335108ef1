"""Who trains in compare_torch.py, and who is compared with whom."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Contestant:
    """One way to train; on `ranks` ranks (or processes) of `threads` threads."""
    name: str
    threads: int = 1
    ranks: int = 1
    layout: tuple = None  # Weft's flags; None: PyTorch
    compiled: bool = False
    dtype: str = None  # None: what the comparison is in


CONTESTANTS = (
    Contestant("weft, 1 thread", layout=()),
    Contestant("eager, 1 thread"),
    Contestant("compiled, 1 thread", compiled=True),
    Contestant("weft, 2 threads", threads=2, layout=()),
    Contestant("eager, 2 threads", threads=2),
    Contestant("compiled, 2 threads", threads=2, compiled=True),
    Contestant("weft, dp 2", ranks=2, layout=("--dp", "2")),
    Contestant("weft, tp 2", ranks=2, layout=("--tp", "2")),
    Contestant("DDP, 2 processes", ranks=2),
    Contestant("compiled DDP, 2 processes", ranks=2, compiled=True),
)
# Weft, PyTorch, and how many times as fast Weft aims to be.
COMPARISONS = (
    ("weft, 1 thread", "eager, 1 thread", 1.15),
    ("weft, 1 thread", "compiled, 1 thread", 1.05),
    ("weft, 2 threads", "eager, 2 threads", 1.25),
    ("weft, 2 threads", "compiled, 2 threads", 1.15),
    ("weft, dp 2", "DDP, 2 processes", 1.2),
    ("weft, dp 2", "compiled DDP, 2 processes", 1.2),
    ("weft, tp 2", "DDP, 2 processes", 1.2),
    ("weft, tp 2", "compiled DDP, 2 processes", 1.2),
)
LONG_EAGER_AIM = 1.4  # at sequence 1024, one process
BF16_CONTESTANTS = (
    *CONTESTANTS[:6],
    Contestant("weft fp32, 1 thread", layout=(), dtype="fp32"),
    Contestant("weft fp32, 2 threads", threads=2, layout=(), dtype="fp32"),
)
BF16_COMPARISONS = tuple((f"weft, {threads}", peer.format(threads), aim)
                         for threads in ("1 thread", "2 threads")
                         for peer, aim in (("eager, {}", 1.2), ("compiled, {}", 1.2),
                                           ("weft fp32, {}", 2.5)))
