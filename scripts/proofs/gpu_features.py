"""
gpu_features.py - what of training and generation gpu_check.py looks at on a GPU beside its first promises: pipelines,
batches that ranks do not divide, sequence parallelism, LoRA, bases of 4 bits, optimizers, mixtures, sinks, caps, families, lost ranks, checkpoints, generation.
Each has to have the bits of one rank, whose numbers are near those of the CPU.
"""
import hashlib
import json

BASE = "--n-layer 4 --n-head 4 --n-embd 64 --seq-len 64 --global-batch-size 8 --micro-batch-size 1 --lr 3e-3".split()
# What is the same -> the flags of one rank, and of other layouts that run it.
SAME_DIGEST = {
    "pipelines": ("", [
        "--pp 2", "--pp 4", "--pp 2 --pp-schedule zb-h1", "--pp 2 --pp-schedule interleaved",
        "--pp 2 --pp-schedule dualpipe-v", "--pp 2 --tp 2", "--pp 2 --dp 2 --strategy zero1",
        "--pp 2 --tp 2 --sequence-parallel --recompute block"]),
    "pipelines of bf16": ("--dtype bf16 --arch llama", ["--pp 2", "--pp 2 --pp-schedule zb-h1", "--pp 2 --tp 2 --pp-send split"]),
    "batches that dp does not divide": ("", [
        "--dp 3", "--dp 5 --strategy no_shard", "--dp 3 --tp 2", "--dp 6 --strategy hybrid_shard --dp-replicate 2"]),
    "sequence parallelism, what is made again, sums of gradients": ("--arch llama --n-kv-head 2 --dtype bf16", [
        "--tp 2 --sequence-parallel", "--tp 4 --sequence-parallel", "--recompute block", "--recompute attention",
        "--dp 2 --accumulate local", "--micro-batch-size 8", "--dp 2 --async-save on --save async"]),
    "LoRA on a base of bf16": ("--dtype bf16 --lora-rank 4 --lora-targets all-linear --lora-dropout 0.1", [
        "--tp 2", "--tp 2 --dp 2 --sequence-parallel", "--dp 4 --strategy zero1", "--pp 2"]),
    "adapters on a base of 4 bits": ("--lora-rank 4 --lora-targets all-linear --base-dtype nf4", [
        "--cuda-graph off", "--tp 2", "--dp 2", "--micro-batch-size 8", "--pp 2"]),
    "adapters on a base of 4 bits, bf16": ("--lora-rank 4 --lora-targets all-linear --base-dtype nf4 --dtype bf16 --arch llama", [
        "--cuda-graph off", "--tp 2", "--dp 2", "--micro-batch-size 8", "--pp 2"]),
    "Muon": ("--optimizer muon", ["--cuda-graph off", "--tp 2", "--dp 2 --tp 2"]),
    "AdamW with moments in 8 bits": ("--optimizer adamw8bit", ["--cuda-graph off", "--tp 2", "--dp 2 --tp 2", "--pp 2"]),
    "Lion with momenta in 8 bits": ("--optimizer lion8bit --lr 3e-4", ["--cuda-graph off", "--tp 2", "--dp 2 --tp 2", "--pp 2"]),
    "groups with rates of their own": ("--param-groups embed:lr=0.1,wd=0;block.*.attn:lr=0.5", ["--cuda-graph off", "--tp 2", "--dp 2"]),
    "Adafactor": ("--optimizer adafactor --lr 3e-3", ["--cuda-graph off", "--tp 2", "--dp 2 --tp 2"]),
    "a mixture of experts": ("--arch mixtral --n-expert 4", ["--cuda-graph off", "--tp 2", "--dp 2 --tp 2 --ep 4", "--dp 2 --tp 2 --etp 2 --ep 2"]),
    "experts with a capacity": ("--arch mixtral --n-expert 4 --moe-expert-capacity-factor 0.5", [
        "--cuda-graph off", "--tp 2", "--dp 2 --tp 2 --ep 2", "--micro-batch-size 8"]),
    "experts balanced by biases": ("--arch mixtral --n-expert 4 --moe-balance bias", ["--cuda-graph off", "--tp 2", "--dp 2 --tp 2 --ep 2"]),
    "experts balanced by a loss": ("--arch mixtral --n-expert 4 --moe-balance sequence", ["--tp 2", "--pp 2 --micro-batch-size 2"]),
    "sinks of attention, bf16": ("--arch llama --n-kv-head 2 --attention-sinks on --dtype bf16", ["--cuda-graph off", "--tp 2", "--pp 2"]),
    "a cap of scores in a window, bf16": ("--arch gemma2 --n-kv-head 2 --score-cap 20 --sliding-window 16 --dtype bf16", ["--cuda-graph off", "--tp 2"]),
    "RoPE that is scaled": ("--arch llama --n-kv-head 2 --rope-scaling llama3:8,1,4,32", ["--cuda-graph off", "--tp 2", "--cp 2"]),
    "SGD, dropout": ("--optimizer sgd --dropout 0.1", ["--tp 2", "--dp 2 --strategy shard_grad_op"]),
}
FAMILIES = {"mistral": "--n-kv-head 2 --sliding-window 16", "qwen2": "--n-kv-head 2", "qwen3": "--n-kv-head 2",
            "smollm3": "--rope-skip 2", "granite": "--residual-scale 0.5 --logit-divisor 2", "phi3": "", "gemma": "--n-kv-head 2",
            "olmo2": ""}
