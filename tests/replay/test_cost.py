"""The cost model: fitted to recorded passes, read from a file, or a function of the user's own."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchspec.replay.cost import CostError, CostModel, calibrate, named_cost
from batchspec.replay.plugins import PluginError
from batchspec.replay.simulate import simulate
from batchspec.spec.library import load_profile
from batchspec.spec.passes import Pass, passes
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.spec.reference import StepShape

PROFILE = load_profile("batchspec").merged(
    Profile.from_dict({"limits": {"max_seqs": 8, "token_budget": 64, "kv_blocks": 60, "block_size": 4}})
)
RECORDS = [Record(n, 0, 5 + 11 * n % 70, 3 + 7 * n % 20) for n in range(40)]
COEFFICIENTS = ("base_ns", "per_token_ns", "per_kv_position_ns", "per_member_ns")


def one_pass(taken: int, members: int = 1, tokens: int = 1, positions: int = 1) -> Pass:
    return Pass(1, 0, taken, members, tokens, 0, positions, 0)


@given(
    st.tuples(*[st.integers(0, 10**7) for _ in range(4)]).filter(any),
)
@settings(max_examples=15)
def test_a_simulated_run_gives_its_cost_model_back(parts: tuple[int, int, int, int]) -> None:
    cost = CostModel(*parts)
    found = calibrate(passes(simulate(RECORDS, PROFILE, cost=cost)))
    size = max(parts)
    for name in COEFFICIENTS:
        assert getattr(found.model, name) == pytest.approx(getattr(cost, name), rel=1e-4, abs=size * 1e-5)
    assert found.median_error < 1e-4


def test_a_pause_of_the_machine_is_no_cost() -> None:
    measured = list(passes(simulate(RECORDS, PROFILE)))
    late = measured[5]._replace(ended_ns=(measured[5].began_ns or 0) + 10**12)
    found = calibrate([*measured[:5], late, *measured[6:]])
    assert found.model.base_ns == pytest.approx(8_000_000, rel=1e-3)
    assert found.model.per_token_ns == pytest.approx(30_000, rel=1e-3)


def test_no_part_is_below_zero() -> None:
    """Passes that get faster with more members: the best that is allowed has no cost of a member."""
    measured = [one_pass(10_000 - 100 * members, members, members, members) for members in range(1, 20)]
    model = calibrate(measured).model
    assert min(getattr(model, name) for name in COEFFICIENTS) >= 0
    assert model.per_member_ns == 0


@pytest.mark.parametrize(
    "measured", [[], [one_pass(5)] * 7, [one_pass(0)] * 20, [one_pass(1)._replace(began_ns=None)] * 20]
)
def test_too_few_durations_are_refused(measured: list[Pass]) -> None:
    with pytest.raises(CostError, match="clock"):
        calibrate(measured)


def test_warm_up_is_left_out() -> None:
    slow = [one_pass(10**9)] * 3
    found = calibrate([*slow, *[one_pass(100 + n, tokens=n) for n in range(1, 30)]], warmup=3)
    assert found.passes == 29
    assert found.model.per_token_ns == pytest.approx(1)


def test_what_is_written_can_be_read(tmp_path) -> None:
    found = calibrate(passes(simulate(RECORDS, PROFILE)))
    (tmp_path / "cost.json").write_text(found.to_json())
    assert named_cost(str(tmp_path / "cost.json")) == found.model


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("[" * 60_000, "not valid JSON"),
        ("[]", "must be an object with `cost`"),
        ('{"cost": {}}', "must be an object with `cost`"),
        ('{"cost": {"base_nss": 1}}', "must be an object with `cost`"),
        ('{"cost": {"base_ns": -1}}', "cost.base_ns must be a number of at least 0"),
        ('{"cost": {"base_ns": NaN}}', "cost.base_ns must be a number of at least 0"),
        ('{"cost": {"base_ns": true}}', "cost.base_ns must be a number of at least 0"),
        (json.dumps({"cost": {"base_ns": 1}, "more": "x" * 70_000}), "must be an object with `cost`"),
    ],
)
def test_a_file_that_is_no_cost_model_is_refused(text: str, message: str, tmp_path) -> None:
    (tmp_path / "cost.json").write_text(text)
    with pytest.raises(CostError, match=message) as error:
        named_cost(str(tmp_path / "cost.json"))
    assert "\n" not in str(error.value)


def test_a_missing_file_is_refused(tmp_path) -> None:
    with pytest.raises(CostError, match="cannot be read"):
        named_cost(str(tmp_path / "none.json"))


def test_a_function_of_ones_own(tmp_path, monkeypatch) -> None:
    (tmp_path / "own_costs.py").write_text(
        "def per_member(shape):\n    return 7 * shape.members\ndef half(shape):\n    return 0.5\nnumber = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert named_cost("own_costs:per_member")(StepShape(3, 5, 1, 9)) == 21
    with pytest.raises(PluginError, match="whole nanoseconds"):
        named_cost("own_costs:half")(StepShape(1))
    with pytest.raises(PluginError, match="is no cost model"):
        named_cost("own_costs:number")
