"""Workload records as requests: lengths and arrivals from the record, tokens drawn from a seed.

A record says how long a prompt is, not what it says. Where it carries prefix hashes, equal leading
hashes become equal leading tokens, so that prefix sharing finds what it would have found.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from batchspec.engine.sequence import Request
from batchspec.spec.records import Record

_MASK = 2**63 - 1


def requests_of(
    records: Iterable[Record],
    vocab_size: int,
    seed: int = 0,
    *,
    prompt_divisor: int = 1,
    output_divisor: int = 1,
    hash_block: int | None = None,
) -> Iterator[Request]:
    """One request a record, in its order. The divisors scale lengths to a small model, at least to 1.

    A request stops after exactly the recorded output tokens. `hash_block` is the number of prompt
    tokens behind one prefix hash, before scaling. The same seed gives the same tokens.
    """
    for index, record in enumerate(records):
        length = max(1, (record.prompt_tokens or 1) // prompt_divisor)
        outputs = max(1, (record.output_tokens or 1) // output_divisor)
        most = max(outputs, (record.max_tokens or 0) // output_divisor)
        tokens = _draw((seed, 0, index), length, vocab_size)
        if record.prefix_hashes and hash_block:
            part = max(1, hash_block // prompt_divisor)
            shared = [_draw((seed, 1, key & _MASK), part, vocab_size) for key in record.prefix_hashes]
            head = np.concatenate(shared)[:length]
            tokens = np.concatenate([head, tokens[len(head) :]])
        yield Request(
            id=record.request,
            prompt=tuple(tokens.tolist()),
            max_tokens=most,
            arrival_ns=record.arrival_ns,
            stop_after=outputs,
            tenant=record.tenant,
            priority=record.priority,
        )


def prompt_of(seed: int, index: int, length: int, vocab_size: int) -> tuple[int, ...]:
    """The prompt of the request with that place in the order of arrivals, as `requests_of` draws it."""
    return tuple(_draw((seed, 0, index), length, vocab_size).tolist())


def _draw(
    seed: tuple[int, ...], length: int, vocab_size: int
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.random.default_rng(seed).integers(0, vocab_size, length)
