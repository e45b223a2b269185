"""`batchspec watch`: a trace that grows is judged as one that is read at once."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from batchspec.replay.checker import check
from batchspec.replay.cli import main
from batchspec.replay.commands.watch import looks
from batchspec.replay.exposition import Exposition
from batchspec.replay.generate import random_run
from batchspec.replay.simulate import header_of, simulate
from batchspec.replay.watching import Look, Watch, save_parts
from batchspec.spec.errors import BatchspecError
from batchspec.spec.events import Event
from batchspec.spec.library import load_profile
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.traces.journal import JournaledRecorder
from batchspec.traces.reader import open_trace
from batchspec.traces.rows import batch_of
from batchspec.traces.schema import TRACE_SCHEMA, with_ids

LIMITS = {"max_seqs": 3, "token_budget": 16, "kv_blocks": 12, "block_size": 4}
PROFILE = load_profile("batchspec").merged(Profile.from_dict({"limits": LIMITS}))
SCHEMA = with_ids(TRACE_SCHEMA, str)


def rows(seed: int = 0, fault: bool = False) -> list[Event]:
    random = Random(seed)
    records = [
        Record(f"r{number}", number * 9_000_000, random.randint(2, 12), random.randint(2, 12))
        for number in range(12)
    ]
    found = list(simulate(records, PROFILE))
    if fault:
        row = next(n for n, event in enumerate(found) if n > len(found) // 2 and event.event == "schedule")
        found.insert(row, found[row])
    return found


OPEN: list[JournaledRecorder] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Recordings that a test leaves open, as a killed recorder would."""
    yield
    while OPEN:
        OPEN.pop().close()


class Growing:
    """A recording in progress: `write` appends rows as one flush."""

    def __init__(self, path: Path, rows_per_part: int = 40) -> None:
        self.recorder = JournaledRecorder(path, header_of(PROFILE), rows_per_part=rows_per_part)
        OPEN.append(self.recorder)
        self.path = path
        self._row = 0

    def write(self, events: list[Event]) -> None:
        self.recorder.write_batch(batch_of(events, SCHEMA, self._row, str(self.path)))
        self._row += len(events)


def pieces(events: list[Event], random: Random) -> Iterator[list[Event]]:
    at = 0
    while at < len(events):
        end = min(len(events), at + random.randint(1, 30))
        yield events[at:end]
        at = end


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fault", [False, True])
def test_what_is_watched_is_what_is_checked(tmp_path: Path, seed: int, fault: bool) -> None:
    growing = Growing(tmp_path / "trace")
    watch = Watch(tmp_path / "trace")
    assert watch.look().waiting
    found = []
    for piece in pieces(rows(seed, fault), Random(seed)):
        growing.write(piece)
        if Random(len(piece)).random() < 0.7:
            found += watch.look().findings
    growing.recorder.close()
    last = watch.look()
    found += last.findings
    assert last.complete
    report = check(open_trace(tmp_path / "trace"), PROFILE)
    assert last.rows == report.events
    watched = watch.report()
    assert watched is not None
    assert watched.verdict == report.verdict == ("violates" if fault else "conforms")
    assert [(rule.id, rule.verdict, rule.checked) for rule in watched.rules] == [
        (rule.id, rule.verdict, rule.checked) for rule in report.rules
    ]
    # Findings due at the end alone are in the verdict, not among those that came before.
    assert {finding.rule for finding in found} <= {finding.rule for finding in report.findings}
    assert len({(finding.rule, finding.row) for finding in found}) == len(found)


@pytest.mark.parametrize("seed", range(4))
def test_parts_that_are_dropped_do_not_matter(tmp_path: Path, seed: int) -> None:
    growing = Growing(tmp_path / "trace", rows_per_part=25)
    watch = Watch(tmp_path / "trace")
    events = rows(seed)
    # Every kind of event and column is there before the first part goes.
    early = max(
        next(n for n, row in enumerate(events) if row.event == kind) for kind in {e.event for e in events}
    )
    for piece in [events[: early + 1], *pieces(events[early + 1 :], Random(seed))]:
        growing.write(piece)
        look = watch.look()
        assert look.findings == ()
        assert look.began_again is None
        closed = sorted((tmp_path / "trace").glob("*.parquet"))
        for old in closed[:-1]:
            old.unlink()
    growing.recorder.close()
    assert watch.look().rows == len(rows(seed))


def test_a_new_column_begins_again_and_says_so(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "trace")
    events = [
        Event(1, "arrive", "A", prompt_tokens=2, max_tokens=1),
        Event(1, "admit", "A"),
        Event(1, "schedule", "A", start=0, tokens=2),
    ]
    watch = Watch(tmp_path / "trace")
    growing.write(events)
    assert watch.look().began_again is None
    growing.write([Event(1, "finish", "A", reason="length", output_tokens=1)])
    again = watch.look()
    assert again.began_again == "new in the trace: output_tokens, reason"
    assert again.rows == 4
    growing.write([Event(1, "step")])
    assert watch.look().rows == 5


