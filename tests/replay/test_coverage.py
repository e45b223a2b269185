"""Clause coverage: what counts as put to the test, and how the counts of several traces add up."""

import pytest

from batchspec.replay.checker import check
from batchspec.replay.claims import claimed
from batchspec.replay.coverage import ACTIONS, PREMISES, Coverage, premises_of
from batchspec.replay.report.coverage import coverage_object, coverage_page
from batchspec.spec.catalogue import RULES
from batchspec.traces.scenario import parse_scenario

STATIC = """\
cfg batching.mode=static order=fcfs misfit=stop max_seqs=2 token_budget=8 kv_blocks=8 block_size=4 test=known
1 arrive A prompt=4 max=2
1 admit A slot=0
1 schedule A start=0 tokens=4
1 step
2 schedule A start=4 tokens=1
2 finish A length out=2
2 step
end
"""
SWAPPED = """\
cfg batching.mode=continuous order=sjf misfit=skip max_seqs=2 preemption.mode=swap
1 arrive A prompt=4 max=2
1 cancel A
1 abort A client
2 cancel A
2 arrive A prompt=4 max=2
2 admit A
"""


def covered(text: str) -> Coverage:
    trace = parse_scenario(text, "t.txt")
    claims = claimed(None, trace.header.config if trace.header else None)
    coverage = Coverage()
    coverage.add(check(trace, claims, observe=coverage.observe), claims)
    return coverage


def test_actions_are_events_from_states() -> None:
    coverage = covered(STATIC)
    assert {action: count for action, count in coverage.actions.items() if count} == {
        ("arrive", "unknown"): 1,
        ("admit", "waiting"): 1,
        ("schedule", "running"): 2,
        ("finish", "running"): 1,
        ("step", None): 2,
    }
    assert ("resume", "preempted") in coverage.actions_missed()
    assert ("schedule", "running") not in coverage.actions_missed()


def test_a_row_that_is_not_legal_is_no_action() -> None:
    coverage = covered("1 arrive A prompt=4\n1 schedule A start=0 tokens=4\n1 finish B stop\n")
    assert dict(coverage.actions) == {("arrive", "unknown"): 1}


def test_an_id_that_comes_again_arrives_from_ended() -> None:
    coverage = covered(SWAPPED)
    assert coverage.actions["arrive", "ended"] == 1
    assert coverage.actions["cancel", "ended"] == 1
    assert coverage.actions["abort", "waiting"] == 1


@pytest.mark.parametrize(("depth", "counted"), [(1, 0), (2, 1)])
def test_a_wasted_pass_counts_only_within_the_overlap(depth: int, counted: int) -> None:
    overlap = f"cfg depth={depth} slot_lag={depth - 1} overlap_member={depth - 1}\n"
    coverage = covered(
        overlap + "1 arrive A prompt=4\n1 admit A\n1 finish A stop\n2 schedule A\n3 schedule A\n"
    )
    assert coverage.actions["schedule", "ended"] == counted


def test_a_rule_that_judged_nothing_is_not_exercised() -> None:
    missed = covered(STATIC).rules_missed()
    assert missed["tokens/lost"] == "nothing puts it to the test"
    assert missed["memory/exclusive"].startswith("needs block_ids")
    assert "batch/static-barrier" not in missed


def test_a_premise_is_at_work_where_a_rule_that_rests_on_it_judged() -> None:
    coverage = covered(STATIC)
    assert coverage.premises["batching.mode", "static"] == 1
    assert coverage.premises["admission.order", "fcfs"] == 1
    missed = coverage.premises_missed()
    assert ("admission.order", "sjf") in missed
    assert ("batching.mode", "continuous") in missed


def test_a_claim_that_nothing_was_judged_by_is_not_at_work() -> None:
    # `preemption.mode = swap` is claimed, but no rule declares it, and host blocks are not known.
    assert ("limits.host_blocks", None) in covered(SWAPPED).premises_missed()


def test_coverage_adds_up() -> None:
    merged = Coverage()
    merged.merge([covered(STATIC), covered(SWAPPED)])
    assert merged.traces == 2
    assert merged.actions["arrive", "unknown"] == 2
    assert merged.actions["arrive", "ended"] == 1
    assert {value for option, value in merged.premises if option == "admission.order"} == {"fcfs", "sjf"}
    # Not checkable in the first, exercised in the second.
    assert "lifecycle/abort-ignored" not in merged.rules_missed()
    # Without anybody to test it in the first, not checkable in the second: it was checkable somewhere.
    assert (
        merged.rules_missed()["slots/early-reuse" if False else "tokens/lost"]
        == "nothing puts it to the test"
    )
    assert merged.exercised_in["lifecycle/unfinished"] == 2


def test_the_order_of_traces_does_not_matter() -> None:
    one, two = Coverage(), Coverage()
    one.merge([covered(STATIC), covered(SWAPPED)])
    two.merge([covered(SWAPPED), covered(STATIC)])
    assert one.checked == two.checked
    assert one.rules_missed().keys() == two.rules_missed().keys()
    assert one.actions == two.actions
    assert one.premises == two.premises


def test_the_data_lists_every_clause_of_the_spec() -> None:
    data = coverage_object(covered(STATIC))
    assert data["traces"] == 1
    assert {clause["id"] for clause in data["rules"]["clauses"]} <= set(RULES)
    assert len(data["actions"]["clauses"]) == len(ACTIONS) == data["actions"]["of"]
    assert len(data["premises"]["clauses"]) == len(PREMISES) == data["premises"]["of"]
    for name, key in (("rules", "checked"), ("actions", "rows"), ("premises", "traces")):
        group = data[name]
        assert group["exercised"] == sum(1 for clause in group["clauses"] if clause[key])


def test_the_page_names_what_was_missed() -> None:
    text = coverage_page(covered(STATIC)).text()
    assert text.startswith("coverage of 1 trace ")
    assert "tokens/lost" in text
    assert "nothing puts it to the test" in text
    assert "from preempted" in text
    assert "sjf, priority, fair" in text


def test_every_premise_can_hold() -> None:
    for rule in RULES:
        for option, value in premises_of(rule):
            assert option.count(".") == 1
            assert value is None or value == value.lower()
