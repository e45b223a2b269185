"""What a trace or a request table holds, as a page."""

from collections.abc import Iterable

from batchspec.replay.checker import level_of
from batchspec.replay.report.claims import claims_of, sentence
from batchspec.replay.report.page import Page, count
from batchspec.spec.catalogue import RULES
from batchspec.spec.events import COLUMNS, Event
from batchspec.spec.profile import Profile
from batchspec.spec.records import RECORD_COLUMNS, Record
from batchspec.traces.header import Header
from batchspec.traces.trace import Trace
from batchspec.traces.workload import RecordTable


def trace_page(trace: Trace, claims: Profile | None, events: Iterable[Event]) -> Page:
    """Level, sizes, columns, span, claims, and which rules can be judged. `events` are the trace's own."""
    page = Page()
    kinds = frozenset(trace.kinds) | ({"output"} if trace.outputs_recorded else set())
    end = "complete" if trace.complete else "cut, or still being written"
    page.add((f"{trace.path}: ", ""), (f"trace, level {level_of(trace.columns, kinds)}, {end}", "bold"))
    _header(page, trace.header)
    steps = requests = 0
    low: int | None = None
    high: int | None = None
    before = None
    for event in events:
        steps += event.step != before
        before = event.step
        requests += event.event in ("arrive", "live")
        if event.time_ns is not None:
            low = event.time_ns if low is None else min(low, event.time_ns)
            high = event.time_ns if high is None else max(high, event.time_ns)
    sizes = (count(trace.num_rows, "event"), count(steps, "step"), count(requests, "request"))
    page.add(f"size       {', '.join(sizes)}")
    _span(page, low, high)
    counted = sorted(trace.kinds.items(), key=lambda item: -item[1])
    page.wrap(", ".join(f"{kind} {number:,}" for kind, number in counted), first="events     ")
    _columns(page, trace.columns, COLUMNS)
    page.gap()
    _claims(page, claims)
    page.gap()
    _judged(page, claims or Profile(), trace.columns, kinds)
    return page


def records_page(table: RecordTable, records: Iterable[Record]) -> Page:
    """Rows, columns and span of a request table. `records` are the table's own."""
    page = Page()
    page.add(f"{table.path}: ", ("table of requests, level L0", "bold"))
    _header(page, table.header)
    first = last = None
    prompts = outputs = 0
    for record in records:
        first = record.arrival_ns if first is None else min(first, record.arrival_ns)
        last = record.arrival_ns if last is None else max(last, record.arrival_ns)
        prompts += record.prompt_tokens or 0
        outputs += record.output_tokens or 0
    page.add(f"size       {count(table.num_rows, 'request')}")
    page.add(f"tokens     {prompts:,} of prompts, {outputs:,} of outputs")
    _span(page, first, last)
    _columns(page, table.columns, RECORD_COLUMNS)
    return page


def _header(page: Page, header: Header | None) -> None:
    if header is None:
        page.add("header     none")
        return
    producer = " ".join(word for word in (header.producer_name, header.producer_version) if word)
    page.add(f"producer   {producer or 'not named'}")
    if header.clock:
        page.add(f"clock      {header.clock}")


def _span(page: Page, low: int | None, high: int | None) -> None:
    if low is not None and high is not None:
        page.add(f"span       {(high - low) / 1e9:,.3f} s")


def _columns(page: Page, present: frozenset[str], known: tuple[str, ...]) -> None:
    page.wrap(", ".join(name for name in known if name in present), first="columns    ")
    page.wrap(", ".join(name for name in known if name not in present) or "none", first="without    ")


def _claims(page: Page, claims: Profile | None) -> None:
    if claims is None:
        page.add("claims     none: only rules that need no claim can be judged")
        return
    page.add((f"claims     {f'profile {claims.name}' if claims.name else 'config only'}", "bold"))
    for path, value in claims_of(claims).items():
        page.wrap(sentence(path, value), indent=2, hang=4)


def _judged(page: Page, claims: Profile, columns: frozenset[str], kinds: frozenset[str]) -> None:
    missing = {name: rule.missing(claims, columns, kinds) for name, rule in RULES.items()}
    able = [name for name, lacking in missing.items() if not lacking]
    page.add((f"can be judged ({len(able)} of {len(missing)} rules)", "bold"))
    page.wrap(", ".join(able) or "none", indent=2)
    page.gap()
    if len(able) < len(missing):
        page.add(("not checkable", "bold"))
        rows = [(name, ", ".join(lacking)) for name, lacking in missing.items() if lacking]
        page.table(("rule", "needs"), rows)
