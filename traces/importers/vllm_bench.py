"""Results of `vllm bench serve --save-result --save-detailed`: one JSON object with parallel arrays.

| field | meaning | record |
| --- | --- | --- |
| `start_times` | seconds of the client's clock, when each was sent | `arrival_ns` since the first |
| `input_lens`, `output_lens` | tokens of prompt and output | `prompt_tokens`, `output_tokens` |
| `ttfts` | seconds to the first token; 0 if it failed | `first_token_ns` |
| `latencies`, else `ttfts` and `itls` | seconds to the end | `finish_ns` |
| `errors` | text of the error, empty if it went well | `status` error |
| all others | settings and sums | not read |

The request id is the number in the arrays, from 0. A failed request has zeros and empty lists instead
of measurements: it keeps its arrival and prompt and has no further times. A failure is one that has an
error, also where tokens were counted before it. Requests are put in the order of arrival. A file saved
without `--save-detailed`, or by a version that writes no `start_times`, is refused.

Source: https://github.com/vllm-project/vllm (Apache-2.0), `vllm/benchmarks/serve.py`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from batchspec.spec.errors import TraceError
from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.importers.fields import Unusable, count, items, number
from batchspec.traces.importers.jsontext import document, keys_of
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.importers.stream import by_arrival, kept
from batchspec.traces.importers.times import nanoseconds
from batchspec.traces.text import one_line

NAME: Final = "vllm-bench"
SAYS: Final = "results of vllm bench serve, saved in detail (JSON)"
ARRAYS: Final = ("start_times", "input_lens", "output_lens", "ttfts", "errors")


def detect(head: bytes, path: Path) -> bool:
    """True for an object with the settings and sums of a benchmark."""
    return {"request_rate", "completed", "total_input_tokens", "num_prompts"} <= keys_of(head)


def header(path: Path) -> Header:
    """What the resulting table says about itself."""
    return Header(producer_name="vllm-bench-serve", clock="monotonic", complete=True)


def read(path: Path, log: ImportLog) -> Iterator[Record]:
    """The requests in the order of arrival. Raises `TraceError` for a file without the arrays."""
    name = one_line(path)
    result = document(path, floats=True)
    for array in ARRAYS:
        if not isinstance(result.get(array), list):
            raise TraceError(
                f"{name}: no list {array}; save with --save-detailed, by a version that writes it"
            )
    rows = len(result["start_times"])
    ends = [array for array in ("latencies", "itls") if isinstance(result.get(array), list)]
    for array in (*ARRAYS, *ends):
        if len(result[array]) != rows:
            raise TraceError(f"{name}: {array} has another length than start_times")
    if not ends:
        raise TraceError(f"{name}: neither latencies nor itls; save with --save-detailed")

    def made(index: int, row: int) -> Record:
        start = nanoseconds(result["start_times"][row], "s", "start_times")
        prompt = count(result["input_lens"][row], "input_lens")
        error = result["errors"][row]
        output = count(result["output_lens"][row], "output_lens")
        if error is not None and not isinstance(error, str):
            raise Unusable("errors holds something that is no text")
        if error:
            log.note("failed requests, kept with status error")
            return Record(index, start, prompt, output, status="error")
        first = start + nanoseconds(result["ttfts"][row], "s", "ttfts")
        return Record(
            index, start, prompt, output, first_token_ns=first, finish_ns=_end(result, row, start, first)
        )

    return by_arrival(kept(((0, row) for row in range(rows)), made, log, path), log, since_first=True)


def _end(result: dict[str, Any], row: int, start: int, first: int) -> int:
    if isinstance(result.get("latencies"), list):
        return start + nanoseconds(result["latencies"][row], "s", "latencies")
    # Rounding once, at the end: the gaps are many.
    gaps = [number(gap, "itls") for gap in items(result["itls"][row], "itls")]
    return first + nanoseconds(sum(gaps), "s", "itls")
