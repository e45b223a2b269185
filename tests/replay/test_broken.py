"""The suite against schedulers that are wrong in one way each, and against the right one they are made of."""

from pathlib import Path

import pytest

from batchspec.replay.conform.search import EXAMPLES, Subject, Tally, direct, repeat, search, settled
from batchspec.replay.loading import load_file
from batchspec.spec.library import load_profile
from batchspec.spec.profile import Profile

HERE = Path(__file__).parent / "broken"
BASE = load_file(HERE / "base.py")
for name in ("requests", "batch", "memory", "policy"):
    load_file(HERE / f"{name}.py")
FAULTS = load_file(HERE / "fault.py").FAULTS

RIGHT = {
    "vllm-v1": {},
    "vllm-v1 sharing": {"reuse": {"prefix": True}},
    "vllm-v1-async": {},
    "vllm-v1-priority": {},
    "orca": {},
    "static": {},
    "vllm-v1 sjf": {"admission": {"order": "sjf"}},
    "vllm-v1 whole": {"batching": {"chunked_prefill": False}},
    "vllm-v1 back": {"preemption": {"resume": "back"}},
    "vllm-v1 skipping": {"admission": {"misfit": "skip"}},
    "vllm-v1 watermark": {"admission": {"watermark_blocks": 1}},
    "vllm-v1 unmixed": {
        "batching": {"mixed": False},
        "patience": {"rules": {"liveness/starved-member": 64}},
    },
    "vllm-v1 reserving": {"admission": {"reserve": "known"}},
    "vllm-v1 admitting": {"preemption": {"admit_in_same_step": True}},
}
"""Profiles, and what is laid over them, under which the small scheduler is right."""


DIRECTED = ("vllm-v1 sharing", "vllm-v1-async", "static")


def claims_of(profile: str, overlay: dict[str, object]) -> Profile:
    return load_profile(profile).merged(Profile.from_dict(overlay))


@pytest.mark.parametrize("broken", FAULTS, ids=lambda broken: broken.name)
def test_a_broken_scheduler_is_caught_by_the_right_rule(broken):
    hangs = broken.rule == "conform/hang"
    subject = Subject(broken.make, claims_of(broken.profile, broken.overlay), call_s=0.5 if hangs else 20)
    tally = Tally()

    search(subject, tally, examples=EXAMPLES, until=lambda tally: broken.rule in tally.broken)

    assert broken.rule in tally.broken


def test_there_are_many_kinds_of_faults():
    assert len(FAULTS) >= 55
    assert len({broken.rule for broken in FAULTS}) >= 40
    assert len({broken.name for broken in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_one_raises_no_alarm(name, request):
    subject = Subject(BASE.make, claims_of(name.split()[0], RIGHT[name]))
    tally = Tally()

    if name in DIRECTED or request.config.getoption("--long"):
        direct(subject, tally)
        repeat(subject, tally)
    search(subject, tally, examples=1000 if request.config.getoption("--long") else 30)

    assert {rule: judged.broken[rule].message for rule, (judged, _, _) in tally.broken.items()} == {}


@pytest.mark.parametrize("shows", ["none", "counts"])
def test_it_raises_none_where_it_shows_less(shows):
    subject = Subject(lambda profile: BASE.Scheduler(profile, shows), load_profile("vllm-v1"))
    tally = Tally()

    search(subject, tally, examples=30)

    assert {rule: judged.broken[rule].message for rule, (judged, _, _) in tally.broken.items()} == {}
    assert tally.level == ("L1" if shows == "none" else "L2")


def test_what_is_found_is_made_small_and_seen_again():
    broken = next(one for one in FAULTS if one.name == "LosesTheRaggedTail")
    subject = Subject(broken.make, claims_of(broken.profile, broken.overlay))
    tally = Tally()
    search(subject, tally, examples=30)

    found = {one.finding.rule: one for one in settled(subject, tally)}

    small = found["memory/conservation"]
    assert small.repeatable
    assert [len(script.request.prompt) for script in small.judged.case.scripts] == [1]
    assert small.judged.run.steps == 1


def test_the_same_seed_leads_to_the_same_cases():
    def sizes(seed: int) -> tuple[int, int, int]:
        tally = Tally()
        search(Subject(BASE.make, load_profile("vllm-v1")), tally, examples=30, seed=seed)
        return tally.rows, tally.steps, tally.requests

    assert sizes(3) == sizes(3)
    assert sizes(3) != sizes(4)


def test_a_scheduler_that_decides_by_chance_is_told():
    calls = iter(range(1000))

    class Moody(BASE.Scheduler):
        def __init__(self, profile):
            super().__init__(profile)
            self.mood = next(calls)

        def line(self):
            waiting = super().line()
            return waiting[::-1] if self.mood % 2 else waiting

    tally = Tally()
    repeat(Subject(Moody, load_profile("vllm-v1")), tally)

    assert set(tally.broken) == {"conform/repeatable"}
