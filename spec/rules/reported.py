"""Rules of what the engine reports about itself, and of what no trace alone can show."""

from collections.abc import Sequence

from batchspec.spec.events import Event
from batchspec.spec.profile import Profile
from batchspec.spec.rule import Rule


class StatsAgree(Rule):
    """Reported waiting, running, free equal the values recomputed from the events."""

    id = "stats/agree"
    sentence = (
        "The waiting, running and free counts that the engine reports, and its shared blocks where block ids "
        "are told, equal those that the events give."
    )
    source = "SGLang PR 13142 (running count of minus one); SGLang PR 10637 (evictable size drifts)"

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Something must be reported, and who joins be told: the log of an engine's counters does not say."""
        shared = {"blocks", "block_ids", "shared_blocks"} <= columns
        if not shared and not {"waiting", "running", "free_blocks"} & columns:
            return ("running",)
        return () if kinds & {"admit", "live"} else ("admit",)

    def closing(self, event: Event | None) -> None:
        """Compare at each step row."""
        if event is None:
            return
        state = self.state
        wrong = []
        if event.running is not None:
            self.checked += 1
            if event.running != len(state.running):
                wrong.append(("running", event.running, len(state.running)))
        if event.waiting is not None:
            self.checked += 1
            others = len(state.live) - len(state.running)
            if event.waiting != others:
                wrong.append(("waiting", event.waiting, others))
        free = state.free_at_step(event)
        if event.free_blocks is not None and free is not None:
            self.checked += 1
            if event.free_blocks != free:
                wrong.append(("free_blocks", event.free_blocks, free))
        if event.shared_blocks is not None and self._ids_told():
            self.checked += 1
            shared = state.held - len(state.owners)
            if event.shared_blocks != shared:
                wrong.append(("shared_blocks", event.shared_blocks, shared))
        if wrong:
            self.flag(
                "; ".join(
                    f"reported {name} is {said}, the events give {found}" for name, said, found in wrong
                ),
                expected=", ".join(f"{name} {found}" for name, _, found in wrong),
                observed=", ".join(f"{name} {said}" for name, said, _ in wrong),
            )

    def _ids_told(self) -> bool:
        """Whether ids say of each block who holds it, and counts how many everybody holds."""
        state = self.state
        return (
            state.has_ids
            and state.has_blocks
            and not state.untold
            and not state.unknown_blocks
            and state.lag_known
        )


class OutputsInvariant(Rule):
    """Greedy output tokens do not depend on batch, preemption or chunking."""

    id = "outputs/invariant"
    sentence = "Greedy output tokens do not depend on batch, preemption or chunking."
    source = "vLLM issues 37076 and 39146; judged by running the engine again, not from a trace"

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Tokens are no part of a trace."""
        return ("token values: run `batchspec record --follow TRACE`",)


RULES = (StatsAgree, OutputsInvariant)
