"""A mutation campaign as a page and as data: what was killed by which rule, and why the rest was not."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from batchspec.replay.mutation.aims import OUT_OF_REACH, Hit
from batchspec.replay.mutation.campaign import Campaign, Survivor
from batchspec.replay.mutation.reason import GAP, LEGAL, UNOBSERVABLE
from batchspec.replay.report.page import Page, count

_GROUPS = ("kind of fault", "level", "mode")
_LISTED = 40


def campaign_page(campaign: Campaign, every: bool = False) -> Page:
    """Kill rates, killers and survivors, these by their argument; with `every` each survivor by itself."""
    page = Page()
    killed, tried = _totals(campaign)
    verdicts = Counter(one.reason.verdict for one in campaign.survivors)
    claims = f" of profile {campaign.profile}" if campaign.profile else " of every mode"
    page.add(
        (f"{killed:,} of {count(tried, 'fault')} killed ({_rate(killed, tried)})", "bold"),
        f", in good traces{claims}, seed {campaign.seed}",
    )
    legal, hidden, gaps = (f"{verdicts[one]:,}" for one in (LEGAL, UNOBSERVABLE, GAP))
    rate = _rate(killed, killed + verdicts[GAP])
    page.add(
        f"{count(len(campaign.survivors), 'survivor')}: {legal} legal, {hidden} unobservable, {gaps} gaps"
    )
    page.add(f"of the faults that are some and can be seen, {rate} are killed")
    for place, name in enumerate(_GROUPS):
        page.gap()
        rows = [(key, f"{one:,}", f"{of:,}", _rate(one, of)) for key, (one, of) in campaign.by(place).items()]
        page.table((name, "killed", "of", ""), rows, " rrr", indent=0)
    page.gap()
    killers = [(rule, f"{number:,}") for rule, number in campaign.killers.most_common()]
    page.table(("killed first by", ""), killers, " r", indent=0)
    page.gap()
    _survivors(page, campaign.survivors)
    if every:
        page.gap()
        for one in campaign.survivors:
            page.add(f"seed {one.seed}, {one.level}, {one.mode}: {one.text}")
            page.wrap(f"{one.reason.verdict}: {one.reason.words}", indent=4)
    return page


def _survivors(page: Page, survivors: Iterable[Survivor]) -> None:
    groups: dict[tuple[str, str, str, str], list[Survivor]] = {}
    for one in survivors:
        groups.setdefault((one.reason.verdict, one.reason.argument, one.kind, one.place), []).append(one)
    order = {GAP: 0, UNOBSERVABLE: 1, LEGAL: 2}
    ranked = sorted(groups.items(), key=lambda item: (order[item[0][0]], -len(item[1])))
    rows = [(f"{len(found):,}", *key) for key, found in ranked[:_LISTED]]
    page.table(("survivors", "", "why", "fault", "in"), rows, "r", indent=0)
    rest = sum(len(found) for _, found in ranked[_LISTED:])
    if rest:
        page.add(f"and {rest:,} more; --survivors lists each one")
    for (verdict, _, _, _), found in ranked:
        if verdict == GAP:
            page.gap()
            page.add(f"seed {found[0].seed}, {found[0].level}: {found[0].text}")
            page.wrap(found[0].reason.words, indent=4)


def campaign_object(campaign: Campaign) -> dict[str, Any]:
    """The same as data, every survivor listed."""
    killed, tried = _totals(campaign)
    return {
        "seed": campaign.seed,
        "profile": campaign.profile,
        "faults": tried,
        "killed": killed,
        "kinds": _shares(campaign.by(0)),
        "levels": _shares(campaign.by(1)),
        "modes": _shares(campaign.by(2)),
        "killers": dict(campaign.killers.most_common()),
        "verdicts": {
            verdict: sum(1 for one in campaign.survivors if one.reason.verdict == verdict)
            for verdict in (LEGAL, UNOBSERVABLE, GAP)
        },
        "survivors": [
            {
                "seed": one.seed,
                "level": one.level,
                "mode": one.mode,
                "kind": one.kind,
                "place": one.place,
                "fault": one.text,
                "verdict": one.reason.verdict,
                "argument": one.reason.argument,
                "why": one.reason.words,
            }
            for one in campaign.survivors
        ],
    }


def rules_page(hits: Mapping[str, Hit | None]) -> Page:
    """For each rule a mutation after which it speaks first."""
    page = Page()
    reached = sum(hit is not None for hit in hits.values())
    page.add((f"{reached} of {count(len(hits), 'rule')} killed by a mutation of a good trace", "bold"))
    page.gap()
    rows = [
        (rule, hit.level, hit.mode, hit.kind, hit.text)
        if hit
        else (rule, "-", "-", "-", OUT_OF_REACH.get(rule, "not found"))
        for rule, hit in hits.items()
    ]
    page.table(("rule", "level", "mode", "fault", ""), rows, indent=0)
    return page


def rules_object(hits: Mapping[str, Hit | None]) -> list[dict[str, Any]]:
    """The same as data."""
    return [
        {"id": rule, "killed": False, "why": OUT_OF_REACH.get(rule)}
        if hit is None
        else {
            "id": rule,
            "killed": True,
            "seed": hit.seed,
            "level": hit.level,
            "mode": hit.mode,
            "kind": hit.kind,
            "fault": hit.text,
            "message": hit.message,
        }
        for rule, hit in hits.items()
    ]


def _totals(campaign: Campaign) -> tuple[int, int]:
    return sum(campaign.killed.values()), sum(campaign.tried.values())


def _shares(groups: Mapping[str, tuple[int, int]]) -> dict[str, dict[str, int]]:
    return {name: {"killed": killed, "faults": tried} for name, (killed, tried) in groups.items()}


def _rate(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"
