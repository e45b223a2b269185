"""Rules of preemption: only where it is needed and useful, the right victim, and back in order."""

from collections.abc import Sequence
from typing import Any

from batchspec.spec.events import Event, RequestId
from batchspec.spec.line import blocks_fit, fits, free_bounds
from batchspec.spec.model import RUNNING, Request
from batchspec.spec.policies import VICTIMS
from batchspec.spec.profile import Profile
from batchspec.spec.rule import Rule
from batchspec.spec.words import count


def by_operator(event: Event) -> bool:
    """Whether a preemption is the operator's doing (cache reset, sleep), and none of the policy's."""
    return event.reason == "operator"


class Forbidden(Rule):
    """None under `preemption.mode = none`."""

    id = "preemption/forbidden"
    sentence = "Where the profile has no preemption nobody is preempted."
    premise = ("preemption.mode=none",)
    source = "Orca (OSDI'22) OR3; TensorRT-LLM GUARANTEED_NO_EVICT; VTC VT4"

    def opened(self, event: Event) -> None:
        """Each step is one instance."""
        self.checked += 1

    def before_preempt(self, event: Event, record: Request | None) -> None:
        """Any is one too many."""
        self.flag(
            f"{event.request} is preempted under a profile without preemption",
            event.subject,
            expected="no preemption",
            observed=f"preempt ({event.reason}) of {event.request}",
        )


