"""The command `gangline`: thin, lazily imported, and the only room that talks to people in a terminal.

Comes in: arguments, the environment, a terminal or a pipe. Goes out: data on stdout, everything else on stderr, an
exit code of DESIGN's table. Called by: people and scripts. It reaches the controller through `client` alone.
"""
