"""Rules of the two phases in one batch: prefills do not hold decodes up, or do not mix with them."""

from collections.abc import Sequence

from batchspec.spec.events import Event, RequestId
from batchspec.spec.model import Member, Request
from batchspec.spec.profile import Profile
from batchspec.spec.rule import Rule
from batchspec.spec.words import count, short


class NoStall(Rule):
    """A running decode is a member of every step that runs a pass."""

    id = "batch/no-stall"
    sentence = (
        "A running request whose prefill is complete is a member of every step that runs a pass, unless "
        "other decodes use the budget up, a skip row says why, or all its tokens are in flight."
    )
    premise = ("batching.stall_free",)
    columns = ("start", "tokens", "prompt_tokens")
    source = "Sarathi-Serve (OSDI'24) §4.2, SA4; vLLM issue 49097 (a running request jumped over)"

    def __init__(self, *args: object) -> None:
        """Nobody decodes yet."""
        super().__init__(*args)  # type: ignore[arg-type]
        self._decoding: set[RequestId] = set()

    def closing(self, event: Event | None) -> None:
        """Who runs and is left out?"""
        self._judge()
        # The last token of a prompt may be a part of its own: after a pass that reached n comes a decode.
        for request, part in self.state.members.items():
            if part.reaches and request in self.state.running:
                self._decoding.add(request)

    def _judge(self) -> None:
        state = self.state
        # Members that have ended in this step do not stand for those that run on.
        if not state.members or state.running.keys() <= state.members.keys():
            self.checked += len(state.members)
            return
        decodes: int | None = None
        for record in state.records(state.running):
            request = record.id
            self.checked += 1
            if request in state.members or request in state.skips or request in state.admitted:
                continue
            if request not in self._decoding or not record.prefilled or request in state.emitted:
                continue
            allowed, outputs = record.max_tokens, record.outputs
            if record.pending and (allowed is None or outputs is None or outputs + record.pending >= allowed):
                continue
            if decodes is None:
                decodes = sum(part.tokens or 0 for part in state.members.values() if _is_decode(part))
            if state.token_budget is None or decodes >= state.token_budget:
                continue
            self.flag(
                f"{request} is decoding and left out of step {state.step}",
                request,
                expected=f"{request} among the members, or a skip row that says why",
                observed=f"{count(len(state.members), 'member')}; decodes use {decodes} of "
                f"{state.token_budget} tokens",
            )

    def after_live(self, event: Event, record: Request | None) -> None:
        """One that has emitted and whose prefix is resident decodes, or will by a pass that is out."""
        if record is not None and _decodes(record, self.profile):
            self._decoding.add(record.id)

    def after_preempt(self, event: Event, record: Request | None) -> None:
        """Its prefix is to be rebuilt, in parts of any length; one that was swapped out goes on."""
        if record is None or not record.swapped:
            self._decoding.discard(event.subject)

    def after_finish(self, event: Event, record: Request | None) -> None:
        """Forget it."""
        self._decoding.discard(event.subject)

    after_abort = after_finish


class Mixed(Rule):
    """No step mixes prefill and decode, where the profile separates them."""

    id = "batch/mixed"
    sentence = "Where the profile separates the phases, no step has both prefills and decodes."
    premise = ("batching.mixed=false",)
    columns = ("tokens",)
    source = "vLLM classic scheduler, VL6; SGLang prefill and decode batches"

    def __init__(self, *args: object) -> None:
        """Nobody decodes yet."""
        super().__init__(*args)  # type: ignore[arg-type]
        self._decoding: set[RequestId] = set()
        self._phases: dict[RequestId, bool] = {}
        self._unsure: set[RequestId] = set()

    def before_schedule(self, event: Event, record: Request | None) -> None:
        """A request decodes once it has emitted since it joined."""
        if event.request is not None and record is not None:
            if event.request in self._unsure:
                self.skipped += 1
            else:
                self._phases[event.request] = event.request in self._decoding

    def decided(self) -> None:
        """Compare the phases of the members."""
        members = self.state.members
        phases = {request: decode for request, decode in self._phases.items() if request in members}
        self._phases = {}
        self.checked += 1
        if len(set(phases.values())) > 1:
            decodes = [str(request) for request, decode in phases.items() if decode]
            prefills = [str(request) for request, decode in phases.items() if not decode]
            self.flag(
                f"step {self.state.step} mixes prefill and decode",
                *(request for request, decode in phases.items() if not decode),
                expected="one phase a step",
                observed=f"prefill {short(', '.join(prefills))}; decode {short(', '.join(decodes))}",
            )
        # With overlap the token comes later, but the next pass is a decode all the same.
        for request, part in members.items():
            if part.reaches:
                self._decoding.add(request)
            elif part.reaches is None and request not in self._decoding:
                self._unsure.add(request)

    def emitted(self, record: Request, tokens: int, member: Member | None) -> None:
        """From its first output on a request decodes, unless it was preempted meanwhile (overlap)."""
        if record.state == "running":
            self._decoding.add(record.id)
            self._unsure.discard(record.id)

    def after_preempt(self, event: Event, record: Request | None) -> None:
        """Its KV is to be rebuilt: a prefill again. One that was swapped out goes on where it was."""
        if record is not None and record.swapped:
            return
        self._decoding.discard(event.subject)
        self._unsure.discard(event.subject)
        if record is not None and record.computed is None:
            self._unsure.add(record.id)  # the row does not say which of the two it was

    def after_finish(self, event: Event, record: Request | None) -> None:
        """Forget it."""
        self._decoding.discard(event.subject)
        self._unsure.discard(event.subject)

    def after_abort(self, event: Event, record: Request | None) -> None:
        """Forget it."""
        self._decoding.discard(event.subject)
        self._unsure.discard(event.subject)

    def after_live(self, event: Event, record: Request | None) -> None:
        """One that has emitted and whose prefix is resident decodes, or will by a pass that is out."""
        if record is None:
            return
        decodes = _decodes(record, self.profile)
        if decodes:
            self._decoding.add(record.id)
        elif decodes is None and record.state == "running":
            self._unsure.add(record.id)

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Outputs must be recorded or derivable."""
        if "output" in kinds:
            return ()
        return [name for name in ("start", "prompt_tokens") if name not in columns]


def _decodes(record: Request, profile: Profile) -> bool | None:
    """Whether a request that was live when the trace begins is past its prefill; None where nobody knows.

    One token short of n it decodes, or the last part of a prefix that is rebuilt is one token long.
    """
    if record.computed is None or record.known is None:
        return None
    if record.computed >= record.known - record.pending:
        return True
    if not (record.outputs and record.prefilled):
        return False
    rebuilt = profile.preemption.mode != "none" and profile.batching.chunked_prefill is not False
    return None if rebuilt else True


def _is_decode(part: Member) -> bool:
    return bool(part.reaches) and (part.tokens or 0) - part.drafts == 1


RULES = (NoStall, Mixed)
