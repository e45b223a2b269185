"""The fast checker gives the readable checker's report, whole; what it cannot judge it leaves to that one."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

from batchspec.replay.checker import check
from batchspec.replay.claims import claimed
from batchspec.replay.cli import main
from batchspec.replay.fast import books as shelf
from batchspec.replay.fast import kernel, layout, table
from batchspec.replay.fast import session as course
from batchspec.replay.fast.choose import check_with
from batchspec.replay.fast.names import Names
from batchspec.replay.fast.session import Session
from batchspec.replay.generate import Run, random_claims, random_records, random_run
from batchspec.replay.mutation.faults import FAULTS, mutant
from batchspec.replay.report.json import report_object
from batchspec.replay.simulate import header_of, simulate
from batchspec.replay.waivers import Waived, Waiver
from batchspec.spec.catalogue import RULES
from batchspec.spec.errors import SpecError, TraceError
from batchspec.spec.events import Event
from batchspec.spec.library import load_profile
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.reader import open_any, open_trace
from batchspec.traces.recorder import Recorder
from batchspec.traces.trace import Trace

SCENARIOS = Path(__file__).parent.parent / "scenarios"
OPTIONAL = ("time_ns", "slot", "cached", "blocks", "free_blocks", "waiting", "running", "output_tokens")
OPTIONAL = (*OPTIONAL, "reason", "cause", "max_tokens", "pinned_blocks")
SPARSE = (*OPTIONAL, "start", "tokens", "prompt_tokens")


def inside(random: Random) -> tuple[Profile, Trace]:
    """A random run within the kernel's domain, at level L1 or L2."""
    claims = random_claims(random, "continuous", "fcfs")
    claims["reuse"] = {"prefix": False} if random.random() < 0.5 else {}
    claims["admission"]["misfit"] = "stop"
    claims["admission"].pop("skip_ahead", None)
    preemption = claims["preemption"]
    if preemption["mode"] == "swap":
        preemption["mode"] = "recompute"
        claims["limits"].pop("host_blocks", None)
    if preemption["mode"] != "none":
        preemption["resume"] = "front"
    preemption.pop("keeps_blocks", None)
    claims["batching"]["mixed"] = True
    claims.pop("fairness", None)
    profile = Profile.from_dict(claims)
    records = random_records(random, profile)
    if random.random() < 0.3:
        records = tuple(record._replace(request=int(str(record.request)[1:])) for record in records)
    run = Run(profile, records, seed=random.randint(0, 1 << 30))
    return profile, run.trace(random.choice(("L1", "L2", "L2", "L2")))


def spoilt(random: Random, trace: Trace) -> Trace:
    """The trace with columns gone, nulls strewn, rows cut off, a fault put in: each of them now and then."""
    events = list(trace.events())
    gone = random.sample(OPTIONAL, random.choice((0, 0, 0, 1, 2, 5)))
    events = [event._replace(**dict.fromkeys(gone)) for event in events]
    if random.random() < 0.2:
        column = random.choice(SPARSE)
        events = [event._replace(**{column: None}) if random.random() < 0.2 else event for event in events]
    if random.random() < 0.1:
        events = [event for event in events if event.event != "step"]
    if random.random() < 0.2:
        events = events[: random.randint(1, len(events))]
    if random.random() < 0.5:
        found = mutant(events, random.choice(FAULTS), random)
        events = events if found is None else found.events
    header = trace.header or Header()
    return Trace.from_events(events, replace(header, complete=random.random() < 0.7))


def restless(random: Random, monkeypatch: pytest.MonkeyPatch, often: float) -> None:
    """Let the kernel doubt without a reason, so that the books change hands at any boundary."""

    def judge(books: Any, claims: Any, judged: Any, rows: Any, first: int, last: int, row: int) -> int:
        if last == rows.step.size and last - first > 1 and random.random() < often:
            last = random.randint(first + 1, last - 1)
            status = kernel.judge(books, claims, judged, rows, first, last, row)
            return layout.DOUBT if status == layout.DONE else status
        return kernel.judge(books, claims, judged, rows, first, last, row)

    monkeypatch.setattr(course, "judge", judge)


