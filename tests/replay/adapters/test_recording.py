"""A recorder in a server: its settings, its thread's work, and its end where something goes wrong."""

from collections import namedtuple

import pytest

from batchspec.replay.adapters.recording import BackgroundWriter, Settings, Source, folder_of
from batchspec.replay.harness import HarnessError
from batchspec.spec.events import Event
from batchspec.traces.columns import Columns
from batchspec.traces.flight import Keep
from batchspec.traces.header import Header
from batchspec.traces.reader import open_trace

SECOND = 10**9


class Events(Source):
    """Notes are events; a list of them says what is live."""

    def __init__(self) -> None:
        self.columns = Columns()

    def take(self, note):
        if isinstance(note, list):
            live = Columns()
            for event in note:
                live.add(event)
            return live.take()
        self.columns.add(note)
        return None

    def rows(self):
        return self.columns.take() if self.columns.rows else None


class Clock:
    now = 0

    def __call__(self) -> int:
        return self.now


def told(folder) -> list[Event]:
    return list(open_trace(folder).events())


def test_notes_become_rows(tmp_path) -> None:
    writer = BackgroundWriter(tmp_path / "t", Header(), Events(), start=False)
    rows = [Event(1, "arrive", "A"), Event(1, "step"), Event(2, "step")]
    for row in rows[:2]:
        writer.note(row)
    writer.flush()
    assert told(tmp_path / "t") == rows[:2], "a reader sees what has been flushed"
    writer.note(rows[2])

    writer.close(complete=True)

    assert told(tmp_path / "t") == rows
    assert open_trace(tmp_path / "t").complete


def test_the_thread_writes_what_is_there_when_it_is_closed(tmp_path) -> None:
    writer = BackgroundWriter(tmp_path / "t", Header(), Events())
    writer.note(Event(1, "step"))

    writer.close()
    writer.close()

    assert told(tmp_path / "t") == [Event(1, "step")]
    assert not open_trace(tmp_path / "t").complete


def test_a_part_is_asked_for_and_begins_with_what_is_live(tmp_path) -> None:
    clock = Clock()
    writer = BackgroundWriter(tmp_path / "t", Header(), Events(), Keep.of("80s"), clock=clock, start=False)
    writer.note(Event(1, "arrive", "A"))
    writer.note(Event(1, "step"))
    writer.flush()
    assert not writer.wanted
    clock.now = 11 * SECOND
    writer.flush()
    assert writer.wanted, "ten seconds are an eighth of what is kept"
    writer.wanted = False
    live = Event(2, "live", "A", reason="running")
    for note in ([live], Event(2, "step")):
        writer.note(note)
    writer.close()

    (tmp_path / "t" / "part-00000.parquet").unlink()

    assert told(tmp_path / "t") == [live, Event(2, "step")]


def test_trouble_ends_the_recording_and_not_the_server(tmp_path, caplog) -> None:
    class Faulty(Events):
        def take(self, note):
            if note == "bad":
                raise OSError("No space left on device")
            return super().take(note)

    writer = BackgroundWriter(tmp_path / "t", Header(), Faulty(), start=False)
    writer.note(Event(1, "step"))
    writer.flush()
    writer.note("bad")
    writer.flush()
    writer.note(Event(2, "step"))
    writer.flush()
    writer.close()

    assert writer.stopped == "recording stopped: No space left on device; the server goes on"
    assert [record.message for record in caplog.records] == [writer.stopped], "said once"
    assert told(tmp_path / "t") == [Event(1, "step")]
    assert not writer.notes, "nothing heaps up"


