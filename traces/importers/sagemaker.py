"""Amazon SageMaker data capture: JSON lines, one an inference, with request and response inside.

| field | meaning | record |
| --- | --- | --- |
| `eventMetadata.eventId` | id | `request` |
| `eventMetadata.inferenceTime` | when it was captured, UTC, to the second | `arrival_ns` since the first |
| `captureData.endpointInput.data` | the request: JSON, or base64 of it | `max_tokens`, where it has them |
| `captureData.endpointOutput.data` | the response, likewise; from its `usage`: | |
| `prompt_tokens` | tokens of the prompt | `prompt_tokens` |
| `completion_tokens` | tokens generated | `output_tokens` |
| all others | | not carried |

Only inferences that were completed are captured. Times are cut to whole seconds: within one the order of
the file is kept. An event without an id has the number of its line. A response without usage is dropped.

Source: https://docs.aws.amazon.com/sagemaker, "Data capture".
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, count, mapping, maybe_count, word
from batchspec.traces.importers.jsontext import json_lines, keys_of, nested
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival
from batchspec.traces.importers.times import date

NAME: Final = "sagemaker"
SAYS: Final = "Amazon SageMaker data capture (JSON lines)"


def detect(head: bytes, path: Path) -> bool:
    """True for a file whose first row has captured data."""
    return {"captureData", "eventMetadata", "endpointOutput"} <= keys_of(head)


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="sagemaker", clock="wall")


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in the order of arrival."""

    def made(index: int, row: dict[str, Any]) -> Record:
        metadata = mapping(row.get("eventMetadata"), "eventMetadata")
        captured = mapping(row.get("captureData"), "captureData")
        arrival = date(metadata.get("inferenceTime"))
        if arrival is None:
            raise Unusable("an inferenceTime that is not a time")
        usage = mapping(_data(captured, "endpointOutput").get("usage"), "usage")
        asked = _data(captured, "endpointInput") if "endpointInput" in captured else {}
        return Record(
            word(metadata.get("eventId", f"line {log.line}"), "eventId"),
            arrival,
            count(usage.get("prompt_tokens"), "usage.prompt_tokens"),
            count(usage.get("completion_tokens"), "usage.completion_tokens"),
            maybe_count(asked.get("max_tokens"), "max_tokens"),
        )

    return by_arrival(json_lines(path, made, log), log, since_first=True)


def _data(captured: Mapping[str, Any], name: str) -> dict[str, Any]:
    side = mapping(captured.get(name), name)
    data = side.get("data")
    if side.get("encoding") == "BASE64" and isinstance(data, str):
        try:
            data = base64.b64decode(data, validate=True).decode("utf-8")
        except (binascii.Error, ValueError):
            raise Unusable(f"{name}.data is not base64 of a text") from None
    return nested(data, f"{name}.data")
