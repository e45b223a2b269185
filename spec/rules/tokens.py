"""Rules of token accounting: positions are computed once each and in order, outputs come one a pass.

c only moves by schedule (+ tokens), by rejected drafts, by preempt and by taking over a cached prefix;
o only by output. Source of the family: vLLM V1, `num_computed_tokens` and `num_tokens`; G3, G4.
"""

from collections.abc import Sequence
from typing import Any

from batchspec.spec.actions import from_before, only_mode, part_of
from batchspec.spec.events import Event, RequestId
from batchspec.spec.model import Request
from batchspec.spec.profile import Profile
from batchspec.spec.rule import Rule
from batchspec.spec.words import count


def _pass_needs(profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> list[str]:
    """What output accounting needs: drafts where outputs are recorded, passes where they overlap."""
    lacking = []
    if "output" in kinds:
        if "drafts" not in columns and profile.batching.lookahead != 0:
            lacking.append("drafts")
        if _overlaps(profile) and "pass" not in columns:
            lacking.append("pass")
    return lacking


def _overlaps(profile: Profile) -> bool:
    options = ("reuse.slot_lag", "reuse.overlap_member")
    return profile.value("reuse.depth") > 1 or any(profile.value(option) for option in options)


class Position(Rule):
    """`start` = c."""

    id = "tokens/position"
    sentence = (
        "A pass begins at the first position that is not resident; rejected drafts are taken back, and a "
        "cache leaves at least one token to compute."
    )
    columns = ("start", "tokens")
    source = "G3; vLLM PR 42722 (rejected drafts not taken back); SGLang issue 36855 (same chunk again)"
    repairs = True

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Recorded outputs move c where there are drafts."""
        lacking = _pass_needs(profile, columns, kinds)
        hidden = "preempt" in kinds and "reason" not in columns and only_mode(profile) is None
        return [*lacking, "reason"] if hidden else lacking

    def before_schedule(self, event: Event, record: Request | None) -> None:
        """Compare start with c; after an adopted cache length any start below n will do."""
        start = event.start
        if record is None:
            return
        if start is None:
            self.skipped += 1
            return
        if record.adopts:
            known = record.known
            self.checked += 1
            if start < 0 or (known is not None and start >= known):
                self.flag(
                    f"{record.id} starts at position {start} of {known} known tokens",
                    record.id,
                    expected=f"a start from 0 to {(known or 0) - 1}",
                    observed=f"start {start}",
                )
            return
        computed = record.computed
        if computed is None:
            self.skipped += 1
            return
        self.checked += 1
        if start != computed:
            self.flag(
                f"{record.id} computes from position {start}, but {computed} positions are resident",
                record.id,
                expected=f"start {computed}",
                observed=f"start {start}, tokens {event.tokens}",
            )

    def before_admit(self, event: Event, record: Request | None) -> None:
        """A cached prefix leaves at least one token to compute."""
        if event.cached is None or record is None or record.known is None:
            return
        self.checked += 1
        if event.cached >= record.known:
            self.flag(
                f"{record.id} takes over {event.cached} of its {record.known} tokens from a cache",
                record.id,
                expected=f"at most {record.known - 1}, so that one is left to compute",
                observed=f"cached {event.cached}",
            )

    before_resume = before_admit


class Overrun(Rule):
    """start + tokens ≤ n + drafts."""

    id = "tokens/overrun"
    sentence = "A pass computes no position beyond the known tokens and the drafts."
    columns = ("start", "tokens", "prompt_tokens")
    source = "vLLM V1.1: tokens = min(total - computed, …)"
    repairs = True

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Drafts must be known."""
        return _pass_needs(profile, columns, kinds)

    def before_schedule(self, event: Event, record: Request | None) -> None:
        """Compare the end of the pass with n."""
        if record is None:
            return
        known = record.known
        if known is None or event.start is None or event.tokens is None:
            self.skipped += 1
            return
        if self.state.overlaps and self.state.may_have_more(record):
            self.skipped += 1
            return
        if event.drafts is None and not self.state.drafts_known:
            self.skipped += 1
            return
        self.checked += 1
        most = known + (event.drafts or 0)
        if event.start + event.tokens > most:
            self.flag(
                f"{record.id} computes {count(event.start + event.tokens, 'position')}, but has only "
                f"{count(known, 'token')}" + (f" and {count(event.drafts, 'draft')}" if event.drafts else ""),
                record.id,
                expected=f"start + tokens of at most {most}",
                observed=f"start {event.start}, tokens {event.tokens}, drafts {event.drafts or 0}",
            )


class EarlyOutput(Rule):
    """An output only from a pass that reaches n, of at most drafts + 1 tokens."""

    id = "tokens/early-output"
    sentence = (
        "A request emits only from a pass that computes its last known token, at most one token more than "
        "it had drafts."
    )
    columns = ("start", "tokens", "prompt_tokens")
    source = "G4; vLLM issue 57562 (a token for a chunk that is not the last)"

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Derived outputs are early by nobody's word."""
        lacking = _pass_needs(profile, columns, kinds)
        return lacking if "output" in kinds else [*lacking, "output rows"]

    def before_output(self, event: Event, record: Request | None) -> None:
        """Find the part in the pass, and what it may emit."""
        if record is None:
            return
        part = part_of(self.state, event)
        if part is None:
            if record.id in self.state.emitted and event.pass_step == self.state.step:
                return  # a second output of one pass: tokens/in-flight or tokens/lost
            if self.state.overlaps:
                return
            self.checked += 1
            self.flag(
                f"{record.id} emits in step {event.step}, of which it is no member",
                record.id,
                expected="an output only from a pass that reaches its last known token",
                observed=f"{count(event.tokens or 0, 'token')} from pass {event.pass_step}",
            )
            return
        if part.reaches is None or event.tokens is None:
            self.skipped += 1
            return
        self.checked += 1
        if not part.reaches and not record.preemptions:
            end = None if part.start is None or part.tokens is None else part.start + part.tokens
            self.flag(
                f"{record.id} emits from pass {event.pass_step}, which does not reach its last known token",
                record.id,
                expected=f"no output before all {count(record.known or 0, 'known token')} are computed",
                observed=f"{count(event.tokens, 'token')} from a pass that ends at position {end}",
            )
        elif event.tokens > part.drafts + 1:
            self.flag(
                f"{record.id} emits {event.tokens} tokens from a pass with {count(part.drafts, 'draft')}",
                record.id,
                expected=f"at most {count(part.drafts + 1, 'token')}",
                observed=f"{event.tokens} tokens",
            )


class OutputCount(Rule):
    """Outputs counted = `output_tokens`, ≤ max_tokens; with reason length = max_tokens."""

    id = "tokens/output-count"
    sentence = (
        "The outputs counted equal the number that the end reports, are at most max_tokens, and equal it "
        "where the reason is length."
    )
    columns = ("start", "tokens", "prompt_tokens")
    source = "vLLM V1 stop check; OpenAI API, max_tokens and finish_reason"

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Outputs must be recorded or derivable; something must state a number to compare with."""
        lacking = [] if "output" in kinds else _pass_needs(profile, columns, kinds)
        if not {"output_tokens", "max_tokens"} & columns:
            lacking.append("output_tokens")
        return lacking

    def before_finish(self, event: Event, record: Request | None) -> None:
        """Compare at the end."""
        if record is None:
            return
        outputs, reported, limit = record.outputs, event.output_tokens, record.max_tokens
        if reported is None and limit is None:
            self.skipped += 1
            return
        if outputs is None:
            self.skipped += 1
            return
        self.checked += 1
        if reported is not None and reported != outputs:
            self.flag(
                f"{record.id} ends with {count(reported, 'output token')} reported and {outputs} counted",
                record.id,
                expected=f"output_tokens {outputs}",
                observed=f"output_tokens {reported}",
            )
        elif limit is not None and outputs > limit:
            self.flag(
                f"{record.id} ends with {count(outputs, 'output token')} where at most {limit} may be",
                record.id,
                expected=f"at most {limit} (max_tokens)",
                observed=count(outputs, "output token"),
            )
        elif event.reason == "length" and limit is not None and outputs != limit:
            longest = self.profile.limits.max_model_len
            if longest is None or record.prompt is None or record.prompt + outputs < longest:
                self.flag(
                    f"{record.id} ends for its length after {outputs} of {count(limit, 'output token')}",
                    record.id,
                    expected=f"{count(limit, 'output token')} (max_tokens), or another reason",
                    observed=f"reason length after {count(outputs, 'output token')}",
                )

    before_abort = before_finish


class Lost(Rule):
    """After preempt and resume no output vanishes, none is emitted twice."""

    id = "tokens/lost"
    sentence = "After a preemption prompt and outputs are computed anew: no output is lost, none comes twice."
    columns = ("start", "tokens", "prompt_tokens")
    source = "vLLM (SOSP'23) §4.5, VL4: prompt' = p + o; nano-vllm PR 217"

    def __init__(self, *args: Any) -> None:
        """Nothing was preempted."""
        super().__init__(*args)
        self._least: dict[RequestId, int] = {}

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Outputs must be recorded or derivable."""
        return _pass_needs(profile, columns, kinds)

    def before_preempt(self, event: Event, record: Request | None) -> None:
        """What it has emitted so far must still be there at its end."""
        if record is not None and record.outputs is not None:
            self._least[record.id] = record.outputs

    def before_output(self, event: Event, record: Request | None) -> None:
        """Twice from one pass, or before the prefix was rebuilt."""
        if record is None:
            return
        state = self.state
        part = part_of(state, event)
        if part is None:
            if "pass" not in state.columns and record.id in state.emitted:
                self.checked += 1
                self.flag(
                    f"{record.id} emits a second time in step {event.step}",
                    record.id,
                    expected="one output a pass",
                    observed=f"{count(state.emitted[record.id] or 0, 'token')}, then {event.tokens} more",
                )
            return
        if record.preemptions and part.reaches is not None:
            self.checked += 1
            if not part.reaches:
                end = None if part.start is None or part.tokens is None else part.start + part.tokens
                self.flag(
                    f"{record.id} emits after its preemption although its prefix is not rebuilt",
                    record.id,
                    expected=f"all {count(record.known or 0, 'token')} of prompt and outputs computed first",
                    observed=f"an output of a pass that ends at position {end}",
                )

    def before_finish(self, event: Event, record: Request | None) -> None:
        """An end that reports fewer than were emitted before a preemption."""
        least = self._least.pop(event.subject, None)
        if least is None or event.output_tokens is None:
            return
        self.checked += 1
        if event.output_tokens < least:
            self.flag(
                f"{event.request} had emitted {count(least, 'token')} when it was preempted and ends with "
                f"{event.output_tokens}",
                event.subject,
                expected=f"at least {count(least, 'output token')}",
                observed=f"output_tokens {event.output_tokens}",
            )

    before_abort = before_finish


class Chunking(Rule):
    """Without chunked prefill a prompt is computed in one step."""

    id = "tokens/chunking"
    sentence = "Without chunked prefill a prompt is computed in one step."
    premise = ("batching.chunked_prefill=false",)
    columns = ("start", "tokens", "prompt_tokens")
    source = "Orca (OSDI'22); vLLM classic scheduler, VL6"

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """n must be known."""
        return _pass_needs(profile, columns, kinds)

    def before_schedule(self, event: Event, record: Request | None) -> None:
        """A pass that stops short of n is a chunk."""
        if record is None:
            return
        known = record.known
        if known is None or event.start is None or event.tokens is None:
            self.skipped += 1
            return
        self.checked += 1
        if event.start + event.tokens < known:
            self.flag(
                f"{record.id} computes {event.tokens} of the {known - event.start} tokens that are left, "
                "under a profile without chunked prefill",
                record.id,
                expected=f"all {known - event.start} in one step",
                observed=f"start {event.start}, tokens {event.tokens}",
            )


class InFlight(Rule):
    """Each dispatched token is settled once, for the incarnation that dispatched it."""

    id = "tokens/in-flight"
    sentence = (
        "Each token in flight is settled once, by its own pass, for the incarnation that dispatched it."
    )
    columns = ("pass",)
    level = "L4"
    source = "vLLM issue 57562 (placeholder counter below zero); SGLang issue 34149"

    def __init__(self, *args: Any) -> None:
        """Nothing is settled."""
        super().__init__(*args)
        self._settled: dict[RequestId, tuple[int, int]] = {}

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Only recorded outputs can be settled."""
        return () if "output" in kinds else ("output rows",)

    def before_output(self, event: Event, record: Request | None) -> None:
        """For whom, from which pass, and for the how-manieth time?"""
        request = event.subject
        if event.pass_ is None:
            self.skipped += 1
            return
        self.checked += 1
        if record is None:
            end = self.state.ended.get(request)
            if end is not None:
                self.flag(
                    f"{request} is given tokens of pass {event.pass_} after it ended in step {end.step}",
                    request,
                    expected="outputs of a request that ended are dropped",
                    observed=f"output of pass {event.pass_} in step {event.step}",
                )
            return
        number, last = self._settled.get(request, (-1, -1))
        if number == record.number and event.pass_ <= last:
            self.flag(
                f"{request} is given tokens of pass {event.pass_} "
                + ("a second time" if event.pass_ == last else f"after those of pass {last}"),
                request,
                expected=f"tokens of a pass after {last}: each pass is settled once",
                observed=f"{count(event.tokens or 0, 'token')} of pass {event.pass_}",
            )
        elif self.state.overlaps:
            self._from_nowhere(event, record)
        self._settled[request] = (record.number, max(event.pass_, last if number == record.number else -1))

    def _from_nowhere(self, event: Event, record: Request) -> None:
        part = part_of(self.state, event)
        if from_before(self.state, event, record):
            return
        if part is None and record.first_admit is not None and not record.adopts:
            self.flag(
                f"{record.id} is given tokens of pass {event.pass_}, which has none of its in flight",
                record.id,
                expected="tokens only from a pass that computed its last known token",
                observed=f"{count(record.pending, 'token')} in flight, none from pass {event.pass_}",
            )

    def after_finish(self, event: Event, record: Request | None) -> None:
        """Forget it."""
        self._settled.pop(event.subject, None)

    def after_abort(self, event: Event, record: Request | None) -> None:
        """Forget it."""
        self._settled.pop(event.subject, None)


RULES = (Position, Overrun, EarlyOutput, OutputCount, Lost, Chunking, InFlight)
