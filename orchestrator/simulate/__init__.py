"""What would have been: the controller's own ledger, limits and scheduler with a virtual clock and simulated nodes.

Comes in: a cluster as wanted, a trace of jobs, a policy. Goes out: how every job fared, and what that says of the
policy; of a recorded ledger, whether the scheduler decides the same again. Called by: cli/simulate_cmd, the
benchmarks. Only `traces` and `pictures` touch files, and no module reads a clock: pass times come from a clock that
the caller lends.
"""
