"""Input outside the contract, each kind a test of its own: it must be turned away, and nobody else suffers.

A request that can never be served may be refused by `add`, rejected, or ended in any way. What it must not
do is crash the scheduler, block others for good, or stay for ever. Nothing else is asked of such a run.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from batchspec.replay.conform.case import Case, longest, prompt_of, request_of
from batchspec.replay.conform.judge import Judged
from batchspec.replay.conform.kinds import Refusal
from batchspec.replay.drive import Script
from batchspec.spec.events import Event, RequestId
from batchspec.spec.profile import Profile
from batchspec.spec.verdict import Finding, RuleResult

ODD: RequestId = "X"
"""The id of the request that is out of place; the others are A and B."""


@dataclass(frozen=True, slots=True)
class Outside:
    """One kind of input that no profile permits."""

    name: str
    case: Case
    emits: bool = False
    """Whether the odd request may emit something before it ends."""


def outside(profile: Profile) -> Iterator[Outside]:
    """Every kind that these limits allow to be made."""
    limits = profile.limits
    most = longest(profile)
    fine = min(4, max(1, most - 3))

    def run(name: str, odd: Script, *, emits: bool = False, claims: Profile = profile) -> Outside:
        first = Script(request_of("A", prompt_of(1, fine), 3), 3)
        last = Script(request_of("B", prompt_of(2, fine), 3, arrival_ns=10), 3)
        return Outside(name, Case(claims, (first, odd, last)), emits)

    if limits.kv_blocks is not None and limits.block_size is not None:
        pool = limits.kv_blocks * limits.block_size
        room = replace(profile, limits=replace(limits, max_model_len=4 * pool))
        if profile.batching.chunked_prefill:
            odd = Script(request_of(ODD, prompt_of(3, pool + 1), 2), 2)
            yield run("a prompt larger than the pool", odd, claims=room)
            odd = Script(request_of(ODD, prompt_of(3, pool - 1), 4), 4)
            yield run("outputs larger than the pool", odd, emits=True, claims=room)
    if limits.max_model_len is not None:
        odd = Script(request_of(ODD, prompt_of(3, limits.max_model_len), 1), 1)
        yield run("a prompt as long as the model", odd)
        odd = Script(request_of(ODD, prompt_of(3, 2 * limits.max_model_len), 2), 2)
        yield run("a prompt longer than the model", odd)
    if not profile.batching.chunked_prefill and limits.token_budget is not None:
        odd = Script(request_of(ODD, prompt_of(3, limits.token_budget + 1), 2), 2)
        yield run("a prompt larger than a step", odd)
    yield run("an id that is live", Script(request_of("A", prompt_of(3, fine), 2), 2), emits=True)
    yield run("an empty prompt", Script(request_of(ODD, (), 2), 2), emits=True)
    yield run("no token to emit", Script(request_of(ODD, prompt_of(3, fine), 0), 1))


def refused(test: Outside, judged: Judged) -> Judged:
    """The run judged by this one question: its report holds `conform/refusal` and nothing else."""
    message = _wrong(test, judged)
    finding = []
    rows = judged.run.trace.num_rows
    if message is not None:
        step, row = (judged.run.steps, rows - 1) if rows else (None, None)
        expected = "the odd request ends, the others run to their ends"
        text = f"{test.name}: {message}"
        finding.append(Finding(Refusal.id, step, row, (ODD,), expected, message, text))
    verdict = RuleResult(Refusal.id, "violates" if finding else "conforms", 1, len(finding))
    report = replace(judged.report, rules=(verdict,), findings=tuple(finding))
    return replace(judged, report=report)


def _wrong(test: Outside, judged: Judged) -> str | None:
    run = judged.run
    for told in (run.crash, run.hung, run.broken):
        if told is not None:
            return told
    ends: dict[RequestId, Event] = {}
    arrivals: dict[RequestId, int] = {}
    outputs: dict[RequestId, int] = {}
    for row in run.trace.events():
        if row.event == "arrive":
            arrivals[row.subject] = arrivals.get(row.subject, 0) + 1
        elif row.event == "output":
            outputs[row.subject] = outputs.get(row.subject, 0) + (row.tokens or 0)
        elif row.event in ("finish", "abort", "reject"):
            ends.setdefault(row.subject, row)
    if arrivals.get("A", 0) > 1:
        return "a second request was taken under the id of a live one"
    for name in ("A", "B"):
        end = ends.get(name)
        if end is None:
            return f"{name} never ended"
        if end.event != "finish" or end.reason not in ("length", "stop"):
            return f"{name} was ended ({end.event}, {end.reason})"
    if ODD in arrivals and ODD not in ends:
        return f"{ODD} was taken and never ended"
    emitted = outputs.get(ODD) or (ends[ODD].output_tokens or 0 if ODD in ends else 0)
    if emitted and not test.emits:
        return f"{ODD} emitted {emitted} tokens"
    return None
