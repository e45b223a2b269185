"""`timeline`: the picture in text, by request and by slot, in colour and without."""

import pytest

from batchspec.replay.cli import main
from batchspec.replay.report.page import Page
from batchspec.replay.simulate import trace_of
from batchspec.replay.slotline import Slotline
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record

LENGTHS = dict(zip("ABCDEFGH", (6, 2, 8, 3, 5, 2, 7, 3), strict=True))
PREEMPTED = """\
cfg kv_blocks=3 block_size=4 max_seqs=2 token_budget=8
1 arrive A prompt=6 max=3
1 arrive B prompt=5 max=3
1 admit A slot=0 blocks=2
1 schedule A start=0 tokens=6 blocks=2
1 admit B slot=1 blocks=1
1 schedule B start=0 tokens=2 blocks=1
1 step free=0
2 schedule A start=6 tokens=1 blocks=2
2 preempt B recompute cause=B
2 step free=1
3 schedule A start=7 tokens=1 blocks=2
3 finish A length out=3
3 step free=3
4 resume B slot=0 blocks=2
4 schedule B start=0 tokens=5 blocks=2
4 step free=1
"""


def eight(mode):
    records = [Record(name, 0, 1, length) for name, length in LENGTHS.items()]
    profile = Profile.from_dict({"limits": {"max_seqs": 4}, "batching": {"mode": mode}})
    return trace_of(records, profile, seed=0)


@pytest.mark.parametrize("mode", ["static", "continuous"])
def test_the_worked_example_by_slot(mode, snapshot):
    """The glossary's eight requests: 24 held cells of 60 in static batching, none in continuous."""
    text = Slotline(0, barrier=mode == "static").feed(eight(mode).events()).page(mode).text()
    assert text == snapshot
    table = text.partition("pN computes")[0]
    assert table.count("//") == (24 if mode == "static" else 0)


def test_a_stretch_by_slot_shows_who_was_preempted_and_came_back(tmp_path, capsys, snapshot):
    path = tmp_path / "s.txt"
    path.write_text(PREEMPTED)
    assert main(["timeline", str(path), "--from", "2", "--slots"]) == 0
    assert capsys.readouterr().out.replace(str(path), "s.txt") == snapshot


def test_the_timeline_judges_nothing(tmp_path, capsys, snapshot):
    path = tmp_path / "s.txt"
    path.write_text(PREEMPTED)
    assert main(["timeline", str(path)]) == 0
    out = capsys.readouterr().out
    assert "finding in these steps" not in out
    assert out.replace(str(path), "s.txt") == snapshot


def test_colour_on_a_terminal_and_none_in_a_pipe(tmp_path, capsys, monkeypatch):
    path = tmp_path / "s.txt"
    path.write_text(PREEMPTED)
    main(["timeline", str(path)])
    plain = capsys.readouterr().out
    assert "\x1b[" not in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    main(["timeline", str(path)])
    assert "\x1b[33m" in capsys.readouterr().out  # prefill


def test_steps_may_begin_anywhere(tmp_path, capsys):
    path = tmp_path / "s.txt"
    path.write_text("70000 arrive A prompt=1\n70000 admit A\n70000 schedule A start=0 tokens=1\n")
    assert main(["timeline", str(path)]) == 0
    assert "70000" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["timeline", "export"])
def test_a_table_of_requests_has_no_steps(tmp_path, capsys, command):
    path = tmp_path / "t.csv"
    path.write_text("request,arrival_ns,prompt_tokens,output_tokens\nA,0,1,1\n")
    more = ["--perfetto", str(tmp_path / "x")] if command == "export" else []
    assert main([command, str(path), *more]) == 2
    assert "a table of requests has no steps" in capsys.readouterr().err


def test_the_range_must_run_forward(tmp_path, capsys):
    path = tmp_path / "s.txt"
    path.write_text(PREEMPTED)
    assert main(["timeline", str(path), "--from", "3", "--to", "1"]) == 2
    assert "lies behind" in capsys.readouterr().err


def test_the_export_is_written(tmp_path, capsys):
    path, out = tmp_path / "s.txt", tmp_path / "new" / "s.pftrace"
    path.write_text(PREEMPTED)
    assert main(["export", str(path), "--perfetto", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {out}")
    assert b"preempted" in out.read_bytes()
    assert main(["export", str(path), "--perfetto", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_cells_of_a_table_may_have_a_style():
    page = Page()
    page.table(("a", "b"), [("x", ("y", "red")), (("z", "dim"), "w")], indent=1)
    assert page.text() == " a  b\n x  y\n z  w\n"
    assert page.lines[1] == [(" x  ", ""), ("y", "red")]
    assert page.lines[2] == [(" ", ""), ("z  ", "dim"), ("w", "")]