class Cause(Rule):
    """The beneficiary needs more than is free."""

    id = "preemption/cause"
    sentence = (
        "At each preemption its beneficiary needs more than the free blocks of that moment, or, where the "
        "profile allows, a strictly more urgent request waits and does not fit as it is."
    )
    premise = ("limits.kv_blocks", "limits.block_size")
    columns = ("prompt_tokens",)
    level = "L2"
    source = "vLLM (SOSP'23) §4.5; vLLM V1.3; SGLang retraction (headroom for further decodes)"

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Free blocks must be known."""
        lacking = [] if {"blocks", "block_ids"} & columns else ["blocks"]
        if "reason" not in columns and "preempt" in kinds:
            lacking.append("reason")
        if profile.reuse.prefix and "block_ids" not in columns:
            lacking.append("block_ids")
        return lacking

    def before_preempt(self, event: Event, record: Request | None) -> None:
        """Whom does it make room for, and does that one need it?"""
        if by_operator(event) or record is None or record.state != RUNNING:
            return
        state = self.state
        least, _ = free_bounds(state)
        if least is None:
            self.skipped += 1
            return
        headroom: int = self.profile.value("preemption.headroom_blocks")
        cause = state.live.get(event.cause) if event.cause is not None else None
        if cause is not None and cause.state != RUNNING:
            self._for_waiting(event, cause)
            return
        if self.profile.preemption.for_waiting and cause is None:
            self.skipped += 1
            return
        if cause is not None:
            wants = [cause]
        else:
            wants = [
                other
                for other in state.records(state.running)
                if other.id not in state.members or other.id == record.id
            ]
        needs = [self._need(other) for other in wants]
        if any(need is None for need in needs):
            self.skipped += 1
            return
        self.checked += 1
        most = max((need for need in needs if need is not None), default=0)
        if most + headroom > least:
            return
        if cause is not None:
            why = f"for {cause.id}, which needs {count(most, 'block')} and finds {least} free"
        else:
            why = f"although no running request needs more than the {count(least, 'free block')}"
        self.flag(
            f"{record.id} is preempted {why}",
            record.id,
            *([cause.id] if cause is not None else []),
            expected="preemption only for a need beyond the free blocks",
            observed=f"needed {most}, headroom {headroom}, free {least}",
        )

    def _need(self, record: Request) -> int | None:
        """The most blocks that a running request can still ask for in this step."""
        state = self.state
        known, computed = record.known, record.computed
        if known is None or computed is None or record.blocks is None or state.block_size is None:
            return None
        if record.id in state.members:
            return 0
        budget = state.budget_left()
        left = max(1, known - computed)
        tokens = left if budget is None else min(left, max(1, budget))
        end = computed + tokens + (self.profile.batching.lookahead or 0)
        return -(-end // state.block_size) - record.blocks

    def _for_waiting(self, event: Event, cause: Request) -> None:
        allowed = self.profile.preemption.for_waiting
        if allowed is None:
            self.skipped += 1
            return
        victim = self.state.live[event.subject]
        mine, theirs = self.line.urgency(cause), self.line.urgency(victim)
        if allowed and (mine is None or theirs is None):
            self.skipped += 1
            return
        self.checked += 1
        if not allowed or (mine is not None and theirs is not None and mine >= theirs):
            self.flag(
                f"{victim.id} is preempted for {cause.id}, which waits"
                + (" and is no more urgent" if allowed else ""),
                victim.id,
                cause.id,
                expected="a strictly more urgent request" if allowed else "no preemption for who waits",
                observed=f"priority {cause.priority} of {cause.id}, {victim.priority} of {victim.id}",
            )
        elif self._fits_already(cause):
            self.flag(
                f"{victim.id} is preempted for {cause.id}, which is next in line and fits without that",
                victim.id,
                cause.id,
                expected=f"the admission of {cause.id}, and no preemption",
                observed=f"free seats {self.state.free_seats()}, budget left {self.state.budget_left()}, "
                f"{count(free_bounds(self.state)[0] or 0, 'block')} free",
            )

    def _fits_already(self, cause: Request) -> bool:
        """Whether nothing keeps it out: others before it, a seat, tokens, blocks or the headroom."""
        first = self.line.next()
        if first is None or first.id != cause.id or fits(self.state, cause) is not True:
            return False
        headroom: int = self.profile.value("preemption.headroom_blocks")
        return blocks_fit(self.state, cause, self.state.budget_left(), headroom) is True


class Victim(Rule):
    """The policy's victim."""

    id = "preemption/victim"
    sentence = (
        "The victim is the policy's: the latest admitted or arrived, the least urgent, the one with the "
        "fewest outputs, the requester itself; for a waiting request only a strictly less urgent one."
    )
    premise = ("preemption.victim",)
    source = "vLLM (SOSP'23) §4.5, VL1; vLLM V1.3; SGLang retraction; LMDeploy; inference-sim issue 1086"

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """What the victims are compared by."""
        victim = profile.preemption.victim
        lacking = []
        if victim == "least-urgent":
            lacking += [] if "priority" in columns else ["priority"]
            lacking += [] if profile.admission.urgent else ["admission.urgent"]
        if victim == "fewest-outputs" and "output" not in kinds:
            lacking += [name for name in ("start", "tokens", "prompt_tokens") if name not in columns]
        if victim == "self" and "cause" not in columns and "preempt" in kinds:
            lacking.append("cause")
        if "reason" not in columns and "preempt" in kinds:
            lacking.append("reason")
        return lacking

    def before_preempt(self, event: Event, record: Request | None) -> None:
        """Compare the victim with all who run."""
        if by_operator(event) or record is None or record.state != RUNNING:
            return
        state = self.state
        runs = list(state.records(state.running))
        policy = self.profile.preemption.victim
        if policy == "self":
            if event.cause is None:
                self.skipped += 1
                return
            self.checked += 1
            if event.cause != record.id:
                self._tell(record, [event.cause], f"cause {event.cause}")
            return
        if policy == "newest-denied":
            self.checked += 1
            if len(runs) == 1 and state.waiting and not state.preempted:
                return
            if record.id in state.members:
                self._tell(record, [], "it was already granted its part of this step")
            return
        right = self._right(policy or "", runs)
        if right is None:
            self.skipped += 1
            return
        self.checked += 1
        if record.id not in right:
            those = ", ".join(self._measure(policy or "", other) for other in runs[:12])
            self._tell(record, right, f"those that run: {those}")

    def _measure(self, policy: str, record: Request) -> str:
        """A request that runs, with what the policy compares."""
        if policy == "fewest-outputs":
            return f"{record.id} ({count(record.outputs or 0, 'output')})"
        if policy == "least-urgent":
            return f"{record.id} (priority {record.priority})"
        return str(record.id)

    def _right(self, policy: str, runs: list[Request]) -> list[RequestId] | None:
        if policy == "latest-admitted":
            return [max(runs, key=lambda other: other.joined or 0).id]
        if policy == "latest-arrived":
            return [max(runs, key=lambda other: other.number).id]
        if policy == "fewest-outputs":
            counts = [other.outputs for other in runs]
            if any(count is None for count in counts):
                return None
            fewest = min(count for count in counts if count is not None)
            return [other.id for other in runs if other.outputs == fewest]
        if policy != "least-urgent":
            ranks = [VICTIMS[policy](other, self.profile) for other in runs]
            return [other.id for other, rank in zip(runs, ranks, strict=True) if rank == min(ranks)]
        urgencies = [self.line.urgency(other) for other in runs]
        if any(urgency is None for urgency in urgencies):
            return None
        least = max(urgency for urgency in urgencies if urgency is not None)
        among = [other for other in runs if self.line.urgency(other) == least]
        # "Latest" is by arrival in some engines and by admission in others; both are this policy.
        return [
            max(among, key=lambda other: other.number).id,
            max(among, key=lambda other: other.joined or 0).id,
        ]

    def _tell(self, record: Request, right: list[RequestId], why: str) -> None:
        should = " or ".join(dict.fromkeys(str(name) for name in right)) or "somebody else"
        self.flag(
            f"{record.id} is preempted where the policy's victim is {should}",
            record.id,
            *dict.fromkeys(right),
            expected=f"{should} ({self._policy()})",
            observed=f"{record.id} preempted; {why}",
        )

    def _policy(self) -> str:
        policy, urgent = str(self.profile.preemption.victim), self.profile.admission.urgent
        return f"{policy}; {urgent} numbers are urgent" if policy == "least-urgent" else policy


