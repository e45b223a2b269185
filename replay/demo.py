"""The demo: a production workload under memory pressure, recorded, checked, and broken on purpose.

Everything is deterministic: the workload comes with the package, and the clock is virtual.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module, resources
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from batchspec.replay.checker import check
from batchspec.replay.report.context import around
from batchspec.replay.report.page import Page, count
from batchspec.replay.report.text import finding_lines, state_of
from batchspec.replay.simulate import header_of, simulate
from batchspec.spec.catalogue import RULES
from batchspec.spec.library import load_profile
from batchspec.spec.metrics import Metrics, measure
from batchspec.spec.profile import Profile
from batchspec.spec.quantities import Distribution
from batchspec.spec.records import Record
from batchspec.spec.verdict import Report
from batchspec.traces.importers import ImportLog, azure
from batchspec.traces.reader import open_trace
from batchspec.traces.recorder import Recorder
from batchspec.traces.trace import Trace

PROMPT_DIVISOR: Final = 32
"""Prompts are divided by this, so that a pool small enough to read about comes under pressure."""

LIMITS: Final = {"max_seqs": 8, "token_budget": 128, "kv_blocks": 36, "block_size": 16}


@dataclass(frozen=True, slots=True)
class Run:
    """One recorded and checked run."""

    trace: Trace
    report: Report
    metrics: Metrics


def excerpt() -> list[Record]:
    """The requests of the Azure code trace that come with the package, prompts scaled down."""
    with resources.as_file(resources.files("batchspec.replay.data") / "azure_code_2023.csv") as path:
        records = list(azure.read(path, ImportLog(strict=True)))
    return [
        record._replace(prompt_tokens=max(1, (record.prompt_tokens or 0) // PROMPT_DIVISOR))
        for record in records
    ]


def claims() -> Profile:
    """What the demo's scheduler claims: our own profile in a small pool."""
    return load_profile("batchspec").merged(Profile.from_dict({"limits": LIMITS}))


def late_seats(profile: Profile) -> Profile:
    """The fault of the second run: a scheduler that sees a seat as free one step too late."""
    return replace(profile, reuse=replace(profile.reuse, slot_lag=1))


def run(path: Path, records: Iterable[Record], acts: Profile, says: Profile) -> Run:
    """Simulate a scheduler that acts by one profile and claims another; record and check it."""
    with Recorder(path, header_of(says)) as recorder:
        recorder.write_all(simulate(records, acts))
    return judged(path, says)


def run_engine(path: Path, records: Iterable[Record], says: Profile) -> Run:
    """The same by the engine: a tiny random model on one CPU thread, real tokens. Needs torch."""
    import_module("torch").set_num_threads(1)
    model = import_module("batchspec.engine.model").Model.random()
    requests = import_module("batchspec.engine.workload").requests_of(records, model.config.vocab_size)
    import_module("batchspec.engine.record").record(requests, path, says, model=model, seed=0)
    return judged(path, says)


def judged(path: Path, says: Profile) -> Run:
    """Read a recorded run back, check it and measure it."""
    trace = open_trace(path)
    report = check(trace, says)
    metrics = measure(trace.events(), max_seqs=says.limits.max_seqs, recorded=trace.outputs_recorded)
    return Run(trace, report, metrics)


def demo(folder: Path) -> tuple[Page, bool]:
    """Both runs, recorded in `folder`. The page, and whether both came out as they should."""
    records, profile = excerpt(), claims()
    if find_spec("torch") is None:
        good = run(folder / "run.parquet", records, profile, profile)
    else:
        good = run_engine(folder / "run.parquet", records, profile)
    bad = run(folder / "broken.parquet", records, late_seats(profile), profile)
    page = Page()
    _first(page, records, good)
    page.gap()
    _second(page, bad)
    return page, good.report.verdict == "conforms" and bad.report.verdict == "violates"


