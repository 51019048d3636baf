"""The entry: exit codes, near misses, errors without tracebacks, help that says what the table says."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import click
import pytest

from orchestrator.cli import spec_cmd
from orchestrator.cli.commands import SECTIONS
from orchestrator.cli.main import EXIT_CODES, main, root
from orchestrator.cli.session import Session
from orchestrator.cli.verbs import Verb, Verbs
from orchestrator.client import InvalidInput
from orchestrator.model.errors import Conflict, GanglineError, InputError, Refused, TimedOut, Unavailable
from orchestrator.wire.api import Problem, ProblemItem
from tests.cli.conftest import Said

Run = Callable[..., Said]


def every_command() -> Iterator[tuple[str, click.Command]]:
    def walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        yield path, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                member = command.get_command(context, name)
                assert member is not None
                yield from walk(f"{path} {name}".strip(), member)

    yield from walk("", root)


COMMANDS = dict(every_command())


def test_the_commands_of_the_design_are_there() -> None:
    clusters = "init validate plan apply drift render history rollback destroy up down status"
    wanted = (
        f"{clusters} submit run jobs job logs explain cancel hold release requeue prioritize nodes node gpus"
    )
    more = "topology queues catalog simulate replay demo doctor version completion server token agent"
    inner = [
        "catalog show",
        "catalog refresh",
        "job show",
        "job set",
        "node cordon",
        "node uncordon",
        "token create",
        "token list",
        "token revoke",
    ]
    server = ["server run", "server backup", "server restore", "server recover"]

    assert sorted([*f"{wanted} {more}".split(), *inner, *server]) == sorted(path for path in COMMANDS if path)


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_help_with_examples_that_begin_with_its_name(path: str) -> None:
    command = COMMANDS[path]

    assert isinstance(command, (Verb, Verbs)), path
    assert command.examples
    for example in command.examples:
        assert f"gangline {path}".strip() in example.line
    assert command.help
    assert (command.help.splitlines()[0]).endswith(".")


def test_the_help_lines_of_the_table_are_the_commands_own() -> None:
    for members in SECTIONS.values():
        for name, lazy in members.items():
            text = COMMANDS[name].help or ""
            assert lazy.help == text.splitlines()[0], name


@pytest.mark.parametrize("path", COMMANDS)
def test_examples_parse(path: str) -> None:
    """An example in the help is a line that the command accepts: unknown options in it are found here."""
    import shlex

    for example in COMMANDS[path].examples:  # type: ignore[attr-defined]
        line = example.line.split("|")[0].split("&&")[0].split(">")[0]
        if "$(" in line:
            continue
        words = [word for word in shlex.split(line) if word != "gangline"]
        _parse(words)


def _parse(words: list[str]) -> None:
    command: click.Command = root
    context = click.Context(root, info_name="gangline", obj=Session())
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
        context = click.Context(command, parent=context, info_name=name, **command.context_settings)
    command.parse_args(context, list(words))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["jbos"], 2, "there is no command 'jbos'; did you mean jobs"),
        (["jobs", "--all-user"], 2, "--all-users"),
        (["squeue"], 2, "there is no command 'squeue'; here it is `gangline jobs`"),
        (["scancel", "7"], 2, "here it is `gangline cancel ID`"),
        (["completion"], 2, "missing argument '{bash|zsh|fish}' [cli.usage]"),
        (["job", "shwo", "1"], 2, "there is no command 'shwo'; did you mean show?"),
        (["explain", "twelve"], 2, "'twelve' is no job id"),
        (["explain"], 2, "missing argument 'ID'"),
        (["run"], 2, "missing argument"),
        (["run", "-n", "0", "--", "true"], 2, "0 is not 1 or more"),
        (["run", "--time", "soon", "--", "true"], 2, "'soon' is no length of time"),
        (["run", "--env", "A B=1", "--", "true"], 2, "'A B' is no name of a variable"),
        (["jobs", "--since", "yesterday"], 2, "value for '--since': 'yesterday' is no length of time"),
        (["run", "--time", "0s", "--", "true"], 2, "'0s' is no time at all"),
        (
            ["token", "create", "--role", "read", "--name", "a", "--expires", "0m"],
            2,
            "'0m' is no time at all",
        ),
        (["jobs", "--state", "sleeping"], 2, "there is no state 'sleeping'"),
        (["completion", "tcsh"], 2, "'tcsh' is not one of"),
    ],
)
def test_usage_errors_are_one_sentence_with_a_hint(
    gangline: Run, arguments: list[str], code: int, words: str
) -> None:
    said = gangline(*arguments)

    assert (said.code, said.out) == (code, "")
    assert words in said.err
    assert "  hint: " in said.err
    assert "Traceback" not in said.err


def test_what_other_tools_say_is_answered_with_commands_that_exist() -> None:
    from orchestrator.cli.commands import ELSEWHERE

    assert not set(ELSEWHERE) & set(COMMANDS)
    for told in ELSEWHERE.values():
        for line in re.findall("`(gangline [^`]*)`", told):
            words = [word for word in line.split()[1:] if word.islower()]
            assert words[0] in COMMANDS, line


def test_no_argument_at_all_shows_the_help_and_is_a_usage_error(gangline: Run) -> None:
    said = gangline()

    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("Usage: gangline")


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """`gangline init` ends with this error."""

    def act(*_args: object, **_more: object) -> None:
        raise error

    monkeypatch.setattr(spec_cmd.init, "callback", act)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (GanglineError("a.b", "it broke"), 1, "error: it broke [a.b]\n"),
        (InputError("a.b", "bad", "do this", "job.yaml"), 2, "error: job.yaml: bad [a.b]\n  hint: do this\n"),
        (Refused("a.b", "no"), 5, "error: no [a.b]\n"),
        (TimedOut("a.b", "late"), 6, "error: late [a.b]\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (
            PermissionError(13, "Permission denied", "/root/x"),
            1,
            "error: /root/x: Permission denied [cli.system]\n",
        ),
    ],
)
def test_errors_become_words_and_exit_codes(
    gangline: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, text: str
) -> None:
    raising(monkeypatch, error)

    assert gangline("init") == (code, "", text)


def test_a_mistake_of_ours_shows_no_traceback_unless_asked(
    gangline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, ValueError("of ours"))

    said = gangline("init")
    assert said.code == 1
    assert said.err.startswith(
        "error: Gangline made a mistake: ValueError: of ours [cli.internal]\n  hint: GANGLINE_DEBUG=1"
    )
    monkeypatch.setenv("GANGLINE_DEBUG", "1")
    assert "Traceback" in gangline("init").err


@pytest.mark.parametrize("output", ["text", "json"])
def test_faults_that_the_server_found_in_a_request_are_told(
    gangline: Run, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    item = ProblemItem(path="why", code="request.string-too-long", message="too long", hint="shorten it")
    problem = Problem(title="x", status=422, detail="too long", code="request.invalid", errors=[item])
    session = Session(output=output)
    monkeypatch.setattr("orchestrator.cli.main.Session", lambda: session)
    raising(monkeypatch, InvalidInput(problem))

    said = gangline("init")

    assert said.code == 2
    if output == "text":
        assert said.err == "error: why: too long [request.string-too-long]\n  hint: shorten it\n"
    else:
        assert json.loads(said.err)["errors"][0]["code"] == "request.string-too-long"


def test_control_characters_in_errors_are_escaped(gangline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, GanglineError("a.b", "the name \x1b[31m"))

    assert gangline("init").err == "error: the name \\x1b[31m [a.b]\n"


def test_json_output_has_json_errors_on_stderr(gangline: Run) -> None:
    said = gangline("jobs", "-o", "json")

    assert (said.code, said.out) == (1, "")
    error = json.loads(said.err)
    assert (error["apiVersion"], error["kind"], error["code"]) == (
        "gangline/v1",
        "Error",
        "cli.no-controller",
    )
    assert error["hint"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unavailable("a", "b"), 125),
        (Refused("a", "b"), 126),
        (InputError("a", "b"), 2),
        (Conflict("a", "b"), 125),
    ],
)
def test_where_a_job_code_is_returned_our_failures_are_125_and_126(error: GanglineError, code: int) -> None:
    from orchestrator.cli.errors import exit_code

    session = Session()
    session.returns_job_code()

    assert exit_code(error, session) == code


def test_every_exit_code_of_an_error_is_in_the_table() -> None:
    known = {code for code, _ in EXIT_CODES}

    kinds: list[type[GanglineError]] = [GanglineError, *GanglineError.__subclasses__()]
    assert {kind.exit_code for kind in kinds} <= known


@pytest.mark.system
def test_a_closed_pipe_is_quiet() -> None:
    script = "import sys; from orchestrator.cli.main import main; sys.exit(main(['completion', 'zsh']))"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


@pytest.mark.system
def test_a_full_disk_under_stdout_is_an_error() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator.cli", "completion", "zsh"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )

    assert done.returncode == 1
    assert b"No space left on device" in done.stderr


@pytest.mark.system
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("line", "code"), [("validate -", 2), ("completion zsh", 0), ("explain x", 2)])
def test_closed_streams_are_no_mistake(closed: str, line: str, code: int) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -m orchestrator.cli {line} {closed}', sys.executable],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "made a mistake" not in done.stderr


@pytest.mark.system
def test_a_second_interrupt_while_the_first_is_told_leaves_no_traceback() -> None:
    script = (
        "import os, signal, sys, time; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from orchestrator.cli import errors, main;"  # a run in the background may have SIGINT ignored
        "main.run = lambda *_: os.kill(os.getpid(), signal.SIGINT) or time.sleep(60);"
        "errors.report = main.run;"
        "sys.argv = ['gangline']; sys.exit(main.main())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


HEAVY = (
    "pydantic",
    "httpx2",
    "rich",
    "yaml",
    "asyncio",
    "orchestrator.wire",
    "orchestrator.spec",
    "orchestrator.client",
)


@pytest.mark.system
def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; from orchestrator.cli.main import main; main(['--help']);"
        "main(['run', '--help']); main(['jobs', '--help']); print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(eval(done.stderr))

    assert [name for name in HEAVY if name in loaded] == []


def test_version_option(gangline: Run) -> None:
    from orchestrator import __version__

    assert gangline("--version") == (0, f"gangline {__version__}\n", "")


def test_main_reads_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gangline", "--version"])

    assert main() == 0
    assert capsys.readouterr().out.startswith("gangline ")
