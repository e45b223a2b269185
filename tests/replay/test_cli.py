"""The contract of the command line: exit statuses, one line for an error, quiet ends, readable help."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from batchspec.replay import cli, console
from batchspec.replay.cli import main
from batchspec.replay.report.page import Page
from batchspec.spec.library import profile_names

COMMANDS = [
    "calibrate",
    "check",
    "compare",
    "conform",
    "demo",
    "explore",
    "import",
    "info",
    "profiles",
    "prove",
    "record",
    "rules",
    "simulate",
    "sweep",
]


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The command line as a process of its own."""
    env = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "NO_COLOR")}
    command = [sys.executable, "-m", "batchspec.replay", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**env, **environment})


def one_line(text: str) -> str:
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert text.startswith("batchspec: ")
    return text


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], *([name, "--help"] for name in COMMANDS)])
def test_help_is_a_success_with_an_example(
    arguments: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert "Example:  batchspec" in out
    assert err == ""
    assert max(map(len, out.splitlines())) <= 110


def test_help_names_every_command_with_a_whole_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    out = capsys.readouterr().out
    for name in COMMANDS:
        assert f"  {name} " in out
    assert "..." not in out.split("Commands:")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing command"),
        (["chek"], "Did you mean 'check'?"),
        (["--nope"], "No such option: --nope"),
        (["profiles", "--nope"], "see batchspec profiles --help"),
        (["profiles", "vllm"], "unknown profile 'vllm' (did you mean 'vllm-v1'?)"),
        (["profiles", "a", "b"], "unexpected extra argument"),
        (["profiles", "none/at/all.toml"], "none/at/all.toml"),
        (["check"], "Missing argument"),
        (["check", "x", "--format", "yaml"], "--format"),
        (["check", "x", "--findings", "many"], "--findings"),
        (["check", "x", "--findings", "-1"], "--findings"),
        (["check", "x", "--from", "3", "--to", "2"], "--from 3 lies behind --to 2"),
        (["check", "x", "--from", "3", "--format", "json"], "--format text"),
        (["check", "x", "--rule", "slots/reus"], "did you mean 'slots/reuse'"),
        (["check", "x", "--require", "L9"], "unknown rule 'L9'"),
        (["check", "x", "--profile", "vlm-v1"], "did you mean 'vllm-v1'"),
        (["check", "\x1b[31m\nx"], "no such file"),
        (["check", "no/such/file.parquet"], "no/such/file.parquet"),
        (["simulate", "no/such/file.parquet", "--out", "x.parquet"], "no/such/file.parquet"),
        (["simulate", "x"], "Missing option '--out'"),
        (["import", "no/such.csv", "--out", "x.parquet"], "no/such.csv"),
        (["import", "x", "--format", "azur", "--out", "x.parquet"], "did you mean 'azure'"),
        (["info", "no/such/file.parquet"], "no/such/file.parquet"),
        (["rules", "slots/reus"], "did you mean 'slots/reuse'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(
    arguments: Sequence[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in one_line(err)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("batchspec ")


def test_every_profile_is_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles"]) == 0
    listed = capsys.readouterr().out
    for name in profile_names():
        assert f"\n{name} " in listed
        assert main(["profiles", name]) == 0
        page = capsys.readouterr().out
        assert page.startswith(f"{name}: ")
        assert "\nsources\n" in page
        assert "{}" not in page


def test_every_rule_is_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    from batchspec.spec.catalogue import RULES

    assert main(["rules"]) == 0
    listed = capsys.readouterr().out
    for name, rule in RULES.items():
        assert f"\n  {name}  " in listed
        assert main(["rules", name]) == 0
        page = capsys.readouterr().out
        assert page.startswith(f"{name}\n")
        assert rule.source.split()[0] in page


def test_a_family_of_rules_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "slots"]) == 0
    out = capsys.readouterr().out
    assert "slots/reuse" in out
    assert "batch/" not in out


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
        (MemoryError(), 2, "out of memory"),
        (PermissionError(13, "Permission denied", "x.parquet"), 2, "x.parquet: Permission denied"),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (KeyError("r7"), 2, "internal error, please report it: KeyError: 'r7' (test_cli.py, line "),
    ],
)
def test_whatever_ends_the_work_ends_it_quietly(
    error: BaseException,
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    assert main(["profiles"]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == bool(said)


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    command = f"{shlex.quote(sys.executable)} -m batchspec.replay profiles batchspec"
    script = f"{command} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout in ("141\n", "0\n")  # 0: the whole page fitted into the pipe before it closed
    assert done.stderr == ""


def test_an_interrupt_ends_it_quietly() -> None:
    program = (
        "import sys, os, signal; from batchspec.replay import cli; "
        "cli.app = lambda *a, **k: os.kill(os.getpid(), signal.SIGINT) or signal.pause(); "
        "sys.exit(cli.main([]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, "")


def test_a_pipe_gets_plain_text_and_colour_can_be_asked_for() -> None:
    plain = run("profiles", "static")
    assert (plain.returncode, plain.stderr) == (0, "")
    assert "\x1b" not in plain.stdout
    coloured = run("profiles", "static", FORCE_COLOR="1")
    assert "\x1b[" in coloured.stdout
    assert "\x1b" not in run("profiles", "static", FORCE_COLOR="1", NO_COLOR="1").stdout


def test_a_terminal_gets_colour_unless_it_asks_for_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Page()
    page.add(("red", "bold red"), " [link=x]not markup[/link]")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    console.show(page)
    assert "\x1b[1;31mred\x1b[0m [link=x]not markup[/link]\n" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    console.show(page)
    assert capsys.readouterr().out == page.text()


def test_a_terminal_that_cannot_show_a_letter_is_no_reason_to_fail() -> None:
    done = run("check", "größe.parquet", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 2
    assert one_line(done.stderr).isascii()
