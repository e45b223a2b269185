"""The sections with pictures and figures: slots, plots over steps, latencies, tenants."""

from collections.abc import Mapping
from typing import Final

from batchspec.replay.overview.overview import Overview
from batchspec.replay.report.html.markup import Html, Piece, join, section, table, tag
from batchspec.replay.report.page import count, plain
from batchspec.spec.metrics import Metrics
from batchspec.spec.quantities import Distribution

MOST_IN_A_TABLE: Final = 15

_LEGEND: Final = (
    ("sw-decode", "decode"),
    ("sw-prefill", "prefill"),
    ("sw-again", "computed again after a preemption"),
    ("sw-idle", "slot held idle"),
)


def picture_section(overview: Overview) -> Html:
    """The slot-by-step picture with its controls."""
    legend = [tag("li", tag("i", class_=swatch), says) for swatch, says in _LEGEND]
    legend += [
        tag("li", tag("b", "×", class_="x"), "preempted"),
        tag("li", tag("b", "▎", class_="o"), "finished"),
        tag("li", tag("b", "/", class_="o"), "aborted"),
    ]
    buttons = [
        tag("button", words, type="button", id=name, aria_label=says)
        for name, words, says in (
            ("zoom-in", "+", "Zoom in"),
            ("zoom-out", "−", "Zoom out"),
            ("fit", "Fit", "Show the whole trace"),
            ("back", "◀", "Earlier steps"),
            ("on", "▶", "Later steps"),
        )
    ]
    if any(place is not None for place in overview.places.values()):
        buttons.append(tag("button", "Next finding", type="button", id="finding-next"))
    buttons.append(tag("button", "", type="button", id="clear", hidden=True))
    buttons.append(tag("span", class_="grow"))
    find = Html('<input type="search" id="find" size="12">')
    buttons.append(tag("label", tag("span", "Request ", class_="quiet"), find))
    where = "" if overview.seats.named else (
        "The trace names no slots: each request is drawn in the lowest seat that was free. "
    )  # fmt: skip
    left_out = len(overview.heat.left_out)
    if left_out:
        where += f"Drawn are {len(overview.heat.rows)} slots; {count(left_out, 'more')} are left out. "
    slide = [
        tag("button", "‹", type="button", id="step-back", aria_label="One step back"),
        Html('<input type="range" id="slider" min="0" value="0" aria-label="Step">'),
        tag("button", "›", type="button", id="step-on", aria_label="One step on"),
        Html('<input type="number" id="step" aria-label="Step number">'),
    ]
    hint = (
        "Drag to move, click a request to follow it, double-click or Ctrl + wheel to zoom. In the picture: "
    )
    keys = join(
        (tag("kbd", key) for key in ("←", "→", "+", "−", "0", ",", ".", "f", "Home", "End", "Esc")), " "
    )
    return section(
        "picture-section",
        "Slot by step",
        tag("p", where, class_="quiet") if where else "",
        tag("ul", join(legend), class_="legend"),
        tag("div", join(buttons), class_="bar", role="group", aria_label="Move in the picture"),
        tag("canvas", id="ruler", aria_hidden="true"),
        tag(
            "div",
            tag(
                "canvas",
                id="picture",
                tabindex="0",
                role="application",
                aria_label="Slots over steps; the step slider below says what a step holds",
            ),
            id="seats",
        ),
        tag("div", join(slide), class_="slide"),
        tag("div", id="now", aria_live="polite"),
        tag("ul", id="who", class_="chips", aria_label="Who sits where in this step"),
        tag("p", id="note", class_="hint"),
        tag("p", hint, keys, class_="hint keys-hint"),
    )


def plots_section(overview: Overview) -> Html:
    """Memory, queue, batch and tokens over the same steps as the picture."""
    limits = overview.limits
    pool = "Blocks that are not free, as the engine counts them" if overview.counted_blocks else (
        "Blocks of all requests, as the rows give them"
    )  # fmt: skip
    pool += (
        f"; the pool has {limits.kv_blocks:,}." if limits.kv_blocks else "; how many there are is not said."
    )
    if not overview.has_blocks:
        pool = "The trace has no block counts (level L1), so the use of the pool is not known."
    budget = f"; the budget is {limits.token_budget:,}" if limits.token_budget else ""
    seats = f"; at most {limits.max_seqs:,} may run" if limits.max_seqs else ""
    plots = [
        ("plot-kv", "KV pool", pool),
        ("plot-queue", "Queue depth", "Requests that have arrived and do not run."),
        (
            "plot-running",
            "Running",
            f"Requests in the batch, and those in the forward pass itself{seats}.",
        ),
        ("plot-tokens", "Tokens per step", f"What each pass computes{budget}."),
    ]
    return tag(
        "section",
        tag("h2", "Over the steps", id="plots-h"),
        tag("p", "Drag across a plot to zoom all of them and the picture; double-click to see everything.",
            class_="hint"),
        tag("div", join(_plot(*plot) for plot in plots), class_="plots"),
        id="plots",
        aria_labelledby="plots-h",
    )  # fmt: skip


def latency_section(metrics: Metrics | None, known: bool) -> Html:
    """Percentiles as a table and, where times are known, as curves."""
    if not known:
        return section("latency", "Latency", tag("p", "The trace has no times, so no latency is known."))
    parts: list[Html] = []
    if metrics is not None:
        rows = [
            (
                name,
                *(
                    _time(value)
                    for value in (spread.p50, spread.p95, spread.p99, spread.largest, spread.mean)
                ),
                f"{spread.count:,}",
            )
            for name, spread in _latencies(metrics).items()
        ]
        parts.append(table(("", "p50", "p95", "p99", "most", "mean", "values"), rows, " nnnnnn", wide=True))
    says = "How long a request waits at most, by share of requests; the tail is drawn wider."
    parts.append(tag("p", says, class_="hint"))
    parts.append(tag("div", id="plot-latency", class_="plot"))
    return section("latency", "Latency", *parts)


