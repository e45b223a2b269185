"""`batchspec mutate`: how many faults put into good traces the check finds, and why not the others."""

from enum import StrEnum
from typing import Annotated

import typer

from batchspec.replay import console
from batchspec.replay.claims import named_profile
from batchspec.replay.mutation.aims import OUT_OF_REACH, aimed
from batchspec.replay.mutation.campaign import campaign
from batchspec.replay.progress import bar, counted
from batchspec.replay.report.json import to_json
from batchspec.replay.report.mutation import campaign_object, campaign_page, rules_object, rules_page
from batchspec.spec.catalogue import RULES


class Format(StrEnum):
    """What to print."""

    text = "text"
    json = "json"


def mutate(
    number: Annotated[int, typer.Option(metavar="N", min=1, help="So many faults.")] = 2_000,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Same seed, same faults.")] = 0,
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Traces of this profile only: a shipped one, or a file."),
    ] = None,
    rules: Annotated[
        bool, typer.Option("--rules", help="For each rule a mutation after which it speaks first.")
    ] = False,
    survivors: Annotated[
        bool, typer.Option("--survivors", help="List each fault that was not found, with the reason.")
    ] = False,
    format: Annotated[Format, typer.Option(metavar="text|json", help="What to print.")] = Format.text,
) -> None:
    """Put faults into good traces of every mode and level, and say how many a check finds.

    The traces are the reference scheduler's. A fault that no rule speaks of is explained: the trace tells of
    a run that the spec allows, or nothing that is told or claimed could contradict it, or it is a gap of the
    spec. Exit status 1: a gap that nothing explains, or (with --rules) a rule that no mutation breaks.

    Example:  batchspec mutate --number 500 --profile vllm-v1
    """
    if rules:
        _rules(seed, format)
        return
    if profile is not None:
        named_profile(profile)
    with bar("mutating", number) as shown:
        result = campaign(number, seed=seed, profile=profile, progress=None if shown is None else shown.to)
    if format is Format.json:
        console.emit(to_json(campaign_object(result)))
    else:
        console.show(campaign_page(result, survivors))
    if result.gaps():
        raise typer.Exit(console.VIOLATES)


def _rules(seed: int, format: Format) -> None:
    hits = {}
    with bar("aiming", len(RULES)) as shown:
        for rule in counted(RULES, shown):
            hits[rule] = aimed(rule, seed)
    if format is Format.json:
        console.emit(to_json({"seed": seed, "rules": rules_object(hits)}))
    else:
        console.show(rules_page(hits))
    if any(hit is None and rule not in OUT_OF_REACH for rule, hit in hits.items()):
        raise typer.Exit(console.VIOLATES)
