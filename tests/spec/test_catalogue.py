"""The catalogue: every id of the contract, each rule complete, each example what it says it is."""

from itertools import groupby

import pytest

from batchspec.replay.examples import judged
from batchspec.spec.catalogue import RULES
from batchspec.spec.errors import SpecError
from batchspec.spec.events import COLUMNS
from batchspec.spec.examples import Example, _read, example, examples_of
from batchspec.spec.profile import GROUPS
from batchspec.spec.verdict import LEVELS

IDS = """
lifecycle/unknown-request lifecycle/legal-transition lifecycle/duplicate-id lifecycle/after-end
lifecycle/unfinished lifecycle/abort-ignored lifecycle/abort-target
time/backwards time/causality
batch/membership batch/capacity batch/token-budget batch/empty-member batch/static-barrier
batch/dynamic-window batch/no-stall batch/mixed
slots/exclusive slots/range slots/early-reuse slots/reuse
tokens/position tokens/overrun tokens/early-output tokens/output-count tokens/lost tokens/chunking
tokens/in-flight
memory/bound memory/coverage memory/waste memory/conservation memory/release memory/leak
memory/host-bound memory/exclusive memory/release-once memory/use-after-release memory/unwritten
admission/order admission/head-of-line admission/fit admission/never-fit admission/needless-wait
admission/parked
preemption/forbidden preemption/cause preemption/victim preemption/useful preemption/resume-first
preemption/no-admission preemption/thrash preemption/swap
fairness/overtaking fairness/priority-inversion fairness/service-gap fairness/starvation
fairness/rate-limit fairness/delivery-order
liveness/idle-stall liveness/starved-member liveness/livelock
stats/agree outputs/invariant plan/reference
"""
CONTRACT = IDS.split()
BOUNDED = {
    "lifecycle/abort-ignored",
    "admission/never-fit",
    "admission/needless-wait",
    "admission/parked",
    "preemption/thrash",
    "fairness/priority-inversion",
    "fairness/starvation",
    "liveness/idle-stall",
    "liveness/starved-member",
    "liveness/livelock",
}
AT_THE_END = {"lifecycle/unfinished", "fairness/service-gap"}
NOT_IN_A_TRACE = {"outputs/invariant"}
SHOWN = sorted(set(RULES) - NOT_IN_A_TRACE)

# Where the same wrong number breaks two rules by their very statements.
ALSO = {"memory/conservation": {"stats/agree"}}


def test_no_id_of_the_contract_is_missing_and_none_is_doubled() -> None:
    assert len(CONTRACT) == len(set(CONTRACT))
    assert set(CONTRACT) <= set(RULES)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_says_all_that_a_reader_needs(rule) -> None:
    assert rule.sentence.endswith(".")
    assert rule.sentence[0].isupper()
    assert len(rule.source) > 5
    assert rule.level in LEVELS
    assert rule.__doc__
    assert set(rule.columns) <= set(COLUMNS)
    for item in rule.premise:
        group, _, name = item.partition("=")[0].partition(".")
        assert name in GROUPS[group].__dataclass_fields__, item


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_kind_is_that_of_the_contract(rule) -> None:
    wanted = "bounded" if rule.id in BOUNDED else "end" if rule.id in AT_THE_END else "always"
    assert rule.kind == wanted


def test_only_the_plan_is_judged_on_request_alone() -> None:
    assert [rule.id for rule in RULES.values() if rule.opt_in] == ["plan/reference"]


def test_a_family_stands_together() -> None:
    families = [rule.partition("/")[0] for rule in RULES]
    assert len([name for name, _ in groupby(families)]) == len(set(families))


# -- examples --------------------------------------------------------------------------------------


def test_each_rule_has_its_examples_in_the_order_of_the_catalogue() -> None:
    families = dict.fromkeys(rule.partition("/")[0] for rule in RULES)
    listed = [rule for family in families for rule in examples_of(family)]
    assert listed == [rule for rule in RULES if rule not in NOT_IN_A_TRACE]


@pytest.mark.parametrize("rule", SHOWN)
def test_the_failing_example_breaks_exactly_its_rule(rule: str) -> None:
    shown = example(rule)
    assert shown is not None
    report = judged(shown.failing, rule)[1]
    first = [finding.rule for finding in report.findings]
    assert first[0] == rule
    assert set(first) - {rule} == ALSO.get(rule, set())
    assert not any(finding.consequence for finding in report.findings)


@pytest.mark.parametrize("rule", SHOWN)
def test_the_passing_example_breaks_none_and_puts_its_rule_to_the_test(rule: str) -> None:
    shown = example(rule)
    assert shown is not None
    report = judged(shown.passing, rule)[1]
    assert report.findings == ()
    result = next(result for result in report.rules if result.id == rule)
    assert result.verdict in ("conforms", "open")
    assert result.checked > 0


@pytest.mark.parametrize("rule", SHOWN)
def test_examples_are_short(rule: str) -> None:
    shown = example(rule)
    assert shown is not None
    for text in shown:
        events = [line for line in text.splitlines() if line[0].isdigit()]
        assert 2 <= len(events) <= 12


def test_what_no_trace_can_show_has_no_example() -> None:
    """`outputs/invariant` is judged by running the engine again: a trace has no token values."""
    assert example("outputs/invariant") is None
    assert example("nothing/like-it") is None


def test_what_stands_before_the_two_traces_begins_both() -> None:
    text = "x/y\ncfg K=2\n1 arrive A\n-- passes\n\n2 step\n-- fails\n3 step"
    assert _read(text) == (
        "x/y",
        Example("cfg K=2\n1 arrive A\n2 step\n", "cfg K=2\n1 arrive A\n3 step\n"),
    )


@pytest.mark.parametrize(
    "text", ["x/y\n-- passes\n1 step", "x/y\n-- passes\n1 step\n-- fials\n2 step", "x/y\n"]
)
def test_an_example_out_of_form_says_which(text: str) -> None:
    with pytest.raises(SpecError, match="example of x/y"):
        _read(text)
