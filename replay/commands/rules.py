"""`batchspec rules`: the catalogue."""

from typing import Annotated

import typer

from batchspec.replay import plugins
from batchspec.replay.console import show
from batchspec.replay.examples import judged
from batchspec.replay.report.catalogue import add_finding, catalogue_page, rule_page
from batchspec.replay.report.context import around
from batchspec.replay.selection import chosen
from batchspec.spec.catalogue import RULES
from batchspec.spec.examples import example
from batchspec.spec.sometimes import SOMETIMES


def rules(
    name: Annotated[
        str | None, typer.Argument(metavar="ID", help="A rule, or a family such as slots.")
    ] = None,
    use: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:NAME", help="Include this rule of your own. May be repeated."),
    ] = None,
) -> None:
    """List the rules of the spec, or explain one with a passing and a failing trace.

    Example:  batchspec rules slots/reuse
    """
    plugins.install_rules()
    for own in use or ():
        plugins.rule_named(own)
    if name is not None and name in RULES:
        shown = example(name)
        page = rule_page(RULES[name], shown)
        if shown is not None:
            trace, report = judged(shown.failing, name)
            first = next(finding for finding in report.findings if finding.rule == name)
            add_finding(page, first, around(trace, [first]).get(first.row or 0))
        show(page)
        return
    wanted = RULES if name is None else chosen([name])
    show(catalogue_page((RULES[rule] for rule in wanted), tuple(SOMETIMES.values()) if name is None else ()))