def test_after_a_restart_nothing_is_reported_twice(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "trace")
    events = rows(0, fault=True)
    growing.write(events[:-20])
    first = Watch(tmp_path / "trace", state=tmp_path / "state.json")
    assert first.look().findings
    growing.write(events[-20:])
    second = Watch(tmp_path / "trace", state=tmp_path / "state.json")
    assert second.look().findings == ()
    assert second.report().verdict == "violates"  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["", "[]", '{"reported": [1]}', '{"reported": 7}', "\x00", "9" * 40])
def test_a_state_that_is_none_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(BatchspecError, match="not the state of a watch"):
        Watch(tmp_path / "trace", state=tmp_path / "state.json")


def test_it_looks_until_the_trace_is_complete(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "trace")
    events = rows()
    growing.write(events[:10])
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            growing.write(events[10:])
            growing.recorder.close()

    seen = list(looks(Watch(tmp_path / "trace"), 2.5, lambda: False, sleep=sleep, clock=lambda: 0))
    assert slept == [2.5, 2.5]
    assert [look.complete for look in seen] == [False, False, True]


def test_an_interrupt_ends_it(tmp_path: Path) -> None:
    asked = iter([False, True])
    seen = list(looks(Watch(tmp_path / "none"), 1, lambda: next(asked), sleep=lambda _: None))
    assert [look.waiting for look in seen] == [True]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = Growing(tmp_path / "trace")
    growing.write(rows(0, fault=True))
    words = ["watch", str(tmp_path / "trace"), "--once", "--save", str(tmp_path / "kept")]
    assert main(words) == 1
    said = capsys.readouterr()
    assert "[batch/membership]" in said.out
    assert said.out.splitlines()[-1].startswith(f"{tmp_path / 'trace'}: violates, ")
    assert check(open_trace(tmp_path / "kept"), PROFILE).verdict == "violates"
    growing.recorder.close()
    assert main(["watch", str(tmp_path / "trace"), "--until-violation"]) == 1


def test_a_good_trace_ends_with_0_and_nothing_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = Growing(tmp_path / "trace")
    growing.write(rows())
    growing.recorder.close()
    assert main(["watch", str(tmp_path / "trace")]) == 0
    capsys.readouterr()
    assert main(["watch", str(tmp_path / "none"), "--once"]) == 2
    assert "nothing there to judge yet" in capsys.readouterr().err


def test_metrics(tmp_path: Path) -> None:
    exposition = Exposition(0)
    try:
        exposition.set(Look(waiting=True))
        exposition.set(Look(violations={"slots/reuse": 2}, rows=10, steps=3, behind_ns=1_500_000_000))
        exposition.set(Look(violations={"slots/reuse": 2}, rows=4, steps=1))  # judged again
        exposition.set(Look(violations={"slots/reuse": 5}, rows=12, steps=4, complete=True))
        with urllib.request.urlopen(f"http://localhost:{exposition.port}/metrics") as answer:
            text = answer.read().decode()
    finally:
        exposition.close()
    assert 'batchspec_violations_total{rule="slots/reuse"} 5.0' in text
    assert "batchspec_lag_seconds 1.5" in text
    assert "batchspec_complete 1.0" in text
    assert "batchspec_waiting 0.0" in text


def test_a_port_that_is_taken_is_one_line() -> None:
    first = Exposition(0)
    try:
        with pytest.raises(BatchspecError, match="name another with --metrics"):
            Exposition(first.port)
    finally:
        first.close()


def test_a_single_file_can_be_watched(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    growing = Growing(path)
    watch = Watch(path)
    assert watch.look().waiting
    events = rows()
    growing.write(events[:50])
    assert watch.look().rows == 50
    growing.write(events[50:])
    growing.recorder.close()
    last = watch.look()
    assert (last.rows, last.complete) == (len(events), True)
    assert save_parts(path, tmp_path / "kept") == 1


def test_random_runs_raise_no_alarm(tmp_path: Path) -> None:
    for seed in range(12):
        run = random_run(Random(seed))
        events = run.events()
        folder = tmp_path / str(seed)
        recorder = JournaledRecorder(folder, run.trace().header, rows_per_part=30)  # type: ignore[arg-type]
        watch = Watch(folder)
        at = 0
        for piece in pieces(events, Random(seed)):
            recorder.write_batch(batch_of(piece, SCHEMA, at, str(folder)))
            at += len(piece)
            assert watch.look().findings == ()
        recorder.close()
        assert watch.look().findings == ()


DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "grafana.json"


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    exposition = Exposition(0)
    try:
        exposition.set(Look(violations={"slots/reuse": 1}, rows=1, steps=1))
        names = {sample.name for metric in exposition.registry.collect() for sample in metric.samples}
    finally:
        exposition.close()
    assert asked
    for expression in asked:
        used = {word for word in names if word in expression}
        assert used, expression
