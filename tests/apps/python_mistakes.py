"""python_mistakes.py - tests of the Python module by pytest: what its callers do wrong, and what happens beside a call: interrupts,
forks, threads, failures of a rank."""
import copy
import ctypes
import gc
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import weft
from python_module import SMALL, batches  # noqa: F401 (a fixture)


def test_bad_input_leaves_the_run_as_it_was(batches):
    with weft.Run(lr=1e-3, **SMALL) as run:
        before = run.digest()
        for wrong, words in ((batches[0][:4], r"\[8, 16 \+ 1\]"), (batches[0].astype(np.float32), "ids are integers"),
                             (batches[0] + 300, "from 0 to 255"), (batches[0].astype(np.int64) << 40, "beyond 32 bits"),
                             (batches[0][0], "sequences, length")):
            with pytest.raises(weft.Error, match=words):
                run.step(wrong)
        with pytest.raises(weft.Error, match="one shape"):
            run.step(batches[0][:, 1:], batches[0])
        assert run.steps == 0 and run.digest() == before
        run.step(batches[0])
        assert run.steps == 1


def test_mistakes_leave_the_run_as_it_was(batches, tmp_path):
    """What a stranger does wrong: each is reported, and nothing that was given is left out without a word."""
    ids = batches[0]
    hidden = np.ones_like(ids)
    hidden[:, -3:] = 0
    with weft.Run(lr=1e-3, **SMALL) as run, weft.Run(lr=1e-3, weights=True, **SMALL) as weighted:
        before = run.digest()
        for words, mistake in (
                ("no data of its own", run.step), ("no data of its own", lambda: run.train(steps=2)),
                ("no data of its own", lambda: run.step(None, ids)), ("give a whole number", lambda: run.train(steps=-1)),
                ("give a whole number", lambda: run.train([ids], steps=1.5)),
                ("mask would be lost", lambda: run.step(np.ma.masked_array(ids, mask=ids > 5))),
                ("as one array", lambda: run.step([[1, 2], [3]])),
                ("give them once", lambda: run.step({"input_ids": ids}, ids)),
                ("give them once", lambda: run.step((ids[:, :-1], ids[:, 1:]), ids[:, 1:])),
                ("other elements than 0", lambda: run.step({"input_ids": ids, "attention_mask": np.full((8, 17), 0.5)})),
                ("other elements than 0", lambda: run.step({"input_ids": ids, "attention_mask": np.full((8, 17), "a")})),
                ("as one array", lambda: run.step({"input_ids": ids, "attention_mask": [[1], [1, 2]]})),
                ("name of 0 bytes", lambda: run.save("")), ("name of 0 bytes", lambda: run.load("")),
                ("rows are dicts", lambda: next(weft.pack([1], run))), ("data is 5", lambda: weft.Run(data=5, **SMALL)),
                ("input_ids are needed", lambda: run.step({"ids": ids})),
                ("nothing else is read", lambda: run.step({"input_ids": ids, "position_ids": ids})),
                ("or that count", lambda: run.step({"input_ids": ids, "attention_mask": hidden})),
                ("in front of others", lambda: run.step({"input_ids": ids, "attention_mask": 1 - hidden})),
                ("real numbers", lambda: weighted.step(ids, weights="x")), ("finite", lambda: weighted.step(ids, weights=np.full((8, 16), 1e39))),
                ("real numbers", lambda: weighted.step(ids, weights=np.ones((8, 16), complex))),
                ("list of lists", lambda: run.generate([1, 2, 3])), ("list of lists", lambda: run.generate(b"abc")),
                ("list of lists", lambda: run.generate(np.array([1, 2]))), ("list of lists", lambda: run.generate(5)),
                ("temperature is nan", lambda: run.generate("a", temperature=math.nan)),
                ("temperature is -1", lambda: run.generate("a", temperature=-1)), ("top_p is 2", lambda: run.generate("a", top_p=2)),
                ("seed is -1", lambda: run.generate("a", seed=-1)), ("max_new_tokens is 2.5", lambda: run.generate("a", 2.5)),
                ("stop_ids are", lambda: run.generate("a", stop_ids=5)), ("stop_ids are", lambda: run.generate("a", stop_ids=[256])),
                ("no Unicode", lambda: run.encode("\ud800")), ("give a str", lambda: run.encode(b"a")), ("byte 0", lambda: run.save("a\0b")),
                ("cannot make the folder", lambda: run.export(os.devnull)), ("a path is text", lambda: run.save(None)),
                ("no data that is copied", lambda: copy.copy(run)), ("no data that is copied", lambda: pickle.dumps(run)),
                ("byte 0", lambda: weft.Run(strategy="a\0b", **SMALL)), ("model is 5", lambda: weft.Run(model=5, **SMALL)),
                ("a path is text", lambda: weft.plan(machine=5)), ("unexpected argument .2", lambda: weft.Run(**SMALL, tp=[1, 2]))):
            try:
                made = mistake()
            except weft.Error as error:
                assert re.search(words, str(error))
            else:
                pytest.fail(f"{words}: is taken, {made!r:.200}")
        assert run.steps == 0 and run.digest() == before and run.decode([]) == ""
        labels = np.where(hidden, ids, -100)
        made = run.step({"input_ids": ids, "attention_mask": hidden, "labels": labels})
        with weft.Run(lr=1e-3, dp=2, **SMALL) as other:
            assert other.step({"input_ids": ids, "labels": labels}).digest == made.digest
        assert len(run.generate([[1, 2]], 10**9)[0].ids) <= run.positions + 1


