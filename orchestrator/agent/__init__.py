"""The agent: the daemon on a node, its shepherds, and what keeps their promises through kills and reboots.

Comes in: a config file and the controller's answers. Goes out: processes of jobs, events in an fsynced outbox,
bytes of logs. Called by: `gangline agent`, `python -m orchestrator.agent`. Standard library and Python 3.10 only,
imports `model` and `telemetry` and nothing else of Gangline.

    main.py         config -> nursery -> daemon                  (the start of the process)
    daemon.py       wires the parts together; loop.py is the one thing that it waits in
    sync.py         two channels (channel.py) to the controller, epochs, leases, back-off; join.py the first token
    lease.py        until when the controller counts the node as in contact; what chose so ends with it
    attempts.py     wishes -> journal -> deeds; reconcile.py is the table of steps, PURE
    reports.py      workers' records -> events in the outbox; outcome.py folds the records, PURE
    keepers.py      the lives of workers: asked for, held, found dead, killed when they hang
    journal.py      the fsynced record of intents and events; records.py folds it; history.py, idset.py keep the rest
    unit.py         one attempt on this node: its folder (layout.py), its worker, its status file (status.py)
    starter.py      the agent's end of nursery.py, which makes workers without a start of Python
    shepherd.py     the worker that runs the ranks (plan.py, setup.py, spawn.py) and proves them gone (gate.py)
    preparer.py, mop.py, reader.py, housekeeping.py  the other workers
    supervisor.py   which containment this node offers; boxes.py opens the one that a plan names
    containment.py  how a unit's processes are kept together, found (procfs.py) and killed, without systemd
    scope.py        the same by a scope of systemd.py (over dbus.py): properties.py its limits, PURE,
                    device_nodes.py its devices, hierarchies.py the control group trees
    identity.py     as whom a job runs
"""
