"""The VTC artifact's runs, judged from their records: what the names of the policies promise.

The whole files are there where BATCHSPEC_DATA names the folder that has them; excerpts always are.
"""

import os
from pathlib import Path

import pytest

from batchspec.replay.records import check_records
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.spec.rules.requests import service_spreads
from batchspec.spec.served import service_until
from batchspec.spec.verdict import Report
from batchspec.traces.importers import ImportLog, vtc
from batchspec.traces.workload import RecordTable

DATA = Path(__file__).parents[1] / "data"
SECOND = 1_000_000_000
U = 20_000
"""max(w_p · longest input, w_q · M), with weights 1 and 2 and the runs' pool of 10,000 tokens."""

FIRST_COME = {
    "batching": {"chunked_prefill": False},
    "admission": {"order": "fcfs", "misfit": "stop"},
}
FAIR = {
    "limits": {"kv_blocks": 10_000, "block_size": 1},
    "admission": {"order": "fair", "misfit": "stop"},
    "preemption": {"mode": "none"},
}


def limiter(tolerance_ns: int) -> dict[str, dict[str, object]]:
    five = {"requests": 5, "per_ns": 60 * SECOND}
    return {"fairness": {"rate_limits": {"*": five}}, "patience": {"tolerance_ns": tolerance_ns}}


@pytest.fixture(scope="module")
def whole() -> Path:
    if "BATCHSPEC_DATA" not in os.environ:
        pytest.skip("BATCHSPEC_DATA names no folder with the whole published files")
    return Path(os.environ["BATCHSPEC_DATA"]) / "workloads" / "vtc-artifact"


def read(path: Path) -> list[Record]:
    return list(vtc.read(path, ImportLog()))


def judged(records: list[Record], claims: dict[str, dict[str, object]], findings: int = 10) -> Report:
    return check_records(RecordTable.from_records(records), Profile.from_dict(claims), findings=findings)


def verdict(report: Report, rule: str) -> tuple[str, int, int]:
    found = next(result for result in report.rules if result.id == rule)
    return found.verdict, found.checked, found.violations


def spread(records: list[Record]) -> float:
    return max(found.units for found in service_spreads(records, Profile.from_dict(FAIR)))


@pytest.mark.parametrize("run", ["real", "overload"])
def test_first_come_first_served_overtakes_by_at_most_a_twentieth_of_a_second(whole, run):
    records = read(whole / f"FCFS/all_results_{run}.jsonl")
    assert verdict(judged(records, FIRST_COME), "fairness/overtaking") == ("conforms", len(records), 0)
    strict = FIRST_COME | {"patience": {"tolerance_ns": 0}}
    assert verdict(judged(records, strict), "fairness/overtaking")[0] == "violates", "the bound is not idle"


def test_the_fair_queues_overtake_across_tenants(whole):
    for policy in ("VTC", "LCF"):
        records = read(whole / policy / "all_results_real.jsonl")
        assert verdict(judged(records, FIRST_COME), "fairness/overtaking")[0] == "violates"
        for tenant in {record.tenant for record in records}:
            own = [record for record in records if record.tenant == tenant]
            assert verdict(judged(own, FIRST_COME), "fairness/overtaking")[0] == "conforms"


def test_the_virtual_token_counter_keeps_two_backlogged_tenants_within_2u(whole):
    records = read(whole / "VTC/all_results_overload.jsonl")
    assert verdict(judged(records, FAIR), "fairness/service-gap")[0] == "conforms"
    assert 14_300 < spread(records) < 14_398 < 2 * U


def test_first_come_first_served_lets_their_services_drift_to_263_000(whole):
    records = read(whole / "FCFS/all_results_overload.jsonl")
    report = judged(records, FAIR)
    assert verdict(report, "fairness/service-gap")[0] == "violates"
    assert "drift" in report.findings[0].message
    service = service_until(records, max(record.arrival_ns for record in records)).values()
    assert 263_000 < max(service) - min(service) < 264_000
    # The queues are empty only long after the last arrival, and until then the drift goes on.
    assert spread(records) > 600_000


@pytest.mark.parametrize(("policy", "least", "most"), [("VTC", 1.0, 1.01), ("FCFS", 1.99, 2.01)])
def test_services_by_the_last_arrival(whole, policy, least, most):
    """Weights 1 and 2, outputs spread evenly from the first token to the finish."""
    records = read(whole / policy / "all_results_overload.jsonl")
    service = service_until(records, max(record.arrival_ns for record in records))
    assert len(service) == 2
    assert least <= max(service.values()) / min(service.values()) <= most


@pytest.mark.parametrize(
    ("run", "stated"),
    [
        ("FCFS/all_results_overload", (263_269, 526_585)),
        ("VTC/all_results_overload", (243_625, 241_920)),
        ("VTC/all_results_dist_shift", (410_281, 812_334)),
    ],
)
def test_the_stated_services(whole, run, stated):
    records = read(whole / f"{run}.jsonl")
    service = service_until(records, max(record.arrival_ns for record in records))
    assert [round(service[name]) for name in sorted(service, key=str)] == list(stated)


def test_a_limiter_of_five_accepted_in_a_minute_decides_all_but_seven_as_recorded(whole):
    records = read(whole / "LShare/rpm5/all_results_real.jsonl")
    exact = judged(records, limiter(0), findings=1000)
    assert verdict(exact, "fairness/rate-limit") == ("violates", 1500, 7)
    near = judged(records, limiter(SECOND // 2))
    assert verdict(near, "fairness/rate-limit") == ("conforms", 1500, 0), "the seven lie at the window's edge"
    assert sum(record.status == "rejected" for record in records) == 919


def test_a_limiter_that_lets_everybody_in_is_none(whole):
    records = read(whole / "LShare/rpm5/all_results_real.jsonl")
    lenient = [record._replace(status="done") for record in records]
    assert verdict(judged(lenient, limiter(SECOND // 2)), "fairness/rate-limit")[2] > 500


def test_the_excerpts_keep_what_the_whole_runs_promise():
    fcfs = read(DATA / "vtc_fcfs_real.jsonl")
    assert verdict(judged(fcfs, FIRST_COME), "fairness/overtaking") == ("conforms", 20, 0)
    limited = read(DATA / "vtc_lshare_rpm5_real.jsonl")
    assert any(record.status == "rejected" for record in limited)
    assert verdict(judged(limited, limiter(SECOND // 2)), "fairness/rate-limit") == ("conforms", 20, 0)


def test_services_of_a_moment_count_what_is_out_by_then():
    records = [
        Record(0, 0, 10, 4, tenant="a", first_token_ns=100, finish_ns=200),
        Record(1, 0, 6, 1, tenant="b", first_token_ns=120, finish_ns=120),
        Record(2, 0, 6, 1, tenant="b", status="rejected"),
    ]
    assert service_until(records, 99) == {}
    assert service_until(records, 150) == {"a": 10 + 2 * 2, "b": 6 + 2}
    assert service_until(records, 500, w_p=2, w_q=1) == {"a": 24, "b": 13}
