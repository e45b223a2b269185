"""Rules of the batch of one step: who is in it, how many, how many tokens, and when it may start."""

from batchspec.spec.events import Event, RequestId
from batchspec.spec.model import Request
from batchspec.spec.rule import Rule
from batchspec.spec.words import count, duration, short


class Membership(Rule):
    """Members of a step are distinct, running and unfinished."""

    id = "batch/membership"
    sentence = (
        "The members of a step are distinct, and a request preempted or aborted in a step is no member of "
        "it: no schedule and no output of that step follows."
    )
    source = "Orca (OSDI'22) §3.1, OR5; vLLM PR 28558 (drafts of a preempted request stay in the plan)"

    def before_schedule(self, event: Event, record: Request | None) -> None:
        """Twice, or after it was taken out of this step?"""
        self.checked += 1
        request = event.request
        state = self.state
        if request in state.members:
            self.flag(
                f"{request} is scheduled twice in step {event.step}",
                event.subject,
                expected="one membership a step",
                observed=f"already a member, with {state.members[request].tokens} tokens",
            )
        elif (state.preempted_now or state.ended_now) and request is not None:
            self._gone(event, request)

    def before_output(self, event: Event, record: Request | None) -> None:
        """An output of this step's pass by someone who was taken out of it?"""
        state = self.state
        if state.overlaps and "pass" not in state.columns:
            return  # of which pass it is nobody says
        if event.pass_step == state.step and event.request is not None:
            self._gone(event, event.request)

    def _gone(self, event: Event, request: RequestId) -> None:
        state = self.state
        if state.state_of(request) == "running":
            return
        how = "preempted" if request in state.preempted_now else None
        if state.ended_now.get(request) == "abort":
            how = "aborted"
        if how is not None:
            self.flag(
                f"{request} was {how} in step {event.step} and still has a part in it",
                request,
                expected=f"nothing more of {request} in step {event.step}",
                observed=f"{event.event} after it was {how}",
            )


class Capacity(Rule):
    """Running requests ≤ S, or members ≤ S where the cap is per step."""

    id = "batch/capacity"
    sentence = "At most max_seqs requests run (or are members of one step, where the cap is per step)."
    premise = ("limits.max_seqs",)
    source = "Orca (OSDI'22) Algorithm 1; vLLM V1.6; nano-vllm PR 271 (admission ignores who runs)"

    def __init__(self, *args: object) -> None:
        """Read how the cap counts."""
        super().__init__(*args)  # type: ignore[arg-type]
        self._per_step = self.profile.value("limits.seqs_cap") == "per-step"
        self._over = False

    def after_admit(self, event: Event, record: Request | None) -> None:
        """One more runs."""
        self._running(event)

    def after_resume(self, event: Event, record: Request | None) -> None:
        """One more runs."""
        self._running(event)

    def after_live(self, event: Event, record: Request | None) -> None:
        """One more runs."""
        self._running(event)

    def _running(self, event: Event) -> None:
        if self._per_step:
            return
        self.checked += 1
        running, cap = len(self.state.running), self.state.max_seqs or 0
        if running > cap:
            self.flag(
                f"{running} requests run where at most {cap} may",
                event.subject,
                expected=f"at most {cap} running (max_seqs)",
                observed=f"{running} running after the {event.event} of {event.request}",
            )

    def decided(self) -> None:
        """The members of a step."""
        if not self._per_step:
            return
        self.checked += 1
        live = sum(1 for request in self.state.members if request in self.state.live)
        if live > (self.state.max_seqs or 0):
            self.flag(
                f"{live} requests are members of step {self.state.step} where at most "
                f"{self.state.max_seqs} may be",
                expected=f"at most {count(self.state.max_seqs or 0, 'member')} (max_seqs, per step)",
                observed=f"{live} members",
            )


