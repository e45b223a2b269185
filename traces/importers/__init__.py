"""Importers: other people's records turned into requests or events, one format a module.

A module of this folder is an importer once it stands in `IMPORTERS`. It has the members of
`RecordImporter` or of `EventImporter`, a table of its fields in its docstring, and never guesses: what
it cannot place is dropped through the log, with a reason, or refused by name and row.

The times of a source that has a clock of its own, beginning at 0, are kept; those of a wall clock are
counted from the first arrival, and the header's `started_at` says when that was.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol, TypeGuard

from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event
from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers import (
    aibrix,
    aiperf,
    azure,
    burstgpt,
    copilot,
    dynamo,
    inference_perf,
    kv_cache_tester,
    lightllm,
    litellm,
    llmservingsim,
    llumnix,
    mooncake,
    otel,
    qwen_bailian,
    ragpulse,
    sagemaker,
    servegen,
    servegen_offline,
    sglang_request_metrics,
    sglang_requests,
    sglang_scheduler,
    sglang_status,
    splitwise_sim,
    tgi,
    tracelab,
    tracelab_replay,
    trtllm_stats,
    trtllm_triton,
    vidur,
    vllm_bench,
    vllm_log,
    vllm_metrics,
    vtc,
)
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import runnable
from batchspec.traces.text import nearest, one_line, shown
from batchspec.traces.textfile import head

__all__ = [
    "IMPORTERS",
    "EventImporter",
    "ImportLog",
    "Importer",
    "RecordImporter",
    "by_name",
    "detect",
    "gives_events",
    "gives_records",
    "runnable",
]


class _Known(Protocol):
    @property
    def NAME(self) -> str:
        """What `--format` calls it."""

    @property
    def SAYS(self) -> str:
        """What it reads, in one line."""

    def detect(self, head: bytes, path: Path) -> bool:
        """Is this file one of mine? `head` holds its first 64 KiB (nothing for a folder)."""

    def header(self, path: Path) -> Header:
        """What the result says about itself. May read the file, and raise `TraceError`."""


class RecordImporter(_Known, Protocol):
    """The members of a module that reads one row a request."""

    def read(self, path: Path, log: ImportLog) -> Iterator[Record]:
        """The requests in order of arrival, streamed; dropped rows go through the log."""


class EventImporter(_Known, Protocol):
    """The members of a module that reads what a scheduler did, step by step."""

    def events(self, path: Path, log: ImportLog) -> Iterator[Event]:
        """The events in order, streamed; dropped rows go through the log."""


Importer = RecordImporter | EventImporter

_RECORDS: Final[tuple[RecordImporter, ...]] = (
    aibrix,
    aiperf,
    azure,
    burstgpt,
    copilot,
    dynamo,
    inference_perf,
    kv_cache_tester,
    lightllm,
    litellm,
    llmservingsim,
    mooncake,
    otel,
    qwen_bailian,
    ragpulse,
    sagemaker,
    servegen,
    servegen_offline,
    sglang_request_metrics,
    sglang_requests,
    splitwise_sim,
    tgi,
    tracelab,
    tracelab_replay,
    vidur,
    vllm_bench,
    vtc,
)
_EVENTS: Final[tuple[EventImporter, ...]] = (
    llumnix,
    sglang_scheduler,
    sglang_status,
    trtllm_stats,
    trtllm_triton,
    vllm_log,
    vllm_metrics,
)

_ALL: Final[tuple[Importer, ...]] = (*_RECORDS, *_EVENTS)

IMPORTERS: Final[dict[str, Importer]] = {module.NAME: module for module in _ALL}
"""Every importer by name."""


def gives_events(importer: Importer) -> TypeGuard[EventImporter]:
    """Does it give the events of a trace, rather than requests?"""
    return hasattr(importer, "events")


def gives_records(importer: Importer) -> TypeGuard[RecordImporter]:
    """Does it give requests, rather than the events of a trace?"""
    return hasattr(importer, "read")


def by_name(name: str) -> Importer:
    """The importer called `name`. Raises `TraceError` that names the nearest one."""
    if name not in IMPORTERS:
        raise TraceError(f"unknown format {shown(name)}{nearest(name, IMPORTERS)}")
    return IMPORTERS[name]


def detect(path: str | Path) -> Importer:
    """The one importer that knows the file. Raises `TraceError` if none does, or several."""
    path = Path(path)
    start = b"" if path.is_dir() else head(path)
    found = [importer for importer in IMPORTERS.values() if importer.detect(start, path)]
    if len(found) == 1:
        return found[0]
    which = ", ".join(importer.NAME for importer in found or IMPORTERS.values())
    problem = "could be any of" if found else "format not recognised; known are"
    raise TraceError(f"{one_line(path)}: {problem} {which}; name one with --format")