def tenants_section(overview: Overview) -> Html:
    """What each tenant was served, and how far services drift apart while tenants wait."""
    names = overview.tenants.names
    if not names:
        return Html("")
    service = overview.metrics.service if overview.metrics else {}
    total = sum(service.values()) or 1.0
    ordered = sorted(service.items(), key=lambda item: -item[1])[:MOST_IN_A_TABLE]
    rows = [(plain(name, 40), f"{value:,.0f}", f"{value / total:.1%}") for name, value in ordered]
    profile = overview.profile
    weights = (
        f"{profile.value('fairness.w_p'):g} a prompt token, {profile.value('fairness.w_q'):g} an output token"
    )
    claim = "Fair shares keep it under 2U" if profile.admission.order == "fair" else (
        "2U is what a fair order would keep it under; this profile does not claim one"
    )  # fmt: skip
    drift = f"The widest drift of two services while both wait. {claim} (VTC, OSDI'24, Theorem 4.4)."
    left = overview.tenants.left_out
    more = (
        f" Drawn are the first {len(names)} tenants to arrive of {len(names) + len(left):,}." if left else ""
    )
    return tag(
        "section",
        tag("h2", "Tenants", id="tenants-h"),
        tag(
            "div",
            _plot("plot-service", "Service per tenant", f"Weighted tokens so far: {weights}.{more}"),
            _plot("plot-drift", "Fairness", drift),
            class_="plots",
        ),
        tag("div", table(("tenant", "service", "share"), rows, " nn"), class_="card"),
        id="tenants",
        aria_labelledby="tenants-h",
    )


def figures_section(metrics: Metrics) -> Html:
    """The quantities of the glossary, as one table."""
    rows = [(name, value) for name, value in _figures(metrics) if value is not None]
    return section("figures", "Figures", table(("", ""), rows, " n"))


def tiles(metrics: Metrics) -> list[tuple[str, str]]:
    """The few figures that a reader looks for first."""
    ttft = metrics.ttft
    found: list[tuple[str, str | None]] = [
        ("requests finished", f"{metrics.finished:,}/{metrics.requests:,}"),
        ("steps", f"{metrics.steps:,}"),
        ("span", None if not metrics.span_ns else _time(metrics.span_ns)),
        ("output tokens a second", None if metrics.throughput is None else f"{metrics.throughput:,.0f}"),
        ("p95 time to first token", None if ttft is None else _time(ttft.p95)),
        ("slot utilisation", None if metrics.slot_utilisation is None else f"{metrics.slot_utilisation:.0%}"),
        ("preemptions", f"{metrics.preemptions:,}"),
    ]
    return [(name, value) for name, value in found if value is not None]


def _plot(name: str, heading: str, says: str) -> Html:
    return tag("div", tag("h3", heading), tag("p", says), tag("div", id=name), class_="card plot")


def _latencies(metrics: Metrics) -> Mapping[str, Distribution]:
    found = {
        "queueing delay": metrics.queueing_delay,
        "time to first token": metrics.ttft,
        "time between tokens": metrics.tbt,
        "end to end": metrics.end_to_end,
    }
    return {name: spread for name, spread in found.items() if spread is not None}


def _figures(metrics: Metrics) -> list[tuple[str, Piece]]:
    def share(value: float | None) -> str | None:
        return None if value is None else f"{value:.1%}"

    def spread(value: Distribution | None) -> str | None:
        if value is None:
            return None
        return f"mean {value.mean:,.1f}, p95 {value.p95:,}, most {value.largest:,}"

    def figure(value: float | None) -> str | None:
        return None if value is None else f"{value:,.1f}"

    return [
        ("batch size, requests in a pass", spread(metrics.members_per_pass)),
        ("batch size, tokens in a pass", spread(metrics.tokens_per_pass)),
        ("concurrency, in flight", spread(metrics.concurrency)),
        ("active sequences", spread(metrics.active)),
        ("queue depth", spread(metrics.queue_depth)),
        ("seats occupied", share(metrics.seat_occupancy)),
        ("slot utilisation", share(metrics.slot_utilisation)),
        ("busy: share of the time in which a pass runs", share(metrics.busy)),
        ("weight reuse, tokens per weight read", figure(metrics.weight_reuse)),
        ("arithmetic intensity, FLOPs per byte (from the model)", figure(metrics.arithmetic_intensity)),
        ("positions computed", f"{metrics.computed_tokens:,}"),
        ("of these computed again", share(metrics.recomputed_share)),
        ("output tokens", f"{metrics.output_tokens:,}"),
        ("goodput, output tokens of finished requests a second", figure(metrics.goodput)),
        ("draft acceptance", share(metrics.draft_acceptance)),
        ("padding waste, were batches padded", share(metrics.padding_waste)),
        ("aborted", f"{metrics.aborted:,}"),
        ("rejected", f"{metrics.rejected:,}"),
    ]


def _time(value: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(value) >= size:
            scaled = value / size
            return f"{scaled:,.{0 if scaled >= 100 else 1 if scaled >= 10 else 2}f} {unit}"
    return f"{value:.0f} ns"
