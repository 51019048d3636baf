"""What `pulumi preview` and `pulumi up` run in this folder: one site of a cluster.yaml, by Gangline's own program.

Comes in: the stack's configuration (Pulumi.yaml says what there is). Goes out: resources that are declared. Called by:
Pulumi's engine. What is wrong is said as `gangline validate` says it, and nothing is declared then.
"""

from __future__ import annotations

from pathlib import Path

import pulumi

from orchestrator import catalog
from orchestrator.model.errors import GanglineError
from orchestrator.provision.aws import inputs, lookups, program
from orchestrator.spec import load_cluster, render

config = pulumi.Config("gangline")
file, uid = config.get("file") or "cluster.yaml", config.get("uid") or ""
loaded = load_cluster(file)
if loaded.cluster is None:
    raise pulumi.RunError(render(loaded.errors))
spec = loaded.cluster
try:
    program.declare(
        lookups.run_inputs(
            spec,
            inputs.chosen_site(spec, config.get("site") or ""),
            inputs.checked_uid(uid),
            catalog.load(),
            authority=config.get("authority") or "",
            commit=lookups.commit_of(Path(file).resolve().parent),
            released=frozenset(name for name in (config.get("released") or "").split(",") if name),
        )
    )
except GanglineError as error:
    where = f"{error.path}: " if error.path else ""
    raise pulumi.RunError(f"{where}{error.message}\n  hint: {error.hint}") from None
