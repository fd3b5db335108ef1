"""python_module.py - tests of the Python module by pytest: runs from Python beside the same runs of the program. WEFT_LIBRARY names
the bridge, WEFT_TRAIN the program; test_python.sh sets both. What goes wrong: python_mistakes.py."""
import json
import math
import os
import pathlib
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import weft

SMALL = dict(n_layer=2, n_head=8, n_embd=32, n_kv_head=8, seq_len=16, global_batch_size=8, threads_per_rank=1)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "corpus.txt"
    path.write_bytes(bytes((i * 7 + i // 13 * 31) % 96 + 32 for i in range(8000)))
    return path


@pytest.fixture(scope="session")
def batches():
    rng = np.random.default_rng(5)
    return rng.integers(0, 256, (6, 8, 17), dtype=np.int32)


def digests(**flags):
    """The digests that the program logs for a run."""
    words = [word for name, value in flags.items()
             for word in ("--" + name.replace("_", "-"), *(value if isinstance(value, list) else [str(value)]))]
    out = subprocess.run([os.environ["WEFT_TRAIN"], *words, "--digest=on", "--log-jsonl", "run.jsonl"], text=True,
                         capture_output=True, check=False)
    assert out.returncode == 0, out.stderr
    return [row["digest"] for row in map(json.loads, pathlib.Path("run.jsonl").read_text().splitlines()) if "step" in row]


def test_one_digest_as_the_program(corpus, tmp_path, monkeypatch):
    """A run of the program, the same from Python by its own data, and by batches that it is given, on 8 ranks and on 1."""
    monkeypatch.chdir(tmp_path)
    flags = dict(SMALL, steps=3, lr=1e-3, eval_interval=0)
    wanted = digests(data=[str(corpus)], tp=1, dp=1, **flags)
    with weft.Run(data=corpus, tp=4, dp=2, strategy="full_shard", **flags) as run:
        assert run.ranks == 8
        given = [run.batch(step) for step in (1, 2, 3)]
        assert [run.step().digest for _ in range(3)] == wanted
        with pytest.raises(weft.Error, match="has made its 3 steps"):
            run.step()
    with weft.Run(tp=2, dp=2, pp=2, micro_batch_size=2, **flags) as run:
        assert [run.step(batch).digest for batch in given] == wanted


def test_overhead_of_a_step(batches):
    """The calling thread's own processor time, which a loaded machine does not change: ranks are other threads."""
    for mesh in (dict(tp=1), dict(tp=4, dp=2)):
        with weft.Run(**dict(SMALL, n_layer=1), **mesh, digest=False, lr=1e-3) as run:
            spent, beside = [], []
            for _ in range(40):
                begin, wall = time.thread_time(), time.perf_counter()
                made = run.step(batches[0])
                spent.append((time.thread_time() - begin) * 1e3)
                beside.append((time.perf_counter() - wall) * 1e3 - made.ms)
        print(f"\n    {run.ranks} ranks: {sorted(spent)[20]:.3f} ms of a processor in the median step, least time beside it {min(beside):.3f} ms")
        assert sorted(spent)[20] < 1


def test_iterators_that_end_and_die(batches):
    def dies():
        yield batches[0]
        yield batches[1]
        raise OSError("the disk is gone")

    with weft.Run(lr=1e-3, tp=2, **SMALL) as run, weft.Run(lr=1e-3, **SMALL) as other:
        with pytest.raises(OSError, match="the disk is gone"):
            run.train(dies())
        assert run.steps == 2
        last = run.train(iter(batches[2:4]))
        assert last is not None and last.step == 4
        assert other.train(batches[:4]).digest == last.digest
        assert run.train([]) is None
        seen = []
        run.train(batches, on_step=lambda step: seen.append(step.step) or len(seen) == 2)
        assert seen == [5, 6]


def test_two_runs_and_other_threads(batches):
    with weft.Run(lr=1e-3, tp=2, **SMALL) as one, weft.Run(lr=1e-3, dp=2, **SMALL) as two:
        found = {}
        threads = [threading.Thread(target=lambda r=r, n=n: found.update({n: r.train(batches[:3]).digest}))
                   for n, r in enumerate((one, two))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found[0] == found[1]
        assert "steps done" in repr(one)


def test_texts_have_the_bits_of_the_trainer(batches):
    found = []
    for mesh in (dict(tp=1), dict(tp=2, dp=2), dict(pp=2, micro_batch_size=2)):
        with weft.Run(lr=1e-2, **mesh, **SMALL) as run:
            run.train(batches[:3])
            texts = run.generate(["abc", "a"], 6, temperature=0.7, seed=3, logprobs=True)
            numbers = run.logprobs(batches[3])
            mean = run.eval(batches[3])
            assert numbers.shape == (8, 16) and abs(float(-numbers.mean()) - mean) < 1e-5
            assert texts[0].prompt == 3 and len(texts[0].new_ids) == 6 and texts[0].logprobs.shape == (6,)
            found.append(([t.ids.tobytes() for t in texts], [t.logprobs.tobytes() for t in texts], numbers.tobytes(), mean,
                          run.step(batches[4]).digest))
    assert found[0] == found[1] == found[2]
    assert run.encode is not None


def test_weights_of_tokens(batches):
    """Weights of 1 change no bit, on any mesh; others are the policy gradient of texts that another mesh has generated."""
    with weft.Run(lr=1e-2, weights=True, tp=2, **SMALL) as trainer, weft.Run(lr=1e-2, dp=2, **SMALL) as plain:
        ones = np.ones((8, 16), np.float32)
        assert trainer.step(batches[0], weights=ones).digest == plain.step(batches[0]).digest
        assert trainer.step(batches[1]).digest == plain.step(batches[1]).digest
        advantages = np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32)
        before = trainer.logprobs(batches[2])
        made = trainer.step(batches[2], weights=advantages)
        assert abs(made.loss + float((before * advantages).mean())) < 1e-5
        moved = trainer.logprobs(batches[2]) - before
        assert float((moved * advantages).mean()) > 0
        with pytest.raises(weft.Error, match="weights=True"):
            plain.step(batches[2], weights=ones)
        with pytest.raises(weft.Error, match="one for each target"):
            trainer.step(batches[2], weights=ones[:2])
    with pytest.raises(weft.Error, match="stages of a pipeline"):
        weft.Run(pp=2, weights=True, **SMALL)


def test_weights_of_another_run(batches):
    """A generator on another mesh takes a trainer's weights, which it had gathered before, and has its bits."""
    for dtype in ("fp32", "bf16"):
        flags = dict(SMALL, arch="llama", dtype=dtype)
        with weft.Run(lr=1e-2, tp=2, dp=2, **flags) as trainer, \
                weft.Run(lr=1e-2, dp=2, strategy="no_shard", seed=9, **flags) as generator:
            for step in range(2):
                trainer.step(batches[step])
                assert generator.logprobs(batches[3]).tobytes() != trainer.logprobs(batches[3]).tobytes()
                generator.load(trainer)
                assert generator.logprobs(batches[3]).tobytes() == trainer.logprobs(batches[3]).tobytes()
            with pytest.raises(weft.Error, match="nowhere"):
                generator.load("nowhere")
            assert generator.step(batches[0]).step == 1


def test_rows_of_datasets(batches):
    with weft.Run(lr=1e-3, **SMALL) as run:
        rows = [{"text": "ab" * 70}, {"input_ids": list(range(100))}, {"text": "c" * 200}]
        packed = list(weft.pack(iter(rows), run, end=7))
        flat = np.concatenate([run.encode("ab" * 70), [7], np.arange(100), [7], run.encode("c" * 200), [7]])
        assert [p.shape for p in packed] == [(8, 17)] * 3
        assert all((p[i] == flat[b * 128 + i * 16:][:17]).all() for b, p in enumerate(packed) for i in range(8))
        assert run.train(packed).step == 3
        with pytest.raises(weft.Error, match="row 0 has no text, but words"):
            next(weft.pack([{"words": "a"}], run))


def test_masks(batches):
    """Labels of -100 count as transformers have it, and a mask of nothing changes nothing."""
    with weft.Run(lr=1e-3, **SMALL) as run, weft.Run(lr=1e-3, dp=2, **SMALL) as other:
        assert run.step({"input_ids": batches[0], "labels": batches[0]}).digest == other.step(batches[0]).digest
        labels = batches[1].copy()
        labels[:, :9] = -100
        numbers = other.logprobs(batches[1])[:, 8:]
        assert abs(run.eval({"input_ids": batches[1], "labels": labels}) + float(numbers.mean())) < 1e-5
        with pytest.raises(weft.Error, match="no target"):
            run.eval(batches[1][:, 1:], np.full((8, 16), -1))


def test_checkpoints_and_state(batches, tmp_path):
    with weft.Run(lr=1e-3, tp=2, dp=2, arch="llama", **SMALL) as run:
        run.train(batches[:2])
        run.save(tmp_path / "saved")
        state = run.state()
        wanted = run.step(batches[2]).digest
    with weft.Run(lr=1e-3, pp=2, micro_batch_size=4, arch="llama", resume=tmp_path / "saved", **SMALL) as run:
        assert run.steps == 2
        other = run.state()
        assert state.keys() == other.keys() and all(np.array_equal(state[name], other[name]) for name in state)
        assert run.step(batches[2]).digest == wanted
    table = state["model.embed_tokens.weight"]
    assert table.shape == (256, 32) and table.dtype == np.float32
    assert np.shares_memory(np.from_dlpack(table), table)
    with pytest.raises(weft.Error, match="f32, bf16"):
        with weft.Run(**SMALL) as run:
            run.export(tmp_path / "exported", dtype="int3")


def test_dlpack_of_torch(batches):
    torch = pytest.importorskip("torch")
    with weft.Run(lr=1e-3, arch="llama", **SMALL) as run, weft.Run(lr=1e-3, arch="llama", tp=2, **SMALL) as other:
        assert run.step(torch.from_numpy(batches[0].astype(np.int64))).digest == other.step(batches[0]).digest
        assert run.generate(torch.tensor([[1, 2]]), 2)[0].ids.tobytes() == run.generate([[1, 2]], 2)[0].ids.tobytes()
        for wrong in (torch.ones(8, 17).requires_grad_(), torch.ones(8, 17, dtype=torch.bfloat16), torch.ones(8, 17, device="meta")):
            with pytest.raises(weft.Error, match="on the CPU and without a gradient"):
                run.step({"input_ids": batches[0], "labels": batches[0], "attention_mask": wrong})
        tensor = torch.from_dlpack(run.state()["model.embed_tokens.weight"])
        assert tensor.shape == (256, 32) and bool(torch.isfinite(tensor).all())


def test_plans():
    plan = weft.plan(tp=2, dp=4, machine="h100", **{k: v for k, v in SMALL.items() if k != "threads_per_rank"})
    assert "memory" in json.dumps(plan).lower() and repr(plan) == plan.report and "<pre>" in plan._repr_html_()
    found = weft.search(machine="h100", ranks=4, n_layer=2, n_head=8, n_embd=64, seq_len=32, global_batch_size=8)
    assert found and "tp" in found.report
    with pytest.raises(weft.Error):
        weft.plan(tp=3.5)


def test_ids_of_many_kinds(batches):
    with weft.Run(lr=1e-3, **SMALL) as run:
        wanted = run.eval(batches[0])
        for ids in (batches[0].tolist(), batches[0].astype(np.uint8), np.asfortranarray(batches[0].astype(np.int64)),
                    batches[0].astype(">i8"), np.repeat(batches[0], 2, 1)[:, ::2], batches[0][:, ::-1].copy()[:, ::-1],
                    np.frombuffer(batches[0].tobytes(), np.int32).reshape(batches[0].shape)):  # the last is read-only
            assert run.eval(ids) == wanted
        assert math.isclose(run.eval(np.concatenate([batches[0], batches[0]])), wanted)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", *sys.argv[1:]]))
