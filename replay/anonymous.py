"""Anonymous traces: names hashed with a key, everything that a rule looks at kept.

Hashed: `request` and `cause` (a text becomes 16 hexadecimal digits, a number a number), `tenant` and
`session`, also where the header's weights and quotas name them; `block_hashes` and `prefix_hashes`, since
what a prompt says can be guessed from its hash; words of `reason` and `status` that are the producer's own.
Kept: steps, times, lengths, counts, `priority`, `slot`, `block_ids` (they are places), known words,
`resource`, claims, producer, clock, `hash_block`. Left out: unknown keys of the header, `started_at`,
unknown columns.

Equal names stay equal and different ones different, so every rule finds what it found before. A key that
is thrown away makes the names irrecoverable; lengths and times may still give a request away to somebody
who has them from elsewhere.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from batchspec.spec import opening
from batchspec.spec.events import REASONS, Event, RequestId
from batchspec.spec.records import Record
from batchspec.spec.rules.requests import REFUSED
from batchspec.traces.header import LIVE_ROWS, Header
from batchspec.traces.pseudonyms import Pseudonyms

_EVERYONE: Final = "*"
_WORDS: Final = frozenset(word for words in REASONS.values() for word in words)
_STATUS: Final = REFUSED | {"ok", "stop", "length", "failed", "error", "aborted", "cancelled", "timeout"}
_BY_TENANT: Final = ("weights", "rate_limits")


class Anonymous:
    """One key, and what becomes of events, records and headers under it."""

    def __init__(self, key: bytes) -> None:
        """Raises `TraceError` for a key that is none."""
        self._names = Pseudonyms(key)
        self._tenants = Pseudonyms(key)

    def request(self, name: RequestId) -> RequestId:
        """A request's id: text for text, a number for a number."""
        return self._names.number(name) if isinstance(name, int) else self._names.word(name)

    def tenant(self, name: str) -> str:
        """A tenant or a session."""
        return self._tenants.word(name)

    def content(self, keys: Iterable[int]) -> tuple[int, ...]:
        """The content keys of blocks."""
        return tuple(self._names.number(f"content {key}".encode()) for key in keys)

    def events(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events with their names hashed."""
        for event in events:
            changed: dict[str, Any] = {}
            if event.request is not None:
                changed["request"] = self.request(event.request)
            if event.cause is not None:
                changed["cause"] = self.request(event.cause)
            if event.tenant is not None:
                changed["tenant"] = self.tenant(event.tenant)
            if event.block_hashes:
                changed["block_hashes"] = self.content(event.block_hashes)
            if event.reason is not None and event.reason not in _WORDS:
                changed["reason"] = self.tenant(event.reason)
            yield event._replace(**changed) if changed else event

    def records(self, records: Iterable[Record]) -> Iterator[Record]:
        """The requests of a workload with their names hashed."""
        for record in records:
            yield record._replace(
                request=self.request(record.request),
                tenant=None if record.tenant is None else self.tenant(record.tenant),
                session=None if record.session is None else self.tenant(record.session),
                status=record.status
                if record.status is None or record.status in _STATUS
                else self.tenant(record.status),
                prefix_hashes=None if record.prefix_hashes is None else self.content(record.prefix_hashes),
            )

    def header(self, header: Header) -> Header:
        """The header with tenants hashed; what this release does not know is left out."""
        config: dict[str, Any] = dict(header.config)
        fairness = config.get("fairness")
        if isinstance(fairness, Mapping):
            config["fairness"] = {
                name: self._by_tenant(value) if name in _BY_TENANT and isinstance(value, Mapping) else value
                for name, value in fairness.items()
            }
        extra = {key: value for key, value in header.extra.items() if key == LIVE_ROWS}
        told = header.extra.get(opening.KEY)
        if isinstance(told, Mapping):
            extra[opening.KEY] = self._opening(told)
        return replace(header, config=config, extra=extra, started_at=None)

    def _by_tenant(self, table: Mapping[str, Any]) -> dict[str, Any]:
        return {name if name == _EVERYONE else self.tenant(name): value for name, value in table.items()}

    def _opening(self, told: Mapping[str, Any]) -> dict[str, Any]:
        return opening.renamed(told, self.request, self.tenant)
