"""Results of the VTC artifact: one JSON object, a measured run of a named scheduler with tenants.

| field of a response | meaning | record |
| --- | --- | --- |
| `adapter_dir` | the tenant | `tenant` |
| `prompt_len` | tokens of the prompt | `prompt_tokens` |
| `output_len` | tokens generated, or asked for by a request that was refused | `output_tokens` |
| `req_time` | seconds from the start of the run | `arrival_ns` |
| `first_token_latency` | seconds from `req_time` to the first token, -1 if refused | `first_token_ns` |
| `request_latency` | seconds from `req_time` to the end, -1 if refused | `finish_ns` |

The request id is the number of the response, from 0. A refused request has both latencies at -1 and
becomes `status` rejected, without times; it keeps its lengths, since all runs of one workload do. Its
summary numbers are not read: `num_abort` is 0 where hundreds were refused, and `avg_latency` takes each
-1 for a latency. Responses are put in the order of arrival; ties keep the order of the file.

Source: https://github.com/Ying1123/VTC-artifact (Apache-2.0); Sheng et al., "Fairness in Serving Large
Language Models", OSDI 2024.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, mapping, maybe_word, number, some
from batchspec.traces.importers.jsontext import document, keys_of
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival, kept
from batchspec.traces.importers.times import nanoseconds
from batchspec.traces.text import one_line

NAME: Final = "vtc"
SAYS: Final = "results of the VTC artifact's runs (JSON)"


def detect(head: bytes, path: Path) -> bool:
    """True for an object with a result and responses that name an adapter."""
    return {"config", "result", "responses", "adapter_dir", "req_time"} <= keys_of(head)


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="vtc-artifact", clock="monotonic", complete=True)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in the order of arrival. Raises `TraceError` for a file that is not of this format."""
    result = document(path).get("result")
    responses = result.get("responses") if isinstance(result, dict) else None
    if not isinstance(responses, list):
        raise TraceError(f"{one_line(path)}: no list result.responses; not a result of the VTC artifact")

    def made(index: int, response: Any) -> Record:
        row = mapping(response, "responses")
        arrival = nanoseconds(row.get("req_time"), "s", "req_time")
        first, end = row.get("first_token_latency"), row.get("request_latency")
        refused = [number(first, "first_token_latency") == -1, number(end, "request_latency") == -1]
        if any(refused) and not all(refused):
            raise Unusable("one of the two latencies says refused, the other does not")
        if all(refused):
            log.note("refused requests, kept with status rejected")
        return Record(
            index,
            arrival,
            some(row.get("prompt_len"), "prompt_len"),
            some(row.get("output_len"), "output_len"),
            tenant=maybe_word(row.get("adapter_dir"), "adapter_dir"),
            first_token_ns=None if refused[0] else arrival + nanoseconds(first, "s", "first_token_latency"),
            finish_ns=None if refused[0] else arrival + nanoseconds(end, "s", "request_latency"),
            status="rejected" if refused[0] else None,
        )

    return by_arrival(kept(((0, response) for response in responses), made, log, path), log)
