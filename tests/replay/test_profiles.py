"""Every shipped profile allows something: the reference scheduler under it conforms to it."""

import random

import pytest

from batchspec.replay.checker import check_events
from batchspec.replay.simulate import simulate
from batchspec.spec.library import load_profile, profile_names
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record

LIMITS = {
    "max_seqs": 6,
    "token_budget": 48,
    "kv_blocks": 40,
    "block_size": 4,
    "max_model_len": 160,
    "host_blocks": 40,
}


def workload(seed: int, requests: int = 60) -> list[Record]:
    """Short requests of three tenants, in bursts that outgrow the pool."""
    rng = random.Random(seed)
    return [
        Record(
            number,
            (number // 6) * 40_000_000,
            rng.randint(1, 40),
            rng.randint(1, 30),
            tenant=rng.choice("abc"),
            priority=rng.randint(0, 2),
        )
        for number in range(requests)
    ]


@pytest.mark.parametrize("name", profile_names())
@pytest.mark.parametrize("seed", range(3))
def test_the_reference_scheduler_conforms_under_a_shipped_profile(name: str, seed: int) -> None:
    profile = load_profile(name).merged(Profile.from_dict({"limits": LIMITS}))
    if profile.admission.test in ("ratio", "peak"):
        # A prediction is the engine's own: the reference scheduler has none to record.
        profile = profile.merged(Profile.from_dict({"admission": {"test": "known"}}))
    report = check_events(simulate(workload(seed), profile, seed=seed), profile)
    assert [finding.message for finding in report.findings] == []
    assert report.requests == 60
    judged = [result for result in report.rules if result.checked]
    assert len(judged) >= 20, name
