"""vLLM's scheduler under test and recorded, where it is installed (scripts/thirdparty vllm)."""

from importlib.util import find_spec

import pytest

if find_spec("vllm") is None:
    pytest.skip("vLLM is not installed", allow_module_level=True)

from batchspec.replay.adapters.vllm import Adapter, make
from batchspec.replay.checker import check
from batchspec.replay.claims import named_profile
from batchspec.replay.drive import Script, drive
from batchspec.replay.harness import HarnessError, Refused, Request
from batchspec.spec.profile import Profile

pytestmark = pytest.mark.filterwarnings("default")  # those of vLLM and torch are not ours


def claims(name: str, **more) -> Profile:
    limits = {"max_seqs": 4, "token_budget": 10, "kv_blocks": 12, "block_size": 4, **more.pop("limits", {})}
    return named_profile(name).merged(Profile.from_dict({"limits": limits, **more}, "test"))


def scripts(count: int = 12) -> list[Script]:
    """More than the pool holds: prompts that begin alike, arriving faster than they are served."""
    return [
        Script(
            Request(f"r{number}", tuple(range(3, 5 + number % 13)), 9, 1, arrival_ns=11 * number),
            9 - number % 2,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("name", ["vllm-v1", "vllm-v1-async", "vllm-v1-priority"])
def test_it_keeps_its_profile(name: str) -> None:
    profile = claims(
        name, limits={"kv_blocks": 7}, reuse={"prefix": True, "same_pass": True}, batching={"lookahead": 0}
    )

    run = drive(make(profile), scripts(), profile)

    assert (run.crash, run.unfinished) == (None, ())
    assert check(run.trace, profile).findings == ()
    assert run.trace.kinds["preempt"] > 0


def test_what_the_front_end_refuses_is_refused() -> None:
    adapter = make(claims("vllm-v1"))

    for request in (Request("e", (), 3, 1), Request("m", (3,), 0, 1), Request("l", tuple(range(48)), 3, 1)):
        with pytest.raises(Refused):
            adapter.add(request)


@pytest.mark.parametrize(
    "more", [{"reuse": {"depth": 3}}, {"admission": {"order": "sjf"}}, {"limits": {"max_model_len": 99}}]
)
def test_what_vllm_cannot_be(more) -> None:
    with pytest.raises(HarnessError):
        make(claims("vllm-v1", **more))


def test_blocks_of_a_share_that_was_taken_back_stay_in_the_prefix_cache() -> None:
    """A fault of 0.32 and 0.33: preempted once planned, a chunk's blocks stay hashed."""
    profile = claims("vllm-v1-priority", reuse={"prefix": True, "same_pass": True})
    adapter = Adapter(profile, chunk=8)
    if not adapter.capabilities.version.startswith(("0.32", "0.33")):
        pytest.skip("known of 0.32 and 0.33")
    long = Request("A", tuple(range(10, 51)), 4, 1, priority=2)
    urgent = Request("B", (100, 101), 6, 1, priority=0, arrival_ns=1)

    run = drive(adapter, [Script(long, 4), Script(urgent, 6)], profile)

    found = check(run.trace, profile).findings
    assert [(finding.rule, finding.step) for finding in found] == [("memory/unwritten", 8)]
    assert found[0].observed == "block 10: 2 of its 4 positions are written"
