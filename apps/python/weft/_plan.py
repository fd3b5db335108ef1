"""Plans: what a run of any size would take, and which layout of it is the fastest that fits, before there is one."""
from __future__ import annotations

import ctypes
import html
import json
import os
import pathlib
import tempfile
from typing import Any

from ._library import call, command_line, model_flags, path_bytes, take_text


class Plan(dict[str, Any]):
    """What `weft plan --json` writes, as a dict; its repr is the table for people."""

    def __init__(self, values: dict[str, Any], report: str) -> None:
        super().__init__(values)
        self.report = report

    def __repr__(self) -> str:
        return self.report

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.report)}</pre>"


def _machine(name: str | os.PathLike[str] | None) -> str | None:
    """A file of figures: a path, or the name of one that comes with Weft."""
    if name is None:
        return None
    path_bytes(name, "machine")
    if os.path.exists(name):
        return os.fspath(name)
    here = pathlib.Path(__file__).parent
    for folder in (here / "machines", here.parents[2] / "docs" / "machines"):
        if (folder / f"{os.fspath(name)}.json").exists():
            return str(folder / f"{os.fspath(name)}.json")
    return os.fspath(name)


def _plan(flags: dict[str, Any]) -> Plan:
    with tempfile.TemporaryDirectory(prefix="weft-plan-") as folder:
        path = os.path.join(folder, "plan.json")
        argv = command_line({"plan": True, "json": path, **flags})
        report = ctypes.c_void_p()
        call("plan", len(argv) - 1, argv, ctypes.byref(report))
        text = take_text(report.value).decode("utf-8", "replace")
        with open(path, encoding="utf-8") as file:
            return Plan(json.load(file), text)


def plan(model: str | os.PathLike[str] | None = None, *, machine: str | os.PathLike[str] | None = None,
         **flags: Any) -> Plan:
    """
    What the fullest rank of a run would take in memory and traffic, and with a machine in time; nothing is allocated.

    model, flags  as of weft.Run: tp, dp, pp, strategy, dtype, device_memory="80GiB", ..
    machine       a file of figures, or the name of one that comes with Weft: h100, h200, b200, a100, ..
    """
    return _plan({"machine": _machine(machine), **model_flags(model), **flags})


def search(model: str | os.PathLike[str] | None = None, *, machine: str | os.PathLike[str], ranks: int | None = None,
           **flags: Any) -> Plan:
    """All layouts of a run over a number of ranks, the fastest that fit a rank's device_memory first: plan()'s arguments."""
    return plan(model, machine=machine, ranks=ranks, search="on", **flags)