MODELS = {"gpt2": "--arch gpt2", "llama": "--arch llama --n-kv-head 2", "mixture": "--arch mixtral --n-expert 4"}
WAYS = ["--tp 2", "--dp 2", "--dp 2 --tp 2 --batch-size 3", "--batch-size 1", "--prefill-chunk 1",
        "--prefill-chunk 7 --batch-size 64", "--cuda-graph off", "--cuda-graph off --batch-size 2"]


def last(check, flags, device="cuda"):
    return check.train(*BASE, *flags.split(), "--digest", steps=4, device=device)[-1]


def same_digest(check, what, base, ways):
    one = last(check, base)["digest"]
    other = [way for way in ways if last(check, f"{base} {way}")["digest"] != one]
    check.judge(6, f"{what}: {len(ways)} ways", f"other digests: {', '.join(other)}" if other else "one digest", not other)


def family(check, arch, flags):
    flags = f"--arch {arch} {flags}"
    cpu, one, two = last(check, flags, "cpu"), last(check, flags), last(check, flags + " --tp 2 --sequence-parallel")
    apart = abs(one["loss"] - cpu["loss"]) / abs(cpu["loss"])
    check.judge(6, f"{arch}, fp32", f"CPU {cpu['loss']:.6f}, GPU {one['loss']:.6f}, {apart:.1e} apart (at most 1e-5); with tp 2 "
                + ("the same digest" if one["digest"] == two["digest"] else "another digest"),
                apart <= 1e-5 and one["digest"] == two["digest"])


def lost_rank(check):
    """Rank 1 is lost in step 2; it is replaced at once, or missing for two steps."""
    wanted = [row["digest"] for row in check.train(*BASE, "--digest", steps=6)]
    program = check.build / "tests/hosts/gpt_train_faulty"
    if not program.exists():
        raise FileNotFoundError(2, "missing", "tests/hosts/gpt_train_faulty")
    other = []
    for way in ("--dp 2 --strategy no_shard", "--dp 2 --tp 2 --redundancy buddy", "--dp 4 --rejoin-after 2 --redundancy buddy"):
        (check.work / "log").unlink(missing_ok=True)
        command = check.command(*BASE, *way.split(), "--digest", "--elastic", "on", steps=6)
        check.run([program, *command[1:]], WEFT_FAULT="vanish step 1 2", WEFT_FAULT_MS="5")
        if [row["digest"] for row in check.read()] != wanted:
            other.append(way)
    check.judge(6, "a rank is lost: 3 layouts", f"other digests: {', '.join(other)}" if other
                else "the digests of a run that lost none", not other)


def checkpoints(check):
    """Saved on tp 2 x dp 2, gone on with on one rank of the GPU, and on the CPU."""
    wanted = last(check, "")
    other = last(check, "", "cpu")
    check.run(check.command(*BASE, *"--tp 2 --dp 2 --save run --save-interval 2".split(), steps=4, log="first"))
    got, cpu = (check.train(*BASE, "--resume", "run/step-00000002", "--digest", steps=4, device=device)[-1]
                for device in ("cuda", "cpu"))
    apart = abs(cpu["loss"] - other["loss"]) / other["loss"]
    check.judge(6, "a checkpoint of tp 2 x dp 2 on one rank", f"digest {got['digest']}, without a stop {wanted['digest']}; on the CPU "
                f"the loss is {apart:.1e} from the CPU's own", got["digest"] == wanted["digest"] and apart < 1e-5)


def trained(check, flags):
    """A model's folder."""
    model = "model-" + flags.replace(" ", "")
    check.run(check.command(*BASE, *flags.split(), "--save", model, steps=20, log="first"))
    return model


