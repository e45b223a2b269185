"""The header: read, written, and refused in one line that names the key."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchspec.spec.errors import TraceError
from batchspec.traces.header import MAX_BYTES, Header

FULL = {
    "schema_version": 1,
    "producer": {"name": "vllm", "version": "0.33"},
    "clock": "monotonic",
    "profile": "vllm-v1",
    "config": {"limits": {"max_seqs": 4}, "fairness": {"weights": {"a b": 1.5}}},
    "complete": True,
    "outputs": "recorded",
    "begins": "running",
    "started_at": "2026-01-01T00:00:00Z",
    "hash_block": 16,
    "hostname": {"anything": [1, None]},
}


def test_every_key_is_read():
    header = Header.from_json(json.dumps(FULL))
    assert (header.producer_name, header.producer_version) == ("vllm", "0.33")
    assert (header.clock, header.profile, header.outputs) == ("monotonic", "vllm-v1", "recorded")
    assert (header.begins, header.complete, header.hash_block) == ("running", True, 16)
    assert header.config == FULL["config"]
    assert header.started_at == FULL["started_at"]
    assert header.extra == {"hostname": {"anything": [1, None]}}


def test_an_empty_object_claims_nothing_and_is_not_complete():
    assert Header.from_json("{}") == Header()
    assert not Header().complete


def test_unknown_keys_and_all_others_come_back():
    header = Header.from_json(json.dumps(FULL))
    assert json.loads(header.to_json()) == FULL
    assert Header.from_json(header.to_json()) == header


@given(
    name=st.none() | st.text(st.characters(exclude_categories=["Cs"])),
    clock=st.sampled_from([None, "wall", "monotonic", "virtual"]),
    complete=st.booleans(),
    started=st.none() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    seqs=st.integers(1, 2**62),
)
def test_what_is_written_is_read(name, clock, complete, started, seqs):
    config = {"limits": {"max_seqs": seqs}}
    header = Header(
        producer_name=name, clock=clock, complete=complete, started_at=started, config=config, profile=name
    )
    assert Header.from_json(header.to_json()) == header


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "JSON"),
        ("{", "JSON"),
        ("[1]", "JSON object"),
        ("null", "JSON object"),
        ('"' + "a" * 100_000 + '"', "JSON object"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b'{"clock":"\xff"}', "UTF-8"),
        ('{"profile":"\\ud800"}', "UTF-8"),
        ("[" * 100_000, "nested"),
        ('{"a":' * 5_000 + "1" + "}" * 5_000, "nested"),
        ('{"a":' + "9" * 10_000 + "}", "JSON"),
        ('{"a":NaN}', "NaN"),
        ('{"a":1e999}', "too large"),
        (" " * (MAX_BYTES + 1), "longer than"),
        ('{"schema_version":2}', "schema_version 2 is unknown"),
        ('{"schema_version":true}', "schema_version"),
        ('{"schema_version":"1"}', "schema_version"),
        ('{"producer":"vllm"}', "producer"),
        ('{"producer":{"name":1}}', "producer.name"),
        ('{"clock":"atomic"}', "clock must be one of wall, monotonic, virtual"),
        ('{"clock":[]}', "clock"),
        ('{"profile":7}', "profile"),
        ('{"complete":1}', "complete"),
        ('{"complete":"yes"}', "complete"),
        ('{"outputs":"some"}', "outputs"),
        ('{"begins":"late"}', "begins"),
        ('{"started_at":[]}', "started_at"),
        ('{"hash_block":0}', "hash_block"),
        ('{"hash_block":99999999999999999999}', "hash_block"),
        ('{"config":[]}', "config"),
        ('{"config":{"limit":{}}}', "limits"),
        ('{"config":{"limits":{"max_seq":1}}}', "max_seqs"),
        ('{"config":{"limits":{"max_seqs":"4"}}}', "limits.max_seqs"),
        ('{"config":{"limits":{"max_seqs":0}}}', "limits.max_seqs"),
        ('{"config":{"limits":7}}', "limits"),
        ('{"config":{"batching":{"mode":"turbo"}}}', "batching.mode"),
    ],
)
def test_a_broken_header_is_one_line_that_names_the_key(text, names):
    with pytest.raises(TraceError) as caught:
        Header.from_json(text)
    said = str(caught.value)
    assert said.startswith("header")
    assert names in said
    assert len(said.splitlines()) == 1
    assert len(said) < 300
