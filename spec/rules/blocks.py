"""Rules of memory by block ids: one owner, one return, no use after it, and nothing read unwritten.

These need traces with `block_ids` (level L3); transfers and passes in flight sharpen them (L4).
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from batchspec.spec.events import Event, RequestId
from batchspec.spec.model import PREEMPTED, Request, State, hides_lag
from batchspec.spec.profile import Profile
from batchspec.spec.rule import Rule
from batchspec.spec.words import count

# What a block holds that a row may or may not have taken over: nobody can say.
_UNSAID: Final = (-1, -1, None)


def taken_over(state_block_size: int | None, event: Event) -> int:
    """How many leading blocks an admit, resume or park takes over full: floor(cached / b)."""
    return (event.cached or 0) // state_block_size if state_block_size else 0


def hides_sharing(state: State, event: Event) -> bool:
    """Whether the row may take over blocks of a shared prefix and does not say how many."""
    return state.shares and event.cached is None and event.event in ("admit", "resume", "park")


class Exclusive(Rule):
    """A block has one owner, unless the row takes over all of it from a shared prefix."""

    id = "memory/exclusive"
    sentence = (
        "A block has one owner, unless prefixes are shared and the row takes over all of its positions."
    )
    columns = ("block_ids",)
    level = "L3"
    source = "vLLM (SOSP'23) §4.3, VL5; vLLM issue 37076; SGLang PR 38179"
    repairs = True

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Whether a block may be shared shows in `cached` and the block size."""
        if hides_lag(profile, columns):
            return ("pass",)
        if not profile.reuse.prefix:
            return ()
        sized = () if profile.limits.block_size is not None else ("limits.block_size",)
        return sized if "cached" in columns else ("cached", *sized)

    def before_admit(self, event: Event, record: Request | None) -> None:
        """Is each block granted free, or shared as it may be?"""
        ids = event.block_ids
        if not ids:
            return
        state = self.state
        before = len(state.tables.get(event.subject, ()))
        shared = 0
        if event.event in ("admit", "resume", "park") and state.shares:
            shared = taken_over(state.block_size, event)
        unsaid = hides_sharing(state, event)
        seen: set[int] = set()
        for index, block in enumerate(ids, before):
            self.checked += 1
            owners = state.owners.get(block, ())
            if block in seen or event.request in owners:
                self._tell(event, block, "already has it")
            elif owners and unsaid:
                self.skipped += 1
            elif owners and index >= shared:
                self._tell(event, block, f"{', '.join(map(str, owners))} holds it", *owners)
            seen.add(block)

    before_resume = before_admit
    before_schedule = before_admit
    before_park = before_admit

    def before_live(self, event: Event, record: Request | None) -> None:
        """Live rows of one trace may share where prefixes are shared."""
        if not self.state.shares:
            self.before_admit(event, record)

    def _tell(self, event: Event, block: int, why: str, *owners: RequestId) -> None:
        self.flag(
            f"block {block} is granted to {event.request} while {why}",
            event.subject,
            *owners,
            expected="a free block, or a full block of a shared prefix",
            observed=f"block {block}: {why}",
            about=(("block", block),),
        )


class ReleaseOnce(Rule):
    """Each grant is returned exactly once, by its owner."""

    id = "memory/release-once"
    sentence = "Each grant of a block (or of units of another resource) is returned once, by its owner."
    level = "L3"
    source = "vLLM issue 1556 (shared blocks freed twice); SGLang PR 18694; LMCache issue 3381 (pin count)"
    repairs = True

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """Ids, or a ledger of another resource."""
        if "give" in kinds and {"resource", "units"} <= columns:
            return ()
        return () if "block_ids" in columns else ("block_ids",)

    def before_release(self, event: Event, record: Request | None) -> None:
        """Does it hold what it returns?"""
        if event.block_ids is None or event.request in self.state.untold:
            if self.state.has_ids:
                self.skipped += 1
            return
        table = self.state.tables.get(event.subject, [])
        held = {block for block in table if block is not None}
        for block in event.block_ids:
            self.checked += 1
            if block not in held:
                owners = self.state.owners.get(block, ())
                who = ", ".join(map(str, owners)) or "nobody"
                self.flag(
                    f"{event.request} returns block {block}, which it does not hold",
                    event.subject,
                    expected="each grant returned once, by its owner",
                    observed=f"{event.event} returns block {block}, held by {who}",
                    about=(("block", block),),
                )
            held.discard(block)

    before_preempt = before_release
    before_finish = before_release
    before_abort = before_release

    def before_give(self, event: Event, record: Request | None) -> None:
        """Does it hold the units that it gives back?"""
        end = self.state.ended.get(event.subject)
        number = record.number if record is not None else end.number if end is not None else 0
        if not self.state.ledgers_told or event.resource is None or event.units is None:
            self.skipped += 1
            return
        if number < self.state.lives:
            self.skipped += 1  # what it held when the trace began no row says
            return
        self.checked += 1
        held = self.state.resources.get(event.resource, {}).get(event.subject, 0)
        if event.units > held:
            self.flag(
                f"{event.request} gives back {event.units} of {event.resource} and holds {held}",
                event.subject,
                expected=f"at most {count(held, 'unit')}",
                observed=f"{count(event.units, 'unit')}: the count falls to {held - event.units}",
            )


