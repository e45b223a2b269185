"""The command line. Exit status: 0 conforms, 1 violates, 2 unusable input or usage error.

An error is exactly one line on standard error, never a traceback.
"""

import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer

from batchspec.replay import console, plugins
from batchspec.replay.commands.anonymise import anonymise
from batchspec.replay.commands.calibrate import calibrate
from batchspec.replay.commands.check import check
from batchspec.replay.commands.compare import compare
from batchspec.replay.commands.conform import conform
from batchspec.replay.commands.cut import cut
from batchspec.replay.commands.demo import demo
from batchspec.replay.commands.diff import diff
from batchspec.replay.commands.explain import explain
from batchspec.replay.commands.explore import explore
from batchspec.replay.commands.export import export
from batchspec.replay.commands.imports import import_
from batchspec.replay.commands.info import info
from batchspec.replay.commands.mutate import mutate
from batchspec.replay.commands.profiles import profiles
from batchspec.replay.commands.prove import prove
from batchspec.replay.commands.record import record
from batchspec.replay.commands.report import report
from batchspec.replay.commands.rules import rules
from batchspec.replay.commands.shrink import shrink
from batchspec.replay.commands.simulate import simulate
from batchspec.replay.commands.sweep import sweep
from batchspec.replay.commands.timeline import timeline
from batchspec.replay.commands.watch import watch
from batchspec.spec.errors import BatchspecError

# Every usage error of typer derives from this; which module it lives in depends on typer's version.
_UsageError: Final = cast("type[Exception]", typer.BadParameter.__bases__[0])

app = typer.Typer(
    name="batchspec",
    help="The reference spec and trace checker for LLM-serving batch schedulers.",
    epilog="Example:  batchspec check run.parquet --profile vllm-v1",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_COMMANDS: Final[dict[Callable[..., None], str]] = {
    demo: "The main job on a fresh machine.",
    check: "Traces against the spec.",
    watch: "A growing trace, judged as it grows.",
    record: "The engine over a workload, as a trace.",
    simulate: "The reference scheduler over a workload, as a trace.",
    compare: "Policies, modes and limits side by side.",
    sweep: "Throughput against latency, load by load.",
    calibrate: "The simulator's cost model, from a recorded run.",
    import_: "Production records into a workload.",
    conform: "The conformance suite on a scheduler.",
    explore: "Every state of a small configuration.",
    prove: "The invariants of the spec, for every size.",
    mutate: "How many faults in good traces are found.",
    info: "What a trace holds, and what can be judged.",
    report: "The HTML report of a trace.",
    export: "A trace for the Perfetto viewer.",
    timeline: "A stretch of a trace as a picture in text.",
    cut: "A stretch of a trace as a trace of its own.",
    diff: "The first decision in which two runs differ.",
    shrink: "The smallest trace that shows a finding.",
    anonymise: "Ids and tenants hashed with a key.",
    rules: "The rules, and one explained.",
    explain: "Batching, admission, preemption, fairness in pictures.",
    profiles: "What each engine family promises.",
}
for _command, _says in _COMMANDS.items():
    app.command(_command.__name__.rstrip("_"), short_help=_says)(_command)


def _version(wanted: bool) -> None:
    if wanted:
        console.emit(f"batchspec {version('batchspec')}\n")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The reference spec and trace checker for LLM-serving batch schedulers."""
    plugins.announce()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status. Arguments default to those of the process."""
    with suppress(AttributeError, ValueError):  # a stream that a test or a host program has put there
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        words = list(sys.argv[1:] if arguments is None else arguments)
        status = app(words, prog_name="batchspec", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else console.CONFORMS
    except (BatchspecError, _UsageError, OSError, MemoryError, KeyboardInterrupt, typer.Abort) as error:
        return _status(error)
    except typer.Exit as error:
        return error.exit_code
    # Typer ends the program itself when the reader of its help text has gone away.
    except SystemExit:
        return console.BROKEN_PIPE
    # A fault of ours. A script still gets its one line and a status that is no verdict.
    except Exception as error:
        if (theirs := plugins.blamed(error)) is not None:
            console.warn(theirs)
            return console.UNUSABLE
        console.warn(f"internal error, please report it: {_place(error)}")
        return console.UNUSABLE


def _status(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return console.INTERRUPTED
    if isinstance(error, BrokenPipeError):
        with suppress(typer.Exit):
            console.gone()
        return console.BROKEN_PIPE
    console.warn(_line(error))
    return console.UNUSABLE


def _place(error: BaseException) -> str:
    """What went wrong, and the line of ours that it went wrong in."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"


def _line(error: BaseException) -> str:
    if isinstance(error, _UsageError):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "batchspec"
        message = " ".join(cast(Any, error).format_message().split()).rstrip(".")
        return f"{message}; see {command} --help"
    return console.line_of(error)
