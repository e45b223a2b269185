"""Cases by chance: what the profile permits and the scheduler can show, drawn with Hypothesis."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from batchspec.replay.conform.case import Case, longest, prompt_of, request_of
from batchspec.replay.conform.sizes import Draw, sized
from batchspec.replay.drive import STEP_NS, Script
from batchspec.replay.harness import Capabilities, Factory
from batchspec.spec.profile import Profile

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

MOST_REQUESTS: Final = 10
_MOST_TOKENS: Final = 4096
"""A pool may be large; the requests drawn for it still end within a test."""
_GAPS: Final = (0, 0, 0, STEP_NS, 1, 3 * STEP_NS, 12 * STEP_NS)


class Chance:
    """Choices by Hypothesis, each by index, so that nothing but the seed decides them."""

    def __init__(self, draw: "DrawFn") -> None:
        """`draw` of a composite strategy."""
        from hypothesis.strategies import sampled_from

        self._draw = draw
        self._sampled_from = sampled_from

    def among(self, values: Sequence[Any]) -> Any:
        """One of the values."""
        return self._draw(self._sampled_from(values))

    def between(self, low: int, high: int) -> int:
        """A whole number. Wide ranges are drawn in two parts, which are both short."""
        width = high - low + 1
        if width <= 100:
            return low + int(self.among(range(max(1, width))))
        coarse = int(self.among(range(-(-width // 64))))
        return min(high, low + coarse * 64 + int(self.among(range(64))))


def cases(
    variants: Sequence[Profile], shows: Mapping[int, Capabilities], factory: Factory
) -> "SearchStrategy[Case]":
    """Cases under one of the variants of a profile; `shows` has what the scheduler can under each.

    Raises `ImportError` without Hypothesis.
    """
    from hypothesis.strategies import composite

    @composite
    def drawn(draw: "DrawFn") -> Case:
        chance = Chance(draw)
        number = chance.among(range(len(variants)))
        profile = sized(chance, variants[number], factory)
        return Case(profile, requests(chance, profile, shows[number]))

    return drawn()


def requests(draw: Draw, profile: Profile, shows: Capabilities) -> tuple[Script, ...]:
    """A few requests, in order of arrival, each of which could run to its end alone."""
    most = min(longest(profile), _MOST_TOKENS)
    now = 0
    shares = shows.prefix and profile.reuse.prefix is not False
    found: list[Script] = []
    for number in range(draw.between(1, MOST_REQUESTS)):
        now += draw.among(_GAPS)
        script = _script(draw, profile, shows, number, now, most, shares)
        if shares and found and draw.among((False, False, False, True)):
            script = _twin(script, draw.among(found), most)
        found.append(script)
    return tuple(found)


def _script(
    draw: Draw, profile: Profile, shows: Capabilities, number: int, now: int, most: int, shares: bool
) -> Script:
    prompt = max(1, min(most - 1, _length(draw, profile, most - 1)))
    room = most - prompt
    outputs = max(1, min(room, draw.among((1, 2, 3, 5, 8, 12, 20, room))))
    spare = draw.among((0, 0, 1, 4))
    abort = shows.abort and draw.among((False,) * 7 + (True,))
    request = request_of(
        f"r{number}",
        _tokens(draw, number, prompt) if shares else prompt_of(number, prompt),
        min(room, outputs + spare),
        priority=draw.among((0, 0, 1, 2)) if shows.priority else 0,
        tenant=draw.among("abc") if shows.tenants else None,
        arrival_ns=now,
    )
    return Script(
        request,
        outputs,
        abort_ns=STEP_NS * draw.between(0, 24) if abort else None,
        abort_in_flight=abort and draw.among((False, True)),
        accept=draw.among((0, 1, 2, 3)) if shows.drafts else 0,
    )


def _tokens(draw: Draw, number: int, length: int) -> tuple[int, ...]:
    """A prompt that may begin like others, go on like others behind its own first token, or repeat itself."""
    kind = draw.among(("own", "begins", "begins", "begins", "goes on", "repeats"))
    if kind == "own":
        return prompt_of(number, length)
    template = draw.among((0, 0, 1))
    if kind == "repeats":
        return (50 + int(template),) * length
    shared = draw.among((length, length - 1, length // 2))
    tokens = prompt_of(number, length, shared, template)
    return (prompt_of(number, 1)[0], *tokens[1:]) if kind == "goes on" else tokens


def _twin(script: Script, other: Script, most: int) -> Script:
    """The same request with the whole prompt of another one."""
    prompt = other.request.prompt
    limit = min(script.request.max_tokens, most - len(prompt))
    request = replace(script.request, prompt=prompt, max_tokens=limit)
    return replace(script, request=request, outputs=min(script.outputs, limit))


def _length(draw: Draw, profile: Profile, most: int) -> int:
    """A prompt's length: short, around the edges of blocks and of the budget, or anything."""
    limits = profile.limits
    block, budget = limits.block_size or 1, limits.token_budget or most
    kind = draw.among(("short", "short", "block", "budget", "any"))
    if kind == "short":
        return draw.between(1, min(most, 12))
    if kind == "block":
        return block * draw.between(1, max(1, min(6, most // block))) + int(draw.among((0, 1, -1)))
    if kind == "budget":
        return budget * int(draw.among((1, 2))) + int(draw.among((0, 1, -1)))
    return draw.between(1, most)