def test_a_backlog_ends_the_recording(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("batchspec.replay.adapters.recording.BACKLOG", 3)
    writer = BackgroundWriter(tmp_path / "t", Header(), Events(), start=False)
    for number in range(1, 6):
        writer.note(Event(number, "step"))

    writer.flush()
    writer.close()

    assert "the disk is slower than the scheduler" in writer.stopped


def test_what_is_left_can_be_saved(tmp_path) -> None:
    writer = BackgroundWriter(tmp_path / "t", Header(), Events(), start=False)
    writer.note(Event(1, "step"))

    writer.save(tmp_path / "saved")
    writer.note(Event(2, "step"))
    writer.close()

    assert told(tmp_path / "saved") == [Event(1, "step")]


def test_settings_come_from_the_environment() -> None:
    found = Settings.of(
        {
            "BATCHSPEC_RECORD_DIR": "/traces",
            "BATCHSPEC_RECORD_KEEP": "30min 4GiB",
            "BATCHSPEC_RECORD_KEY": "secret",
        }
    )

    assert str(found.folder) == "/traces"
    assert found.keep == Keep.of("30min 4GiB")
    assert found.names is not None
    assert Settings.of({}) == Settings()


def test_settings_come_from_a_file_under_the_environment(tmp_path) -> None:
    (tmp_path / "record.toml").write_text('dir = "/a"\nkeep = "1h"\n')

    found = Settings.of(
        {"BATCHSPEC_RECORD_CONFIG": str(tmp_path / "record.toml"), "BATCHSPEC_RECORD_DIR": "/b"}
    )

    assert (str(found.folder), found.keep) == ("/b", Keep.of("1h"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("keep = 3", "each a text"),
        ("kepe = '1h'", "known are dir, keep, key"),
        ("= 1", "record.toml"),
        (None, "record.toml"),
    ],
)
def test_a_file_that_says_nothing(tmp_path, text, why) -> None:
    if text is not None:
        (tmp_path / "record.toml").write_text(text)

    with pytest.raises(HarnessError, match=why) as error:
        Settings.of({"BATCHSPEC_RECORD_CONFIG": str(tmp_path / "record.toml")})

    assert "\n" not in str(error.value)


@pytest.mark.parametrize("environ", [{"BATCHSPEC_RECORD_KEEP": "much"}, {"BATCHSPEC_RECORD_KEY": "x" * 65}])
def test_settings_that_say_nothing(environ) -> None:
    with pytest.raises(HarnessError, match="recording: "):
        Settings.of(environ)


def test_each_start_has_a_folder_of_its_own(monkeypatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: 42)

    assert str(folder_of(Settings(), "vllm", at=0.0)) == "batchspec-traces/vllm-19700101-000000-42"


# -- vLLM's notes, on objects that look like vLLM's --------------------------------------------------

Block = namedtuple("Block", "block_id")
Grant = namedtuple("Grant", "blocks")


def grant(*ids: int) -> Grant:
    return Grant(([Block(number) for number in ids],))


class FakeRequest:
    """What the recorder reads of a vLLM request."""

    def __init__(self, name: str, prompt: int = 6, outputs: int = 0, hashes=()) -> None:
        self.request_id = name
        self.num_prompt_tokens = prompt
        self.max_tokens = 9
        self.priority = 0
        self.num_output_tokens = outputs
        self.block_hashes = list(hashes)


def rows_of(book) -> list[Event]:
    from batchspec.traces.header import Header
    from batchspec.traces.trace import Trace

    batch = book.rows()
    events = [] if batch is None else [Event(**event) for event in map(_fields, batch.to_pylist())]
    return list(Trace.from_events(events, Header()).events())


def _fields(row: dict) -> dict:
    row = {("pass_" if name == "pass" else name): value for name, value in row.items()}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def test_the_notes_of_a_step_become_its_rows_in_order() -> None:
    from batchspec.replay.adapters.vllm_book import Book
    from batchspec.replay.adapters.vllm_notes import Counters, Decisions, Joined, Left, Passed

    a, b, c, d = (FakeRequest(name) for name in "ABCD")
    book = Book(4)
    book.take(("arrived", 1, 5, a, None))
    book.take(("arrived", 1, 5, c, "grammar"))
    first = Joined(a, False, 0, 6, [1, 2])
    book.take(("planned", 1, 6, Decisions([], [], [(0, first)], {})))
    book.take(("stepped", 1, 7, Counters(8, 1, 1)))
    shares = [a, 1, grant(), b, 1, grant(9)]
    others = [(1, Left(d, b, 3, [4, 5])), (2, Passed(d, True)), (2, Joined(c, False, 4, 2, [1, 7]))]
    book.take(("planned", 2, 8, Decisions(shares, [6, 8], others, {})))
    book.take(("ended", 2, 9, 2, a, "stop", [1, 2]))

    assert rows_of(book) == [
        Event(1, "arrive", "A", 5, prompt_tokens=6, max_tokens=9, priority=0),
        Event(1, "arrive", "C", 5, prompt_tokens=6, max_tokens=9, priority=0),
        Event(1, "park", "C", 5, reason="grammar"),
        Event(1, "admit", "A", 6, cached=0, blocks=2, block_ids=(1, 2)),
        Event(1, "schedule", "A", 6, start=0, tokens=6, blocks=2, block_ids=()),
        Event(1, "step", time_ns=7, free_blocks=8, waiting=1, running=1),
        Event(2, "schedule", "A", 8, start=6, tokens=1, blocks=2),
        Event(2, "preempt", "D", 8, reason="recompute", cause="B", blocks=0, block_ids=(4, 5)),
        Event(2, "schedule", "B", 8, start=8, tokens=1, blocks=1, block_ids=(9,)),
        Event(2, "skip", "D", 8, reason="in_flight"),
        Event(2, "ready", "C", 8),
        Event(2, "admit", "C", 8, cached=4, blocks=2, block_ids=(1, 7)),
        Event(2, "schedule", "C", 8, start=4, tokens=2, blocks=2, block_ids=()),
        Event(2, "finish", "A", 9, reason="stop", output_tokens=0, blocks=0, block_ids=(1, 2)),
    ]


def test_outputs_of_an_earlier_pass_and_what_is_in_flight() -> None:
    from batchspec.replay.adapters.vllm_book import Book
    from batchspec.replay.adapters.vllm_notes import LiveRequest

    Told = namedtuple("Told", "request_id new_token_ids")
    book = Book(4)
    book.take(("emitted", 3, 5, 2, [Told("A", [7]), Told("B", []), Told("C", [7, 8])]))
    live = book.take(
        (
            "live",
            4,
            6,
            [
                LiveRequest(
                    FakeRequest("A", 6, 1, [bytes(8), bytes(8)]), "running", 7, 1, 1, [Block(3), Block(5)]
                )
            ],
        )
    )

    assert rows_of(book) == [
        Event(3, "output", "A", 5, tokens=1, pass_=2),
        Event(3, "output", "C", 5, tokens=2, pass_=2),
    ]
    assert [Event(**_fields(row)) for row in live.to_pylist()] == [
        Event(
            4,
            "live",
            "A",
            6,
            prompt_tokens=6,
            max_tokens=9,
            priority=0,
            start=7,
            tokens=1,
            blocks=2,
            block_ids=(3, 5),
            block_hashes=(0,),
            output_tokens=1,
            reason="running",
        )
    ]


def test_with_a_key_no_name_is_left() -> None:
    from batchspec.replay.adapters.vllm_book import Book
    from batchspec.replay.adapters.vllm_notes import Decisions, Left
    from batchspec.traces.pseudonyms import Pseudonyms

    names = Pseudonyms("key")
    a, b = FakeRequest("A", hashes=[b"content"]), FakeRequest("B")
    book = Book(4, names)
    book.take(("arrived", 1, 5, a, None))
    book.take(("planned", 1, 6, Decisions([a, 4, grant(1)], [0], [(1, Left(b, a, 0, []))], {})))

    rows = rows_of(book)

    assert {row.request for row in rows} == {names.word("A"), names.word("B")}
    assert rows[2].cause == names.word("A")
    assert rows[1].block_hashes == (names.number(b"content"),)


def test_without_vllm_the_recorder_says_what_to_do() -> None:
    from importlib.util import find_spec

    from batchspec.replay.adapters import vllm_recorder

    if find_spec("vllm") is not None:
        pytest.skip("vLLM is installed")
    with pytest.raises(HarnessError, match="vLLM"):
        vllm_recorder.RecordingScheduler  # noqa: B018
    with pytest.raises(AttributeError):
        vllm_recorder.Nothing  # noqa: B018