class UseAfterRelease(Rule):
    """No pass and no transfer touches a block after its return."""

    id = "memory/use-after-release"
    sentence = (
        "No pass dispatched after a block's return has it in its former owner's table; a block of a pass in "
        "flight is granted again only where passes are ordered and is never the target of a transfer; and "
        "no block is returned while a transfer over it is under way."
    )
    columns = ("block_ids",)
    level = "L3"
    source = "vLLM PR 45357 (release before the newest step is done); vLLM PR 32255; vLLM PR 56089"

    @classmethod
    def needs(cls, profile: Profile, columns: frozenset[str], kinds: frozenset[str]) -> Sequence[str]:
        """With overlap only `pass` tells which pass is complete."""
        overlaps = profile.value("reuse.depth") > 1 or profile.value("reuse.slot_lag") > 0
        return ("pass",) if overlaps and "complete" in kinds and "pass" not in columns else ()

    def __init__(self, *args: Any) -> None:
        """Nothing is in flight."""
        super().__init__(*args)
        self._flying: dict[int, frozenset[RequestId]] = {}
        self._hot: dict[int, tuple[int, RequestId]] = {}
        self._ordered = bool(self.profile.reuse.ordered_passes)
        self._lag = self.state.block_lag

    def before_schedule(self, event: Event, record: Request | None) -> None:
        """An ended request whose blocks are back runs on nobody's memory."""
        if record is None and event.request in self.state.ended and "dispatch" not in self.state.kinds:
            self.checked += 1
            end = self.state.ended[event.request]
            if event.request not in self.state.held_by_ended:
                self.flag(
                    f"{event.request} is scheduled in step {event.step}, its blocks were returned in step "
                    f"{end.step}",
                    event.request,
                    expected="no pass over blocks that were returned",
                    observed=f"scheduled after the {end.kind} that returned its blocks",
                )
        self._granted(event)

    def before_dispatch(self, event: Event, record: Request | None) -> None:
        """The pass of this step takes off with its members."""
        if event.pass_step == self.state.step:
            self._flying[event.pass_step] = frozenset(self.state.members)

    def before_complete(self, event: Event, record: Request | None) -> None:
        """It has landed."""
        self._flying.pop(event.pass_step, None)
        done = event.pass_step
        self._hot = {block: part for block, part in self._hot.items() if part[0] != done}

    def before_admit(self, event: Event, record: Request | None) -> None:
        """Granted while its former owner's pass or transfer is under way?"""
        self._granted(event)

    before_resume = before_admit
    before_park = before_admit

    def _granted(self, event: Event) -> None:
        if not event.block_ids:
            return
        for block in event.block_ids:
            self.checked += 1
            hot = self._hot.get(block)
            if hot is not None and hot[1] != event.request and not self._ordered:
                self.flag(
                    f"block {block} goes to {event.request} while pass {hot[0]} of {hot[1]} still writes it",
                    event.subject,
                    hot[1],
                    expected=f"pass {hot[0]} complete, or ordered passes claimed",
                    observed=f"pass {hot[0]} is in flight",
                    about=(("block", block),),
                )

    def before_finish(self, event: Event, record: Request | None) -> None:
        """Blocks returned while something still touches them."""
        request = event.subject
        # Under `block_lag = "release"` an end returns only the ids that it states; else nothing yet.
        waits = self._lag != "release" or event.block_ids is None
        if self._lag and waits and event.event in ("finish", "abort"):
            # A lag in steps runs out by itself, perhaps while a pass that may write the blocks still flies.
            if self._lag != "release":
                self._heat(request, self.state.tables.get(request, ()))
            return
        if event.event == "preempt" and (self.state.keeps_blocks or event.blocks):
            return
        if event.block_ids is not None:
            returned = list(event.block_ids)
        elif event.event == "release":
            returned = []
        else:
            returned = [block for block in self.state.tables.get(request, ()) if block is not None]
        self._heat(request, returned)
        under_way = self.state.transfers.get(request)
        if not under_way or event.block_ids is None:
            return
        self.checked += 1
        for reason, ids in under_way.items():
            touched = [block for block in event.block_ids if ids is None or block in ids]
            if touched:
                self.flag(
                    f"{request} returns block {touched[0]} while a {reason} transfer over it is under way",
                    request,
                    expected=f"the end of the {reason} transfer first",
                    observed=f"{event.event} returns {len(touched)} blocks of the transfer",
                    about=tuple(("block", block) for block in touched),
                )
                return

    before_abort = before_finish
    before_preempt = before_finish
    before_release = before_finish

    def _heat(self, request: RequestId, returned: Iterable[int | None]) -> None:
        """Blocks that a pass in flight may still write, though its member has ended or left."""
        for number, members in self._flying.items():
            if request in members:
                self._hot.update((block, (number, request)) for block in returned if block is not None)

    def before_transfer_begin(self, event: Event, record: Request | None) -> None:
        """The network writes into a block that a pass still writes."""
        if event.reason not in ("receive", "swap_in") or not event.block_ids:
            return
        for block in event.block_ids:
            self.checked += 1
            hot = self._hot.get(block)
            if hot is not None and hot[1] != event.request:
                self.flag(
                    f"a {event.reason} transfer of {event.request} writes block {block} while pass {hot[0]} "
                    f"of {hot[1]} still writes it",
                    event.subject,
                    hot[1],
                    expected=f"pass {hot[0]} complete",
                    observed=f"pass {hot[0]} is in flight",
                    about=(("block", block),),
                )


