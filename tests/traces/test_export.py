"""The Perfetto export: parsed by Perfetto's own schema, and read back slice by slice."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchspec.replay.generate import random_run
from batchspec.spec.events import Event
from batchspec.spec.metrics import measure
from batchspec.spec.profile import Profile
from batchspec.traces.export import COUNTERS, STEP_NS, perfetto
from batchspec.traces.scenario import parse_scenario
from batchspec.traces.wire import fixed64, message, text, varint

schema = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="extra `test`")
unknown_fields = pytest.importorskip("google.protobuf.unknown_fields")
KIND = {1: "begin", 2: "end", 3: "instant", 4: "counter"}
TEXT = """
1 arrive A prompt=6 t=100ms
1 admit A slot=0 blocks=2 t=100ms
1 schedule A start=0 tokens=6 blocks=2 t=100ms
1 step free=1 t=110ms
2 preempt A recompute t=110ms
2 step free=3 t=120ms
3 resume A slot=1 blocks=2 t=120ms
3 schedule A start=0 tokens=7 blocks=2 t=120ms
3 finish A length t=130ms
3 step free=3 t=130ms
"""


def written(trace, profile=None):
    """The export, parsed strictly: a field that Perfetto's schema does not know is a fault of ours."""
    columns = trace.columns
    has_blocks = bool({"free_blocks", "blocks"} & columns)
    pieces = perfetto(
        trace.events(), profile or Profile(), has_time="time_ns" in columns, has_blocks=has_blocks
    )
    parsed = schema.Trace()
    parsed.ParseFromString(b"".join(pieces))
    known(parsed)
    return parsed


def known(message):
    assert len(unknown_fields.UnknownFieldSet(message)) == 0
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for part in value if descriptor.is_repeated else [value]:
                known(part)


def tracks(parsed):
    return {
        packet.track_descriptor.uuid: packet.track_descriptor
        for packet in parsed.packet
        if packet.HasField("track_descriptor")
    }


def rows(parsed):
    """(track name, time, kind, name) of each event, in the order of the file."""
    names = {uuid: track.name for uuid, track in tracks(parsed).items()}
    return [
        (
            names[packet.track_event.track_uuid],
            packet.timestamp,
            KIND[packet.track_event.type],
            packet.track_event.name,
        )
        for packet in parsed.packet
        if packet.HasField("track_event")
    ]


def slices(parsed):
    """Every slice as (track uuid, began, ended, name), with the nesting checked on the way."""
    open_, found = defaultdict(list), []
    events = [packet for packet in parsed.packet if packet.HasField("track_event")]
    # As the viewer does it: by time, and in the order of the file where times are equal.
    for packet in sorted(events, key=lambda packet: packet.timestamp):
        event = packet.track_event
        if event.type == 1:
            open_[event.track_uuid].append((packet.timestamp, event.name))
        elif event.type == 2:
            began, name = open_[event.track_uuid].pop()
            found.append((event.track_uuid, began, packet.timestamp, name))
    assert not any(open_.values()), "a slice that never ends"
    return found


def test_a_slot_is_a_track_and_a_stay_is_a_slice():
    parsed = written(parse_scenario(TEXT))
    names = {uuid: track.name for uuid, track in tracks(parsed).items()}
    assert [(names[track], *rest) for track, *rest in slices(parsed) if names[track].startswith("slot")] == [
        ("slot 0", 0, 10_000_000, "prefill"),
        ("slot 0", 0, 10_000_000, "A"),
        ("slot 1", 20_000_000, 30_000_000, "recompute"),
        ("slot 1", 20_000_000, 30_000_000, "A"),
    ]
    parents = {track.name: names.get(track.parent_uuid) for track in tracks(parsed).values()}
    assert parents["slot 1"] == "slots"


def test_an_arrow_leads_from_the_preemption_to_the_resume():
    parsed = written(parse_scenario(TEXT))
    flows = [
        (
            packet.track_event.name,
            list(packet.track_event.flow_ids),
            list(packet.track_event.terminating_flow_ids),
        )
        for packet in parsed.packet
        if packet.track_event.flow_ids or packet.track_event.terminating_flow_ids
    ]
    assert flows == [("preempted", [1], []), ("A", [], [1])]


