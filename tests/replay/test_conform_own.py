"""The project's own schedulers under the suite: the reference scheduler, and the engine's own."""

import pytest

from batchspec.replay.adapters import engine, reference
from batchspec.replay.conform.search import Subject, Tally, direct, repeat, search
from batchspec.replay.harness import Factory, HarnessError
from batchspec.spec.library import load_profile, profile_names
from batchspec.spec.profile import Profile

ALL = profile_names()
SOME = (
    "batchspec",
    "vllm-v1",
    "vllm-v1-async",
    "vllm-v1-priority",
    "sglang",
    "sglang-overlap",
    "static",
    "triton-dynamic",
    "transformers",
    "lmdeploy",
    "vtc",
)
ENGINE = ("batchspec", "vllm-v1", "vllm-v1-priority", "orca", "static", "tgi", "fastserve")


def claims_of(name: str) -> Profile:
    claims = load_profile(name)
    if claims.admission.test in ("ratio", "peak"):
        # A prediction is the engine's own: the reference scheduler has none to record.
        return claims.merged(Profile.from_dict({"admission": {"test": "known"}}))
    return claims


def alarms(factory: Factory, claims: Profile, *, examples: int, directed: bool) -> dict[str, str]:
    subject, tally = Subject(factory, claims), Tally()
    if directed:
        direct(subject, tally)
        repeat(subject, tally)
    search(subject, tally, examples=examples)
    assert tally.level == "L3"
    return {rule: one[0].broken[rule].message for rule, one in tally.broken.items()}


@pytest.mark.parametrize("name", SOME)
def test_the_reference_scheduler_conforms(name):
    directed = name == "batchspec"

    assert alarms(reference.make, claims_of(name), examples=15, directed=directed) == {}


@pytest.mark.parametrize("name", ENGINE)
def test_the_engine_conforms(name):
    pytest.importorskip("torch")
    directed = name == "static"

    assert alarms(engine.make, claims_of(name), examples=30, directed=directed) == {}


def test_the_engine_says_what_it_does_not_do():
    pytest.importorskip("torch")

    with pytest.raises(HarnessError, match=r"^reuse\.slot_lag = 1 is not something this engine does"):
        Subject(engine.make, claims_of("vllm-v1-async"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("which", ["reference", "engine"])
def test_both_conform_in_many_runs(which, name):
    if which == "engine":
        pytest.importorskip("torch")
    try:
        assert alarms(globals()[which].make, claims_of(name), examples=1000, directed=True) == {}
    except HarnessError as error:
        assert which == "engine"
        pytest.skip(str(error))
