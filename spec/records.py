"""The record: one request of an L0 table or of a workload, in the words of the trace format."""

from typing import Final, NamedTuple

from batchspec.spec.events import RequestId


class Record(NamedTuple):
    """One request as a whole. Times are nanoseconds of the producer's clock, lengths are tokens.

    A workload needs only `arrival_ns`, `prompt_tokens` and `output_tokens`: the request stops after
    exactly `output_tokens`, and `max_tokens` defaults to it. The other times are what a real run
    measured. `prefix_hashes` holds one content key for each `hash_block` tokens of the prompt.
    """

    request: RequestId
    arrival_ns: int
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    max_tokens: int | None = None
    tenant: str | None = None
    priority: int | None = None
    session: str | None = None
    admitted_ns: int | None = None
    first_token_ns: int | None = None
    finish_ns: int | None = None
    status: str | None = None
    prefix_hashes: tuple[int, ...] | None = None


RECORD_COLUMNS: Final[tuple[str, ...]] = Record._fields
