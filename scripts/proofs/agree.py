#!/usr/bin/env python3
"""
agree.py [--quick] [--hosts] [--only FLAG] [BUILD] - starts two processes that differ in one option, for every row of
apps/options/options.def, and in data, weights and a stale checkpoint, and requires that the run ends before its first step with
an error that names the option with both values, or the process; options that processes may have of their own (OWN rows) must
end well, with the digests of processes that do not differ. Also of gpt_generate and gpt_eval.

Processes are started by mpirun on this machine; with --hosts on two simulated hosts (tests/hosts/hosts.sh, which takes root).
--quick tries a dozen cases. Prints counts, and how long it took until the error was there. Status 1 with the cases that
fail, 77 without mpirun or hosts.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from training_runs import ROOT, write_text

HOSTS = ROOT / "tests/hosts/hosts.sh"
BASE = ("--data text --n-head 4 --n-embd 32 --n-layer 2 --seq-len 32 --global-batch-size 8 --steps 3 --digest "
        "--eval-interval 0 --dp 2").split()
SOON = 5  # s, on a machine that does other things too
LLAMA = "--arch llama"
LORA = "--lora-rank 2"
MOE = "--arch llama --n-expert 4 --moe-top-k 2"
SAVE = "--save {folder}/save"
PIPELINE = "--dp 1 --pp 2 --micro-batch-size 2"
# By field: flags of both processes, then those of the second one alone; what has no row differs by the flags beside it.
CASES = {
    "data": ("", "--data other"), "val_data": ("", "--val-data other"), "val_fraction": ("", "--val-fraction 0.2"),
    "documents": ("", "--documents mask"), "model": ("", "--model gpt2"), "arch": ("", "--arch llama"),
    "n_layer": ("", "--n-layer 3"), "n_head": ("", "--n-head 2"), "n_kv_head": (LLAMA, "--n-kv-head 2"),
    "n_embd": ("", "--n-embd 64"), "head_dim": ("", "--head-dim 16"), "qkv_bias": (LLAMA, "--qkv-bias on"),
    "out_bias": (LLAMA, "--out-bias on"), "mlp_bias": (LLAMA, "--mlp-bias on"), "qk_norm": (LLAMA, "--qk-norm on"),
    "attention_sinks": (LLAMA, "--attention-sinks on"), "qk_l2_norm": (LLAMA, "--qk-l2-norm on"),
    "moe_weigh_input": ("--arch llama --n-expert 4 --moe-top-k 1", "--moe-weigh-input on"),
    "window_chunks": ("--arch mistral --sliding-window 8", "--window-chunks on"),
    "query_temperature": ("--arch smollm3 --query-temperature 0.1 --query-temperature-every 8", "--query-temperature 0.2"),
    "query_temperature_every": ("--arch smollm3 --query-temperature 0.1 --query-temperature-every 8", "--query-temperature-every 4"),
    "ffn": ("", "--ffn 64"), "vocab_size": ("", "--vocab-size 300"), "seq_len": ("", "--seq-len 16"),
    "positions": ("", "--positions 64"), "norm_eps": ("", "--norm-eps 1e-6"), "rope_base": (LLAMA, "--rope-base 20000"),
    "rope_scaling": (LLAMA, "--rope-scaling linear:2"), "rotary_percent": (LLAMA, "--rotary-percent 0.5"),
    "rope_skip": ("--arch smollm3", "--rope-skip 2"), "sliding_window": ("--arch mistral", "--sliding-window 8"),
    "window_first": ("--arch qwen2 --sliding-window 8", "--window-first 1"),
    "window_skip": ("--arch qwen2 --sliding-window 8", "--window-skip 2"),
    "window_blocks": ("--arch qwen2 --sliding-window 8", "--window-blocks 0"),
    "embedding_scale": ("--arch granite", "--embedding-scale 2"), "residual_scale": ("--arch granite", "--residual-scale .5"),
    "attention_scale": ("--arch granite", "--attention-scale .3"), "logit_divisor": ("--arch granite", "--logit-divisor 2"),
    "score_cap": ("--arch gemma2", "--score-cap 20"), "logit_cap": ("--arch gemma2", "--logit-cap 20"),
    "window_rope_base": ("--arch olmo3 --sliding-window 8", "--window-rope-base 500"), "head_bias": ("", "--head-bias on"),
    "parallel_blocks": ("", "--parallel-blocks on"), "gelu_erf": ("", "--gelu-erf on"),
    "init_from": ("--init-from model", "--init-from other_model"), "tie_embeddings": ("", "--tie-embeddings off"),
    "dropout": ("", "--dropout 0.1"),
    "n_expert": (MOE, "--n-expert 8"), "moe_top_k": (MOE, "--moe-top-k 1"), "moe_ffn": (MOE, "--moe-ffn 16"),
    "moe_dense": (MOE, "--moe-dense 0"), "moe_shared": (MOE, "--moe-shared 16"), "moe_router": (MOE, "--moe-router sigmoid"),
    "moe_normalise": (MOE, "--moe-normalise off"), "moe_scale": (MOE, "--moe-scale 2"),
    "moe_expert_capacity_factor": (MOE, "--moe-expert-capacity-factor 1"),
    "moe_balance": (MOE, "--moe-balance bias"), "moe_bias_step": (f"{MOE} --moe-balance bias", "--moe-bias-step 0.1"),
    "moe_sequence_weight": (f"{MOE} --moe-balance sequence", "--moe-sequence-weight 0.1"),
    "moe_global_weight": (f"{MOE} --moe-balance global", "--moe-global-weight 0.1"),
    "moe_z_weight": (MOE, "--moe-z-weight 0.1"), "moe_imbalance": (MOE, "--moe-imbalance 1.5"),
    "moe_report": (MOE, "--moe-report"), "ep": (f"{MOE} --dp 2", "--ep 2"),
    "etp": (f"{MOE} --tp 2", "--etp 2"),
    "moe_dispatch": (f"{MOE} --dp 2 --ep 2", "--moe-dispatch exchange"),
    "moe_shared_expert_overlap": (MOE, "--moe-shared-expert-overlap off"), "moe_buffer": (MOE, "--moe-buffer 0.5"),
    "lora_rank": (LORA, "--lora-rank 4"), "lora_alpha": (LORA, "--lora-alpha 16"),
    "label_smoothing": ("", "--label-smoothing 0.1"), "z_loss": ("", "--z-loss 0.001"),
    "lora_dropout": (LORA, "--lora-dropout 0.1"), "lora_targets": (LORA, "--lora-targets q"), "rslora": (LORA, "--rslora"),
    "modules_to_save": (LORA, "--modules-to-save norm"), "base_dtype": (LORA, "--base-dtype nf4"),
    "lora_init": (LORA, "--lora-init model"),
    "tp": ("", "--tp 2"), "cp": ("", "--cp 2"), "cp_form": ("--cp 2", "--cp-form gather"), "dp": ("", "--dp 4"), "pp": (PIPELINE, "--pp 1 --dp 2"),
    "pp_schedule": (PIPELINE, "--pp-schedule gpipe"), "pp_virtual": (PIPELINE, "--pp-schedule interleaved --pp-virtual 2"),
    "pp_split": (PIPELINE, "--pp-split 1,3"), "pp_depth": (PIPELINE, "--pp-depth 2"),
    "pp_send": (PIPELINE, "--pp-send split"), "pp_resident": (PIPELINE, "--pp-resident 1"),
    "strategy": ("", "--strategy ddp"), "dp_replicate": ("--strategy hybrid_shard --dp-replicate 1", "--dp-replicate 2"),
    "shard_group_size": ("--strategy hybrid_shard --shard-group-size 1", "--shard-group-size 2"),
    "wrap_type": ("", "--wrap-type mlp"), "wrap_min_params": ("", "--wrap-min-params 20000"), "prefetch": ("", "--prefetch 2"),
    "reshard_after_forward": ("", "--reshard-after-forward always"), "accumulate": ("", "--accumulate local"),
    "dtype": ("", "--dtype bf16"), "compute": ("--dtype bf16", "--compute fp32"),
    "fp32_residual_connection": ("--dtype bf16", "--fp32-residual-connection"), "param_dtype": ("", "--param-dtype bf16"),
    "reduce_dtype": ("", "--reduce-dtype bf16"), "recompute": ("", "--recompute block"),
    "tiled_mlp": ("", "--tiled-mlp 512"),
    "sequence_parallel": ("--tp 2 --dp 1", "--sequence-parallel"), "exact": ("", "--exact off"),
    "tp_comm_overlap": ("--tp 2 --dp 1", "--tp-comm-overlap on"), "tp_comm_block": ("--tp 2 --dp 1 --tp-comm-overlap on", "--tp-comm-block 64KiB"), "exact_tp": ("", "--exact-tp 2"),
    "launcher": ("", "--launcher threads"), "transport": ("", "--transport threads"), "device": ("--device cpu", "--device cuda"),
    "paced": ("", "--paced machine.json"), "paced_scale": ("", "--paced-scale 2"),
    "device_memory": ("", "--device-memory 1GiB"), "offload": ("", "--offload optimizer --offload-dir {folder}/state"), "offload_dir": ("--offload optimizer --offload-dir {folder}/state", "--offload-dir {folder}/other"), "memory_check": ("", "--memory-check off"), "tf32": ("", "--tf32"),
    "cuda_graph": ("", "--cuda-graph on"), "threads_per_rank": ("--threads-per-rank 1", "--threads-per-rank 2"),
    "stall_timeout": ("", "--stall-timeout 60"), "bind_ranks": ("", "--bind-ranks off"), "rank_order": ("", "--rank-order started"),
    "global_batch_size": ("", "--global-batch-size 16"), "micro_batch_size": ("", "--micro-batch-size 1"),
    "steps": ("", "--steps 4"), "epochs": ("", "--epochs 0.5"), "optimizer": ("", "--optimizer sgd"),
    "lr_schedule": ("", "--lr-schedule linear"), "lr_decay_steps": ("--lr-schedule wsd", "--lr-decay-steps 2"),
    "param_groups": ("", "--param-groups embed:lr=0.5"), "ema": ("", "--ema 0.9"),
    "eval_ema": ("--ema 0.9 --eval-interval 1", "--eval-ema"), "rampup_batch_size": ("", "--rampup-batch-size 4,4,16"),
    "reset_optimizer": ("", "--reset-optimizer"), "skip_steps": ("", "--skip-steps nonfinite"),
    "freeze": ("", "--freeze embed"), "lr": ("", "--lr 2e-3"), "min_lr": ("", "--min-lr 2e-4"),
    "warmup_steps": ("", "--warmup-steps 2"), "weight_decay": ("", "--weight-decay 0.2"), "beta1": ("", "--beta1 0.8"),
    "beta2": ("", "--beta2 0.9"), "eps": ("", "--eps 1e-7"), "clip_grad": ("", "--clip-grad 2"), "seed": ("", "--seed 2"),
    "eval_interval": ("", "--eval-interval 1"), "eval_iters": ("--eval-interval 1", "--eval-iters 2"),
    "eval_requests": ("--eval-requests requests.jsonl --eval-interval 1", "--eval-requests other.jsonl"),
    "save": (SAVE, "--save {folder}/elsewhere"), "save_interval": (SAVE, "--save-interval 1"), "keep": (SAVE, "--keep 5"),
    "checkpoint": (SAVE, "--checkpoint full"), "async_save": (SAVE, "--async-save on"),
    "save_best": (SAVE + " --eval-interval 1", "--save-best"), "resume": (SAVE, "--resume none"),
    "exit_duration_in_mins": (SAVE, "--exit-duration-in-mins 10"),
    "elastic": ("", "--elastic on --recovery-dir {folder}/kept"), "redundancy": ("", "--redundancy buddy"),
    "verify_every": ("--redundancy buddy", "--verify-every 1"), "check_replicas": ("", "--check-replicas 1"),
    "min_dp": ("--elastic on --recovery-dir {folder}/kept --redundancy buddy", "--min-dp 2"),
    "recovery_dir": ("--elastic on --redundancy buddy --recovery-dir {folder}/kept", "--recovery-dir {folder}/other"),
    "nnodes": ("--elastic on --redundancy buddy --recovery-dir {folder}/kept", "--nnodes 4"),
    "rejoin_after": ("--elastic on --redundancy buddy --recovery-dir {folder}/kept", "--rejoin-after 2"),
    "sample": ("", "--sample 4"), "sample_temperature": ("--sample 4", "--sample-temperature 0.5"),
    "tokenizer": ("--sample 4", "--tokenizer model"), "sample_prompt": ("--sample 4", "--sample-prompt A"),
    "log_jsonl": ("", "--log-jsonl {folder}/log"), "tensorboard": ("", "--tensorboard {folder}/board"),
    "digest": ("", "--digest=tensors"), "log_digests": ("", "--log-digests {folder}/digests"),
    "replay": ("", "--replay {folder}/digests"), "replay_to": ("", "--replay-to 2"),
    "flip_bit": ("", "--flip-bit 1:0:norm.gain:0:3"), "show_layout": ("", "--show-layout"), "comm_report": ("", "--comm-report"),
    "recorder_dir": ("", "--recorder-dir {folder}"),
    "plan": ("", "--plan"), "rank": ("", "--rank 0"), "fit_nodes": ("", "--fit-nodes 2"), "find_batch": ("", "--find-batch"),
    "search": ("", "--search"), "ranks": ("", "--ranks 4"), "machine": ("", "--machine machine.json"),
    "calibrate": ("", "--calibrate {folder}/machine"), "json": ("", "--json {folder}/plan"),
    "chakra": ("", "--chakra {folder}/chakra"), "report_json": ("", "--report-json {folder}/report"),
    "trace": ("", "--trace {folder}/trace"), "trace_steps": ("", "--trace-steps 1-2"),
    "profile": ("", "--profile 5"), "memory_timeline": ("", "--memory-timeline {folder}/memory"),
    "config": ("", "--config config.json"), "save_config": ("", "--save-config {folder}/config"),
    "print_config": ("", "--print-config"), "completion": ("", "--completion bash"), "help": ("", "--help"),
    "version": ("", "--version"),
}
# Rows whose value follows from more than the flag, or whose case is refused by the second process: names that serve too.
ALSO = {"model": "--n-", "epochs": "--steps|--epochs", "config": "--lr", "lora_init": "process 1 .*adapter_config.json",
        "paced": "process 1 .*machine.json", "machine": "process 1 .*machine.json",
        "moe_imbalance": "process 1 .*--moe-imbalance", "reset_optimizer": "process 1 .*--reset-optimizer"}
QUICK = ["lr", "tp", "save_interval", "threads_per_rank"]
# What is no row: flags of both, of the second one, and what has to be said; None: it has to end well.
CONTENT = {
    "data of another size": ("", "--data longer", "--data"),
    "a copy of the data": ("", "--data copy", None),
    "a copy of the weights": ("--init-from model", "--init-from model_copy", None),
    "data that are not there": ("", "--data nowhere", "process 1 .*nowhere"),
    "a rate that is none": ("", "--lr -2", r"process 1 .*--lr -2"),
    "a flag that is none": ("", "--learning 2", "process 1 .*--learning"),
}


def end_of(process, limit):
    """Its status; None where it had to be killed."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None


