"""Gangline: infrastructure as code for GPU clusters with its own queue and gang scheduler.

Nothing comes in and only the version goes out: importing the package must cost nothing, since the command, the agent
and the server all pass through here. The rooms below it, and which may import which, are drawn in CONTRIBUTING.md.
"""

__version__ = "0.1.0.dev0"
