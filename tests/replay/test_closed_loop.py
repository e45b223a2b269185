"""A closed loop: so many clients, each sends its next request when its last one has ended."""

import pytest

from batchspec.replay.checker import check_events
from batchspec.replay.simulate import simulate
from batchspec.spec.errors import SpecError
from batchspec.spec.library import load_profile
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record

PROFILE = load_profile("batchspec").merged(
    Profile.from_dict({"limits": {"max_seqs": 8, "token_budget": 64, "kv_blocks": 40, "block_size": 4}})
)
RECORDS = [Record(n, n * 10**12, 3 + n % 7, 1 + n % 5) for n in range(30)]


@pytest.mark.parametrize("clients", [1, 3, 8, 50])
def test_never_more_requests_live_than_clients(clients: int) -> None:
    live = most = ended = 0
    ends: dict[int, int] = {}
    for event in simulate(RECORDS, PROFILE, concurrency=clients):
        live += (event.event == "arrive") - (event.event == "finish")
        most = max(most, live)
        if event.event == "finish":
            ended += 1
            ends[ended] = event.time_ns or 0
        if event.event == "arrive" and event.request >= clients:
            assert event.time_ns == ends[event.request - clients + 1], "it comes when another has ended"
    assert most == min(clients, len(RECORDS))
    assert ended == len(RECORDS)


def test_times_of_arrival_are_left_aside_and_the_run_conforms() -> None:
    events = list(simulate(RECORDS, PROFILE, concurrency=4))
    assert (events[-1].time_ns or 0) < 10**12
    assert check_events(events, PROFILE).verdict == "conforms"


def test_a_client_that_cancels_sends_its_next_one() -> None:
    aborts = dict.fromkeys(range(0, 30, 2), 1)
    events = list(simulate(RECORDS, PROFILE, concurrency=2, aborts=aborts))
    ended = [event.request for event in events if event.event in ("finish", "abort")]
    assert sorted(ended) == list(range(30))


def test_nobody_is_no_client() -> None:
    with pytest.raises(SpecError, match="at least 1"):
        simulate(RECORDS, PROFILE, concurrency=0)
