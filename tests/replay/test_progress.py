"""The progress bar: nothing in a pipe, nothing for short work, counts that keep up."""

import io

import pytest
from rich.console import Console

from batchspec.replay.progress import PATIENCE_S, Bar, bar, counted


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def made(clock: Clock, total: int | None = 100_000, what: str = "checking") -> tuple[Bar, io.StringIO]:
    screen = io.StringIO()
    return Bar(what, total, Console(file=screen, force_terminal=True, width=100), clock), screen


def test_short_work_shows_nothing() -> None:
    clock = Clock()
    shown, screen = made(clock)
    for done in range(0, 100_000, 1000):
        clock.now = PATIENCE_S * done / 200_000
        shown.to(done)
    shown.close()
    assert screen.getvalue() == ""


def test_long_work_shows_what_is_done() -> None:
    clock = Clock()
    shown, screen = made(clock)
    shown.to(10_000)
    clock.now = PATIENCE_S
    shown.to(50_000)
    shown.close()
    assert "checking" in screen.getvalue()
    assert "50000/100000" in screen.getvalue()


@pytest.mark.parametrize("what", ["checking [/red]", "checking [bold]x", "checking {x}"])
def test_a_path_is_no_markup(what: str) -> None:
    clock = Clock()
    shown, screen = made(clock, total=None, what=what)
    clock.now = PATIENCE_S
    shown.to(5)
    shown.close()
    assert what in screen.getvalue()


def test_a_pipe_gets_no_bar_and_loses_no_item(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("checking", 3) as shown:
        assert shown is None
        assert list(counted(range(3), shown)) == [0, 1, 2]
    assert capsys.readouterr().err == ""


def test_items_are_counted_as_they_pass() -> None:
    clock = Clock()
    shown, screen = made(clock, total=9000)
    clock.now = PATIENCE_S
    assert list(counted(range(9000), shown)) == list(range(9000))
    shown.close()
    assert "/9000" in screen.getvalue()
