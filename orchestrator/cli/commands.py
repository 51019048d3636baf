"""The table of the command: every verb, where it lives, its one line of help, in the order of the help page.

Comes in: nothing. Goes out: `SECTIONS`, `ELSEWHERE` (what other tools call them). Called by: main (help without loading
anything), reference. A test holds these lines equal to the first lines of the commands' own help.
"""

from __future__ import annotations

from orchestrator.cli.verbs import Lazy


def _at(module: str, attribute: str, text: str) -> Lazy:
    return Lazy(f"orchestrator.cli.{module}", attribute, text)


SECTIONS: dict[str, dict[str, Lazy]] = {
    "Start here": {
        "demo": _at(
            "demo_cmd", "demo", "Show everything on this machine: 4 nodes, 32 emulated GPUs, two gangs."
        ),
        "init": _at("spec_cmd", "init", "Copy an example cluster into a folder of your own."),
        "doctor": _at("doctor_cmd", "doctor", "Check this machine, the way to the controller, and hosts."),
    },
    "Clusters": {
        "validate": _at(
            "spec_cmd",
            "validate",
            "Check cluster, job, price and policy files; needs no server and no network.",
        ),
        "plan": _at("change_cmd", "plan", "Show what `apply` would change; change nothing."),
        "apply": _at("change_cmd", "apply", "Make the cluster what its file says."),
        "drift": _at(
            "drift_cmd", "drift", "Compare hosts and aws sites with what they are to have; change nothing."
        ),
        "render": _at(
            "change_cmd",
            "render",
            "Write the folder on which `ansible-playbook` makes hosts what the file says.",
        ),
        "history": _at("history_cmd", "history", "List what was applied to the cluster, newest first."),
        "rollback": _at(
            "history_cmd", "rollback", "Go back to what was applied earlier: a plan like any other."
        ),
        "destroy": _at(
            "change_cmd",
            "destroy",
            "Let all hosts of a cluster go, and end what was bought; data stays.",
        ),
        "up": _at("local_cmd", "up", "Bring a cluster up: controller, nodes, ready."),
        "down": _at("local_cmd", "down", "Stop this machine's controller and agents; delete nothing."),
        "status": _at("status_cmd", "status", "Show the cluster at a glance."),
    },
    "Jobs": {
        "run": _at("run_cmd", "run", "Run a command as a gang and stream its output."),
        "submit": _at("submit_cmd", "submit", "Submit a job file and print its id."),
        "jobs": _at("jobs_cmd", "jobs", "List jobs, newest first."),
        "job": _at("jobs_cmd", "job", "Look at one job, or change it."),
        "logs": _at("logs_cmd", "logs", "Print what a job has written."),
        "explain": _at("explain_cmd", "explain", "Say why a job waits, and what to do about it."),
        "cancel": _at("act_cmd", "cancel", "End jobs: signal, grace, kill."),
        "hold": _at("act_cmd", "hold", "Keep waiting jobs from starting."),
        "release": _at("act_cmd", "release", "Let held jobs wait for their start again."),
        "prioritize": _at(
            "act_cmd", "prioritize", "Let waiting jobs start earlier, or later, than others of their queue."
        ),
        "requeue": _at("act_cmd", "requeue", "End a job's attempt and let the job wait again."),
    },
    "Capacity": {
        "nodes": _at("nodes_cmd", "nodes", "List nodes and what is free on them."),
        "node": _at("nodes_cmd", "node", "Take a node out of use, or back."),
        "gpus": _at("nodes_cmd", "gpus", "Show GPUs by pool and model: free of total."),
        "catalog": _at("catalog_cmd", "catalog", "Show what instances cost, or ask AWS for new prices."),
        "topology": _at(
            "topology_cmd", "topology", "Show the domains of each site and what is free in them."
        ),
        "queues": _at("queues_cmd", "queues", "List queues with their guarantees and use."),
    },
    "Policy": {
        "simulate": _at("simulate_cmd", "simulate", "Say what a policy would do with a trace of jobs."),
        "replay": _at("simulate_cmd", "replay", "Decide again what a ledger has recorded, and compare."),
    },
    "Running Gangline": {
        "server": _at("server_cmd", "server", "Run, back up, restore or recover a controller."),
        "agent": _at("agent_cmd", "agent", "Run a node's agent in the foreground."),
        "token": _at("token_cmd", "token", "Create, list or revoke access tokens."),
        "completion": _at("about_cmd", "completion", "Print the completion script of a shell."),
        "version": _at("about_cmd", "version", "Print the version of Gangline and what it speaks."),
    },
}

# What people type who come from Slurm or Kubernetes.
ELSEWHERE: dict[str, str] = {
    "sbatch": "`gangline submit JOB.yaml`, or `gangline run -- COMMAND`",
    "srun": "`gangline run -- COMMAND`",
    "squeue": "`gangline jobs`",
    "scancel": "`gangline cancel ID`",
    "sinfo": "`gangline nodes` or `gangline gpus`",
    "sacct": "`gangline jobs --since 7d`",
    "scontrol": "`gangline job show`, `hold`, `release`, `requeue`, `prioritize` or `gangline node cordon`",
    "sprio": "`gangline explain ID`",
    "get": "`gangline jobs`, `nodes`, `gpus` or `queues`",
    "describe": "`gangline job show ID` or `gangline explain ID`",
    "show": "`gangline job show ID`",
    "delete": "`gangline cancel ID`",
    "kill": "`gangline cancel ID`",
    "list": "`gangline jobs`",
    "ps": "`gangline jobs`",
    "cordon": "`gangline node cordon NODE`",
    "uncordon": "`gangline node uncordon NODE`",
}
