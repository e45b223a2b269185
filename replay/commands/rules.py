"""`batchspec rules`: the catalogue."""

from typing import Annotated

import typer

from batchspec.replay.console import show
from batchspec.replay.report.catalogue import catalogue_page, rule_page
from batchspec.replay.selection import chosen
from batchspec.spec.catalogue import RULES


def rules(
    name: Annotated[
        str | None, typer.Argument(metavar="ID", help="A rule, or a family such as slots.")
    ] = None,
) -> None:
    """List the rules of the spec, or explain one with a passing and a failing trace.

    Example:  batchspec rules slots/reuse
    """
    if name is not None and name in RULES:
        show(rule_page(RULES[name]))
        return
    wanted = RULES if name is None else chosen([name])
    show(catalogue_page(RULES[rule] for rule in wanted))
