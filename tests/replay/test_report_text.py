"""What a user reads: the text report, pinned, and safe against what a trace puts into its ids."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from batchspec.replay.report.context import around, details
from batchspec.replay.report.page import WIDTH, Page, count, plain
from batchspec.replay.report.text import report_page, state_of
from batchspec.replay.timeline import MOST_EVENTS, MOST_STEPS, collect, timeline_page
from batchspec.spec.events import Event
from batchspec.spec.verdict import Finding, Report, RuleResult
from batchspec.traces.trace import Trace

EVENTS = (
    Event(1, "arrive", "A", prompt_tokens=6, max_tokens=3),
    Event(1, "arrive", "B", prompt_tokens=5, max_tokens=3),
    Event(1, "admit", "A", slot=0),
    Event(1, "schedule", "A", start=0, tokens=6, blocks=2),
    Event(1, "admit", "B", slot=1),
    Event(1, "schedule", "B", start=0, tokens=2, blocks=1),
    Event(1, "step", free_blocks=0, waiting=0, running=2),
    Event(2, "schedule", "A", start=6, tokens=1, blocks=2),
    Event(2, "preempt", "B", blocks=0, reason="recompute", cause="B"),
    Event(2, "step", free_blocks=1, waiting=1, running=1),
    Event(3, "schedule", "A", start=7, tokens=1, blocks=2),
    Event(3, "finish", "A", reason="length", output_tokens=3, blocks=0),
    Event(3, "step", free_blocks=3, waiting=1, running=0),
    Event(4, "step", free_blocks=3, waiting=1, running=0),
)
SENTENCES = {
    "slots/reuse": "a seat given up in pass k is taken in step k+1 where the policy's next request fits"
}
BROKEN = Report(
    trace="run.parquet",
    level="L2",
    profile="batchspec",
    config={"limits": {"max_seqs": 2}},
    events=14,
    steps=4,
    requests=2,
    truncated=None,
    rules=(
        RuleResult("batch/capacity", "conforms", 14),
        RuleResult("slots/reuse", "violates", 1, 3),
        RuleResult("preemption/victim", "conforms"),
        RuleResult("stats/agree", "violates", 1200, 1),
        RuleResult("liveness/idle-stall", "open", 2),
        RuleResult("memory/coverage", "conforms", 5, skipped=2),
        RuleResult("memory/exclusive", "not checkable", missing=("block_ids", "reuse.prefix")),
    ),
    findings=(
        Finding(
            rule="slots/reuse",
            step=4,
            row=13,
            requests=("A", "B"),
            expected="1 request admitted or resumed in step 4",
            observed="0 admitted or resumed; B is next, needs 2 blocks, and 3 are free",
            message="the seat that A gave up in step 3 stayed empty while B fitted",
        ),
        Finding("stats/agree", 4, 13, (), "waiting 1", "waiting 0", "the engine reports 0 waiting", True),
    ),
)
CLEAN = replace(BROKEN, rules=(RuleResult("batch/capacity", "conforms", 14),), findings=())


def text_of(report: Report, events: Sequence[Event] = EVENTS) -> str:
    return report_page(report, SENTENCES, around(Trace.from_events(events), report.findings)).text()


def test_a_report_with_findings(snapshot: SnapshotAssertion) -> None:
    assert text_of(BROKEN) == snapshot


def test_a_report_that_conforms(snapshot: SnapshotAssertion) -> None:
    assert text_of(CLEAN) == snapshot


def test_a_cut_trace_without_any_claim_with_a_note(snapshot: SnapshotAssertion) -> None:
    cut = replace(CLEAN, profile=None, config={}, truncated=4, notes=("waiver 3 matches nothing",))
    assert text_of(cut) == snapshot


def test_a_table_of_requests(snapshot: SnapshotAssertion) -> None:
    finding = Finding("fairness/overtaking", None, 7, (3, 4), "3 first", "4 first", "4 overtook 3")
    rules = (RuleResult("fairness/overtaking", "violates", 20, 1),)
    records = replace(BROKEN, level="L0", rules=rules, findings=(finding,))
    assert report_page(records).text() == snapshot


def test_without_any_claim_the_first_line_says_what_is_judged() -> None:
    first = text_of(replace(CLEAN, profile=None, config={})).splitlines()[0]
    assert "only rules that need no claim are judged" in first


def test_a_consequence_is_listed_behind_every_cause() -> None:
    first, second = BROKEN.findings
    text = text_of(replace(BROKEN, findings=(second, first)))
    assert text.index(first.message) < text.index("consequences:") < text.index(second.message)


def test_the_rest_of_a_rule_is_counted() -> None:
    assert "and more: 2 of slots/reuse (--findings N lists more of each rule)" in text_of(BROKEN)


def test_the_command_of_a_finding_shows_its_steps() -> None:
    page = report_page(BROKEN, command="batchspec check 'my run' --profile static")
    assert "show:       batchspec check 'my run' --profile static --from 1 --to 4\n" in page.text()


def test_a_rule_that_judged_nothing_does_not_read_as_a_pass() -> None:
    assert state_of(RuleResult("slots/reuse", "conforms", 0)) == "not exercised"
    assert state_of(RuleResult("slots/reuse", "conforms", 1)) == "conforms"


@pytest.mark.parametrize(
    "hostile", ["\x1b[31mred", "a\nb", "\x9b1m", "\u202eright to left", "\x07", "\u200b", "\x7f", "\u2028"]
)
def test_an_id_cannot_steer_the_terminal(hostile: str) -> None:
    events = [Event(1, "arrive", hostile, tenant=hostile, prompt_tokens=1)]
    finding = Finding("slots/reuse", 1, 0, (hostile,), hostile, hostile, hostile)
    report = replace(BROKEN, trace=hostile, profile=hostile, findings=(finding,), notes=(hostile,))
    text = text_of(report, events) + timeline_page(collect(events, 0, 9), [finding]).text()
    assert all(char == "\n" or char.isprintable() for char in text)
    assert len(text.splitlines()) == text.count("\n")


def test_an_endless_id_is_cut() -> None:
    events = [Event(1, "arrive", "x" * 100_000, prompt_tokens=1)]
    finding = Finding("slots/reuse", 1, 0, ("x" * 100_000,), "e", "o", "m" * 100_000)
    assert len(text_of(replace(BROKEN, findings=(finding,)), events)) < 4_000


def at(row: int | None, *requests: str) -> Finding:
    return Finding("slots/reuse", 1, row, requests, "", "", "")


def test_the_events_around_are_those_of_the_trace() -> None:
    near = around(Trace.from_events(EVENTS), [at(0), at(6), at(13), at(99), at(-1), at(None)])
    assert sorted(near) == [0, 6, 13]
    assert all(EVENTS[index] is event for stretch in near.values() for index, event in stretch)
    assert [index for index, _ in near[0]] == [0, 1]


def test_the_events_around_tell_what_led_to_the_finding() -> None:
    quiet = [Event(2, "schedule", f"r{number}", start=9, tokens=1) for number in range(40)]
    events = [*EVENTS[:3], *quiet, Event(3, "step")]
    about = around(Trace.from_events(events), [at(43, "r5")])[43]
    assert [index for index, _ in about] == [2, 8, 42, 43]
    page = report_page(replace(BROKEN, findings=(at(43, "r5"),)), {}, {43: about}).text()
    assert page.count("…") == 2


def test_details_leave_out_what_an_event_does_not_say() -> None:
    event = Event(1, "dispatch", pass_=3, block_ids=tuple(range(9)), block_hashes=(), drafts=0)
    assert details(event) == "block_ids=[0,1,2,3,4,5,… 9 in all] pass=3"


def test_plain_text_keeps_letters_of_every_script() -> None:
    assert plain("größe 大きさ é") == "größe 大きさ é"


def test_counts_agree_in_number() -> None:
    assert (count(1, "event"), count(2000, "event"), count(0, "query", "queries")) == (
        "1 event",
        "2,000 events",
        "0 queries",
    )


def test_a_table_lines_up() -> None:
    page = Page()
    page.table(("name", "n"), [("a", 1), ("long name", 22)], "lr")
    assert page.text() == "  name        n\n  a           1\n  long name  22\n"


def test_a_timeline(snapshot: SnapshotAssertion) -> None:
    assert timeline_page(collect(EVENTS, 2, 4), BROKEN.findings).text() == snapshot


def test_a_timeline_of_steps_that_the_trace_has_not() -> None:
    assert "the trace has no event in them" in timeline_page(collect(EVENTS, 7, 9)).text()


def test_a_timeline_reads_no_further_than_its_last_step() -> None:
    def events() -> "list[Event]":
        return [*EVENTS]

    read = iter(events())
    collect(read, 1, 2)
    assert next(read).step == 3


def test_a_long_timeline_is_cut_and_says_so() -> None:
    many = [Event(step, "schedule", f"r{step % 7}", start=9, tokens=1) for step in range(MOST_EVENTS + 50)]
    page = timeline_page(collect(many, 0, 10_000)).text()
    assert f"at most {MOST_STEPS} steps are drawn" in page
    assert max(map(len, page.splitlines())) <= WIDTH + 10
