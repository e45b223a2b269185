"""AIBrix workloads: JSON lines, one a moment, with the requests to be sent then.

| field | meaning | record |
| --- | --- | --- |
| `timestamp` | milliseconds from the start | `arrival_ns` of all its requests |
| `requests` | the requests, in order | one record each |
| `prompt_length`, `Prompt Length` | tokens of the prompt | `prompt_tokens` |
| `output_length`, `Output Length` | tokens to generate; null where the model decides | `output_tokens` |
| `session_id` | conversation | `session` |
| `prompt`, `model` | | not carried |

The request id counts requests through the file, from 0. A moment before that of the row above is refused.

Source: https://github.com/vllm-project/aibrix (Apache-2.0), `benchmarks/`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.blocks import only
from batchspec.traces.importers.fields import Unusable, items, mapping, maybe_count, maybe_word, some
from batchspec.traces.importers.jsontext import keys_of, parsed
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import filled_lines, kept
from batchspec.traces.importers.times import nanoseconds
from batchspec.traces.text import one_line

NAME: Final = "aibrix"
SAYS: Final = "AIBrix workloads (JSON lines)"
PROMPT: Final = ("prompt_length", "Prompt Length")
OUTPUT: Final = ("output_length", "Output Length")
FIELDS: Final = frozenset({*PROMPT, *OUTPUT, "prompt", "session_id", "model"})


def detect(head: bytes, path: Path) -> bool:
    """True for rows with a moment and a list of requests."""
    names = keys_of(head)
    return (
        {"timestamp", "requests"} <= names and bool(names & {*PROMPT, "prompt"}) and "block_size" not in names
    )


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="aibrix", clock="virtual", complete=True)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in file order. Raises `TraceError` for a moment before that of the row above."""

    def made(index: int, row: tuple[int, Any]) -> Record:
        arrival, request = row[0], mapping(row[1], "requests")
        only(request, FIELDS, log)
        return Record(
            index,
            arrival,
            some(_either(request, PROMPT), PROMPT[0]),
            maybe_count(_either(request, OUTPUT), OUTPUT[0]),
            session=maybe_word(request.get("session_id"), "session_id"),
        )

    return kept(_requests(path, log), made, log, path, ordered="timestamp")


def _requests(path: Path, log: ImportLog) -> Iterator[tuple[int, tuple[int, Any]]]:
    for line, text in filled_lines(path):
        log.place, log.line = one_line(path), line
        try:
            row = parsed(text)
            arrival = nanoseconds(row.get("timestamp"), "ms", "timestamp")
            requests = items(row.get("requests"), "requests")
        except Unusable as problem:
            log.drop(str(problem))
            continue
        for request in requests:
            yield line, (arrival, request)


def _either(request: Any, names: tuple[str, str]) -> Any:
    return request.get(names[0], request.get(names[1]))