def _first(page: Page, records: list[Record], good: Run) -> None:
    report, metrics = good.report, good.metrics
    page.add(
        ("A production workload through a scheduler under memory pressure, recorded and checked", "bold")
    )
    page.gap()
    span_s = (records[-1].arrival_ns - records[0].arrival_ns) / 1e9
    page.wrap(
        f"Azure LLM inference trace 2023, code completion (CC BY 4.0): {count(len(records), 'request')} "
        f"in {span_s:.1f} s, prompts divided by {PROMPT_DIVISOR}",
        first="workload   ",
    )
    page.wrap(_runs_on(), first="runs on    ")
    page.wrap(
        "{max_seqs} seats, {token_budget} tokens a step, {kv_blocks} KV blocks of {block_size} positions; "
        "profile batchspec".format(**LIMITS),
        first="limits     ",
    )
    sizes = (count(report.events, "event"), count(report.steps, "step"))
    page.wrap(f"{good.trace.path}: {', '.join(sizes)}, level {report.level}", first="recorded   ")
    page.gap()
    page.add("verdict    ", (report.verdict, "bold green" if report.verdict == "conforms" else "bold red"))
    _states(page, report)
    page.gap()
    _figures(page, metrics)


def _runs_on() -> str:
    if find_spec("torch") is None:
        return "the simulator, as torch is not installed: the reference scheduler with a virtual clock"
    return "the engine: a tiny random model on the CPU, with a virtual clock"


def _states(page: Page, report: Report) -> None:
    by_state: dict[str, list[str]] = {}
    for result in report.rules:
        needs = f" ({', '.join(result.missing)})" if result.missing else ""
        by_state.setdefault(state_of(result), []).append(result.id + needs)
    for state in ("violates", "open", "conforms", "not exercised", "not checkable"):
        if ids := by_state.get(state):
            title = {"conforms": "judged and held", "not checkable": "not checkable (what it needs)"}
            page.wrap(", ".join(ids), indent=2, hang=4, first=f"{len(ids)} {title.get(state, state)}: ")


def _figures(page: Page, metrics: Metrics) -> None:
    batch, tokens = metrics.members_per_pass, metrics.tokens_per_pass
    page.add(("utilisation", "bold"))
    if metrics.slot_utilisation is not None and batch and tokens:
        page.add(f"seats         {metrics.slot_utilisation:.0%} of all seat-steps did work", indent=2)
        page.add(f"batch size    {batch.mean:.1f} members a pass (p95 {batch.p95})", indent=2)
        page.add(f"weight reuse  {tokens.mean:.1f} tokens a pass (p95 {tokens.p95})", indent=2)
    again = f"{metrics.recomputed_share:.0%} of all positions were computed again"
    page.add(f"preemptions   {metrics.preemptions}; {again}", indent=2)
    page.gap()
    page.add(("latency (ms, virtual)", "bold"))
    latencies = {
        "queueing delay": metrics.queueing_delay,
        "time to first token": metrics.ttft,
        "time between tokens": metrics.tbt,
        "end to end": metrics.end_to_end,
    }
    page.table(
        ("", "p50", "p95", "p99"),
        [(name, *_milliseconds(values)) for name, values in latencies.items() if values],
        "lrrr",
    )


def _milliseconds(values: Distribution) -> Iterator[str]:
    for value in (values.p50, values.p95, values.p99):
        yield f"{value / 1e6:,.1f}"


def _second(page: Page, bad: Run) -> None:
    report = bad.report
    page.add(("The same in the simulator, broken on purpose: a freed seat stays empty for a step", "bold"))
    page.gap()
    page.wrap(
        f"{bad.trace.path}: {count(report.events, 'event')}, {count(report.steps, 'step')}",
        first="recorded   ",
    )
    page.add("verdict    ", (report.verdict, "bold red" if report.verdict == "violates" else "bold green"))
    findings = [finding for finding in report.findings if not finding.consequence]
    stretches = around(bad.trace, findings)
    for finding in findings:
        page.gap()
        stretch = None if finding.row is None else stretches.get(finding.row)
        command = f"batchspec check {bad.trace.path}"
        finding_lines(page, finding, RULES[finding.rule].sentence, stretch, command)
    page.gap()
    page.add(
        f"{count(report.count, 'violation')} in all; the whole report:  batchspec check {bad.trace.path}"
    )
