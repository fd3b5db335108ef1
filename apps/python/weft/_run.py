"""A run: a model, its optimizer and a mesh of ranks, which are threads of this process."""
from __future__ import annotations

import ctypes
import json
import os
import pathlib
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import ArrayLike, Batch, Ids, as_count, as_factors, as_ids, as_number, of_mapping, pointer, shift
from ._library import Error, Sampling, Sizes, StepStruct, call, command_line, folder_bytes, library, model_flags, path_bytes, take_text
from ._results import Step, Text
from ._safetensors import read as read_safetensors

WITHOUT_END = 1_000_000_000


class Run:
    """
    Run(model=.., tp=4, dp=2, dtype="bf16", strategy="full_shard", lr=1e-4, **flags)

    Every flag of `weft train` is a keyword, with _ for -: seq_len, global_batch_size, n_layer, optimizer, .. (weft train
    --help lists them). `model` is a folder of Hugging Face or a GGUF file, whose weights it begins with, or the name of a
    published one, whose sizes it has. With data=FILE (or a list) the run reads its batches itself; else step() is given
    them. Without steps= it has no end, and a constant rate.

    The ranks of the mesh (pp x dp x tp) are threads of this process, and wait between calls. A run is used by one thread
    at a time; a process may have several. After os.fork() the child has none of them. Errors are weft.Error, with the
    library's text; what is wrong with arguments leaves the run as it was.

        with weft.Run(n_layer=2, n_head=4, n_embd=64, seq_len=64, tp=2, dp=2) as run:
            for ids in batches:                    # [global_batch_size, seq_len + 1]
                print(run.step(ids).loss)
    """

    def __init__(self, model: str | os.PathLike[str] | None = None, *, data: Any = None, digest: bool = True,
                 weights: bool = False, verbose: bool = False, **flags: Any) -> None:
        self._handle: ctypes.c_void_p | None = None
        self._lock = threading.RLock()  # of the thread that is in a call
        self._life = threading.Lock()  # the handle is read, or taken away
        self._process = os.getpid()
        self._failure: str | None = None
        flags = _defaults(flags, data is not None)
        flags = {**model_flags(model), **flags}
        if data is not None:
            if isinstance(data, (str, bytes, os.PathLike)):
                data = [data]
            elif not isinstance(data, Iterable):
                raise Error(f"data is {data!r}: give a path, or a list of them")
            flags["data"] = [os.fsdecode(path_bytes(path, "data")) for path in data]
        argv = command_line({"digest": digest, **flags})
        self._weighted, self._has_data = bool(weights), data is not None
        handle = ctypes.c_void_p()
        try:
            call("open", len(argv) - 1, argv, int(data is None), int(self._weighted), int(not verbose), ctypes.byref(handle))
            self._handle = handle
        except BaseException:  # what an interrupt raises comes when the run is open
            self._handle = None  # which __del__ would close again
            call("close", handle)
            raise
        sizes = Sizes()
        library.weft_python_sizes_of(handle, ctypes.byref(sizes))
        self.global_batch_size, self.seq_len = int(sizes.batch), int(sizes.tokens)
        self.vocab_size, self.positions = int(sizes.vocabulary), int(sizes.positions)
        self.ranks, self.last_step = int(sizes.ranks), int(sizes.steps)
        self.options: dict[str, Any] = json.loads(take_text(library.weft_python_options(handle)))
        _open_runs.add(self)

    # ---- its life ----

    def close(self) -> None:
        """Ends the run and frees its memory; a second call does nothing."""
        if self._process != os.getpid():
            self._handle = None
        if self._handle is None:
            return
        self._in_call(self._end)

    def _end(self) -> None:
        with self._life:
            handle, self._handle = self._handle, None
        if handle is not None:
            call("close", handle)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            if getattr(self, "_handle", None) is not None:
                self.close()
        except Error:
            pass

    def __reduce_ex__(self, _protocol: Any) -> Any:
        raise Error("a run is no data that is copied: its ranks are threads. Keep it by save(folder), and open Run(.., resume=folder)")

    def _in_call(self, function: Callable[[], None]) -> None:
        """Calls a function while no other thread is in a call of this run. An interrupt at any place leaves it free."""
        try:
            if not self._lock.acquire(blocking=False):
                raise Error("another thread is in a call of this run: a run is used by one at a time")
            function()
        finally:
            try:
                self._lock.release()
            except RuntimeError:
                pass  # it was not acquired

    def _call(self, name: str, *arguments: Any) -> None:
        if self._process != os.getpid():
            raise Error("this process was forked, and the ranks of the run are threads of its parent: open a run here, or "
                        "start workers by multiprocessing's 'spawn'")
        self._in_call(lambda: call(name, self._open_handle(), *arguments))

    def _open_handle(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise Error("the run is closed: open another one")
        return self._handle

    def _steps(self) -> int:
        with self._life:  # another thread may close the run
            return int(library.weft_python_steps(self._open_handle()))

    @property
    def steps(self) -> int:
        """Steps done, those before a resume included."""
        if self._handle is None or self._process != os.getpid():
            self._call("digest")
        return self._steps()

    def __repr__(self) -> str:
        o = self.options
        try:
            state = f"{self._steps()} steps done"
        except Error:
            state = "closed"
        mesh = " x ".join(f"{axis} {o[axis]}" for axis in ("pp", "dp", "tp") if o[axis] > 1) or "one rank"
        return (f"<weft.Run {o['arch']} of {o['n_layer']} blocks, width {o['n_embd']}, {mesh}, {o['strategy']}, "
                f"{o['dtype']}, {state}>")

    # ---- steps ----

    def step(self, ids: Batch | None = None, targets: ArrayLike | None = None,
             weights: ArrayLike | None = None) -> Step:
        """
        Makes a training step.

        ids      [global_batch_size, seq_len + 1], each id's target the next one; or [.., seq_len] with `targets` of that
                 shape (below 0: does not count), or a pair, or a mapping with input_ids and labels as transformers have
                 them: labels are shifted here, -100 does not count. None: the run's own data
        weights  of a Run(weights=True): [global_batch_size, seq_len], of each target; the loss is the mean over targets that
                 count of weight x -log p(target). With advantages this is a policy gradient, since generated texts have the
                 trainer's own log probabilities
        Ctrl-C is raised when the step is done, and the run can continue.
        """
        if ids is None and not self._has_data:
            raise Error("this run has no data of its own: give it a batch, step(ids), or open it with data=FILE")
        if ids is None and (targets is not None or weights is not None):
            raise Error("targets and weights are of a batch: give its ids, too")
        tokens, wanted = (None, None) if ids is None else self._rows(ids, targets, 1)
        factors = None if weights is None else self._weights(weights)
        made = StepStruct()
        self._call("train", pointer(tokens), pointer(wanted), pointer(factors), ctypes.byref(made))
        return Step(step=made.step, loss=made.loss, grad_norm=made.grad_norm, lr=made.lr,
                    digest=f"{made.digest:016x}" if made.has_digest else None,
                    val_loss=made.val_loss if made.has_val_loss else None, skipped=bool(made.skipped), ms=made.ms,
                    tokens_per_s=made.tokens_per_s, memory_peak=made.memory_peak)

    def train(self, batches: Iterable[Batch] | None = None, steps: int | None = None,
              on_step: Callable[[Step], Any] | None = None) -> Step | None:
        """Makes a step for each batch, or `steps` of the run's own data, and calls on_step after each; True from it ends
        the loop. Returns the last step; None: there was no batch. What the iterator raises comes out, after whole steps."""
        last = None
        steps = None if steps is None else as_count(steps, "steps", 0, WITHOUT_END)
        source: Iterator[Batch | None] = iter(batches) if batches is not None else iter(lambda: None, 0)
        if batches is None and steps is None:
            steps = self.last_step - self.steps
        done = 0
        while steps is None or done < steps:
            try:
                batch = next(source)
            except StopIteration:
                break
            last = self.step(batch)
            done += 1
            if on_step is not None and on_step(last) is True:
                break
        return last

    def batch(self, step: int, validation: bool = False) -> tuple[Ids, Ids]:
        """Tokens and targets, [global_batch_size, seq_len] each, that a run with data of its own has in a step, from 1 on;
        of the validation part from 0 on."""
        tokens = np.empty((self.global_batch_size, self.seq_len), np.int32)
        targets = np.empty_like(tokens)
        step = as_count(step, "step", 0 if validation else 1, 2**62 // self.global_batch_size)
        self._call("batch", int(validation), step, pointer(tokens), pointer(targets))
        return tokens, targets

    def eval(self, ids: Batch, targets: ArrayLike | None = None) -> float:
        """The mean loss of whole batches, [n x global_batch_size, ..], shaped as of step(), without dropout or update."""
        tokens, wanted = self._rows(ids, targets, None)
        mean = ctypes.c_double()
        self._call("evaluate", len(tokens) // self.global_batch_size, pointer(tokens), pointer(wanted), ctypes.byref(mean))
        return mean.value

    def _weights(self, weights: ArrayLike) -> npt.NDArray[np.float32]:
        if not self._weighted:
            raise Error("this run has no weights of tokens: open it with weights=True")
        factors = as_factors(weights)
        if factors.shape != (self.global_batch_size, self.seq_len) or not np.isfinite(factors).all():
            raise Error(f"weights are {list(factors.shape)}: finite numbers of [{self.global_batch_size}, {self.seq_len}] "
                        "(global_batch_size, seq_len), one for each target")
        return factors

    def _rows(self, ids: Batch, targets: ArrayLike | None, batches: int | None) -> tuple[Ids, Ids]:
        """Tokens and targets of a number of batches; None: one or more."""
        length = self.seq_len
        if targets is not None and isinstance(ids, (Mapping, tuple)):
            raise Error(f"ids are a {type(ids).__name__} that has its targets, and targets are given, too: give them once")
        if isinstance(ids, Mapping):
            tokens, wanted = of_mapping(ids)
        elif isinstance(ids, tuple) and len(ids) == 2:
            tokens, wanted = as_ids(ids[0], "tokens"), as_ids(ids[1], "targets")
        elif targets is not None:
            tokens, wanted = as_ids(ids, "tokens"), as_ids(targets, "targets")
        else:
            tokens, wanted = shift(as_ids(ids, "ids"), None)
        if tokens.shape != wanted.shape:
            raise Error(f"tokens are {list(tokens.shape)} and targets {list(wanted.shape)}: they have one shape")
        rows = self.global_batch_size * (batches or 1)
        if tokens.ndim != 2 or tokens.shape[1] != length or (
                len(tokens) != rows if batches else len(tokens) % rows or not len(tokens)):
            raise Error(f"a batch of this run is [{'' if batches else 'n x '}{rows}, {length} + 1] ids, or tokens and targets "
                        f"of {length} (global_batch_size, seq_len), and this one has {list(tokens.shape)} tokens")
        return tokens, wanted

    # ---- texts ----

    def encode(self, text: str) -> Ids:
        """The ids of a text, by the model's tokenizer."""
        found, count = ctypes.c_void_p(), ctypes.c_int64()
        if not isinstance(text, str):
            raise Error(f"a text is {type(text).__name__}: give a str")
        try:
            raw = text.encode()
        except UnicodeEncodeError as error:
            raise Error(f"a text is no Unicode: {error}") from None
        self._call("encode", raw, len(raw), ctypes.byref(found), ctypes.byref(count))
        return np.frombuffer(take_text(found.value, 4 * count.value), np.int32).copy()

    def decode(self, ids: ArrayLike) -> str:
        """The text of ids, by the model's tokenizer."""
        array = as_ids(ids, "ids").reshape(-1)
        found, size = ctypes.c_void_p(), ctypes.c_int64()
        self._call("decode", pointer(array), len(array), ctypes.byref(found), ctypes.byref(size))
        return take_text(found.value, size.value).decode("utf-8", "replace")

    def generate(self, prompts: str | Sequence[str] | Sequence[ArrayLike] | Ids, max_new_tokens: int = 32, *,
                 temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0,
                 repetition_penalty: float = 1.0, seed: int = 0, stop_ids: Sequence[int] = (),
                 logprobs: bool = False) -> list[Text]:
        """
        Continues texts with the weights as they are now.

        prompts  a text, texts, or lists of ids
        A text depends on its prompt, its index in the list and the seed alone: no layout changes a bit of it.
        """
        if hasattr(prompts, "__dlpack__"):
            prompts = as_ids(prompts, "prompts")
        if not isinstance(prompts, (str, Sequence, np.ndarray)) or isinstance(prompts, bytes):
            raise Error(f"prompts are {type(prompts).__name__}: give a text, a list of texts, or a list of lists of ids")
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        ids = [self.encode(p) if isinstance(p, str) else as_ids(p, "prompts") for p in texts]
        if any(i.ndim != 1 or not np.ndim(t) and not isinstance(t, str) for i, t in zip(ids, texts)):
            raise Error("prompts are a list of lists of ids: [[1, 2, 3]] is one of three")
        if not ids:
            return []
        ends = as_ids(stop_ids, "stop_ids")
        if np.ndim(stop_ids) != 1 or ends.size and not 0 <= ends.min() <= ends.max() < self.vocab_size:
            raise Error(f"stop_ids are {stop_ids!r}: give a list of ids from 0 to {self.vocab_size - 1}")
        max_new_tokens = min(as_count(max_new_tokens, "max_new_tokens", 1, 2**62), self.positions)
        sampling = Sampling(temperature=as_number(temperature, "temperature", 0, 1e6), top_p=as_number(top_p, "top_p", 0, 1),
                            min_p=as_number(min_p, "min_p", 0, 1), top_k=as_count(top_k, "top_k", 0, 2**31 - 1),
                            repetition_penalty=as_number(repetition_penalty, "repetition_penalty", 1e-6, 1e6),
                            most=max_new_tokens, seed=as_count(seed, "seed", 0, 2**64 - 1), ends=pointer(ends), n_ends=len(ends))
        out, lengths, probabilities = self._generate(sampling, ids, logprobs)
        return [Text(ids=out[i, :n].copy(), prompt=len(ids[i]),
                     text=self.decode(out[i, len(ids[i]):n]) if isinstance(texts[i], str) else None,
                     logprobs=None if probabilities is None else probabilities[i, len(ids[i]):n].copy())
                for i, n in enumerate(lengths)]

    def logprobs(self, ids: ArrayLike) -> npt.NDArray[np.float32]:
        """Log probabilities of ids[:, 1:] given those before them, [texts, length - 1], with the bits that a training step
        has of the same tokens."""
        rows = as_ids(ids, "ids")
        if rows.ndim != 2 or rows.shape[1] < 2:
            raise Error(f"ids are {list(rows.shape)}: log probabilities are of [texts, length], a length of 2 or more")
        found = np.empty((len(rows), rows.shape[1] - 1), np.float32)
        self._call("logprobs", len(rows), rows.shape[1], pointer(rows), pointer(found))
        return found

    def _generate(self, sampling: Sampling, ids: list[Ids], logprobs: bool
                  ) -> tuple[Ids, list[int], npt.NDArray[np.float32] | None]:
        counts = np.array([len(i) for i in ids], np.int64)
        width = int(counts.max()) + int(sampling.most)
        flat = np.ascontiguousarray(np.concatenate(ids))
        out, lengths = np.zeros((len(ids), width), np.int32), np.zeros(len(ids), np.int64)
        found = np.zeros((len(ids), width), np.float32) if logprobs else None
        self._call("generate", ctypes.byref(sampling), len(ids), pointer(flat), pointer(counts), width,
                   pointer(out), pointer(lengths), pointer(found))
        return out, [int(n) for n in lengths], found

    # ---- state ----

    def digest(self) -> str:
        """The digest of parameters and optimizer: 16 digits, which no layout changes."""
        value = ctypes.c_uint64()
        self._call("digest", ctypes.byref(value))
        return f"{value.value:016x}"

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Saves a checkpoint into a folder of some; Run(.., resume=folder) continues from it on any mesh."""
        self._call("save", folder_bytes(folder))

    def export(self, folder: str | os.PathLike[str], dtype: str = "f32") -> None:
        """Writes the model as a folder that transformers load; dtype f32, bf16 or f16."""
        raw = folder_bytes(folder)
        try:
            os.makedirs(raw, exist_ok=True)  # before a rank fails
        except OSError as error:
            raise Error(f"cannot make the folder {folder}: {error.strerror}") from None
        self._call("export", raw, path_bytes(dtype, "dtype"))

    def load(self, source: Run | str | os.PathLike[str]) -> None:
        """Takes the weights of another run of the same model, on any mesh, or of a folder of Hugging Face; the optimizer's
        state stays. Another model's are refused. A trainer and a generator on two meshes share weights so."""
        if isinstance(source, Run):
            with tempfile.TemporaryDirectory(prefix="weft-weights-", dir=_memory()) as folder:
                source.export(folder)
                self._call("load", os.fsencode(folder))
        else:
            self._call("load", folder_bytes(source))

    def state(self) -> dict[str, npt.NDArray[np.float32]]:
        """Copies of the parameters by their names in transformers, whole, as numpy (np.from_dlpack's and torch's
        from_dlpack take them)."""
        with tempfile.TemporaryDirectory(prefix="weft-state-", dir=_memory()) as folder:
            self.export(folder)
            return read_safetensors(pathlib.Path(folder))


def _memory() -> str | None:
    """A folder that lies in memory, where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _defaults(flags: dict[str, Any], has_data: bool) -> dict[str, Any]:
    """Adds what a run without an end needs, and no evaluation in the middle of a step unless it is asked for."""
    flags = dict(flags)
    flags.setdefault("eval_interval", 0)
    if flags.get("steps") is None and flags.get("epochs") is None:
        schedule = flags.get("lr_schedule", "constant")
        if schedule != "constant":
            raise Error(f"lr_schedule={schedule!r} follows the steps of a run, and this one has no end: give it steps=N")
        flags.update(steps=WITHOUT_END, lr_schedule="constant")
    if not has_data and flags.get("eval_interval"):
        raise Error("eval_interval is of a run with data=FILE: call run.eval(ids) between steps")
    return flags


_open_runs: weakref.WeakSet[Run] = weakref.WeakSet()


def _forget_runs() -> None:
    """In a child of fork: its parent's runs are not there."""
    for run in list(_open_runs):
        run._lock, run._life = threading.RLock(), threading.Lock()


os.register_at_fork(after_in_child=_forget_runs)