def test_the_bridge_by_itself(tmp_path):
    """What the module never asks for, or does not look at: a step without a batch of a run that is given them, and what a plan that
    fails has written before."""
    with weft.Run(lr=1e-3, **SMALL) as run:
        made = weft._library.StepStruct()
        with pytest.raises(weft.Error, match="step 1 has no batch"):
            weft._library.call("train", run._open_handle(), None, None, None, ctypes.byref(made))
    report = ctypes.c_void_p()
    argv = weft._library.command_line({**SMALL, "plan": True, "json": str(tmp_path / "missing" / "plan.json")})
    with pytest.raises(weft.Error, match="missing"):
        weft._library.call("plan", len(argv) - 1, argv, ctypes.byref(report))
    assert not report.value


def test_an_interrupt_when_a_run_is_open(monkeypatch):
    """The run is closed, and once: nobody has it whose end would close it again."""
    closed, call = [], weft._run.call

    class Interrupted(weft.Run):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "_handle" and value is not None:
                raise KeyboardInterrupt

    def counted(name, *arguments):
        call(name, *arguments)
        if name == "close":
            closed.append(name)
    monkeypatch.setattr(weft._run, "call", counted)
    with pytest.raises(KeyboardInterrupt):
        Interrupted(lr=1e-3, **SMALL)
    gc.collect()
    assert closed == ["close"]


def test_a_step_beyond_all_numbers(tmp_path):
    (tmp_path / "text").write_bytes(bytes(range(32, 96)) * 99)
    with weft.Run(data=tmp_path / "text", lr=1e-3, **SMALL) as run, pytest.raises(weft.Error, match="step is"):
        run.batch(2**62)


def test_close_beside_a_step(batches, monkeypatch):
    """A call of another thread is held at its end, so that close is surely beside it."""
    with weft.Run(lr=1e-3, **SMALL) as run:
        inside, may_end, problems, refused = threading.Event(), threading.Event(), [], 0
        call = weft._run.call

        def held(name, *arguments):
            call(name, *arguments)
            if threading.current_thread() is thread:
                inside.set()
                may_end.wait(100)

        def work():
            try:
                run.train([batches[0]] * 4)
            except weft.Error as error:
                problems.append(str(error))
        monkeypatch.setattr(weft._run, "call", held)
        thread = threading.Thread(target=work)
        thread.start()
        assert inside.wait(100)
        try:
            run.close()
        except weft.Error as error:
            refused += "another thread" in str(error)
        may_end.set()
        thread.join()
        assert refused == 1 and not problems and run.steps >= 1


def test_an_exit_with_open_runs():
    """Runs that are open, in a cycle, or in a step of another thread do not keep a process, or end it otherwise."""
    code = '''
import numpy, sys, threading, weft
run = weft.Run(n_layer=1, n_head=2, n_embd=16, seq_len=8, global_batch_size=2, threads_per_rank=1, lr=1e-3, tp=2)
run.itself = run
ids = numpy.zeros((2, 9), int)
run.step(ids)
threading.Thread(target=lambda: [run.step(ids) for _ in range(10**6)], daemon=True).start()
sys.exit(7)
'''
    assert subprocess.run([sys.executable, "-c", code], timeout=100, check=False).returncode == 7


def test_flags_that_are_wrong():
    with pytest.raises(weft.Error, match="did you mean --n-layer"):
        weft.Run(n_layers=2)
    with pytest.raises(weft.Error, match="gets its batches from its caller"):
        weft.Run(documents="mask", **SMALL)
    with pytest.raises(weft.Error, match="steps=N"):
        weft.Run(lr_schedule="cosine", **SMALL)
    with pytest.raises(weft.Error, match="weft.plan"):
        weft.Run(plan=True, **SMALL)
    with pytest.raises(weft.Error) as caught:
        weft.Run(elastic=True, dp=2, strategy="no_shard", **SMALL)
    assert "elastic" in str(caught.value)


