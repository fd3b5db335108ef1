"""weft_lm_eval.py - lm-evaluation-harness with Weft's models: all that lm-eval takes, and --model weft beside it.

    pip install lm-eval
    python3 -m weft_lm_eval --model weft --model_args pretrained=smollm2,tp=2 --tasks arc_easy,hellaswag

pretrained is what gpt_eval takes for a model: a folder of Hugging Face, a GGUF file, a checkpoint, a run. programs is where
gpt_eval and gpt_generate are (without it: in the wheel, else on PATH); every other argument is a flag of theirs (tp, dp, dtype,
threads_per_rank, ..), and --batch_size above 1 is questions at once. Or import this file, and lm_eval.simple_evaluate knows
"weft".

Log probabilities (multiple_choice, loglikelihood, loglikelihood_rolling of texts that fit in the model's positions) are those of
gpt_eval choices, texts (generate_until) those of gpt_generate.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError as missing:
    if __name__ != "__main__":
        raise
    print(f"weft_lm_eval.py: {missing}: pip install lm-eval", file=sys.stderr)
    sys.exit(2)


@register_model("weft")
class Weft(LM):
    """A model that the programs of Weft run: nothing of it is in this process."""

    def __init__(self, pretrained, programs=None, batch_size=1, max_batch_size=None, device=None, **flags):
        super().__init__()
        inside = pathlib.Path(__file__).resolve().parent / "weft" / "bin"
        self.pretrained, self.programs = str(pretrained), programs or (str(inside) if inside.is_dir() else None)
        self.flags = [text for key, value in flags.items() for text in (f"--{key.replace('_', '-')}", str(value))]
        if str(batch_size).isdigit() and int(batch_size) > 1:
            self.flags += ["--batch-size", str(batch_size)]

    def rows(self, program, arguments, flag, lines):
        """A program's lines of JSON for a file of lines of JSON."""
        program = str(pathlib.Path(self.programs) / program) if self.programs else program
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()
            done = subprocess.run([program, *arguments, flag, file.name, "--json", *self.flags], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        return [json.loads(line) for line in done.stdout.splitlines()]

    def pairs(self, pairs):
        """(log probability, whether each token is the likeliest) of continuations; those of one context are one question."""
        lines, number, before = [], -1, None
        for context, continuation in pairs:
            number += context != before
            before = context
            lines.append({"request": {"context": context, "continuation": continuation}, "doc_id": number})
        rows = self.rows("gpt_eval", ["choices", self.pretrained], "--requests", lines) if lines else []
        return [(row["logprob"], row["greedy"]) for row in rows if "doc_id" in row]

    def loglikelihood(self, requests, disable_tqdm=False):
        return self.pairs([request.args for request in requests])

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        return [logprob for logprob, _ in self.pairs([("", request.args[0]) for request in requests])]

    def generate_until(self, requests, disable_tqdm=False):
        texts, alike = [None] * len(requests), {}
        for i, request in enumerate(requests):
            alike.setdefault(json.dumps(request.args[1], sort_keys=True), []).append(i)
        for options, indices in alike.items():
            options = json.loads(options)
            until = options.get("until") or []
            flags = ["--max-new-tokens", str(options.get("max_gen_toks", options.get("max_new_tokens", 256)))]
            for stop in [until] if isinstance(until, str) else until:
                flags += ["--stop", stop]
            if options.get("do_sample") and options.get("temperature"):
                flags += ["--temperature", str(options["temperature"])]
                flags += ["--top-p", str(options["top_p"])] if "top_p" in options else []
            rows = self.rows("gpt_generate", [self.pretrained, *flags], "--prompts",
                             [{"prompt": requests[i].args[0]} for i in indices])
            for i, row in zip(indices, rows):
                texts[i] = row["text"]
        return texts


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    import lm_eval.models  # pylint: disable=unused-import # which registers lm-eval's own
    from lm_eval.__main__ import cli_evaluate
    cli_evaluate()