class Useful(Rule):
    """What a preemption frees can be used by its beneficiary in that step."""

    id = "preemption/useful"
    sentence = (
        "What a preemption frees is used: the victim gave back a block or a seat, and the beneficiary is a "
        "member of that step, or ended, or was itself preempted in it."
    )
    columns = ("cause",)
    source = (
        "vLLM issue 49674 (fenced victims free nothing); vllm-ascend issue 16315; TensorRT-LLM issue 18115"
    )

    def __init__(self, *args: Any) -> None:
        """Nothing was preempted."""
        super().__init__(*args)
        self._due: list[tuple[int, RequestId, RequestId, int, int, bool | None, bool]] = []

    def before_preempt(self, event: Event, record: Request | None) -> None:
        """Note the victim and what it held."""
        self._held = None if record is None else record.blocks

    def after_preempt(self, event: Event, record: Request | None) -> None:
        """Note what came back, for whom."""
        if record is None or by_operator(event):
            return
        cause = event.cause
        if cause is None:
            self.skipped += 1
            return
        self.checked += 1
        if cause == record.id or self.state.keeps_blocks:
            return
        gave: bool | None = None
        counted = self.state.has_blocks or self.state.has_ids
        if counted and self._held is not None and record.blocks is not None:
            gave = record.blocks < self._held
        waits = self.state.state_of(cause) != RUNNING
        until = event.step + self.state.slot_lag
        self._due.append((until, record.id, cause, self.state.row, event.step, gave, waits))

    def closing(self, event: Event | None) -> None:
        """Was the beneficiary served?"""
        if not self._due:
            return
        state = self.state
        rest = []
        for due in self._due:
            until, victim, cause, row, step, gave, waits = due
            if gave is False and not waits:
                self.flag(
                    f"{victim} is preempted for {cause} and gives back nothing",
                    victim,
                    cause,
                    expected="at least one block for the beneficiary",
                    observed="the victim still holds all its blocks",
                    step=step,
                    row=row,
                )
                continue
            served = cause in state.members or cause in state.preempted_now or cause not in state.live
            if served:
                continue
            if state.step is not None and state.step < until:
                rest.append(due)
                continue
            self.flag(
                f"{victim} is preempted for {cause}, which is no member of step {step}",
                victim,
                cause,
                expected=f"{cause} a member of step {step}"
                + (f" (or until step {until})" if until > step else ""),
                observed=f"members: {', '.join(str(name) for name in list(state.members)[:8]) or 'none'}",
                step=step,
                row=row,
            )
        self._due = rest


RULES = (Forbidden, Cause, Victim, Useful)
