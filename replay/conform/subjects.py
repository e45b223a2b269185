"""A scheduler under test by its name on a command line, and what leads to a finding once more.

module:factory        a factory to be imported
path/test_mine.py:X   one in a file; a subclass of the suite's base class stands for its `scheduler`
command:prog args     a program that answers JSON lines
"""

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from batchspec.replay.conform.case import Case, request_of
from batchspec.replay.conform.judge import CALL_S, Judged
from batchspec.replay.conform.kinds import ALL_RULES, Refusal, Repeatable
from batchspec.replay.conform.outside import Outside
from batchspec.replay.conform.search import Judge, Subject
from batchspec.replay.drive import Script
from batchspec.replay.harness import Factory, HarnessError
from batchspec.replay.jsonlines import CommandFactory
from batchspec.replay.loading import load_factory
from batchspec.replay.report.context import around
from batchspec.replay.report.page import Page
from batchspec.replay.report.text import finding_lines
from batchspec.spec.events import RequestId
from batchspec.spec.profile import Profile
from batchspec.traces.scenario import format_scenario

COMMAND = "command:"


def factory_of(name: str, call_s: float = CALL_S) -> Factory:
    """The factory that a name stands for. Raises `HarnessError` with what to mend."""
    if not name.startswith(COMMAND):
        factory: Factory = load_factory(name)
        return factory
    try:
        words = shlex.split(name.removeprefix(COMMAND))
    except ValueError as error:
        raise HarnessError(f"the command cannot be split into words ({error})") from error
    return CommandFactory(words, call_s)


def own_limit(factory: Factory, call_s: float) -> float | None:
    """The time limit that the harness must keep itself: none where the factory's calls have their own."""
    return None if isinstance(factory, CommandFactory) else call_s


def ask(
    name: RequestId,
    prompt: Iterable[int],
    max_tokens: int,
    outputs: int,
    *,
    arrival_ns: int = 0,
    priority: int = 0,
    tenant: str | None = None,
    abort_ns: int | None = None,
    abort_in_flight: bool = False,
    accept: int = 0,
) -> Script:
    """A request and what becomes of it, as a reproduction script writes it."""
    request = request_of(
        name, tuple(prompt), max_tokens, priority=priority, tenant=tenant, arrival_ns=arrival_ns
    )
    return Script(request, outputs, abort_ns, abort_in_flight, accept)


def reproduce(
    scheduler: str,
    profile: str | None,
    claims: Mapping[str, Any],
    requests: Iterable[Script],
    rule: str,
    origin: str = "",
    arguments: Iterable[str] = (),
    out: Callable[[str], Any] = print,
) -> int:
    """Drive the scheduler by the same script; 1 where it breaks the rule again, 0 where it does not.

    The first of `arguments`, if any, names another scheduler.
    """
    named = {"name": profile} if profile else {}
    case = Case(Profile.from_dict({**claims, **named}), tuple(requests))
    name = next(iter(arguments), scheduler)
    factory = factory_of(name)
    try:
        subject = Subject(factory, case.profile, call_s=own_limit(factory, CALL_S))
        judged = judge_for(rule, origin, subject)(case)
    finally:
        done = getattr(factory, "close", None)
        if done is not None:
            done()
    out(format_scenario(judged.run.trace).rstrip())
    finding = judged.broken.get(rule)
    if finding is None:
        others = ", ".join(judged.broken) or "nothing"
        out(f"\n{name}: {rule} is not broken here (broken: {others})")
        return 0
    page = Page()
    page.gap()
    stretch = around(judged.run.trace, [finding]).get(-1 if finding.row is None else finding.row)
    finding_lines(page, finding, ALL_RULES[rule].sentence, stretch, "batchspec check scenario.txt")
    out("\n" + page.text().rstrip())
    return 1


def judge_for(rule: str, origin: str, subject: Subject) -> Judge:
    """How a finding of this rule is judged: most are by driving and checking the case."""
    if rule == Repeatable.id:
        return subject.judge_twice
    if rule != Refusal.id:
        return subject.judge

    def odd(case: Case) -> Judged:
        return subject.judge_odd(Outside(origin, case, emits=origin not in _SILENT))(case)

    return odd


_SILENT = (
    "a prompt larger than the pool",
    "a prompt as long as the model",
    "a prompt longer than the model",
    "a prompt larger than a step",
    "no token to emit",
)
"""Kinds of input outside the contract of which no token may come."""
