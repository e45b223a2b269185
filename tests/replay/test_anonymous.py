"""Anonymous traces: no name is left, and every verdict is the one it was."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchspec.replay.anonymous import Anonymous
from batchspec.replay.checker import check
from batchspec.replay.claims import claimed
from batchspec.replay.cli import main
from batchspec.replay.cutting import cut
from batchspec.replay.generate import random_run
from batchspec.spec.profile import Profile
from batchspec.spec.verdict import Report
from batchspec.traces.header import Header
from batchspec.traces.reader import open_any, open_trace
from batchspec.traces.scenario import parse_scenario
from batchspec.traces.trace import Trace

SCENARIOS = Path(__file__).parents[1] / "scenarios"
HIDDEN = Anonymous(b"key")


def hidden(trace: Trace) -> Trace:
    header = HIDDEN.header(trace.header or Header())
    return Trace.from_events(list(HIDDEN.events(trace.events())), header)


def judged(trace: Trace) -> Report:
    header = trace.header or Header()
    return check(trace, claimed(header.profile, header.config) or Profile(), findings=50)


def alike(one: Report, two: Report) -> bool:
    """The same verdicts, and the same findings under other names."""
    named = [
        (f.rule, f.step, f.row, tuple(map(HIDDEN.request, f.requests)), f.consequence) for f in one.findings
    ]
    found = [(f.rule, f.step, f.row, f.requests, f.consequence) for f in two.findings]
    return one.rules == two.rules and named == found


@given(st.randoms(use_true_random=False), st.sampled_from(("L1", "L2", "L3", "L4")))
@settings(max_examples=25)
def test_a_run_is_judged_as_before(random: Random, level: str) -> None:
    trace = random_run(random).trace(level)
    events = list(trace.events())
    for _ in range(3):  # and with rows lost, so that there is something to find
        del events[random.randrange(len(events))]
    for one in (trace, Trace.from_events(events, trace.header)):
        assert alike(judged(one), judged(hidden(one)))


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*/*.txt")), ids=lambda path: path.stem)
def test_so_is_every_scenario_and_a_stretch_of_it(path: Path) -> None:
    trace = parse_scenario(path.read_text("utf-8"))
    assert alike(judged(trace), judged(hidden(trace)))
    header = trace.header or Header()
    steps = sorted({event.step for event in trace.events()})
    stretch = cut(trace, claimed(header.profile, header.config), steps[len(steps) // 2]).held()
    assert alike(judged(stretch), judged(hidden(stretch)))


NAMES = """\
header started_at=2024-05-01 producer=engine extra={"host":"secret-host"}
cfg weights=acme:2,*:1 order=fair
1 arrive alice prompt=8 max=2 tenant=acme
1 admit alice slot=0 cached=0 ids=1,2 hashes=11,12
1 schedule alice start=0 tokens=8
1 preempt alice recompute
2 abort alice secret-reason
2 step
"""


def test_no_name_is_left(tmp_path: Path) -> None:
    source, out = tmp_path / "run.txt", tmp_path / "out.txt"
    source.write_text(NAMES, "utf-8")
    (tmp_path / "key").write_text("a key\n", "utf-8")
    assert main(["anonymise", str(source), "--key", str(tmp_path / "key"), "--out", str(out)]) == 0
    text = out.read_text("utf-8")
    for name in ("alice", "acme", "secret", "2024", "hashes=11"):
        assert name not in text
    for kept in ("producer=engine", "ids=1,2", '"*":1', "recompute", "prompt=8"):
        assert kept in text


def test_integer_ids_stay_integers_and_the_key_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "run.txt"
    source.write_text("header ids=int\n1 arrive 7 prompt=8\n1 admit 7 slot=0\n1 step\n", "utf-8")
    ids = []
    for number, key in enumerate(("one", "one", "two")):
        monkeypatch.setenv("TRACE_KEY", key)
        out = tmp_path / f"{number}.parquet"
        assert main(["anonymise", str(source), "--key", "TRACE_KEY", "--out", str(out)]) == 0
        trace = open_trace(out)
        assert trace.id_type is int
        ids.append({event.request for event in trace.events() if event.request is not None})
    assert ids[0] == ids[1] != ids[2]
    assert all(len(found) == 1 for found in ids)


def test_a_workload_is_hidden_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = tmp_path / "load.csv", tmp_path / "out.csv"
    source.write_text(
        "request,arrival_ns,prompt_tokens,output_tokens,tenant,status\nr1,5,7,2,acme,rejected\n"
    )
    monkeypatch.setenv("TRACE_KEY", "key")
    assert main(["anonymise", str(source), "--key", "TRACE_KEY", "--out", str(out)]) == 0
    (record,) = list(open_any(out).records())  # type: ignore[union-attr]
    assert (record.arrival_ns, record.prompt_tokens, record.status) == (5, 7, "rejected")
    assert record.tenant == HIDDEN.tenant("acme")
    assert record.request == HIDDEN.request("r1")


@pytest.mark.parametrize("key", ["NO_SUCH_KEY", "x" * 300])
def test_a_key_that_is_nowhere_is_one_line(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "run.txt", tmp_path / "out.txt"
    source.write_text(NAMES, "utf-8")
    assert main(["anonymise", str(source), "--key", key, "--out", str(out)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not out.exists()


def test_a_header_that_no_opening_fits_is_refused() -> None:
    header = Header(extra={"opening": {"live": 1, "passes": [3]}})
    with pytest.raises(Exception, match="opening"):
        Anonymous(b"key").header(header)
    assert replace(Header(), extra={}) == Anonymous(b"key").header(Header())