def same_texts(check, dtype, model, what, *more):
    """The command, after the texts and log probabilities of all ways are compared."""
    lines = [json.dumps({"ids": [(7 * i + j * j) % 200 for j in range(5 + 3 * i)]}) for i in range(9)]
    (check.work / "prompts").write_text("\n".join(lines) + "\n")
    command = [check.build / "apps/gpt_generate", model, "--prompts", "prompts", *"--json --logprobs 2 --echo --n 2".split(),
               *"--temperature 1.1 --top-p 0.95 --max-new-tokens 20".split(), "--dtype", dtype, *more]
    wanted = check.run([*command, "--device", "cuda"])
    other = [way for way in WAYS if check.run([*command, "--device", "cuda", *way.split()]) != wanted]
    check.judge(6, f"{what}: {len(WAYS) + 1} ways", f"others: {', '.join(other)}" if other else
                f"one SHA of texts and log probabilities: {hashlib.sha256(wanted.encode()).hexdigest()[:16]}", not other)
    return command


def in_four_bits(check, dtype, flags):
    """Texts of a model whose linears are stored as nf4, however many at once."""
    check.run([check.build / "apps/gpt_export", trained(check, flags), "folder"])
    same_texts(check, dtype, "folder", f"generation in 4 bits, {flags}", "--tokenizer", "bytes", "--base-dtype", "nf4")


def generation(check, dtype, flags):
    """Texts and log probabilities however they are made, and the trainer's losses of the same text."""
    model = trained(check, flags)
    command = same_texts(check, dtype, model, f"generation, {flags}")
    (check.work / "book").write_bytes(check.text.read_bytes()[:64])
    evaluate = [check.build / "apps/gpt_eval", "perplexity", model, "--data", "book", "--json", "--dtype", dtype]
    (check.work / "one").write_text(json.dumps({"ids": list(check.text.read_bytes()[:63])}) + "\n")
    chunks = [command[0], model, "--prompts", "one", "--dtype", dtype, "--device", "cuda", "--max-new-tokens", 1,
              *"--json --logprobs 0 --echo --prefill-chunk 5".split()]
    row = json.loads(check.run(chunks))
    gpu, cpu = (json.loads(check.run([*evaluate, "--seq-length", 62, "--device", device]))["nats"] for device in ("cuda", "cpu"))
    (check.work / "book").write_bytes(check.text.read_bytes()[:63])
    exact = json.loads(check.run([*evaluate, "--seq-length", 62, "--device", "cuda"]))["nats"]
    # cuDNN's attention, which training has of bf16, has no cache.
    bound = 1e-3 if dtype == "bf16" else 1e-6
    if dtype == "bf16":
        ours = {"WEFT_CUDNN": "off"}
        whole = json.loads(check.run([*evaluate, "--seq-length", 62, "--device", "cuda"], **ours))["nats"]
        cached = -sum(json.loads(check.run(chunks, **ours))["prompt_logprobs"])
        check.judge(6, f"generation, {flags}: log probabilities by Weft's kernels", f"{cached:.7f} in chunks, {whole:.7f} by gpt_eval",
                    abs(cached - whole) < 1e-6 * whole)
    check.judge(6, f"generation, {flags}: log probabilities of a text", f"{-sum(row['prompt_logprobs']):.6f} in chunks, {exact:.6f} by "
                f"gpt_eval; of one token more {gpu:.6f}, by the CPU {cpu:.6f}",
                abs(sum(row["prompt_logprobs"]) + exact) < bound * exact and abs(gpu - cpu) < (1e-4 if dtype == "fp32" else 1e-2) * cpu)


def checks(check):
    """(line, what, function) of each."""
    found = [(6, what, lambda what=what, base=base, ways=ways: same_digest(check, what, base, ways))
             for what, (base, ways) in SAME_DIGEST.items()]
    found += [(6, arch, lambda arch=arch, flags=flags: family(check, arch, flags)) for arch, flags in FAMILIES.items()]
    found += [(6, "a rank is lost", lambda: lost_rank(check)), (6, "checkpoints", lambda: checkpoints(check))]
    for dtype in ("fp32", "bf16"):
        found += [(6, f"generation, {dtype} {name}", lambda dtype=dtype, flags=flags: generation(check, dtype, f"{flags} --dtype {dtype}"))
                  for name, flags in MODELS.items()]
        found += [(6, f"generation in 4 bits, {dtype}", lambda dtype=dtype: in_four_bits(check, dtype, f"{MODELS['llama']} --dtype {dtype}"))]
    return found