class Unwritten(Rule):
    """Shadow KV: what is taken over was written there before, for the same content."""

    id = "memory/unwritten"
    sentence = (
        "A block taken over from a cache was written whole before, by an earlier pass (or the same, where "
        "the profile allows), for the same content, or received by a transfer."
    )
    premise = ("limits.block_size",)
    columns = ("block_ids", "cached", "start", "tokens")
    level = "L3"
    source = "vLLM V1 prefix cache (hashes set before the pass runs); llama.cpp PR 27624"

    def __init__(self, *args: Any) -> None:
        """Nothing is written. A block's content: positions filled, pass that filled it, content key."""
        super().__init__(*args)
        self._same_pass = bool(self.profile.reuse.same_pass)
        self._size = self.state.block_size or 1
        self._content: dict[int, tuple[int, int, int | None]] = {}
        self._undo: dict[RequestId, list[tuple[int, tuple[int, int, int | None] | None]]] = {}
        self._taken_off: int | None = None
        # Whether a pass has written into blocks that no row names: any block may hold anything since.
        self._blind = False

    def opened(self, event: Event) -> None:
        """Nothing can be taken back any more."""
        self._undo = {}

    def before_admit(self, event: Event, record: Request | None) -> None:
        """Is what it takes over there?"""
        ids = event.block_ids
        if not ids or record is None:
            return
        state = self.state
        untold = record.state == PREEMPTED and record.computed is None
        if untold or (hides_sharing(state, event) and not record.swapped):
            self._leave_unsaid(ids)
            return
        # Blocks that it kept through its preemption stand before those of this row.
        kept = len(state.tables.get(record.id, ()))
        taken = min(taken_over(state.block_size, event) - kept, len(ids))
        hashes = event.block_hashes or ()
        restored = record.swapped
        for index, block in enumerate(ids):
            if index >= taken or restored:
                size = state.block_size or 1
                back = min(size, max(0, (event.cached or 0) - index * size)) if restored else 0
                self._content[block] = (back, -1, None)
                continue
            self._judge(event, block, hashes[index] if index < len(hashes) else None)

    before_resume = before_admit

    def _leave_unsaid(self, ids: Sequence[int]) -> None:
        """A block with an owner is shared as it is; any other is either cached or about to be written."""
        self._content.update((block, _UNSAID) for block in ids if block not in self.state.owners)

    def _judge(self, event: Event, block: int, key: int | None) -> None:
        state = self.state
        content = self._content.get(block)
        if content == _UNSAID or (content is None and state.began_running):
            self.skipped += 1
            return
        self.checked += 1
        filled, number, written = content or (0, -1, None)
        size = state.block_size or 1
        if filled < size:
            why = f"{filled} of its {size} positions are written"
        elif number > event.step or (number == event.step and not self._same_pass):
            why = f"pass {number}, which is not over, writes it"
        elif key is not None and written is not None and key != written:
            why = "it was written for other content"
        else:
            return
        if self._blind:
            self.checked -= 1
            self.skipped += 1
            return
        self.flag(
            f"{event.request} takes over block {block} from the cache, but {why}",
            event.subject,
            expected="a block written whole by an earlier pass for the same content",
            observed=f"block {block}: {why}",
            about=(("block", block),),
        )

    def before_park(self, event: Event, record: Request | None) -> None:
        """A parked request's blocks are filled by a transfer, but for those it takes over."""
        ids = event.block_ids or ()
        if hides_sharing(self.state, event):
            self._leave_unsaid(ids)
            return
        for block in ids[taken_over(self.state.block_size, event) if self.state.shares else 0 :]:
            self._content[block] = (0, -1, None)

    def after_live(self, event: Event, record: Request | None) -> None:
        """What was resident when the trace began counts as written."""
        size = self.state.block_size or 1
        hashes = event.block_hashes or ()
        for index, block in enumerate(event.block_ids or ()):
            if event.reason not in ("running", None) or event.start is None:
                # Taken over, being loaded, or kept through a preemption: the row does not say what is there.
                self._content.setdefault(block, _UNSAID)
                continue
            filled = min(size, max(0, event.start - index * size))
            key = hashes[index] if index < len(hashes) else None
            held = self._content.get(block, _UNSAID)
            if held == _UNSAID or filled > held[0]:
                self._content[block] = (filled, -1, key)

    def after_schedule(self, event: Event, record: Request | None) -> None:
        """The pass writes [start, start + tokens) into its blocks."""
        start, tokens = event.start, event.tokens
        if record is None:
            return
        contents = self._content
        self._blind = self._blind or record.id in self.state.untold
        if start is None or tokens is None or start < 0 or record.id in self.state.untold:
            self._wrote_somewhere(record, event.block_ids or ())
            return
        for block in event.block_ids or ():
            contents[block] = (0, -1, None)
        table = self.state.tables.get(record.id)
        if table is None:
            return
        size = self._size
        end = start + tokens
        index = start // size
        keys = iter(event.block_hashes) if event.block_hashes else iter(())
        undo = []
        this_pass = event.pass_step
        for held in table[index : -(-end // size)]:
            if held is not None:
                content = contents.get(held)
                filled, number, key = content or (0, -1, None)
                low, high = start - index * size, end - index * size
                undo.append((held, content))
                # The row that fills a block carries its key, also where a swap-in brought it in part.
                filling = None
                if high >= size:
                    high, filling = size, next(keys, None)
                if low <= max(filled, 0) < high:
                    filled, number, key = high, this_pass, filling
                contents[held] = (filled, number, key)
            index += 1
        self._undo[record.id] = undo

    def _wrote_somewhere(self, record: Request, granted: Sequence[int]) -> None:
        """The row does not say which positions the pass writes: nobody can say what its blocks hold now."""
        held = [block for block in self.state.tables.get(record.id, ()) if block is not None]
        fresh = set(granted)
        open_ones = [
            block for block in held if block in fresh or self._content.get(block, _UNSAID)[0] < self._size
        ]
        self._undo[record.id] = [(block, self._content.get(block)) for block in open_ones]
        self._content.update((block, _UNSAID) for block in open_ones)

    def after_preempt(self, event: Event, record: Request | None) -> None:
        """A membership that was taken back wrote nothing."""
        for block, content in reversed(self._undo.pop(event.subject, [])):
            if content is None:
                self._content.pop(block, None)
            else:
                self._content[block] = content

    def after_abort(self, event: Event, record: Request | None) -> None:
        """A pass that runs writes on when a client leaves; without `dispatch` nobody can say if it ran."""
        undo = self._undo.pop(event.subject, [])
        if "dispatch" not in self.state.kinds:
            self._content.update((block, _UNSAID) for block, _ in undo)
        elif self.state.step != self._taken_off:
            self._undo[event.subject] = undo
            self.after_preempt(event, record)

    def before_dispatch(self, event: Event, record: Request | None) -> None:
        """From here on the pass runs, whatever becomes of its members."""
        self._taken_off = event.pass_step

    def before_transfer_end(self, event: Event, record: Request | None) -> None:
        """Received or swapped in: written, content not judged. Without a reason nobody can say."""
        if event.reason not in ("receive", "swap_in", None):
            return
        ids = event.block_ids
        if ids is None:
            ids = self.state.transfers.get(event.subject, {}).get(event.reason or "") or ()
        content = _UNSAID if event.reason is None else (self._size, -1, None)
        for block in ids:
            self._content[block] = content


RULES = (Exclusive, ReleaseOnce, UseAfterRelease, Unwritten)
