"""The start of the agent's process.

Comes in: the config file's path. Goes out: the daemon's whole life, then an exit code. Called by: `gangline agent`,
`python -m orchestrator.agent`.

The nursery is forked before anything large is loaded, so that workers stay small.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import sys
import time
from dataclasses import replace

from orchestrator.agent import layout, log
from orchestrator.agent.config import Config, ConfigError, load
from orchestrator.agent.journal import JournalError
from orchestrator.agent.starter import Starter
from orchestrator.agent.worker import name_process

SHORT_LIFE_S = 5.0  # an agent that lived shorter than this waits as long before it begins again


def run(config_path: str) -> int:
    """Until SIGTERM or SIGINT: 0. 1: it can't run; 2: the config is wrong. What to do is said on stderr."""
    try:
        config = _named(load(config_path))
        lock = _take_folder(config)
    except ConfigError as error:
        sys.stderr.write(f"gangline agent: {error}\n")
        return 2
    log.set_level(config.log_level)
    began = time.monotonic()
    starter = Starter()
    from orchestrator.agent.daemon import Daemon  # after the fork: see above

    try:
        name_process("gl-agent")
        daemon = Daemon(config, starter)
        gc.collect()
        gc.freeze()  # what is here now lives as long as the process: never look at it again
        daemon.run()
        if daemon.renamed:
            _again()
    except ConfigError as error:
        sys.stderr.write(f"gangline agent: {error}\n")
        return 2
    except JournalError as error:
        sys.stderr.write(f"gangline agent: {error}\n")
        return 1
    except Exception:  # noqa: BLE001 - what runs on the node must not lose its agent by a fault of it
        _begin_again(time.monotonic() - began)
    finally:
        os.close(lock)
    return 0


def _begin_again(lived_s: float) -> None:
    """After an error that nobody foresaw: the same process anew, from the journal, as after a kill."""
    import traceback  # not for the common life of an agent

    log.error("an unforeseen error; the agent begins again from its journal\n" + traceback.format_exc())
    if lived_s < SHORT_LIFE_S:
        time.sleep(SHORT_LIFE_S)
    _again()


def _again() -> None:
    """The same process from its beginning."""
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - no shell is wanted


def _named(config: Config) -> Config:
    """With the name that the controller has given to a bought node, if it has none of its own."""
    if config.node or not config.join:
        return config
    from orchestrator.agent.instance_join import read_name

    return replace(config, node=read_name(config.state_dir).node)


def _take_folder(config: Config) -> int:
    """Make the state folder and lock it: one agent alone may write there. The descriptor holds the lock.

    Jobs' variables are in there, so nobody else may read it; their users may pass through to their own folders.
    """
    os.umask(0o077)
    try:
        for folder in (config.state_dir, os.path.join(config.state_dir, "attempts")):
            os.makedirs(folder, exist_ok=True)
            os.chmod(folder, layout.PASSABLE)
        fd = os.open(os.path.join(config.state_dir, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            raise ConfigError(f"{config.state_dir}: another agent runs with this state folder") from None
        raise ConfigError(f"{error.filename or config.state_dir}: {error.strerror}") from None
    return fd
