#!/usr/bin/env python3
"""
lora_speed.py BUILD MODEL [ROUNDS] - the speed and the memory of a LoRA step, of gpt_train beside PEFT and torch, alternating.

MODEL, a folder of Hugging Face, has adapters of rank 8 on all linears; a step is 4 sequences of 128 random tokens in fp32 on one thread.
Each runs 1 and 4 steps as processes of their own, ROUNDS (2) times, one after the other. A step takes a third of what the longer
process has more of processor time, which others on the machine change little; the median is printed, the most that a process had
in memory (resident), and the ratios. It needs torch, transformers and peft. Status 1 where gpt_train is less than 1.1 times as
fast, or takes more than 0.6 of the memory.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

if sys.argv[1:2] in (["-h"], ["--help"]):
    sys.exit(print(__doc__.strip()))

SCRIPT = pathlib.Path(__file__).resolve()
sys.path.pop(0)  # scripts beside this one have the names of packages
BATCH, LENGTH, STEPS = 4, 128, (1, 4)


def of_torch(model, ids, steps):
    """Some steps of PEFT's model."""
    import numpy
    import peft
    import torch
    import transformers
    torch.set_num_threads(1)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    adapted = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
                                  peft.LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, target_modules=targets))
    optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=1e-3)
    windows = torch.from_numpy(numpy.load(ids).astype(numpy.int64))
    for _ in range(steps):
        loss = adapted(input_ids=windows, labels=windows).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def process(command):
    """Seconds of processor time, and the most that it had in memory."""
    child = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             env=os.environ | {"OMP_NUM_THREADS": "1"})
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"lora_speed.py: {command[0]}: {said.strip()[-400:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main(build, model, rounds):
    import numpy
    seconds, memory = {"PEFT": [], "Weft": []}, {"PEFT": 0, "Weft": 0}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
        ids = numpy.random.default_rng(1).integers(0, vocabulary, BATCH * LENGTH + 1)
        numpy.save(folder / "ids.npy", ids[:-1].reshape(BATCH, LENGTH))
        head = numpy.zeros(256, numpy.int32)
        head[:3] = 20240520, 1, len(ids)
        (folder / "ids.bin").write_bytes(head.tobytes() + ids.astype(numpy.uint16).tobytes())
        ways = {"PEFT": [sys.executable, SCRIPT, "--torch", model, folder / "ids.npy"],
                "Weft": [build / "apps/gpt_train", "--init-from", model, "--data", folder / "ids.bin", "--val-fraction", 0, "--seq-len",
                         LENGTH, "--global-batch-size", BATCH, "--lora-rank", 8, "--lora-alpha", 16, "--lora-targets", "all-linear",
                         "--eval-interval", 0, "--threads-per-rank", 1, "--steps"]}
        for _ in range(rounds):
            for who, command in ways.items():
                took = [process([*command, steps]) for steps in STEPS]
                seconds[who].append((took[1][0] - took[0][0]) / (STEPS[1] - STEPS[0]))
                memory[who] = max(memory[who], took[1][1])
    step = {who: statistics.median(seconds[who]) for who in seconds}
    for who in step:
        print(f"{who}: a step {step[who]:.2f} CPU s ({min(seconds[who]):.2f} to {max(seconds[who]):.2f}), {memory[who] / 1e9:.2f} GB")
    faster, part = step["PEFT"] / step["Weft"], memory["Weft"] / memory["PEFT"]
    print(f"{faster:.2f} times as fast, {part:.2f} of the memory")
    return int(faster < 1.1 or part > 0.6)


if sys.argv[1:2] == ["--torch"]:
    of_torch(sys.argv[2], sys.argv[3], int(sys.argv[4]))
elif len(sys.argv) in (3, 4):
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), int(sys.argv[3]) if len(sys.argv) == 4 else 2))
else:
    sys.exit(__doc__.strip())
