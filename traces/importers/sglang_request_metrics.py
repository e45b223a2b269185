"""SGLang's request metrics (`--export-metrics-to-file`): JSON lines, one a finished request.

Fields: those of `sglang_meta`, and

| field | meaning | record |
| --- | --- | --- |
| `request_parameters` | JSON in a text; its `sampling_params.max_new_tokens` | `max_tokens` |
| all others | | not carried |

Lines are written as requests end, so they are put in the order of arrival.

Source: https://github.com/sgl-project/sglang (Apache-2.0), the request metrics exporter.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers import sglang_meta
from batchspec.traces.importers.fields import mapping
from batchspec.traces.importers.jsontext import json_lines, keys_of, nested
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival

NAME: Final = "sglang-request-metrics"
SAYS: Final = "SGLang request metrics (JSON lines)"


def detect(head: bytes, path: Path) -> bool:
    """True for a file whose first row has the parameters and the times of a request."""
    return {"request_parameters", "request_received_ts", "completion_tokens"} <= keys_of(head)


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="sglang", clock="wall")


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in the order of arrival."""

    def made(index: int, row: dict[str, Any]) -> Record:
        asked = row.get("request_parameters")
        if asked is None:
            return sglang_meta.record(row, {})
        # Most requests of a service ask for the same: what is short is read once.
        short = isinstance(asked, str) and len(asked) <= _SHORT
        return sglang_meta.record(row, _known(asked) if short else _sampling(asked))

    return by_arrival(json_lines(path, made, log), log, since_first=True)


_SHORT: Final = 1024


def _sampling(asked: object) -> Mapping[str, Any]:
    parameters = nested(asked, "request_parameters")
    return mapping(parameters.get("sampling_params"), "sampling_params")


@lru_cache(maxsize=1024)
def _known(asked: str) -> Mapping[str, Any]:
    return _sampling(asked)
