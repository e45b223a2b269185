"""Recording a server in production: what to write where, and the thread that writes it.

A recorder in a server's own process takes notes in the scheduling thread and does all else here, in a
thread of its own. Whatever goes wrong with the recording, a full disk or a fault of its own, ends the
recording with one line in the log, never the server.

Settings come from the environment, or from a TOML file that BATCHSPEC_RECORD_CONFIG names (keys without
the prefix, in small letters); the environment wins.

    BATCHSPEC_RECORD_DIR    folder under which each start of the server gets one of its own (batchspec-traces)
    BATCHSPEC_RECORD_KEEP   how much is kept: `30min`, `4GiB` or both; empty: everything
    BATCHSPEC_RECORD_KEY    hash request ids, tenants and block contents with this key
"""

import atexit
import logging
import os
import threading
import time
import tomllib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from batchspec.replay.harness import HarnessError
from batchspec.spec.errors import BatchspecError
from batchspec.traces.flight import FlightRecorder, Keep
from batchspec.traces.header import Header
from batchspec.traces.pseudonyms import Pseudonyms

_PREFIX: Final = "BATCHSPEC_RECORD_"
_NAMES: Final = ("dir", "keep", "key")
_PAUSE_S: Final = 0.1
"""How long the writer sleeps: what a kill may lose, and how seldom it takes the interpreter's lock."""

_SLICE: Final = 64
"""Notes turned into rows before the scheduling thread is let in."""

BACKLOG: Final = 200_000
"""Notes that may wait. A disk that is slower than the scheduler ends the recording, not the memory."""

log = logging.getLogger("batchspec.recorder")


@dataclass(frozen=True, slots=True)
class Settings:
    """Where a recording goes, how much of it is kept, and how names are hashed."""

    folder: Path = Path("batchspec-traces")
    keep: Keep = field(default_factory=Keep)
    names: Pseudonyms | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Settings":
        """Read them. Raises `HarnessError`, one line that names the setting at fault."""
        said: dict[str, Any] = {}
        if path := environ.get(f"{_PREFIX}CONFIG"):
            said = _file(Path(path))
        said |= {
            name: environ[f"{_PREFIX}{name.upper()}"]
            for name in _NAMES
            if f"{_PREFIX}{name.upper()}" in environ
        }
        try:
            keep = Keep.of(said.get("keep", ""))
            names = Pseudonyms(said["key"]) if said.get("key") else None
        except BatchspecError as error:
            raise HarnessError(f"recording: {error}") from None
        return cls(Path(said.get("dir") or cls().folder), keep, names)


def _file(path: Path) -> dict[str, Any]:
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise HarnessError(f"recording: {path}: {' '.join(str(error).split())}") from None
    for name, value in said.items():
        if name not in _NAMES or not isinstance(value, str):
            raise HarnessError(f"recording: {path}: {name}: known are {', '.join(_NAMES)}, each a text")
    return said


class Source(ABC):
    """What turns a recorder's notes into rows; called in the writer's thread only."""

    @abstractmethod
    def take(self, note: Any) -> pa.RecordBatch | None:
        """Take one note in. A batch is returned for a note of what is live: a part may begin with it."""

    @abstractmethod
    def rows(self) -> pa.RecordBatch | None:
        """The rows of the notes since the last call; None if there are none."""


class BackgroundWriter:
    """Takes notes from the scheduling thread with one append each, and writes them from another.

    `wanted` is set when a part is due: the scheduling thread then notes down, between two steps, what is
    live, and clears it.
    """

    def __init__(
        self,
        folder: Path,
        header: Header,
        source: Source,
        keep: Keep | None = None,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        start: bool = True,
    ) -> None:
        """Begin to write into `folder`. Raises `TraceError` where that is not possible."""
        self.notes: deque[Any] = deque()
        self.note = self.notes.append
        self.wanted = False
        self.stopped: str | None = None
        """The line that says why the recording has ended, if it has."""
        self.recorder = FlightRecorder(folder, header, keep)
        self._source = source
        self._clock = clock
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="batchspec-recorder", daemon=True)
        if start:
            self._thread.start()
            atexit.register(self.close)

    def close(self, complete: bool = False) -> None:
        """Write what is there and end. A second call does nothing."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            try:
                self.drain()
                self.recorder.close(complete and self.stopped is None)
            except Exception as error:
                self._stop(error)

    def save(self, folder: str | Path) -> list[Path]:
        """Copy what is left of the recording; see `FlightRecorder.save`."""
        with self._lock:
            self.drain()
            return self.recorder.save(folder)

    def flush(self) -> None:
        """Write what is waiting now."""
        with self._lock:
            self.drain()

    def drain(self) -> None:
        """Write what is waiting. Any trouble ends the recording."""
        if self.stopped is not None:
            self.notes.clear()
            return
        try:
            if len(self.notes) > BACKLOG:
                raise HarnessError(f"{BACKLOG:,} notes wait: the disk is slower than the scheduler")
            self._drain()
        except Exception as error:
            self._stop(error)

    def _drain(self) -> None:
        now = self._clock()
        # Only what is there by now: the scheduling thread may go on without end.
        for index in range(len(self.notes)):
            live = self._source.take(self.notes.popleft())
            if live is not None:
                self._write(now)
                self.recorder.begin_part(live, now)
            if index % _SLICE == _SLICE - 1:
                time.sleep(0)
        self._write(now)
        if not self.wanted and self.recorder.due(now):
            self.wanted = True

    def _write(self, now: int) -> None:
        batch = self._source.rows()
        if batch is not None:
            self.recorder.write_batch(batch, now)

    def _stop(self, error: Exception) -> None:
        self.stopped = (
            f"recording stopped: {' '.join(str(error).split()) or type(error).__name__}; the server goes on"
        )
        self.notes.clear()
        log.error(self.stopped)

    def _run(self) -> None:
        while not self._closing.wait(_PAUSE_S):
            with self._lock:
                self.drain()


def folder_of(settings: Settings, program: str, *, at: float | None = None) -> Path:
    """A folder for this start of the server, which no other start has had."""
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(at))
    return settings.folder / f"{program}-{moment}-{os.getpid()}"
