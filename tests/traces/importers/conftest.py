"""What the tests of the importers share: the excerpts, the whole files, and the truth of the made samples."""

import csv
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from batchspec.spec.events import Event
from batchspec.spec.records import Record
from batchspec.traces.importers import ImportLog, detect, gives_events, gives_records

DATA = Path(__file__).parents[2] / "data"
MADE = DATA / "made"

Read = Callable[..., tuple[list[Record], ImportLog]]


def imported(path: Path, strict: bool = False) -> tuple[list[Any], ImportLog]:
    """What the importer that knows the file makes of it."""
    log = ImportLog(strict=strict)
    importer = detect(path)
    rows: list[Any] = []
    if gives_events(importer):
        rows = list(importer.events(path, log))
    elif gives_records(importer):
        rows = list(importer.read(path, log))
    assert len(rows) == log.kept
    return rows, log


@pytest.fixture
def records() -> Callable[..., tuple[list[Record], ImportLog]]:
    """The requests of a file in tests/data, or of a path."""
    return lambda name, **options: imported(DATA / name, **options)


@pytest.fixture
def events() -> Callable[..., tuple[list[Event], ImportLog]]:
    """The events of a file in tests/data, or of a path."""
    return lambda name, **options: imported(DATA / name, **options)


@pytest.fixture(scope="session")
def truth() -> dict[str, dict[str, Any]]:
    """The made run's requests by id, times in nanoseconds, null where there is none."""

    def rows() -> Iterator[tuple[str, dict[str, Any]]]:
        with (MADE / "expected_requests.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                out: dict[str, Any] = {"tenant": row["tenant"], "status": row["status"]}
                for name in ("prompt_tokens", "output_tokens", "preemptions"):
                    out[name] = int(row[name])
                for name in ("arrival", "first_scheduled", "first_token", "finish"):
                    text = row[f"{name}_ms"]
                    out[name] = round(float(text) * 1_000_000) if text else None
                yield row["request_id"], out

    return dict(rows())


@pytest.fixture
def whole() -> Path:
    """The folder of whole published files that BATCHSPEC_DATA names; skipped without."""
    folder = os.environ.get("BATCHSPEC_DATA")
    if not folder:
        pytest.skip("BATCHSPEC_DATA names no folder with the whole files")
    return Path(folder)
