"""The 24 words of the glossary: each has its homes in the code and a test, each quantity its output.

The table names the test that shows each word at work; a name that no test has fails here.
"""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from batchspec.replay.frames import outcomes_frame
from batchspec.replay.outcome import FIGURES, measured
from batchspec.replay.simulate import simulate
from batchspec.spec.catalogue import RULES
from batchspec.spec.events import KINDS
from batchspec.spec.glossary import GLOSSARY, Term
from batchspec.spec.library import load_profile
from batchspec.spec.policies import ORDERS
from batchspec.spec.profile import MODES, Profile
from batchspec.spec.records import Record

TESTS = Path(__file__).resolve().parents[1]
SHOWN = {
    "batching": "replay/test_simulate.py::test_decoding_together_is_cheaper_than_one_after_the_other",
    "sequence batching": "spec/test_metrics.py::test_padding_waste_and_arithmetic_intensity",
    "static batching": "spec/test_worked_example.py::test_eight_requests_on_four_slots",
    "dynamic batching": "spec/test_reference.py::test_dynamic_batches_leave_full_or_late",
    "continuous batching": "spec/test_reference.py::test_continuous_refills_a_seat_in_the_step_after_the_end",
    "batch size": "spec/test_metrics.py::test_the_worked_example",
    "batched forward pass": "spec/test_passes.py::test_what_a_pass_computes",
    "batch scheduling": "spec/test_reference.py::test_a_prompt_is_cut_to_the_budget_left_by_decodes",
    "request admission": "spec/rules/test_admission.py::test_what_the_test_asks_for_must_be_free",
    "inference scheduler": "spec/test_reference.py::test_same_calls_same_rows",
    "request queue": "spec/test_reference.py::test_each_order_admits_its_next",
    "queueing delay": "spec/test_metrics.py::test_times_of_one_request",
    "concurrency": "replay/test_closed_loop.py::test_never_more_requests_live_than_clients",
    "concurrent inference": "engine/test_engine.py::test_many_streams_share_the_engine_and_one_may_leave",
    "active sequences": "spec/rules/test_batch.py::test_batch_capacity",
    "sequence completion": "spec/rules/test_slots.py::test_slots_reuse",
    "dynamic batch membership": "spec/rules/test_batch.py::test_batch_membership",
    "arithmetic intensity": "spec/test_metrics.py::test_padding_waste_and_arithmetic_intensity",
    "weight reuse": "spec/test_metrics.py::test_the_worked_example",
    "GPU utilization": "spec/test_metrics.py::test_busy_is_not_the_share_of_peak_flops",
    "scheduling policy": "spec/test_policies.py::test_each_order_names_its_next",
    "request preemption": "spec/test_metrics.py::test_preemption_counts_what_is_computed_again",
    "tail latency": "spec/test_metrics.py::test_percentiles_are_values_and_do_not_fall",
    "throughput-versus-latency trade-off": "replay/test_cli_sweep.py::test_more_load_costs_latency",
}


def resolved(path: str) -> object:
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(("batchspec", *parts[:count])))
        except ModuleNotFoundError:
            continue
        for name in parts[count:]:
            found = getattr(found, name)
        return found
    raise AssertionError(f"no module for {path}")


def test_there_are_24_words_each_with_a_sentence_of_its_own():
    assert len({term.word for term in GLOSSARY}) == len({term.says for term in GLOSSARY}) == 24
    assert [term.word for term in GLOSSARY] == list(SHOWN)


@pytest.mark.parametrize("term", GLOSSARY, ids=lambda term: term.word)
def test_every_home_exists(term: Term):
    known = {
        "mode": set(MODES),
        "order": set(ORDERS),
        "event": set(KINDS),
        "rule": set(RULES),
        "figure": {figure.name for figure in FIGURES},
    }
    assert term.homes
    for home in term.homes:
        kind, _, name = home.partition(":")
        if kind == "claim":
            Profile().claim(name)
        elif kind == "code":
            if not name.startswith("engine.") or find_spec("torch") is not None:
                assert resolved(name) is not None
        else:
            assert name in known[kind], home


@pytest.mark.parametrize("term", GLOSSARY, ids=lambda term: term.word)
def test_every_word_has_a_test(term: Term):
    file, _, name = SHOWN[term.word].partition("::")
    tree = ast.parse((TESTS / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_quantity_has_a_place_in_the_output():
    """A run that exercises all of them: tenants, memory pressure, a peak to hold MFU against."""
    profile = load_profile("batchspec").merged(
        Profile.from_dict({"limits": {"max_seqs": 4, "token_budget": 32, "kv_blocks": 12, "block_size": 4}})
    )
    records = [Record(n, n * 1_000_000, 9 + n, 6 + n % 5, tenant="ab"[n % 2]) for n in range(12)]
    outcome = measured(simulate(records, profile), profile, peak_flops=1e15)
    frame = outcomes_frame([outcome])
    for term in GLOSSARY:
        figures = [home.partition(":")[2] for home in term.homes if home.startswith("figure:")]
        assert bool(figures) == term.quantity, term.word
        for name in figures:
            assert name in frame.columns
            if not name.startswith("slo_"):
                assert frame[name].notna().all(), f"{term.word}: {name} is empty"
    assert outcome.metrics.preemptions > 0
