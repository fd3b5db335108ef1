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
    bits_alone: bool = False  # its losses are not those of Weft's other runs to the bit


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
SKIPPED = 2  # steps of a run that warm up: compilation, page faults, caches
LONG_EAGER_AIM = 1.4  # at sequence 1024, one process
BF16_CONTESTANTS = (
    *CONTESTANTS[:6],
    *(Contestant(f"weft, --exact-tp 1, {name}", threads=threads, layout=("--exact-tp", "1"),
                 bits_alone=True) for name, threads in (("1 thread", 1), ("2 threads", 2))),
    Contestant("weft fp32, 1 thread", layout=(), dtype="fp32", bits_alone=True),
    Contestant("weft fp32, 2 threads", threads=2, layout=(), dtype="fp32", bits_alone=True),
)
BF16_COMPARISONS = tuple((weft.format(threads), peer.format(threads), aim)
                         for threads in ("1 thread", "2 threads")
                         for weft, peer, aim in (
                             ("weft, {}", "eager, {}", 1.3),
                             ("weft, {}", "compiled, {}", 1.3),
                             ("weft, --exact-tp 1, {}", "eager, {}", 1.45),
                             ("weft, --exact-tp 1, {}", "compiled, {}", 1.45),
                             ("weft, {}", "weft fp32, {}", 2.5)))
