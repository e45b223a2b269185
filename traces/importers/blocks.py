"""What traces with prefix hashes have in common: ids for blocks of the prompt, and a known set of fields."""

from collections.abc import Mapping
from typing import Any

from batchspec.traces.importers.fields import keys
from batchspec.traces.importers.log import ImportLog
from batchspec.traces.text import shown


def prefix(value: object, prompt: int, block: int, log: ImportLog) -> tuple[int, ...] | None:
    """The ids of a prompt's blocks, the last of which may be partial; None for a row without any.

    Ids of another number than the prompt has blocks could stand for anything: they are left out.
    """
    if value is None:
        return None
    ids = keys(value, "hash_ids")
    if len(ids) != -(-prompt // block):
        log.lose(f"hash_ids that do not cover the prompt in blocks of {block} tokens")
        return None
    return ids


def only(row: Mapping[str, Any], known: frozenset[str], log: ImportLog) -> None:
    """Leave out, and say so, each field that the format does not have."""
    if len(row) > len(known) or not row.keys() <= known:
        for name in sorted(row.keys() - known):
            log.lose(f"field {shown(name)}, which this format does not have")
