"""`batchspec explain`: the pictures come from runs that conform, the worked example's numbers are its own."""

import json
import re
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from batchspec.replay.checker import check_events
from batchspec.replay.cli import main
from batchspec.replay.explain import topics as module
from batchspec.replay.explain.grid import HELD, grid_of
from batchspec.replay.explain.html import topic_html
from batchspec.replay.explain.topics import TOPICS, Topic
from batchspec.spec.catalogue import RULES
from batchspec.spec.events import Event
from batchspec.spec.profile import Profile


@pytest.fixture(params=TOPICS)
def topic(request: pytest.FixtureRequest) -> Topic:
    return TOPICS[request.param]()


def test_every_topic_reads_as_before(
    topic: Topic, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    assert main(["explain", topic.name]) == 0
    assert capsys.readouterr().out == snapshot


def test_every_run_conforms_to_what_its_scheduler_claims(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = []

    def judged(grid: object, events: list[Event], profile: Profile, records: object) -> tuple[()]:
        verdicts.append(check_events(events, profile).verdict)
        return ()

    monkeypatch.setattr(module, "_figures", judged)
    TOPICS[topic.name]()
    assert verdicts == ["conforms"] * len(topic.acts)


def test_the_rules_named_are_rules(topic: Topic) -> None:
    assert set(topic.rules) <= set(RULES)


def test_the_worked_example_has_its_published_numbers() -> None:
    static, continuous = module.batching().acts
    assert (static.grid.steps, static.grid.busy, static.grid.mean_finish) == (15, 36, 8.5)
    assert (continuous.grid.steps, continuous.grid.busy, continuous.grid.mean_finish) == (12, 36, 6.5)
    assert (static.grid.utilisation, continuous.grid.utilisation) == (0.60, 0.75)


def test_only_static_batching_holds_seats_idle() -> None:
    static, continuous = (
        sum(cell.kind == HELD for row in act.grid.cells for cell in row) for act in module.batching().acts
    )
    # All 60 - 36 slot-steps without work are held by a batch that is not over.
    assert static == 24
    assert continuous == 0


def test_fair_shares_serve_the_guest_sooner() -> None:
    first, fair = module.fairness().acts
    assert all(fair.grid.finished[name] < first.grid.finished[name] for name in "GH")


def test_a_picture_of_nothing_is_empty() -> None:
    grid = grid_of([], 2)
    assert (grid.steps, grid.busy, grid.utilisation, grid.mean_finish) == (0, 0, 0.0, 0.0)


def test_the_page_is_one_file_without_network(topic: Topic) -> None:
    page = topic_html(topic)
    assert "{{" not in page
    assert not re.search(r"""(src|href)\s*=|@import|url\((?!#)""", page.replace("url(#${", "url(#"))
    data = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
    assert data is not None
    assert [act["title"] for act in json.loads(data.group(1))] == [act.title for act in topic.acts]


def test_nothing_in_the_data_can_end_the_script() -> None:
    evil = Topic("t", "<b>", "</script>", (module.batching().acts[0],), ("<i>",))
    acts = (evil.acts[0].__class__("</script><script>alert(1)", "", evil.acts[0].grid, ()),)
    page = topic_html(Topic(evil.name, evil.title, evil.says, acts, evil.rules))
    assert page.count("</script>") == 2
    assert "<b>" not in page
    assert "<i>" not in page


def test_the_page_is_written_where_it_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert main(["explain", "batching", "--html", str(out)]) == 0
    assert capsys.readouterr().out == f"wrote {out}\n"
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("words", [["explain", "batchin"], ["explain", "--html", "x.html"]])
def test_a_mistake_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1


def test_without_a_topic_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in TOPICS)