class Cluster:
    """Two processes, here or on two hosts."""

    def __init__(self, options, work):
        self.build, self.work, self.hosts = options.build, work, options.hosts

    def command(self, program, one, two, folders=(None, None)):
        head = ["mpirun", "--quiet", "--oversubscribe", "--bind-to", "none"]
        if self.hosts:
            head = [str(HOSTS), "--on", "node0", "exec", "mpirun", "--quiet", "--bind-to", "none", "--mca", "plm_rsh_agent",
                    f"'{HOSTS} --on'", "--mca", "btl_tcp_if_include", "10.77.0.0/24", "--mca", "oob_tcp_if_include",
                    "10.77.0.0/24"]
        parts = []
        for number, flags in enumerate((one, two)):
            on_host = ["--host", f"node{number}"] if self.hosts else []
            # mpirun takes them of the first program for all
            exports = ["-x", "WEFT_PLUGINS"] if not number else []
            folder = ["-wdir", str(folders[number] or self.work)]
            parts.append(["-np", "1", *on_host, *exports, *folder, str(self.build / "apps" / program), *flags])
        return [*head, *parts[0], ":", *parts[1]]

    def run(self, *arguments, limit=25):
        """Status, what was said, and seconds until the first line of an error."""
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           WEFT_PLUGINS=str(self.build))
        process = subprocess.Popen(self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace", env=environment, cwd=self.work, start_new_session=True)
        begun, reported, text = time.monotonic(), None, []
        timer = concurrent.futures.ThreadPoolExecutor(1)
        watch = timer.submit(end_of, process, limit)
        for line in process.stdout:
            if reported is None and re.match(r"gpt_\w+: ", line):
                reported = time.monotonic() - begun
            text.append(line)
        status = watch.result()
        timer.shutdown()
        return status, "".join(text), reported


def rows():
    """Fields of options.def, and those that are a process's own."""
    text = (ROOT / "apps/options/options.def").read_text()
    recipe = (ROOT / "parallel/program/recipe.def").read_text()
    return re.findall(r"^(?:OPTION|RECIPE)\(\w+, (\w+),", text + recipe, re.M), set(re.findall(r"^OWN\((\w+),", text, re.M))


def digests(text):
    return re.findall(r"digest ([0-9a-f]{16})", text)


def refused(result, pattern):
    """What is wrong with a run that has to be refused, or nothing."""
    status, text, reported = result
    error = [line for line in text.splitlines() if re.match(r"gpt_\w+: ", line)]
    if status is None:
        return "it has not ended"
    if not status:
        return f"status 0: {text[-300:]}"
    if digests(text):
        return "a step was made"
    if len(error) != 1 or not re.search(pattern, error[0]):
        return f"not named ({pattern}): {text[-500:]}"
    if reported > SOON:
        return f"after {reported:.1f} s"
    return ""


def ends_well(result, expected):
    status, text, _ = result
    if status or digests(text) != expected:
        return f"status {status}, {len(digests(text))} steps: {text[-500:]}"
    return ""


def second_of(one, flags):
    """The flags of the second process: --data replaces that of the first one, which it would add to."""
    if flags.startswith("--data "):
        one = one[2:]
    return [*one, *flags.split()]


def try_row(cluster, field, own, whole):
    """Whether a row's case comes out as it should: a word, what is wrong, seconds."""
    both, second = CASES[field]
    folder = cluster.work / f"case-{field}"
    folder.mkdir()
    one = [*BASE, *both.format(folder=folder).split()]
    result = cluster.run("gpt_train", one, second_of(one, second.format(folder=folder)))
    content = field in ("data", "val_data", "init_from", "lora_init", "tokenizer", "eval_requests", "config")
    if field in own and not content:
        return "own", ends_well(result, whole), None
    flag = "--" + field.replace("_", "-")
    return "named", refused(result, ALSO.get(field, flag + r"\b")), result[2]


def try_content(cluster, name):
    both, second, pattern = CONTENT[name]
    one = [*BASE, *both.split()]
    result = cluster.run("gpt_train", one, second_of(one, second))
    if pattern:
        return "named", refused(result, pattern), result[2]
    return "own", ends_well(result, digests(cluster.run("gpt_train", one, one)[1])), None


def try_stale(cluster):
    """A host whose copy of the run is another run's."""
    folders = []
    for number, flags in enumerate(([], ["--n-layer", "3", "--dropout", "0.1"])):
        folder = cluster.work / f"host{number}"
        folder.mkdir()
        shutil.copy(cluster.work / "text", folder)
        subprocess.run([str(cluster.build / "apps/gpt_train"), *BASE, *flags, "--save", "run"], cwd=folder, check=True,
                       capture_output=True)
        folders.append(folder)
    flags = [*"--data text --dp 2 --global-batch-size 8 --steps 5 --eval-interval 0 --save run --digest".split()]
    result = cluster.run("gpt_train", flags, flags, folders)
    return "named", refused(result, "--n-layer is 2 in .* and 3 in "), result[2]


def try_program(cluster, program, first, flag, second):
    result = cluster.run(program, first, [*first, *second])
    return "named", refused(result, flag), result[2]


def programs():
    text = ["model", "--prompt", "The", "--dp", "2", "--max-new-tokens", "4"]
    ppl = ["perplexity", "model", "--data", "text", "--dp", "2", "--tokenizer", "bytes"]
    text += ["--tokenizer", "bytes"]
    return {"gpt_generate --temperature": ("gpt_generate", text, "--temperature is 0 in", ["--temperature", "0.5"]),
            "gpt_generate --prompt": ("gpt_generate", text, "--prompt is The in", ["--prompt", "A"]),
            "gpt_generate --tp": ("gpt_generate", text, "--tp is 1 in", ["--tp", "2", "--dp", "1"]),
            "gpt_generate --max-new-tokens": ("gpt_generate", text, "--max-new-tokens is 4 in", ["--max-new-tokens", "5"]),
            "gpt_eval --data": ("gpt_eval", ppl, "content of --data is", ["--data", "other"]),
            "gpt_eval --stride": ("gpt_eval", ppl, "--stride is 0 in", ["--stride", "8"]),
            "gpt_eval --dtype": ("gpt_eval", ppl, "--dtype is fp32 in", ["--dtype", "bf16"])}


def make_files(work, build, quick):
    write_text(work / "text")
    text = (work / "text").read_bytes()
    (work / "copy").write_bytes(text)
    (work / "longer").write_bytes(text + b"one more word")
    changed = bytearray(text)
    changed[0] ^= 1
    (work / "other").write_bytes(changed)
    (work / "config.json").write_text('{"lr": 0.002}')
    (work / "machine.json").write_text("{}")
    for name, label in (("requests", 0), ("other", 1)):
        (work / f"{name}.jsonl").write_text("".join(
            f'{{"request": {{"context": "The ", "continuation": "{word}"}}, "doc_id": 0, "label": {label}}}\n'
            for word in ("cat", "dog")))
    if quick:
        return
    for name, seed in (("model", "1"), ("other_model", "2")):
        run = [str(build / "apps/gpt_train"), *BASE, "--seed", seed, "--save", f"run-{name}"]
        subprocess.run(run, cwd=work, check=True, capture_output=True)
        subprocess.run([str(build / "apps/gpt_export"), f"run-{name}", name], cwd=work, check=True, capture_output=True)
    shutil.copytree(work / "model", work / "model_copy")


def tasks(options, cluster, whole):
    fields, own = rows()
    if missing := set(fields) ^ set(CASES):
        sys.exit(f"agree.py has no case of these rows, or a case without a row: {' '.join(sorted(missing))}")
    chosen = QUICK if options.quick else fields
    found = {"--" + f.replace("_", "-"): (try_row, f, own, whole) for f in chosen}
    if not options.quick:
        found |= {name: (try_content, name) for name in CONTENT}
        found |= {name: (try_program, *how) for name, how in programs().items()}
    found["a stale checkpoint"] = (try_stale,)
    return {k: v for k, v in found.items() if not options.only or k == options.only}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--hosts", action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=ROOT / "build")
    options = parser.parse_args()
    options.build = options.build.resolve()
    if not shutil.which("mpirun"):
        print("skipped: mpirun is not here (Debian: openmpi-bin)")
        return 77
    if options.hosts and not os.environ.get("INSIDE"):
        os.environ["INSIDE"] = "yes"
        os.execv(HOSTS, [str(HOSTS), "2", "-", sys.executable, *sys.argv])
    with tempfile.TemporaryDirectory(prefix="weft-agree-") as folder:
        work = pathlib.Path(folder)
        make_files(work, options.build, options.quick)
        cluster = Cluster(options, work)
        whole = digests(cluster.run("gpt_train", BASE, BASE)[1])
        if len(whole) != 3:
            sys.exit("two processes that do not differ don't train")
        with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
            futures = {name: pool.submit(task[0], cluster, *task[1:])
                       for name, task in tasks(options, cluster, whole).items()}
            counts, failures, seconds = {}, 0, []
            for name, future in futures.items():
                kind, problem, reported = future.result()
                counts[kind] = counts.get(kind, 0) + 1
                failures += bool(problem)
                if problem:
                    print(f"FAIL  {name}: {problem}", flush=True)
                elif reported is not None:
                    seconds.append(reported)
    words = ", ".join(f"{counts[kind]} {what}" for kind, what in
                      (("named", "that must be named"), ("own", "that processes may have of their own")) if kind in counts)
    print(f"{len(futures)} differences: {words}; {failures} failures; named after "
          f"{statistics.median(seconds or [0]):.2f} s, at most {max(seconds or [0]):.2f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
