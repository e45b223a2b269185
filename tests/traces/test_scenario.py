"""Scenarios: what a person writes is what the trace says, and a slip is named with its line."""

import textwrap

import pytest

from batchspec.spec.errors import TraceError
from batchspec.spec.events import Event
from batchspec.spec.profile import Profile
from batchspec.traces import scenario
from batchspec.traces.header import Header
from batchspec.traces.scenario import MAX_BYTES, format_scenario, parse_scenario


def events(text):
    return list(parse_scenario(text).events())


def test_the_example_of_the_docstring_is_the_worked_example_of_the_format():
    example = textwrap.dedent(scenario.__doc__.split("\n\n")[1])
    trace = parse_scenario(example)
    assert trace.complete
    assert trace.header.config == {
        "limits": {"kv_blocks": 3, "block_size": 4, "max_seqs": 2, "token_budget": 8},
        "batching": {"mode": "continuous"},
        "admission": {"order": "fcfs"},
    }
    rows = list(trace.events())
    assert rows[0] == Event(1, "arrive", "A", prompt_tokens=6, max_tokens=3)
    assert rows[8] == Event(2, "preempt", "B", reason="recompute", cause="A")
    assert [(row.step, row.start) for row in rows if row.event == "schedule" and row.request == "B"] == [
        (1, 0),
        (4, 0),
        (5, 5),
        (6, 6),
    ]
    assert format_scenario(parse_scenario(format_scenario(trace))) == format_scenario(trace)


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("1 arrive A prompt=6 max=3 t=5ms", Event(1, "arrive", "A", 5_000_000, 6, 3)),
        (
            "1 arrive A prompt_tokens=6 time_ns=7 tenant=acme priority=-1",
            Event(1, "arrive", "A", 7, 6, None, -1, "acme"),
        ),
        ("1 admit A slot=0 blocks=2 ids=1,2", Event(1, "admit", "A", slot=0, blocks=2, block_ids=(1, 2))),
        ("1 admit A ids= hashes=-9", Event(1, "admit", "A", block_ids=(), block_hashes=(-9,))),
        ("2 preempt B swap cause=A", Event(2, "preempt", "B", reason="swap", cause="A")),
        ("2 preempt B", Event(2, "preempt", "B")),
        ("5 finish A length out=3", Event(5, "finish", "A", reason="length", output_tokens=3)),
        ("5 finish A odd_word", Event(5, "finish", "A", reason="odd_word")),
        (
            "3 transfer_begin A receive ids=1,2",
            Event(3, "transfer_begin", "A", reason="receive", block_ids=(1, 2)),
        ),
        ("7 dispatch pass=6", Event(7, "dispatch", pass_=6)),
        ("9 take A encoder units=600", Event(9, "take", "A", resource="encoder", units=600)),
        ("9 give A resource=lora reason=why", Event(9, "give", "A", resource="lora", reason="why")),
        (
            "1 step free=0 waiting=1 running=2 shared=0 pinned=4",
            Event(1, "step", free_blocks=0, waiting=1, running=2, shared_blocks=0, pinned_blocks=4),
        ),
        ('1 arrive "req 1=#" tenant="a b"', Event(1, "arrive", "req 1=#", tenant="a b")),
        ("1 arrive A  # a comment", Event(1, "arrive", "A")),
        ("1 arrive r#1", Event(1, "arrive", "r#1")),
        ("1 step\r", Event(1, "step")),
        ("\ufeff1 step", Event(1, "step")),
        ("1 step t=1.5us", Event(1, "step", time_ns=1500)),
        ("1 step t=-2s", Event(1, "step", time_ns=-2_000_000_000)),
    ],
)
def test_one_line_is_one_event(line, event):
    assert events(line + "\n") == [event]


def test_ids_are_integers_where_the_header_says_so():
    trace = parse_scenario("header ids=int\n1 arrive 7\n1 preempt 7 cause=-3\n")
    assert trace.id_type is int
    assert [(row.request, row.cause) for row in trace.events()] == [(7, None), (7, -3)]
    assert parse_scenario("1 arrive 7\n").id_type is str


