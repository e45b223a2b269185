"""The engine that plans ahead, against the rules: each way through it is a trace that conforms."""

import pytest

from batchspec.replay.checker import check_events
from batchspec.spec.errors import ProfileError
from batchspec.spec.explore import explore
from batchspec.spec.frame import Job
from batchspec.spec.overlap import APART, Overlap
from batchspec.spec.profile import Profile

LIMITS = {"max_seqs": 2, "token_budget": 4, "kv_blocks": 6, "block_size": 1}
REUSE = {"depth": 2, "slot_lag": 1, "overlap_member": 1, "block_lag": 2}


def profile_of(**reuse: object) -> Profile:
    return Profile.from_dict({"limits": LIMITS, "batching": {"lookahead": 0}, "reuse": REUSE | reuse})


def test_every_way_through_it_conforms():
    system = Overlap(profile_of(), [Job(2, 2), Job(1, 3), Job(1, 1)])
    ways = {system.start: ()}
    queue = [system.start]
    for flight in queue:
        for rows in system.enabled(flight):
            path = (*ways[flight], rows)
            report = check_events(system.tell(path), system.profile, complete=False)
            assert report.findings == (), path
            after = system.apply(flight, rows)
            if after not in ways:
                ways[after] = path
                queue.append(after)
    assert len(queue) == 158


def test_counts_are_pinned():
    found = explore(Overlap(profile_of(), [Job(2, 2), Job(1, 3), Job(1, 1)]), invariants=(APART,))

    assert found.holds
    assert (found.states, found.transitions, found.depth) == (158, 169, 18)


def test_claims_of_another_engine_are_refused():
    with pytest.raises(ProfileError, match="needs every limit"):
        Overlap(Profile.from_dict({"reuse": REUSE}), [Job(1, 1)])
    for reuse in ({"depth": 1}, {"block_lag": "release"}):
        with pytest.raises(ProfileError, match=r"reuse\.depth = 2 and a block_lag in steps"):
            Overlap(profile_of(**reuse), [Job(1, 1)])