class TokenBudget(Rule):
    """Σ tokens over the members of a step ≤ T, drafts included."""

    id = "batch/token-budget"
    sentence = "The tokens of a step's members, drafts included, sum to at most the token budget."
    premise = ("limits.token_budget",)
    columns = ("tokens",)
    source = "Sarathi-Serve (OSDI'24) §4.2; vLLM V1.6; TensorRT-LLM PR 16101 (drafts not charged)"

    def decided(self) -> None:
        """Sum over the members."""
        tokens = self.state.step_tokens
        if tokens is None:
            self.skipped += 1
            return
        self.checked += 1
        budget = self.state.token_budget or 0
        if tokens > budget:
            parts = " ".join(f"{name}:{part.tokens}" for name, part in self.state.members.items())
            self.flag(
                f"step {self.state.step} runs {tokens} tokens over a budget of {budget}",
                expected=f"at most {budget} tokens",
                observed=f"{tokens} tokens ({short(parts)})",
            )
        most = self.profile.limits.prefill_budget
        if most is not None:
            self._prefill(most)

    def _prefill(self, most: int) -> None:
        prompt = 0
        for part in self.state.members.values():
            if part.tokens is not None and (part.tokens - part.drafts > 1 or part.reaches is False):
                prompt += part.tokens
        if prompt > most:
            self.flag(
                f"step {self.state.step} runs {prompt} prompt tokens over a prefill budget of {most}",
                expected=f"at most {most} prompt tokens",
                observed=f"{prompt} prompt tokens",
            )


class EmptyMember(Rule):
    """Each member runs at least one position."""

    id = "batch/empty-member"
    sentence = "Each member of a step computes at least one position."
    columns = ("tokens",)
    source = "vLLM issue 53514 (a full cache hit leaves nothing to run); vLLM V1.6"

    def __init__(self, *args: object) -> None:
        """No suspects."""
        super().__init__(*args)  # type: ignore[arg-type]
        self._empty: list[RequestId] = []

    def before_schedule(self, event: Event, record: Request | None) -> None:
        """Note members without a token; they are judged once the step's members are final."""
        tokens = event.tokens
        if tokens is None:
            self.skipped += 1
            return
        self.checked += 1
        if tokens < 1 or (event.drafts is not None and tokens - event.drafts < 1):
            self._empty.append(event.subject)

    def decided(self) -> None:
        """Whoever is still a member."""
        if not self._empty:
            return
        empty, self._empty = self._empty, []
        for request in empty:
            part = self.state.members.get(request)
            if part is not None:
                self.flag(
                    f"{request} is a member of step {self.state.step} with nothing to compute",
                    request,
                    expected="at least one position that is not a draft",
                    observed=f"tokens {part.tokens}, drafts {part.drafts}",
                    row=part.row,
                )


class StaticBarrier(Rule):
    """No admission while any member of the batch is unfinished."""

    id = "batch/static-barrier"
    sentence = "In static and dynamic mode nobody is admitted while any member of the batch is unfinished."
    premise = ("batching.mode=static|dynamic",)
    source = "FasterTransformer scheduler as ported by Vidur and Sarathi-Serve, ST1 and ST2"

    def before_admit(self, event: Event, record: Request | None) -> None:
        """Into a batch that has already begun?"""
        self._join(event)

    def before_resume(self, event: Event, record: Request | None) -> None:
        """Into a batch that has already begun?"""
        self._join(event)

    def _join(self, event: Event) -> None:
        self.checked += 1
        state = self.state
        if state.running and (state.batch_step != state.step or state.decided):
            self.flag(
                f"{event.request} joins the batch of step {state.batch_step}, which has not ended",
                event.subject,
                expected="to wait until the last member of the batch has ended",
                observed="still running: " + short(", ".join(map(str, state.running))),
            )