def test_interrupt_ends_a_step_cleanly(batches):
    flags = dict(SMALL, n_layer=8, n_embd=128, seq_len=16)
    with weft.Run(lr=1e-3, **flags) as run, weft.Run(lr=1e-3, dp=2, **flags) as other:
        previous = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(KeyboardInterrupt):
            for _ in range(1000):
                run.step(batches[0])
        signal.signal(signal.SIGALRM, previous)
        done = run.steps
        assert 0 < done < 1000
        for _ in range(done):
            last = other.step(batches[0])
        assert run.digest() == last.digest
        assert run.step(batches[1]).digest == other.step(batches[1]).digest


def test_interrupts_at_other_places(batches):
    """One that comes when a call has just begun leaves the run usable; one while a run opens leaves none of its ranks."""
    class Interrupted:
        def __init__(self, lock):
            self.lock = lock

        def acquire(self, blocking=True):
            self.lock.acquire(blocking=blocking)
            raise KeyboardInterrupt

        def release(self):
            self.lock.release()

    def threads():
        return len(os.listdir("/proc/self/task"))

    with weft.Run(lr=1e-3, **SMALL) as run:
        lock = run._lock
        run._lock = Interrupted(lock)
        with pytest.raises(KeyboardInterrupt):
            run.step(batches[0])
        run._lock = lock
        made = []
        thread = threading.Thread(target=lambda: made.append(run.step(batches[0]).step))
        thread.start()
        thread.join()
        assert made == [1]
    before = threads()
    previous = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    with pytest.raises(KeyboardInterrupt) as caught:  # kept, as a notebook keeps the last one
        while True:
            weft.Run(lr=1e-3, tp=4, **dict(SMALL, n_layer=8, n_embd=256)).close()
    signal.signal(signal.SIGALRM, previous)
    for _ in range(100):
        if threads() == before:
            break
        time.sleep(0.05)
    assert threads() == before and caught


def test_a_fork_has_no_runs(batches):
    with weft.Run(lr=1e-3, tp=2, **SMALL) as run:
        run.step(batches[0])
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                run.step(batches[1])
                text = "it went on"
            except weft.Error as error:
                text = str(error)
            os.write(writer, text.encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert b"was forked" in os.read(reader, 1000) and run.step(batches[1]).step == 2


def test_a_failure_ends_its_run_alone(batches):
    with weft.Run(lr=1e-3, **SMALL) as good:
        bad = weft.Run(lr=1000, optimizer="sgd", tp=2, clip_grad=0, **SMALL)
        with pytest.raises(weft.Error, match="finite"):
            bad.train([batches[0]] * 40)
        with pytest.raises(weft.Error, match="finite"):
            bad.step(batches[0])
        bad.close()
        with pytest.raises(weft.Error, match="closed"):
            bad.step(batches[0])
        assert good.step(batches[0]).step == 1


def test_weights_of_another_model(batches, tmp_path):
    """They are refused, and the run goes on: other shapes, and equal ones that other rules compute with."""
    flags = dict(SMALL, arch="llama")
    with weft.Run(lr=1e-3, tp=2, **flags) as run:
        for other, words in ((dict(n_layer=1), "number of layers"), (dict(n_embd=64), "width"), (dict(arch="gpt2"), "properties more"),
                             (dict(rope_base=500.0), "base of RoPE"), (dict(norm_eps=1e-6), "epsilon")):
            with weft.Run(lr=1e-3, **dict(flags, **other)) as stranger, pytest.raises(weft.Error, match=words):
                run.load(stranger)
        assert run.step(batches[0]).step == 1
        run.export(tmp_path / "model")
        (tmp_path / "model" / "model.safetensors").write_bytes(b"x" * 100)
        with pytest.raises(weft.Error):
            run.load(tmp_path / "model")
        run.export(tmp_path / "model")
        run.step(batches[1])
        with weft.Run(tmp_path / "model", lr=1e-3, **dict(seq_len=8, global_batch_size=8, threads_per_rank=1)) as shorter:
            shorter.load(tmp_path / "model")
            assert shorter.step(batches[0][:, :9]).step == 1
        run.load(tmp_path / "model")
        assert run.step(batches[0]).step == 3


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", *sys.argv[1:]]))
