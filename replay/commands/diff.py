"""`batchspec diff`: the first decision in which two runs differ."""

from enum import StrEnum
from typing import Annotated

import typer

from batchspec.replay import console
from batchspec.replay.commands.cut import open_trace_or_scenario
from batchspec.replay.divergence import compare
from batchspec.replay.report.divergence import divergence_object, divergence_page
from batchspec.replay.report.json import to_json


class Format(StrEnum):
    """What the answer is written as."""

    text = "text"
    json = "json"


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="The trace of one run.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The trace of another run under the same inputs.")],
    format: Annotated[Format, typer.Option(metavar="text|json", help="What to print.")] = Format.text,
) -> None:
    """Name the first decision in which two runs differ: who was admitted or preempted, how much, where.

    Requests are aligned by id, else by order of arrival; steps without a decision are left out, and what
    one of the traces does not say is no difference. Inputs that differ are named first.

    Exit status: 0 the same decisions, 1 they diverge, 2 unusable input or usage error.

    Example:  batchspec diff before.parquet after.parquet
    """
    first, second = open_trace_or_scenario(a), open_trace_or_scenario(b)
    found = compare(first, second)
    if format is Format.json:
        console.emit(to_json(divergence_object(first.path, second.path, found)))
    else:
        console.show(divergence_page(first.path, second.path, found))
    raise typer.Exit(console.CONFORMS if found.same else console.VIOLATES)
