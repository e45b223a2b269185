"""A profile in sentences, from the option table: what is claimed, what is not, and where from."""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from batchspec.replay.report.page import Page
from batchspec.spec.profile import GROUPS, Profile, option_says

_NOT: Final = {
    "batching.chunked_prefill": "a prompt is computed in one step",
    "batching.mixed": "prefill and decode never share a step",
    "batching.prefill_first": "prefill does not go before decode",
    "batching.stall_free": "a running decode may be left out of a step",
    "admission.work_conserving": "a request that fits may be kept waiting",
    "preemption.admit_in_same_step": "a step that preempts admits nobody",
    "preemption.keeps_blocks": "a preempted request gives its blocks back",
    "preemption.for_waiting": "a waiting request never evicts a running one",
    "reuse.ordered_passes": "the device may run passes out of order",
    "reuse.prefix": "no block is shared",
    "reuse.same_pass": "a block is shared only after the pass that computes it",
    "fairness.lift": "a tenant that wakes keeps its old counter",
}
_ZERO: Final = {
    "admission.watermark_blocks": "no block is kept free at admission",
    "admission.skip_ahead": "no later request passes one that does not fit",
    "batching.lookahead": "no speculative position is reserved",
    "preemption.headroom_blocks": "a preemption frees what is needed and no more",
    "reuse.slot_lag": "a seat may be taken again in the next step",
    "reuse.block_lag": "blocks may be taken again in the next step",
    "reuse.overlap_member": "a finished request is a member of no further pass",
}
_WORDS: Final = {
    "fcfs": "first come, first served",
    "sjf": "shortest job first",
    "priority": "priority class, then arrival",
    "fair": "least served tenant first (virtual token counter)",
    "stop": "nobody behind it is admitted",
    "skip": "later ones may pass it",
    "resident": "running",
    "recompute": "recomputing: the KV is dropped",
    "swap": "swapping: the KV moves to the host",
    "latest-admitted": "the latest admitted",
    "latest-arrived": "the latest arrived",
    "self": "the request that needs the blocks itself",
    "fewest-outputs": "the one with the fewest outputs",
    "least-urgent": "the least urgent, then the latest",
    "newest-denied": "the newest that was denied a block",
    "front": "the front of the queue",
    "back": "the back of the queue",
}
_WIDEST: Final = 24
_WHOLE: Final[dict[tuple[str, Any], str]] = {
    ("preemption.mode", "none"): "nobody is preempted",
    ("preemption.resume", "arrival"): "a preempted request returns to its place by arrival",
    ("limits.seqs_cap", "per-step"): "max_seqs counts the members of a step",
    ("reuse.block_lag", "release"): "blocks come back with a `release` row of their own",
    ("reuse.depth", 1): "one pass is in flight at a time",
}
"""Sentences for values that the option's own sentence does not carry well."""

# "1 more passes" is one pass; a verb that follows its noun goes with it.
_ONE: Final = re.compile(r"\b(1 (?:\w+ )?)(pass|\w+?)(?:(?<=pass)es|(?<!pass)s)\b( are| run| wait| pass)?")
_IS: Final = {" are": " is", " run": " runs", " wait": " waits", " pass": " passes"}
_NEEDS: Final = {
    "step": "this step's tokens",
    "known": "all known tokens",
    "ratio": "the prompt and a running share of the output",
    "peak": "the predicted peak",
    "full": "all tokens it may ever have",
}


def sentence(path: str, value: Any) -> str:
    """What claiming `value` for the option `group.name` says, as one sentence."""
    group, _, name = path.partition(".")
    says = option_says(group, name)
    if isinstance(value, str | int) and (path, value) in _WHOLE:
        return _WHOLE[path, value]
    if value is False:
        return _NOT.get(path, f"it is not so that {says}")
    if value == 0 and path in _ZERO:
        return _ZERO[path]
    if path in ("admission.test", "admission.reserve"):
        word, _, extra = str(value).partition("+")
        more = f" and {extra} more" if extra else ""
        return says.format(_NEEDS[word] + more)
    if path == "fairness.rate_limits":
        return "; ".join(_rate(tenant, limit) for tenant, limit in value.items())
    if isinstance(value, int) and "{} ns" in says:
        return says.replace("{} ns", duration(value))
    text = says.format(_worded(value))
    return _ONE.sub(lambda found: found[1] + found[2] + _IS.get(found[3], ""), text) if value == 1 else text


def duration(nanoseconds: int) -> str:
    """A duration in the largest unit that keeps it above one: `1.5 s`, `20 ms`, `7 ns`."""
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:,.10g} {unit}"
    return f"{nanoseconds} ns"


def _rate(tenant: str, limit: Mapping[str, int]) -> str:
    who = "each tenant" if tenant == "*" else f"tenant {tenant}"
    return f"{who} may send {limit['requests']:,} requests in {duration(limit['per_ns'])}"


def claims_of(profile: Profile) -> dict[str, Any]:
    """All that a profile claims, by option path, in the order of the option table."""
    return {
        f"{group}.{item.name}": value
        for group, kind in GROUPS.items()
        for item in fields(kind)
        if (value := getattr(getattr(profile, group), item.name)) is not None
    }


def profile_page(profile: Profile, extends: str | None = None) -> Page:
    """The page that `batchspec profiles NAME` prints."""
    page = Page()
    page.wrap(f"{profile.name}: {profile.summary or 'no summary'}", style="bold", hang=2)
    if extends:
        page.add(f"starts from {extends}")
    claims = claims_of(profile)
    for group in GROUPS:
        rows = [
            (path.partition(".")[2], _literal(value), sentence(path, value))
            for path, value in claims.items()
            if path.startswith(f"{group}.")
        ]
        if rows:
            page.gap()
            page.add((f"[{group}]", "bold"))
            widths = [min(max(len(row[index]) for row in rows), _WIDEST) for index in (0, 1)]
            for name, value, says in rows:
                lead = f"{name:<{widths[0]}} = {value:<{widths[1]}}  "
                page.wrap(says, indent=2, first=lead, hang=sum(widths) + 5)
    page.gap()
    open_options = [
        f"{group}.{item.name}"
        for group, kind in GROUPS.items()
        for item in fields(kind)
        if f"{group}.{item.name}" not in claims and group != "limits"
    ]
    page.wrap(", ".join(open_options) or "nothing", first="not claimed: ")
    page.wrap("from the trace's header or --config, rules that need one are not checkable", first="limits: ")
    if profile.sources:
        page.gap()
        page.add(("sources", "bold"))
        for source in profile.sources:
            page.wrap(source, indent=2, first="- ")
    return page


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_literal(item)}" for key, item in value.items()) + "}"
    return "[" + ", ".join(map(_literal, value)) + "]" if isinstance(value, tuple) else str(value)


def _worded(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_worded(item)}" for key, item in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else _WORDS.get(str(value), str(value))
