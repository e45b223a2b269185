"""Metrics of a watch for Prometheus, with its own client library (extra `watch`)."""

from typing import Any

from batchspec.replay.watching import Look
from batchspec.spec.errors import BatchspecError


class Exposition:
    """An HTTP endpoint with what the last look found.

    `batchspec_violations_total{rule}` violations of each rule, `batchspec_events_total` rows judged,
    `batchspec_steps_total` iterations, `batchspec_lag_seconds` the wall clock behind the last row (wall
    clock traces only), `batchspec_waiting` 1 while no trace is there yet, `batchspec_complete` 1 at its end.
    """

    def __init__(self, port: int, registry: Any = None) -> None:
        """Serve at `port`; 0 takes a free one. Raises `BatchspecError` where that cannot be."""
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
        except ImportError:
            raise BatchspecError(
                "--metrics needs the extra `watch`: pip install 'batchspec[watch]'"
            ) from None
        self.registry = registry or CollectorRegistry()
        self._violations = Counter(
            "batchspec_violations", "Violations of a rule.", ["rule"], registry=self.registry
        )
        self._events = Counter("batchspec_events", "Rows judged.", registry=self.registry)
        self._steps = Counter("batchspec_steps", "Iterations judged.", registry=self.registry)
        self._lag = Gauge(
            "batchspec_lag_seconds", "Wall clock behind the last row judged.", registry=self.registry
        )
        self._waiting = Gauge("batchspec_waiting", "1 while no trace is there yet.", registry=self.registry)
        self._complete = Gauge("batchspec_complete", "1 when the trace is complete.", registry=self.registry)
        self._seen: dict[str, int] = {}
        self._last = Look()
        try:
            server, _ = start_http_server(port, registry=self.registry)
        except OSError as error:
            raise BatchspecError(
                f"port {port}: {error.strerror or error}; name another with --metrics"
            ) from None
        self.port = int(server.server_port)
        self._server = server

    def set(self, look: Look) -> None:
        """Show a look. Counters only rise: what is judged again is not counted again."""
        self._waiting.set(look.waiting)
        if look.waiting:
            return
        for rule, count in look.violations.items():
            before = self._seen.get(rule, 0)
            if count > before:
                self._violations.labels(rule).inc(count - before)
                self._seen[rule] = count
        self._events.inc(max(0, look.rows - self._last.rows))
        self._steps.inc(max(0, look.steps - self._last.steps))
        if look.behind_ns is not None:
            self._lag.set(max(0, look.behind_ns) / 1e9)
        self._complete.set(look.complete)
        self._last = look

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