class DynamicWindow(Rule):
    """A batch starts when it is full, or when its oldest member has waited the window."""

    id = "batch/dynamic-window"
    sentence = (
        "A dynamic batch starts when it is full (or of a preferred size) or when its oldest member has "
        "waited the window: not smaller earlier, and not later; nobody outstays the queue's time limit."
    )
    premise = ("batching.mode=dynamic", "batching.window_ns", "limits.max_seqs")
    columns = ("time_ns",)
    source = "Triton dynamic batcher, TR5 to TR8; Ray Serve PR 36510; Triton issues 3624 and 7512"

    def __init__(self, *args: object) -> None:
        """No batch was formed."""
        super().__init__(*args)  # type: ignore[arg-type]
        self._running_before = False
        self._begun: list[Request] = []
        self._limit = self.profile.limits.queue_timeout_ns
        self._tolerance: int = self.profile.value("patience.tolerance_ns")

    def opened(self, event: Event) -> None:
        """A batch may form where nobody runs when the step begins."""
        self._running_before = bool(self.state.running)
        self._begun = []

    def before_admit(self, event: Event, record: Request | None) -> None:
        """A member of the batch; one whose single pass is all it needs has ended when the step does."""
        if record is not None:
            self._begun.append(record)

    def before_abort(self, event: Event, record: Request | None) -> None:
        """A time limit that fires late."""
        limit = self._limit
        if limit is None or event.reason != "timeout" or record is None or event.time_ns is None:
            return
        if record.first_admit is None and record.arrived_ns is not None:
            waited = event.time_ns - record.arrived_ns
            self.checked += 1
            if waited > limit + self._tolerance:
                self.flag(
                    f"{record.id} times out after {duration(waited)} in the queue, "
                    f"{duration(waited - limit)} late",
                    record.id,
                    expected=f"its end within {duration(limit)} (tolerance {duration(self._tolerance)})",
                    observed=f"waited {duration(waited)}",
                )

    def closing(self, event: Event | None) -> None:
        """Judge the batch that began in this step, or the one that should have."""
        state = self.state
        if self._running_before or state.step_ns is None:
            return
        started = [request for request, how in state.admitted.items() if how == "admit"]
        pending = [state.live[request] for request in state.waiting if self._owed(request)]
        begun = self._begun
        everyone = [*begun, *pending]
        resumed = len(started) < len(state.admitted)
        if not everyone or state.preempted or resumed or len(begun) != len(started):
            return
        ages = [record.arrived_ns for record in everyone]
        if any(age is None for age in ages):
            self.skipped += 1
            return
        self.checked += 1
        waited = state.step_ns - min(age for age in ages if age is not None)
        cap = state.max_seqs or 1
        window = self.profile.batching.window_ns or 0
        late = 0 < window <= waited
        sizes = [size for size in self.profile.batching.preferred_sizes or (cap,) if size <= cap]
        there = min(len(everyone), cap)
        reached = [size for size in sizes if size <= there]
        early = max(reached, default=0 if window else there)
        due = there if late else early
        if len(started) == due:
            return
        if len(started) == early and len(everyone) > cap and self.profile.admission.order != "fcfs":
            # The oldest of all may not be among those whose turn it is; theirs is the age that counts.
            return
        if not due and self.profile.reuse.prefix:
            # With cache hits in sight, what is full cannot be told from outside.
            self.checked -= 1
            self.skipped += 1
            return
        if pending and (len(started) < due or not due):
            # A batch that its next request cannot join (budget, blocks) is as full as it gets.
            joins = None if state.next_in_line is None else state.next_fits
            if joins is None:
                self.checked -= 1
                self.skipped += 1
            if joins is not True:
                return
        why = f"{len(everyone)} there, the oldest for {duration(waited)}, window {duration(window)}"
        if not started:
            text = f"no batch starts in step {state.step} although one is due"
        elif due == 0:
            text = f"a batch of {len(started)} starts before it is full and before its window has run out"
        else:
            text = f"a batch of {len(started)} starts where one of {due} was due"
        self.flag(
            text,
            *(started or [everyone[0].id]),
            expected=f"a batch of {due}"
            if due
            else f"to wait for a batch of {min(sizes, default=cap)}, or the window",
            observed=f"a batch of {len(started)} ({short(', '.join(map(str, started)))}): {why}"
            if started
            else f"no batch, {everyone[0].id} waits: {why}",
        )

    def _owed(self, request: RequestId) -> bool:
        record = self.state.live[request]
        late = record.late and record.arrived == self.state.step
        after = record.arrived_ns is not None and record.arrived_ns > (self.state.step_ns or 0)
        return not late and not after


RULES = (Membership, Capacity, TokenBudget, EmptyMember, StaticBarrier, DynamicWindow)
