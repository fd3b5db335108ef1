"""evaluation_tasks.py - requests as tasks of lm-evaluation-harness that need no network: choices of each, and texts."""
import json

TASK = """task: {task}_local
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{gold}}}}"
target_delimiter: ""
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""
TEXTS = """task: texts_local
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{context}}}}"
doc_to_target: "{{{{choices[gold]}}}}"
generation_kwargs: {{until: ["\\n\\n", "Question:"], max_gen_toks: 16, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""


def write(folder, requests):
    """YAML and lines of each task in the folder; requests: the rows of each task."""
    folder.mkdir(exist_ok=True)
    for task, rows in requests.items():
        questions = {}
        for row in rows:
            doc = questions.setdefault(row["doc_id"], {"context": row["request"]["context"], "choices": [], "gold": row["label"]})
            doc["choices"].append(row["request"]["continuation"])
        docs = [doc for doc in questions.values() if doc["gold"] is not None and doc["gold"] < len(doc["choices"])]
        (folder / f"{task}.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in docs))
        (folder / f"{task}.yaml").write_text(TASK.format(task=task, file=folder / f"{task}.jsonl"))
        if task == next(iter(requests)):
            (folder / "texts.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in docs[:20]))
    (folder / "texts.yaml").write_text(TEXTS.format(file=folder / "texts.jsonl"))
