"""
log_rows.py - sends the rows of --log-jsonl to wandb or trackio, of a run that is over or still runs.

    weft train --data corpus.txt --log-jsonl run.jsonl &
    python3 docs/examples/python/log_rows.py run.jsonl wandb PROJECT        # or trackio
"""
import importlib
import json
import sys
import time


def main(path: str, kind: str, project: str, wait: float = 10.0) -> None:
    logger, run, idle = importlib.import_module(kind), None, 0.0
    with open(path, encoding="utf-8") as file:
        while idle < wait:  # a run that writes nothing for so long is over
            begin = file.tell()
            line = file.readline()
            if not line.endswith("\n"):
                file.seek(begin)
                time.sleep(0.5)
                idle += 0.5
                continue
            idle, row = 0.0, json.loads(line)
            if "step" not in row:
                run = run or logger.init(project=project, config=row.get("options", {}))
            else:
                run = run or logger.init(project=project)
                logger.log({k: v for k, v in row.items() if isinstance(v, (int, float)) and k != "step"}, step=row["step"])
    logger.finish()


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(float, sys.argv[4:5]))
