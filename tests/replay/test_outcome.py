"""Outcomes: fairness between tenants, goodput, and the names of the figures."""

import re
from pathlib import Path

import pytest

from batchspec.replay.outcome import FIGURES, TENANTS_MOST, measured
from batchspec.replay.simulate import simulate
from batchspec.spec.library import load_profile
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.spec.served import Objectives

PROFILE = load_profile("batchspec").merged(
    Profile.from_dict({"limits": {"max_seqs": 2, "token_budget": 64, "kv_blocks": 64, "block_size": 4}})
)
FLOOD = [Record(n, 0, 8, 8, tenant="many") for n in range(30)] + [
    Record(30 + n, 1, 8, 8, tenant="few") for n in range(6)
]


def under(order: str, records: list[Record] = FLOOD, **more: object):
    claims = PROFILE.merged(Profile.from_dict({"admission": {"order": order}, **more}))
    return measured(simulate(records, claims), claims, objectives=Objectives(ttft_ns=200_000_000))


def test_fair_shares_keep_services_closer_than_first_come() -> None:
    fcfs, fair = under("fcfs"), under("fair")
    assert fair.spread is not None
    assert fcfs.spread is not None
    assert fair.spread < fcfs.spread / 4
    assert fair.tenant_ttft_p95["few"] < fcfs.tenant_ttft_p95["few"]


def test_jain_index_divides_by_weights() -> None:
    assert under("fcfs").jain == pytest.approx((30 + 6) ** 2 / (2 * (30**2 + 6**2)))
    weighed = under("fair", fairness={"weights": {"many": 5.0}})
    assert weighed.jain == pytest.approx(1.0)


def test_without_tenants_or_with_one_there_is_nothing_to_share() -> None:
    for tenant in (None, "only"):
        outcome = under("fcfs", [record._replace(tenant=tenant) for record in FLOOD])
        assert (outcome.spread, outcome.jain, outcome.row()["tenant_ttft_gap"]) == (None, None, None)


def test_many_tenants_are_not_held_against_each_other() -> None:
    crowd = [Record(n, 0, 2, 2, tenant=f"t{n}") for n in range(TENANTS_MOST + 1)]
    outcome = under("fcfs", crowd)
    assert outcome.spread is None
    assert outcome.jain == pytest.approx(1.0)


def test_goodput_counts_those_within_the_objectives() -> None:
    outcome = under("fcfs")
    assert outcome.attained is not None
    assert 0 < outcome.attained.met < outcome.attained.requests == 36
    row = outcome.row()
    assert row["slo_share"] == outcome.attained.met / 36
    assert row["slo_goodput"] == pytest.approx(outcome.attained.met / row["span_s"])


def test_figures_have_names_of_their_own_and_a_sentence() -> None:
    assert len({figure.name for figure in FIGURES}) == len(FIGURES)
    assert len({figure.says for figure in FIGURES}) == len(FIGURES)
    assert all(figure.name.isidentifier() for figure in FIGURES)


def test_the_page_on_answers_explains_every_figure_and_no_other() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "answers.md").read_text()
    table = page.split("| figure | unit | what it is |\n| --- | --- | --- |\n")[1].split("\n\n")[0]
    first = [row.split(" | ")[0] for row in table.splitlines()]
    assert [name for cell in first for name in re.findall(r"`(\w+)`", cell)] == [
        item.name for item in FIGURES
    ]
