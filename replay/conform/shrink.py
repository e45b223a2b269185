"""Shrinking: the smallest case that still shows a finding, found by leaving out and cutting down.

Greedy and without chance: the same case and question give the same answer. Each step is put to the
scheduler anew, so what comes out was seen to break the rule.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from batchspec.replay.conform.case import Case, longest, permitted
from batchspec.replay.drive import STEP_NS, Script
from batchspec.spec.profile import Profile

Still = Callable[[Case], bool]
"""Whether a case still shows the finding."""


def shrink(case: Case, still: Still, *, runs: int = 400, allowed: Callable[[Case], bool] = permitted) -> Case:
    """A case that is no larger and still shows it, after at most so many runs.

    `allowed` keeps the contract: what it refuses is not run.
    """
    return _Shrinker(case, still, runs, allowed).best()


class _Shrinker:
    def __init__(self, case: Case, still: Still, runs: int, allowed: Callable[[Case], bool]) -> None:
        self._case = case
        self._still = still
        self._left = runs
        self._allowed = allowed
        self._seen: set[Case] = set()

    def best(self) -> Case:
        before = None
        while before != self._case and self._left > 0:
            before = self._case
            self._fewer()
            self._each(_plainer)
            self._each(_shorter)
            self._limits()
        self._renamed()
        return self._case

    def _try(self, case: Case) -> bool:
        """Take a case if it is new, permitted and still shows the finding."""
        key = case
        if case == self._case or self._left <= 0 or not self._allowed(case):
            return False
        try:
            if key in self._seen:
                return False
            self._seen.add(key)
        except TypeError:  # a profile with tables cannot be hashed; it is run once more at worst
            pass
        self._left -= 1
        if not self._still(case):
            return False
        self._case = case
        return True

    def _fewer(self) -> None:
        """Leave out requests: half of them, a quarter, one."""
        width = max(1, len(self._case.scripts) // 2)
        while width:
            at = len(self._case.scripts) - width
            while at >= 0:
                scripts = self._case.scripts
                if len(scripts) > width:
                    self._try(replace(self._case, scripts=scripts[:at] + scripts[at + width :]))
                at -= width
            width //= 2

    def _each(self, ways: Callable[[Script], Iterator[Script]]) -> None:
        """Change one request at a time."""
        for place in range(len(self._case.scripts)):
            again = True
            while again:
                again = False
                for script in ways(self._case.scripts[place]):
                    scripts = list(self._case.scripts)
                    scripts[place] = script
                    if self._try(replace(self._case, scripts=_in_order(scripts))):
                        again = True
                        break
                if self._left <= 0:
                    return

    def _limits(self) -> None:
        for name in ("kv_blocks", "max_seqs", "token_budget", "block_size"):
            value = getattr(self._case.profile.limits, name)
            if value is None:
                continue
            seats = self._case.profile.limits.max_seqs or 1
            # As when drawn: everybody who runs can decode in every step.
            least = min(value, seats) if name == "token_budget" else 1
            for smaller in (value // 2, value - 1):
                if smaller >= least:
                    self._try(replace(self._case, profile=_with_limit(self._case.profile, name, smaller)))

    def _renamed(self) -> None:
        """Ids that are easy to read."""
        names = [chr(65 + place) for place in range(len(self._case.scripts))]
        if len(names) > 26 or [script.request.id for script in self._case.scripts] == names:
            return
        scripts = tuple(
            replace(script, request=replace(script.request, id=name))
            for name, script in zip(names, self._case.scripts, strict=True)
        )
        self._left = max(self._left, 1)
        self._try(replace(self._case, scripts=scripts))


def _plainer(script: Script) -> Iterator[Script]:
    request = script.request
    if script.abort_ns is not None:
        yield replace(script, abort_ns=None, abort_in_flight=False)
        if script.abort_in_flight:
            yield replace(script, abort_in_flight=False)
        if script.abort_ns >= STEP_NS:
            yield replace(script, abort_ns=script.abort_ns // (2 * STEP_NS) * STEP_NS)
            yield replace(script, abort_ns=script.abort_ns - STEP_NS)
    if request.priority:
        yield replace(script, request=replace(request, priority=0))
    if request.tenant is not None:
        yield replace(script, request=replace(request, tenant=None))
    plain = tuple(range(ord(str(request.id)[-1]) * 100, ord(str(request.id)[-1]) * 100 + len(request.prompt)))
    if request.prompt != plain:
        yield replace(script, request=replace(request, prompt=plain))
    if script.accept:
        yield replace(script, accept=0)
    if request.arrival_ns:
        for earlier in (0, request.arrival_ns // (2 * STEP_NS) * STEP_NS, request.arrival_ns - STEP_NS):
            if 0 <= earlier < request.arrival_ns:
                yield replace(script, request=replace(request, arrival_ns=earlier))


def _shorter(script: Script) -> Iterator[Script]:
    request = script.request
    for tokens in (1, len(request.prompt) // 2, len(request.prompt) - 1):
        if 1 <= tokens < len(request.prompt):
            yield replace(script, request=replace(request, prompt=request.prompt[:tokens]))
    for outputs in (1, script.outputs // 2, script.outputs - 1):
        if 1 <= outputs < script.outputs:
            spare = request.max_tokens - script.outputs
            yield replace(script, outputs=outputs, request=replace(request, max_tokens=outputs + spare))
    if request.max_tokens > script.outputs:
        yield replace(script, request=replace(request, max_tokens=script.outputs))
        if request.max_tokens > script.outputs + 1:
            yield replace(script, request=replace(request, max_tokens=script.outputs + 1))


def _in_order(scripts: list[Script]) -> tuple[Script, ...]:
    return tuple(sorted(scripts, key=lambda script: script.request.arrival_ns))


def _with_limit(profile: Profile, name: str, value: int) -> Profile:
    """The profile with a smaller limit, and a model's length that goes with it."""
    limits = profile.merged(Profile.from_dict({"limits": {name: value}})).limits
    made = replace(profile, limits=replace(limits, max_model_len=None))
    if limits.max_model_len is None:
        return made
    return replace(profile, limits=replace(limits, max_model_len=min(limits.max_model_len, longest(made))))
