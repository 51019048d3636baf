"""Real hosts for tests: Debian machines that boot systemd and sshd on a bridge of their own (DESIGN section 9).

Comes in: how many hosts of which release. Goes out: `Bed` and `Host` with verbs boot, cut, heal, hang, kill, reboot,
reset, run. Called by: tests of the tier `testbed` through the fixture `testbed` (fixture.py), people through
`python -m tests.testbed`. Needs root, systemd-nspawn, debootstrap, nft and ip.
"""
