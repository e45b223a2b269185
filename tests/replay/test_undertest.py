"""Schedulers under test, explored: every choice of their clients, judged by all rules."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from batchspec.replay.adapters.reference import make
from batchspec.replay.cli import main
from batchspec.replay.harness import (
    Capabilities,
    HarnessError,
    Outcome,
    Plan,
    Request,
    Results,
    admit,
    finish,
    schedule,
)
from batchspec.replay.undertest.copies import Asked, fingerprint
from batchspec.replay.undertest.system import PATIENCE, UnderTest
from batchspec.spec.explore import Exploration, explore
from batchspec.spec.frame import Job
from batchspec.spec.library import load_profile
from batchspec.spec.profile import Profile

LIMITS = {"max_seqs": 2, "token_budget": 4, "kv_blocks": 6, "block_size": 1}
TWO = [Job(1, 2), Job(1, 2)]


def profile_of(**limits: int) -> Profile:
    return load_profile("batchspec").merged(Profile.from_dict({"limits": LIMITS | limits}))


class Small:
    """First come, first served, whole lengths reserved: right, and copied by `deepcopy`."""

    capabilities = Capabilities(name="small", blocks="counts", abort=False, copies=True)

    def __init__(self, profile: Profile) -> None:
        self.seats = profile.limits.max_seqs or 1
        self.free = profile.limits.kv_blocks or 1
        self.waiting: list[Request] = []
        self.running: list[list[Any]] = []

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def abort(self, request: Any) -> Iterable[Any]:
        return ()

    def need(self, request: Request) -> int:
        return len(request.prompt) + request.max_tokens

    def plan(self) -> Plan:
        rows = [schedule(request.id, 1, blocks=self.need(request)) for request, _ in self.running]
        while self.waiting and len(self.running) < self.seats and self.need(self.waiting[0]) <= self.free:
            request = self.waiting.pop(0)
            self.free -= self.need(request)
            self.running.append([request, 0])
            blocks = self.need(request)
            rows += [
                admit(request.id, cached=0, blocks=blocks),
                schedule(request.id, len(request.prompt), blocks=blocks),
            ]
        return Plan(rows)

    def commit(self, results: Results) -> Outcome:
        rows = []
        for one in list(self.running):
            request, emitted = one
            one[1] = emitted + 1
            stops = request.stop_token in results.tokens[request.id]
            if stops or one[1] == request.max_tokens:
                self.running.remove(one)
                self.end(request, stops)
                rows.append(finish(request.id, "stop" if stops else "length", one[1], blocks=0))
        return Outcome(rows, self.free, len(self.waiting), len(self.running))

    def end(self, request: Request, stops: bool) -> None:
        self.free += self.need(request)


class Leaks(Small):
    """A request that stops by itself leaves a block behind."""

    def end(self, request: Request, stops: bool) -> None:
        self.free += self.need(request) - (1 if stops else 0)


class Crashes(Small):
    """Two ends in one step are one too many."""

    def commit(self, results: Results) -> Outcome:
        outcome = super().commit(results)
        if len(outcome.rows) > 1:
            raise IndexError("pop from empty list")
        return outcome


class Sleeps(Small):
    """It admits nobody while a second one waits."""

    def plan(self) -> Plan:
        return Plan() if len(self.waiting) > 1 else super().plan()


class Dozes(Sleeps):
    """The same with a clock, so that it is never in one state twice."""

    now = 0

    def plan(self) -> Plan:
        self.now += 1
        return super().plan()


class Uncopied(Small):
    """The same one, that must be made anew."""

    capabilities = Capabilities(name="small", blocks="counts", abort=False)

    def __deepcopy__(self, memo: Any) -> "Uncopied":
        raise TypeError("holds a device")


PLAIN = Profile.from_dict(
    {
        "limits": LIMITS,
        "batching": {"mode": "continuous", "chunked_prefill": False, "lookahead": 0},
        "admission": {"order": "fcfs", "misfit": "stop", "test": "full", "reserve": "full"},
        "preemption": {"mode": "none"},
    }
)


def explored(factory: Any, profile: Profile = PLAIN, jobs: Any = TWO, **settings: bool) -> Exploration:
    system = UnderTest(factory, profile, jobs, **settings)
    return explore(system, invariants=system.invariants())


def test_a_right_one_holds_and_states_come_together():
    found = explored(Small)

    assert found.holds
    assert (found.states, found.transitions, found.depth, found.ends) == (8, 15, 2, 1)


def test_one_that_cannot_be_copied_is_made_anew_and_asked_the_same():
    found = explored(Uncopied)

    assert found.holds
    assert found.transitions == found.states - 1, "what was asked is the state: a tree"
    assert found.ends > explored(Small).ends


@pytest.mark.parametrize("profile", ["batchspec", "vllm-v1"])
def test_the_reference_scheduler_holds(profile):
    limits = Profile.from_dict(
        {"limits": {"max_seqs": 2, "token_budget": 3, "kv_blocks": 3, "block_size": 2}}
    )
    claims = load_profile(profile).merged(limits)
    found = explored(make, claims, [Job(3, 2), Job(2, 3)], aborts=True)

    assert found.holds
    assert found.whole
    assert found.ends > 10


def test_the_engine_holds():
    pytest.importorskip("torch")
    from batchspec.replay.adapters.engine import make as engine

    assert explored(engine, profile_of(token_budget=3, kv_blocks=3, block_size=2)).holds


def test_the_shortest_way_to_a_leak():
    found = explored(Leaks)

    broken = {one.invariant.id: one.path for one in found.broken}
    path = broken["memory/conservation"]
    assert [event.event for event in path] == ["arrive", "admit", "schedule", "finish", "step"]
    assert path[3].reason == "stop"


def test_the_shortest_way_to_a_crash():
    (broken,) = explored(Crashes).broken

    assert broken.invariant.id == "answers"
    assert max(event.step for event in broken.path) == 1
    assert [event.event for event in broken.path].count("schedule") == 2


def test_one_that_goes_nowhere_is_found():
    (livelock,) = explored(Sleeps).livelocks
    assert [event.event for event in livelock.path] == ["arrive", "arrive", "step"]
    assert [event.event for event in livelock.cycle] == ["step"]

    (path,) = explored(Dozes).stuck
    assert [event.event for event in path][:2] == ["arrive", "arrive"]
    assert path[-1].step == PATIENCE + 1


def test_what_has_no_model_is_refused():
    class Ahead(Small):
        capabilities = Capabilities(name="ahead", depth=2, outputs="recorded")

    with pytest.raises(HarnessError, match="plans ahead or drafts"):
        UnderTest(Ahead, PLAIN, TWO)


def test_contents_decide_what_is_the_same():
    one, other = Small(PLAIN), Small(PLAIN)
    assert fingerprint(one) == fingerprint(other)
    other.free -= 1
    assert fingerprint(one) != fingerprint(other)

    def counting(count: int) -> Any:
        return lambda: count

    assert fingerprint({"f": counting(1)}) != fingerprint({"f": counting(2)})
    ring: list[Any] = [1]
    ring.append(ring)
    assert fingerprint(ring) == fingerprint(ring)
    assert fingerprint(Asked(Uncopied, PLAIN)) == ()


SIZES = ["--max-seqs", "2", "--token-budget", "4", "--kv-blocks", "3", "--block-size", "2"]


def test_on_the_command_line(capsys):
    command = [
        "explore",
        "--request",
        "2:2",
        *SIZES,
        "--scheduler",
        "batchspec.replay.adapters.reference:make",
    ]

    assert main([*command, "--profile", "batchspec"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("holds: batchspec reference, every choice of its clients, 1 request")

    assert main([*command, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["engine"]) == ("holds", "readable")

    for option in (["--eager"], ["--engine", "packed"]):
        assert main([*command, *option]) == 2
    assert "has no packed form" in capsys.readouterr().err


def test_a_crash_is_told_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(
        "from batchspec.replay.adapters.reference import Adapter\n"
        "class Mine(Adapter):\n"
        "    def commit(self, results):\n"
        "        raise KeyError('A')\n"
    )
    command = ["explore", "--request", "2:2", *SIZES, "--scheduler", f"{path}:Mine"]

    assert main(command) == 1
    out = capsys.readouterr().out
    assert "answers breaks: KeyError: 'A'" in out
    assert "1 arrive A" in out