def compared(trace: Trace, profile: Profile | None, **options: Any) -> Session:
    """Judge by both and compare; the session says how much the kernel did."""
    session = Session(trace, profile, **options)
    fast = session.report()
    if fast is not None:
        readable = check(trace, profile, **options)
        assert report_object(fast) == report_object(readable)
        assert fast == readable  # what the JSON leaves out too: instances skipped
    return session


# -- every trace -----------------------------------------------------------------------------------------


def agree(seeds: range, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    why: Counter[str] = Counter()
    for seed in seeds:
        random = Random(seed)
        try:
            profile, trace = inside(random)
        except SpecError:
            continue  # claims under which requests interrupt each other for ever
        claims = random.choice((None, profile, profile, profile))
        options: dict[str, Any] = {"findings": random.choice((0, 1, 3, 100))}
        if random.random() < 0.1:
            options["rules"] = tuple(random.sample(list(layout.RULES), 5))
        restless(random, monkeypatch, random.choice((0, 0, 0.3, 0.9)))
        session = compared(spoilt(random, trace), claims, **options)
        why[session.account.why or "fast"] += 1
        why["stretches"] += session.account.stretches
    return why


def test_both_agree_on_traces_in_the_domain_spoilt_or_not(monkeypatch):
    why = agree(range(400), monkeypatch)
    assert why["fast"] > 250
    assert why["stretches"] > 100


@pytest.mark.slow
def test_both_agree_on_twenty_thousand_traces(monkeypatch):
    why = agree(range(1000, 21_000), monkeypatch)
    assert why["fast"] > 14_000


def anything(seeds: range) -> int:
    for seed in seeds:
        random = Random(seed)
        run = random_run(random)
        try:
            trace = run.trace(random.choice(("L1", "L2", "L3")))
        except SpecError:
            continue
        if random.random() < 0.5:
            trace = spoilt(random, trace)
        for profile in (None, run.profile):
            assert check_with("fast", trace, profile) == check(trace, profile)
    return len(seeds)


def test_both_agree_on_traces_of_every_mode_level_and_profile():
    assert anything(range(120))


@pytest.mark.slow
def test_both_agree_on_thousands_of_traces_of_every_mode_level_and_profile():
    assert anything(range(1000, 6000))


def test_both_agree_on_every_scenario():
    paths = sorted(SCENARIOS.rglob("*.txt"))
    assert paths
    for path in paths:
        trace = open_any(path)
        if not isinstance(trace, Trace):
            continue
        header = trace.header
        claims = claimed(
            header_profile=header.profile if header else None,
            header_config=header.config if header else None,
        )
        assert check_with("fast", trace, claims) == check(trace, claims), path.name


def test_every_rule_of_the_kernel_is_one_of_the_catalogue():
    assert set(layout.RULES) <= set(RULES)
    assert sorted(layout.RULES.values()) == list(range(layout.A_WIDTH))


# -- files -------------------------------------------------------------------------------------------------

LIMITS = {"max_seqs": 4, "token_budget": 24, "kv_blocks": 14, "block_size": 4}
PROFILE = load_profile("vllm-v1").merged(Profile.from_dict({"limits": LIMITS}))


def rows(requests: int = 60, seed: int = 1, level: str = "L2") -> list[Event]:
    random = Random(seed)
    records = [
        Record(number, number * 3_000_000, random.randint(2, 20), random.randint(2, 16))
        for number in range(requests)
    ]
    return list(simulate(records, PROFILE, seed=seed, level=level))


def written(folder: Path, events: list[Event], group: int = 64) -> Trace:
    path = folder / "trace.parquet"
    with Recorder(path, header_of(PROFILE, complete=True), rows_per_group=group) as recorder:
        recorder.write_all(events)
    return open_trace(path)


@pytest.mark.parametrize("batch_rows", [7, 64, 1000])
def test_a_clean_file_is_the_kernels_alone(tmp_path, batch_rows):
    session = Session(written(tmp_path, rows()), PROFILE, batch_rows=batch_rows)
    report = session.report()
    assert report == check(open_trace(tmp_path / "trace.parquet"), PROFILE)
    assert (session.account.why, session.account.walked) == (None, 0)


def test_only_the_stretch_with_a_fault_is_looked_at(tmp_path):
    events = rows(400)
    place = next(row for row in range(len(events) // 2, len(events)) if events[row].event == "step")
    events[place] = events[place]._replace(running=9)
    trace = written(tmp_path, events, group=1000)
    session = Session(trace, PROFILE)
    report = session.report()
    assert report == check(trace, PROFILE)
    assert report is not None
    assert report.verdict == "violates"
    assert session.account.stretches == 1
    assert 0 < session.account.walked < len(events) / 10


def test_a_fault_late_in_a_step_that_began_batches_ago(tmp_path):
    events = rows(100)
    finish = next(row for row in range(len(events) // 2, len(events)) if events[row].event == "finish")
    events[finish] = events[finish]._replace(output_tokens=999)
    trace = written(tmp_path, events)
    session = Session(trace, PROFILE, batch_rows=3)
    assert session.report() == check(trace, PROFILE)
    assert session.account.stretches == 1


def test_a_kind_or_column_that_comes_late_has_the_trace_begun_anew(tmp_path):
    events = rows(200)
    end = events[-1]
    late = [*events, Event(end.step + 1, "arrive", 999, prompt_tokens=3, priority=2, time_ns=end.time_ns)]
    trace = written(tmp_path, late)
    session = Session(trace, PROFILE, batch_rows=128, guess_above=0)
    assert session.report() == check(trace, PROFILE)
    assert session.account.restarts == 1


def test_a_kind_beyond_the_domain_that_comes_late_leaves_the_trace_to_the_readable_checker(tmp_path):
    events = rows(200)
    end = events[-1]
    late = [*events, Event(end.step + 1, "arrive", 999, prompt_tokens=3, time_ns=end.time_ns)]
    late.append(Event(end.step + 1, "cancel", 999, time_ns=end.time_ns))
    trace = written(tmp_path, late)
    session = Session(trace, PROFILE, batch_rows=128, guess_above=0)
    assert session.report() is None
    assert session.account.why == "rule lifecycle/abort-ignored"
    assert check_with("fast", trace, PROFILE) == check(trace, PROFILE)


def test_what_no_event_can_be_made_of_is_refused_in_the_same_words(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"step": [1, 1], "event": ["arrive", "arrive"], "request": [1, 2], "tokens": [3, -3]})
    pq.write_table(table, tmp_path / "bad.parquet")
    trace = open_trace(tmp_path / "bad.parquet")
    said = []
    for engine in ("fast", "reference"):
        with pytest.raises(TraceError) as caught:
            check_with(engine, trace, PROFILE)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_more_live_requests_than_there_is_room_for_at_first(tmp_path):
    many = 3000
    events = [Event(1, "arrive", f"request-{number}", prompt_tokens=3) for number in range(many)]
    events.append(Event(1, "step", waiting=many, running=0))
    events += [Event(2, "reject", f"request-{number}", reason="rate") for number in range(0, many, 2)]
    events += [Event(2, "arrive", f"request-{number}", prompt_tokens=3) for number in range(many, 2 * many)]
    events += [Event(2, "step", waiting=many + many // 2, running=0)]
    trace = Trace.from_events(events, Header())
    session = Session(
        Trace.from_events([*events, Event(3, "arrive", "x", start=1, tokens=1)], Header()), None
    )
    assert session.report() == check(session.trace, None)
    assert session.account.why is None
    assert trace.num_rows == len(events)


# -- the parts ---------------------------------------------------------------------------------------------


def test_the_table_of_ids_is_a_dictionary():
    random = Random(1)
    books = shelf.blank(64)
    model: dict[int, int] = {}
    for _ in range(5000):
        key = random.choice((random.randint(-40, 40), random.randint(-(1 << 62), 1 << 62)))
        if key in model and random.random() < 0.7:
            table.remove(books.T, key)
            del model[key]
        elif key not in model and len(model) < 64:
            value = random.randint(0, 63)
            table.insert(books.T, key, value)
            model[key] = value
        assert table.find(books.T, key) == model.get(key, -1)
    assert {key: table.find(books.T, key) for key in model} == model


def test_names_that_nobody_speaks_of_are_forgotten():
    names = Names(texts=True)
    for number in range(200_000):
        names.put(f"request-{number}")
        if number % 1000 == 0:
            names.forget([names.put(f"request-{number}")])
    assert len(names._text) < 70_000
    kept = names.put("request-199999")
    names.forget([kept])
    assert names.name(kept) == "request-199999"
    whole = Names(texts=False)
    assert (whole.put(7), whole.name(7)) == (7, 7)


def test_arrays_of_one_kind_whatever_the_trace_has():
    """The kernel is compiled for one kind of arguments: another would cost minutes, unseen."""
    assert len(kernel.judge.signatures) <= 1  # type: ignore[attr-defined]


# -- the choice --------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the traces that the fast checker was asked to judge."""
    from batchspec.replay.fast import choose

    real: Callable[..., Any] = choose._fast
    lengths: list[int] = []

    def fast(trace: Trace, *others: Any) -> Any:
        lengths.append(trace.num_rows)
        return real(trace, *others)

    monkeypatch.setattr(choose, "_fast", fast)
    return lengths


def test_short_traces_are_left_to_the_readable_checker(asked, monkeypatch):
    trace = Trace.from_events(rows(), Header())
    report = check_with("auto", trace, PROFILE)
    assert asked == []
    monkeypatch.setattr("batchspec.replay.fast.choose.SHORT", 100)
    assert check_with("auto", trace, PROFILE) == report
    assert check_with("reference", trace, PROFILE) == report
    assert check_with("fast", trace, PROFILE, observe=lambda state, event: None) == report
    assert asked == [trace.num_rows]


def test_without_a_compiler_the_answers_are_right_and_one_line_says_so(asked, monkeypatch):
    monkeypatch.setattr("batchspec.replay.fast.choose.available", lambda: False)
    said: list[str] = []
    trace = Trace.from_events(rows(), Header())
    assert check_with("fast", trace, PROFILE, say=said.append) == check(trace, PROFILE)
    assert asked == []
    assert len(said) == 1
    assert "numba" in said[0]
    assert "\n" not in said[0]


def test_the_command_line_prints_the_same_whichever_is_asked_for(tmp_path, capsys):
    events = rows(100)
    place = next(row for row in range(len(events) // 2, len(events)) if events[row].event == "step")
    events[place] = events[place]._replace(running=9)
    path = written(tmp_path, events).path
    said = set()
    for engine in ("auto", "reference", "fast"):
        for form in ("json", "text"):
            assert main(["check", path, "--engine", engine, "--format", form]) == 1
            captured = capsys.readouterr()
            said.add((form, captured.out, captured.err))
    assert len(said) == 2


def test_a_waiver_counts_once_though_the_trace_is_begun_anew(tmp_path):
    events = rows(200)
    place = next(row for row, event in enumerate(events) if event.event == "step")
    events[place] = events[place]._replace(running=9)
    end = events[-1]
    events.append(Event(end.step + 1, "arrive", 999, prompt_tokens=3, priority=2, time_ns=end.time_ns))
    trace = written(tmp_path, events)
    waived = Waived([Waiver(1, "stats/agree", "known")], date(2026, 1, 1))
    session = Session(trace, PROFILE, waived=waived, reset=waived.reset, batch_rows=128, guess_above=0)
    report = session.report()
    assert session.account.restarts == 1
    assert report is not None
    assert (report.waived, waived.counts) == (1, [1])


def test_progress_is_told_in_rows():
    told: list[tuple[int, int]] = []
    trace = Trace.from_events(rows(), Header())
    Session(trace, PROFILE, progress=lambda done, total: told.append((done, total))).report()
    assert told[-1] == (trace.num_rows, trace.num_rows)


def test_the_books_in_arrays_are_apart_from_their_copy():
    books = shelf.blank(64)
    other = shelf.copied(books)
    books.S[layout.STEPS] = 5
    assert other.S[layout.STEPS] == 0
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(other, shelf.blank(64), strict=True))