def test_a_range_of_steps_is_written_out_and_lines_of_one_range_go_together():
    got = events("1 schedule A start=0 tokens=4\n2..4 schedule A start=+ tokens=1\n2..4 step\n5..6 step\n")
    assert [(row.step, row.event, row.start) for row in got] == [
        (1, "schedule", 0),
        (2, "schedule", 4),
        (2, "step", None),
        (3, "schedule", 5),
        (3, "step", None),
        (4, "schedule", 6),
        (4, "step", None),
        (5, "step", None),
        (6, "step", None),
    ]


@pytest.mark.parametrize(
    ("before", "start"),
    [
        ("", 0),
        ("1 admit A cached=8", 8),
        ("1 admit A cached=8\n1 schedule A start=8 tokens=3", 11),
        ("1 schedule A start=0 tokens=5\n1 preempt A recompute", 0),
        ("1 schedule A start=0 tokens=5\n1 preempt A swap", 5),
        ("1 schedule A start=0 tokens=5\n1 preempt A recompute\n1 resume A cached=4", 4),
        ("1 live A start=9", 9),
        ("1 schedule A start=6 tokens=4 drafts=3\n1 output A tokens=2", 8),
        ("1 schedule A start=6 tokens=4 drafts=3\n1 output A tokens=4", 10),
        ("1 schedule B start=3 tokens=1", 0),
    ],
)
def test_start_plus_continues_where_the_request_stands(before, start):
    assert events(f"{before}\n2 schedule A start=+ tokens=1\n")[-1].start == start


def test_later_times_count_from_the_last_one():
    got = events("1 step t=5ms\n2..3 step t=+1ms\n4 step\n5 step t=+500us\n")
    assert [row.time_ns for row in got] == [5_000_000, 6_000_000, 7_000_000, None, 7_500_000]


def test_a_fragment_is_not_complete_and_end_says_it_is():
    assert not parse_scenario("1 step\n").complete
    assert parse_scenario("1 step\nend\n").complete
    assert parse_scenario("header complete=true\n1 step\n").complete


