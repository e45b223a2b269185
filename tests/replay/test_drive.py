"""The closed loop: what it tells the scheduler, what it writes down, and how it ends."""

import time

import pytest

from batchspec.replay import harness
from batchspec.replay.adapters.reference import make
from batchspec.replay.checker import check
from batchspec.replay.drive import Script, attempt, drive
from batchspec.replay.harness import Capabilities, HarnessError, Outcome, Plan, Refused, Request
from batchspec.spec.library import load_profile
from batchspec.spec.profile import Profile

LIMITS = {"max_seqs": 2, "token_budget": 8, "kv_blocks": 6, "block_size": 4}


def profile_of(name: str) -> Profile:
    return load_profile(name).merged(Profile.from_dict({"limits": LIMITS}))


def ask(name: str, prompt: int, outputs: int, arrival_ns: int = 0, **more: object) -> Script:
    request = Request(name, tuple(range(10, 10 + prompt)), outputs, 2, arrival_ns=arrival_ns)
    return Script(request, outputs, **more)  # type: ignore[arg-type]


class Simple:
    """One request after the other, whole prompts, no memory."""

    capabilities = Capabilities(name="simple")

    def __init__(self) -> None:
        self.queue: list[Request] = []
        self.done = 0

    def add(self, request: Request) -> None:
        if any(other.id == request.id for other in self.queue):
            raise Refused("error", "live already")
        self.queue.append(request)

    def abort(self, request: object) -> list[harness.Event]:
        self.queue = [other for other in self.queue if other.id != request]
        return [harness.aborted(request)]  # type: ignore[arg-type]

    def plan(self) -> Plan:
        if not self.queue:
            return Plan()
        first = self.queue[0]
        if self.done:
            return Plan([harness.schedule(first.id, 1)])
        return Plan([harness.admit(first.id), harness.schedule(first.id, len(first.prompt))])

    def commit(self, results: harness.Results) -> Outcome:
        rows = []
        for name, tokens in results.tokens.items():
            self.done += len(tokens)
            if self.done == self.queue[0].max_tokens:
                rows.append(harness.finish(name, "length", self.done))
                self.queue.pop(0)
                self.done = 0
        return Outcome(rows)


@pytest.mark.parametrize("name", ["batchspec", "vllm-v1", "vllm-v1-async", "static", "sglang-overlap"])
def test_a_run_of_the_reference_scheduler_ends_and_conforms(name):
    profile = profile_of(name)
    if profile.admission.test == "ratio":
        profile = profile.merged(Profile.from_dict({"admission": {"test": "known"}}))
    run = drive(make(profile), [ask("A", 6, 3), ask("B", 5, 4), ask("C", 3, 2, 25)], profile)

    assert (run.unfinished, run.crash, run.stalled) == ((), None, False)
    assert run.trace.complete
    assert check(run.trace, profile).findings == ()


def test_with_two_passes_in_flight_the_last_results_are_read_and_the_run_ends():
    profile = profile_of("vllm-v1-async")
    run = drive(make(profile), [ask("A", 2, 3)], profile)

    assert run.steps <= 6
    assert not run.stalled


def test_a_live_id_that_is_refused_leaves_no_row():
    run = drive(Simple(), [ask("A", 2, 3), ask("A", 4, 1)], Profile())

    assert [row.prompt_tokens for row in run.trace.events() if row.event == "arrive"] == [2]


def test_a_live_id_that_is_taken_twice_is_a_duplicate():
    class Careless(Simple):
        def add(self, request):
            self.queue.append(request)

    run = attempt(Careless(), [ask("A", 2, 3), ask("A", 4, 1)], Profile())

    assert "lifecycle/duplicate-id" in {finding.rule for finding in check(run.trace).findings}


def test_a_crash_ends_the_run_and_the_trace_says_so():
    class Broken(Simple):
        def commit(self, results):
            raise ValueError("no such\nblock")

    run = drive(Broken(), [ask("A", 2, 3)], Profile())

    assert run.crash is not None
    assert run.crash.startswith("ValueError: no such block (test_drive.py, line ")
    assert run.unfinished == ("A",)
    assert not run.trace.complete


def test_a_scheduler_cannot_end_the_program():
    class Quitter(Simple):
        def plan(self):
            raise SystemExit(3)

    assert "SystemExit" in (drive(Quitter(), [ask("A", 2, 3)], Profile()).crash or "")


def test_a_scheduler_that_does_nothing_stalls():
    class Idle(Simple):
        def plan(self):
            return Plan()

    run = drive(Idle(), [ask("A", 2, 3)], Profile(), stall_steps=20)

    assert run.stalled
    assert run.unfinished == ("A",)
    assert run.steps == 21


def test_an_answer_that_is_none_is_raised_by_drive_and_told_by_attempt():
    class Odd(Simple):
        def plan(self):
            return [harness.schedule("A", 2)]

    with pytest.raises(HarnessError, match="must return a Plan, not list"):
        drive(Odd(), [ask("A", 2, 3)], Profile())
    run = attempt(Odd(), [ask("A", 2, 3)], Profile())
    assert run.broken == "plan() must return a Plan, not list"
    assert [row.event for row in run.trace.events()] == ["arrive"]


def test_a_call_that_does_not_come_back_is_left():
    class Endless(Simple):
        def plan(self):
            while True:
                time.sleep(0)

    run = attempt(Endless(), [ask("A", 2, 3)], Profile(), call_s=0.05)

    assert run.hung == "plan() did not return within 0.05 s"


def test_blocks_that_come_back_late_are_seen_to_come_back():
    profile = profile_of("batchspec").merged(Profile.from_dict({"reuse": {"block_lag": "release"}}))
    run = drive(make(profile), [ask("A", 6, 3)], profile)

    assert [row.event for row in run.trace.events()][-2:] == ["release", "step"]
    assert check(run.trace, profile).findings == ()


def test_counters_of_a_plan_are_dropped_when_a_cancel_has_changed_them_since():
    profile = profile_of("vllm-v1-async")

    class Prompt(Simple):
        capabilities = Capabilities(name="prompt", depth=2, outputs="recorded")

        def plan(self):
            plan = super().plan()
            return Plan(plan.rows, running=len(self.queue))

    run = attempt(Prompt(), [ask("A", 2, 3, abort_ns=0, abort_in_flight=True), ask("B", 2, 3, 30)], profile)

    steps = [row.running for row in run.trace.events() if row.event == "step"]
    assert steps[0] is None
