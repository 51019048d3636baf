"""Job documents from the command line: from options, from a file, with single values set over it.

Comes in: options of `run`, a path, `--set` words. Goes out: the plain document that is sent, checked here first so
that a fault has its line. Called by: run_cmd, submit_cmd, demo_cmd.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.model.errors import InputError

Document = dict[str, Any]


@dataclass(slots=True)
class Asked:
    """What `run` was asked for. 0 and empty: not given."""

    command: tuple[str, ...]
    name: str = ""
    tasks: int = 0
    nodes: int = 0
    gpus_per_task: int = 0
    gpus_per_node: int = 0
    cores: int = 0
    memory: str = ""
    gpu_model: tuple[str, ...] = ()
    gpu_share: float = 0
    gpu_memory: str = ""
    mig: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    exclusive: bool = False
    segment: tuple[int, str] | None = None
    queue: str = ""
    priority: int = 0
    time_limit_s: int = 0
    launch: str = ""
    workdir: str = ""
    output: str = ""
    env: dict[str, str] = field(default_factory=dict)


def document_of(asked: Asked) -> Document:
    """The job document that says the same."""
    spec: Document = _gang(asked)
    optional: Document = {
        "queue": asked.queue,
        "priority": asked.priority,
        "time_limit": f"{asked.time_limit_s}s" if asked.time_limit_s else "",
        "launch": {"kind": asked.launch} if asked.launch else "",
        "workdir": asked.workdir,
        "output": asked.output,
        "env": asked.env,
        "exclusive": asked.exclusive,
    }
    if asked.segment is not None:
        optional["topology"] = {"segment": {"nodes": asked.segment[0], "level": asked.segment[1]}}
    spec |= {name: value for name, value in optional.items() if value}
    spec["command"] = list(asked.command)
    name = asked.name or job_name(asked.command[0])
    return {"apiVersion": "gangline/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def _gang(asked: Asked) -> Document:
    """`-n 16`: 16 tasks wherever they fit. `-N 2`: two nodes. Both: so many nodes with equally many tasks on each."""
    if asked.launch == "launcher" and (asked.tasks or asked.gpus_per_task):
        raise InputError(
            "run.launcher-tasks",
            "--launch launcher starts the command once per node, and -n counts tasks",
            "give -N and --gpus-per-node; the launcher starts its own processes",
        )
    if asked.launch == "launcher" and not asked.nodes:
        return {"nodes": 1, "per_node": _each(asked, asked.gpus_per_node)}
    if asked.nodes:
        per_node, odd = divmod(asked.tasks or asked.nodes, asked.nodes)
        if odd:
            raise InputError(
                "run.uneven",
                f"{asked.tasks} tasks can't be spread evenly over {asked.nodes} nodes",
                "ask for a multiple, or for -n alone",
            )
        gpus = asked.gpus_per_node or asked.gpus_per_task * per_node
        gang: Document = {"nodes": asked.nodes, "per_node": _each(asked, gpus)}
        return gang | ({"tasks_per_node": per_node} if per_node != 1 else {})
    if asked.gpus_per_node:
        return {"nodes": 1, "per_node": _each(asked, asked.gpus_per_node)} | (
            {"tasks_per_node": asked.tasks} if asked.tasks > 1 else {}
        )
    return {"tasks": asked.tasks or 1, "per_task": _each(asked, asked.gpus_per_task)}


def _each(asked: Asked, gpus: int) -> Document:
    each: Document = {
        "gpus": gpus,
        "cores": asked.cores,
        "memory": asked.memory,
        "gpu_share": asked.gpu_share,
        "gpu_memory": asked.gpu_memory,
        "mig": asked.mig,
        "labels": asked.labels,
    }
    if asked.gpu_model:
        each["gpu_model"] = list(asked.gpu_model)
    return {name: value for name, value in each.items() if value}


def job_name(program: str) -> str:
    """A name for a job that has none: its program's, with what names may not have left out."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(program).name).strip("._-")
    return name[:128].strip("._-") or "job"


# --- files --------------------------------------------------------------------------------------------------------


def read_job(path: str, settings: tuple[str, ...], fields: Document | None = None) -> Document:
    """The document in a job file (`-`: standard input), with these `fields` of its spec and `--set` values over it;
    every fault with its place."""
    from orchestrator.spec import InvalidDocument, job_from_document, load_job_text
    from orchestrator.spec.places import unplaced
    from orchestrator.spec.source import Unreadable, read_text, text_of_bytes
    from orchestrator.spec.tree import read_tree

    name = "<stdin>" if path == "-" else path
    try:
        text = text_of_bytes(sys.stdin.buffer.read()) if path == "-" else read_text(path)
    except Unreadable as error:
        raise InvalidDocument((unplaced(name, error.problem, error.line, error.column),)) from None
    _refuse_script(name, text)
    if not settings and not fields:
        loaded = load_job_text(text, name)
        if loaded.errors:
            raise InvalidDocument(loaded.errors)
    tree = read_tree(text)
    if tree.root is None or tree.faults or not isinstance(tree.root.value, dict):
        raise InvalidDocument(load_job_text(text, name).errors)
    document: Document = tree.root.value
    if fields and isinstance(document.get("spec"), dict):
        document["spec"] |= fields
    for setting in settings:
        put(document, setting)
    if settings or fields:
        job_from_document(document)
    return document


def _refuse_script(name: str, text: str) -> None:
    if re.search(r"^#SBATCH\b", text, re.MULTILINE) or text.startswith("#!"):
        raise InputError(
            "submit.script",
            "this is a batch script, and only job files (YAML) can be submitted yet",
            "write a job file (`gangline init --example atlas` has one), or `gangline run -- ./script`",
            name,
        )


def put(document: Document, setting: str) -> None:
    """Set one value: `spec.nodes=4`, `spec.env.LR=0.1`, `spec.command=["python", "train.py"]`."""
    from orchestrator.spec.tree import read_tree

    path, mark, text = setting.partition("=")
    keys = path.split(".")
    if not mark or not all(keys):
        raise InputError("submit.bad-set", f"'{setting}' sets nothing", "write --set spec.nodes=4")
    tree = read_tree(text) if text else None
    if tree is not None and tree.faults:
        raise InputError(
            "submit.bad-set", f"the value of '{setting}' is not YAML", "quote it as YAML wants it"
        )
    at: Any = document
    for key in keys[:-1]:
        at = at.setdefault(key, {}) if isinstance(at, dict) else None
        if not isinstance(at, dict):
            raise InputError(
                "submit.bad-set", f"'{path}' leads through a value that has no fields", "check the path"
            )
    at[keys[-1]] = tree.root.value if tree is not None and tree.root is not None else ""
