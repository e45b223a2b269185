"""The main job: both runs come out as they should, the same way each time, and under pressure."""

from pathlib import Path

import pytest

from batchspec.replay import demo as module
from batchspec.replay.cli import main
from batchspec.replay.demo import claims, demo, excerpt, late_seats, run
from batchspec.spec.metrics import measure


def test_the_excerpt_is_the_published_slice() -> None:
    records = excerpt()
    assert len(records) == 160
    assert records[0].arrival_ns == 0
    assert sum(record.output_tokens or 0 for record in records) == 4127


def test_both_runs_come_out_as_they_should(tmp_path: Path) -> None:
    records = excerpt()
    good = run(tmp_path / "good.parquet", records, claims(), claims())
    bad = run(tmp_path / "bad.parquet", records, late_seats(claims()), claims())
    assert good.report.verdict == "conforms"
    assert good.report.level == "L3"
    assert {finding.rule for finding in bad.report.findings if not finding.consequence} == {"slots/reuse"}
    assert good.metrics.preemptions > 10
    assert good.metrics.finished == 160
    assert good.metrics == measure(good.trace.events(), max_seqs=8)


def test_the_demo_prints_the_same_page_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pages = []
    for _ in range(2):
        assert main(["demo"]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        pages.append(out)
    assert pages[0] == pages[1]
    for word in ("CC BY 4.0", "verdict    conforms", "not exercised", "time to first token", "[slots/reuse]"):
        assert word in pages[0]
    assert "show:       batchspec check batchspec-demo/broken.parquet --from " in pages[0]
    assert main(["check", "batchspec-demo/run.parquet"]) == 0
    assert main(["check", "batchspec-demo/broken.parquet"]) == 1


@pytest.mark.parametrize(("torch", "said"), [(None, "as torch is not installed"), (object(), "the engine")])
def test_the_demo_says_what_it_runs_on(
    torch: object, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch is not None:
        pytest.importorskip("torch")
    monkeypatch.setattr(module, "find_spec", lambda name: torch)
    page, as_expected = demo(tmp_path)
    assert as_expected
    assert said in page.text()


def test_a_demo_that_goes_wrong_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "late_seats", lambda profile: profile)
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert "did not come out as it should" in capsys.readouterr().err
