"""The glossary: each of the field's 24 words, what it is here, and where it lives.

A home is written `kind:name`:

    mode:static              a value of `batching.mode`
    order:fcfs               an order of admission
    event:finish             an event, whose guard and effect are in actions.py
    rule:slots/reuse         a rule of the catalogue
    claim:limits.max_seqs    an option of a profile
    code:module.Name         the class or function of that name in batchspec
    figure:ttft_p95_ms       a figure that `compare` and `sweep` write

A word that is a quantity has a figure.
"""

from typing import Final, NamedTuple


class Term(NamedTuple):
    """One word: what it is here, its homes, and whether it is a quantity."""

    word: str
    says: str
    homes: tuple[str, ...]
    quantity: bool = False


GLOSSARY: Final = (
    Term(
        "batching",
        "several requests in one forward pass, which reads each weight once",
        ("code:engine.batch.Batch", "figure:batch_mean"),
        True,
    ),
    Term(
        "sequence batching",
        "many sequences in one batch, padded to a length or packed end to end; padding is waste",
        ("code:spec.quantities.padding_waste", "figure:padding_waste"),
        True,
    ),
    Term(
        "static batching",
        "a fixed batch runs to completion before the next one starts",
        ("mode:static", "rule:batch/static-barrier"),
    ),
    Term(
        "dynamic batching",
        "a batch is formed from what arrives inside a window, or up to a size",
        ("mode:dynamic", "rule:batch/dynamic-window", "claim:batching.window_ns"),
    ),
    Term(
        "continuous batching",
        "the batch is rebuilt at every step",
        ("mode:continuous", "rule:slots/reuse", "rule:batch/no-stall"),
    ),
    Term(
        "batch size",
        "members, and tokens, of a step; bounded by max_seqs and token_budget",
        (
            "claim:limits.max_seqs",
            "claim:limits.token_budget",
            "rule:batch/token-budget",
            "figure:batch_p95",
            "figure:batch_tokens_mean",
        ),
        True,
    ),
    Term(
        "batched forward pass",
        "one pass over all members' tokens",
        ("code:spec.passes.passes", "event:schedule", "figure:passes"),
        True,
    ),
    Term(
        "batch scheduling",
        "per step: who runs, how many prompt tokens join the decodes, who waits",
        ("code:spec.reference.decide.Decisions", "rule:batch/mixed"),
    ),
    Term(
        "request admission",
        "may this request start now, given free KV memory and the batch's budget",
        ("event:admit", "rule:admission/fit", "rule:admission/order", "claim:admission.test"),
    ),
    Term(
        "inference scheduler",
        "the component that decides batching, admission and preemption at each iteration",
        ("code:spec.reference.ReferenceScheduler", "code:replay.harness.Scheduler"),
    ),
    Term(
        "request queue",
        "arrived and not running; its depth is an early warning of overload",
        ("code:spec.reference.queue.WaitingQueue", "event:arrive", "figure:queue_depth_p95"),
        True,
    ),
    Term(
        "queueing delay",
        "the wait from arrival to the first admission, split out of the time to first token",
        ("code:spec.served.Served.queueing_ns", "figure:queueing_p95_ms"),
        True,
    ),
    Term(
        "concurrency",
        "requests in flight, running or waiting",
        ("code:replay.simulate.simulate", "figure:concurrency_mean"),
        True,
    ),
    Term(
        "concurrent inference",
        "many independent requests served by batching on one model",
        ("code:engine.record.record", "code:replay.simulate.simulate"),
    ),
    Term(
        "active sequences",
        "in the running batch with KV resident; bounded by memory and max_seqs",
        ("rule:batch/capacity", "rule:memory/bound", "figure:active_mean", "figure:seat_occupancy"),
        True,
    ),
    Term(
        "sequence completion",
        "a stopping condition; slot and blocks go to the next request at once",
        ("event:finish", "rule:slots/reuse", "rule:memory/release", "figure:finished"),
        True,
    ),
    Term(
        "dynamic batch membership",
        "the set of members changes from step to step, and each sequence keeps its own books",
        ("rule:batch/membership", "code:spec.reference.board.Member"),
    ),
    Term(
        "arithmetic intensity",
        "FLOPs per byte moved: about 1 for one decode in 16 bits, rising with the batch",
        ("code:spec.quantities.arithmetic_intensity", "figure:arithmetic_intensity"),
        True,
    ),
    Term("weight reuse", "tokens per weight read", ("figure:weight_reuse",), True),
    Term(
        "GPU utilization",
        "busy (some pass runs) and MFU (share of peak FLOPs), two figures that are never one",
        ("code:spec.metrics.Metrics.mfu", "figure:busy", "figure:mfu"),
        True,
    ),
    Term(
        "scheduling policy",
        "first come first served, shortest job first, priority classes, fair shares",
        (
            "order:fcfs",
            "order:sjf",
            "order:priority",
            "order:fair",
            "rule:fairness/overtaking",
            "rule:fairness/priority-inversion",
            "rule:fairness/service-gap",
        ),
    ),
    Term(
        "request preemption",
        "a running request is interrupted: its KV is swapped out, or dropped and recomputed",
        (
            "event:preempt",
            "rule:preemption/victim",
            "rule:preemption/cause",
            "figure:preemptions",
            "figure:recomputed_share",
        ),
        True,
    ),
    Term(
        "tail latency",
        "p95 and p99 of time to first token, time between tokens and end to end",
        (
            "code:spec.quantities.percentile",
            "figure:ttft_p95_ms",
            "figure:ttft_p99_ms",
            "figure:tbt_p95_ms",
            "figure:tbt_p99_ms",
            "figure:e2e_p95_ms",
            "figure:e2e_p99_ms",
        ),
        True,
    ),
    Term(
        "throughput-versus-latency trade-off",
        "one point a setting; a deployment picks one",
        ("code:replay.commands.sweep.sweep", "figure:throughput", "figure:e2e_p95_ms", "figure:slo_goodput"),
        True,
    ),
)
"""The words, in the order in which they build on each other."""