def test_counters_are_told_where_they_change():
    limits = Profile.from_dict({"limits": {"kv_blocks": 3, "token_budget": 8}})
    parsed = written(parse_scenario(TEXT), limits)
    told = defaultdict(list)
    names = {uuid: track.name for uuid, track in tracks(parsed).items()}
    for packet in parsed.packet:
        if packet.track_event.type == 4:
            told[names[packet.track_event.track_uuid]].append(
                (packet.timestamp, packet.track_event.counter_value)
            )
    assert told["KV blocks in use"] == [(0, 2), (10_000_000, 0)]
    assert told["KV pool"] == [(0, 3)]
    assert told["running"] == [(0, 1), (10_000_000, 0)]
    assert told["waiting"] == [(0, 0), (10_000_000, 1), (20_000_000, 0)]
    assert told["tokens"] == [(0, 6), (10_000_000, 0), (20_000_000, 7)]
    assert told["token budget"] == [(0, 8)]
    assert set(told) == set(COUNTERS)


def test_a_trace_without_a_clock_gets_a_millisecond_a_step():
    text = "4 arrive A prompt=2\n4 admit A\n4 schedule A start=0 tokens=2\n9 schedule A start=2 tokens=1\n"
    parsed = written(parse_scenario(text))
    named = {name: (began, ended) for _, began, ended, name in slices(parsed)}
    assert named["A"] == (0, 2 * STEP_NS)
    assert named["step 9"] == (STEP_NS, 2 * STEP_NS)


def test_what_has_not_ended_ends_with_the_trace():
    parsed = written(parse_scenario("1 arrive A prompt=2\n1 admit A\n1 schedule A start=0 tokens=2\n"))
    assert {name for _, _, _, name in slices(parsed)} == {"step 1", "A", "prefill"}


def test_two_in_one_slot_get_two_tracks():
    text = "1 arrive A prompt=2\n1 arrive B prompt=2\n1 admit A slot=0\n1 admit B slot=0\n" + "".join(
        f"1 schedule {name} start=0 tokens=2\n" for name in "AB"
    )
    parsed = written(parse_scenario(text))
    assert {"slot 0", "slot 0, shared"} <= {track.name for track in tracks(parsed).values()}
    slices(parsed)


def test_hostile_rows_are_written_all_the_same():
    events = [
        Event(1, "schedule", "\ud800\n\x1b[31m" * 50, tokens=-5, start=-1, time_ns=2**62),
        Event(1, "step", time_ns=-(2**62), free_blocks=2**62),
        Event(2, "admit", "B", slot=2**60, time_ns=5),
        Event(2, "preempt", "B"),
        Event(2, "resume", "B", slot=2**60),
    ]
    pieces = perfetto(events, Profile(), has_time=True, has_blocks=True)
    parsed = schema.Trace()
    parsed.ParseFromString(b"".join(pieces))
    slices(parsed)


@given(st.randoms(use_true_random=False))
def test_every_run_can_be_exported(random):
    run = random_run(random)
    trace = run.trace()
    parsed = written(trace, run.profile)
    metrics = measure(trace.events())
    counted = Counter(name.partition(" ")[0] for _, _, _, name in slices(parsed))
    assert counted["step"] == metrics.steps
    assert sum(kind == "instant" and name == "preempted" for _, _, kind, name in rows(parsed)) == (
        metrics.preemptions
    )
    began, ended = Counter(), Counter()
    for packet in parsed.packet:
        began.update(packet.track_event.flow_ids)
        ended.update(packet.track_event.terminating_flow_ids)
    assert set(ended) <= set(began)
    assert not began or max(began.values()) == 1


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**31, 2**63 - 1, -1])
def test_fields_are_what_protobuf_reads(value):
    event = schema.TrackEvent()
    event.ParseFromString(
        varint(30, value) + text(23, "nämé") + fixed64(47, value) + message(4, text(10, "x"))
    )
    assert event.counter_value == value
    assert event.name == "nämé"
    assert event.flow_ids[0] == value & (2**64 - 1)
    assert event.debug_annotations[0].name == "x"
