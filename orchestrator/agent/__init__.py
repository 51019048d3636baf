"""The agent: the daemon on a node, its shepherds, and what keeps their promises through kills and reboots.

Comes in: a config file and the controller's answers. Goes out: processes of jobs, events in an fsynced outbox,
bytes of logs. Called by: `gangline agent`, `python -m orchestrator.agent`. Standard library and Python 3.10 only,
imports `model` and `telemetry` and nothing else of Gangline.

    main.py       config -> nursery -> daemon                     (the start of the process)
    daemon.py     notices, answers and timers -> the journal, then the deed
    sync.py       two channels to the controller, epochs, leases, back-off
    reconcile.py  PURE: what one attempt is here, what is wanted -> the next step
    journal.py    the fsynced record of intents and events; outbox.py and history.py are its parts
    unit.py       one attempt on this node: its folder, its worker process, what its status file says
    nursery.py    forks workers without a Python start; starter.py is the agent's end of it
    shepherd.py   the worker that runs the ranks; preparer.py, mop.py, reader.py are the other workers
    containment.py  how a unit's processes are kept together, found and killed
"""
