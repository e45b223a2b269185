"""Claims in sentences: every option and value has one, and a whole profile reads well."""

from dataclasses import fields
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from batchspec.replay.report.claims import claims_of, profile_page, sentence
from batchspec.spec.profile import GROUPS, Profile

EVERYTHING = Profile.from_dict(
    {
        "name": "everything",
        "summary": "a profile that claims every option once, so that each sentence can be read",
        "sources": ["a paper, section 3", "the code of an engine, at a commit"],
        "limits": {
            "max_seqs": 8,
            "token_budget": 2048,
            "kv_blocks": 1000,
            "block_size": 16,
            "max_model_len": 4096,
            "host_blocks": 10,
            "max_waiting": 100,
            "seqs_cap": "per-step",
            "prefill_budget": 512,
            "resources": {"adapter": 2},
            "queue_timeout_ns": 5_000_000_000,
        },
        "batching": {
            "mode": "dynamic",
            "window_ns": 1_000_000,
            "preferred_sizes": [4, 8],
            "chunked_prefill": True,
            "mixed": False,
            "prefill_first": True,
            "stall_free": False,
            "lookahead": 3,
        },
        "admission": {
            "order": "fair",
            "urgent": "high",
            "misfit": "skip",
            "skip_ahead": 2,
            "test": "known+2",
            "reserve": "full",
            "watermark_blocks": 1,
            "work_conserving": False,
        },
        "preemption": {
            "mode": "swap",
            "victim": "fewest-outputs",
            "resume": "arrival",
            "admit_in_same_step": True,
            "keeps_blocks": True,
            "for_waiting": True,
            "headroom_blocks": 4,
        },
        "reuse": {
            "slot_lag": 1,
            "block_lag": "release",
            "overlap_member": 1,
            "depth": 2,
            "ordered_passes": False,
            "prefix": True,
            "same_pass": False,
        },
        "fairness": {
            "w_p": 1,
            "w_q": 2.5,
            "weights": {"a": 1, "b": 2},
            "lift": False,
            "starvation_steps": 50,
            "rate_limits": {"*": {"requests": 5, "per_ns": 60_000_000_000}},
            "delivery": "arrival",
        },
        "patience": {"K": 6, "rules": {"slots/reuse": 9}, "wall_ns": 10, "tolerance_ns": 20},
    }
)
OPTIONS = [
    (f"{group}.{item.name}", item.metadata["kind"], item.metadata["choices"])
    for group, kind in GROUPS.items()
    for item in fields(kind)
]


def test_a_whole_profile(snapshot: SnapshotAssertion) -> None:
    assert profile_page(EVERYTHING, extends="vllm-v1").text() == snapshot


def test_the_profile_of_this_test_claims_every_option() -> None:
    assert list(claims_of(EVERYTHING)) == [path for path, _, _ in OPTIONS]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (path, value)
        for path, kind, choices in OPTIONS
        for value in {"bool": (True, False), "word": choices, "int": (0, 1, 7), "lag": (0, 1, "release")}.get(
            kind, ()
        )
    ],
)
def test_every_value_has_a_sentence_of_its_own(path: str, value: Any) -> None:
    says = sentence(path, value)
    assert says[0] == says[0].lower()
    assert "{}" not in says
    assert " 1 steps" not in says
    assert not says.startswith("it is not so")