def test_header_and_profile():
    trace = parse_scenario(
        "profile vllm-v1\n"
        "header begins=running clock=virtual outputs=recorded hash_block=16 producer=me started_at=5\n"
        "1 live A running start=3\n"
    )
    assert trace.header == Header(
        profile="vllm-v1",
        begins="running",
        clock="virtual",
        outputs="recorded",
        hash_block=16,
        producer_name="me",
        started_at=5,
    )
    assert trace.outputs_recorded


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("max_seqs=2", "limits.max_seqs", 2),
        ("limits.max_seqs=2", "limits.max_seqs", 2),
        ("window_ns=5ms", "batching.window_ns", 5_000_000),
        ("chunked_prefill=false", "batching.chunked_prefill", False),
        ("preferred_sizes=8,4", "batching.preferred_sizes", (4, 8)),
        ("test=known+2", "admission.test", "known+2"),
        ("block_lag=release", "reuse.block_lag", "release"),
        ("block_lag=1", "reuse.block_lag", 1),
        ("w_p=0.5", "fairness.w_p", 0.5),
        ("weights=a:1,b:2.5", "fairness.weights", {"a": 1, "b": 2.5}),
        ('weights={"a":1}', "fairness.weights", {"a": 1}),
        ("resources=encoder:600", "limits.resources", {"encoder": 600}),
        ("rules=liveness/starved-member:64", "patience.rules", {"liveness/starved-member": 64}),
        ("rate_limits=*:5/60s", "fairness.rate_limits", {"*": {"requests": 5, "per_ns": 60_000_000_000}}),
        ("K=9", "patience.K", 9),
    ],
)
def test_options(text, path, value):
    trace = parse_scenario(f"cfg {text}\n1 step\n")
    assert Profile.from_dict(trace.header.config).claim(path) == value


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", None, "no events"),
        ("# only a comment\n", None, "no events"),
        ("hello", 1, '"hello" is neither a step number nor'),
        ("1 step\n\n2 stop\n", 3, "unknown event \"stop\" (did you mean 'step'?)"),
        ("1", 1, "unknown event"),
        ("-1 step", 1, "rises"),
        ("5..3 step", 1, "rises"),
        ("1.. step", 1, "whole number"),
        ("1..99999999999999999999 step", 1, "whole number"),
        ("1..1000001 step", 1, "over 1000000 rows"),
        ("1..900000 step\n5 step\n1..900000 step", 3, "over 1000000 rows"),
        ("1 admit", 1, "admit is about a request"),
        ("1 admit A B C", 1, '"C": what is it?'),
        ("1 admit A blok=1", 1, "unknown column \"blok\" (did you mean 'blocks'?)"),
        ("1 admit A step=1", 1, "unknown column"),
        ("1 admit A blocks=1 blocks=2", 1, "column blocks is given twice"),
        ("1 admit A recompute reason=x", 1, "column reason is given twice"),
        ("1 admit A blocks=-1", 1, "column blocks: -1 is negative"),
        ("1 admit A blocks=1.5", 1, "column blocks"),
        ("1 admit A blocks=" + "9" * 5000, 1, "column blocks"),
        ("1 admit A blocks=", 1, "column blocks"),
        ("1 admit A ids=1,,2", 1, "column block_ids"),
        ("1 admit A t=5m", 1, "column time_ns"),
        ("1 admit A t=1.5ns", 1, "finer than a nanosecond"),
        ("1 admit A t=9999999999s", 1, "64 bits"),
        ("header ids=int\n1 admit A", 2, "whole number"),
        ("1 preempt A why", 1, "recompute, swap, operator"),
        ("1 live A asleep", 1, "waiting, parked, running, preempted"),
        ('1 admit "A', 1, "quote that does not close"),
        ('1 admit "\\ud800"', 1, "quoted text"),
        ("1 step\nend\n2 step", 3, "nothing may follow"),
        ("1 step\nend now", 2, "alone"),
        ("1 step\ncfg max_seqs=2", 2, "before the first event"),
        ("cfg max_seq=2", 1, "did you mean 'max_seqs'?"),
        ("cfg limit.max_seqs=2", 1, "did you mean 'limits'?"),
        ("cfg limits.max_seqz=2", 1, "did you mean 'max_seqs'?"),
        ("cfg mode=static", 1, "batching.mode or preemption.mode"),
        ("cfg max_seqs=2\ncfg max_seqs=3", 2, "given twice"),
        ("cfg max_seqs=0", 1, "limits.max_seqs must be at least 1"),
        ("cfg max_seqs=many", 1, "whole number"),
        ("cfg mixed=maybe", 1, "neither true nor false"),
        ("cfg batching.mode=turbo", 1, "batching.mode"),
        ("cfg weights=a", 1, "name:value"),
        ("cfg weights={", 1, "JSON"),
        ("cfg weights=" + '{"a":' * 5000, 1, "JSON"),
        ("cfg w_p=nan", 1, "not a number"),
        ("cfg max_seqs", 1, "name=value"),
        ("header begin=running", 1, "did you mean 'begins'?"),
        ("header begins=late", 1, "begins"),
        ("header ids=uuid", 1, "ids must be"),
        ('header extra={"clock":"x"}', 1, "extra"),
        ("profile a b", 1, "one name"),
        ("profile a\nprofile b", 2, "once"),
    ],
)
def test_a_slip_is_named_with_its_line(text, line, says):
    with pytest.raises(TraceError) as caught:
        parse_scenario(text, "x.txt")
    said = str(caught.value)
    assert said.startswith("x.txt: " if line is None else f"x.txt:{line}: ")
    assert says in said
    assert said.isprintable()


def test_an_overlong_text_is_refused_at_once():
    with pytest.raises(TraceError, match="longer than"):
        parse_scenario(" " * (MAX_BYTES + 1))


def test_events_without_a_trace_can_be_formatted():
    assert format_scenario([Event(1, "step", time_ns=1500)], Header(complete=True)) == "1 step t=1500\nend\n"
