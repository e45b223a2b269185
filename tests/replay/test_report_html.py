"""The HTML report as text: complete, escaped, alone, and small. In a browser: test_report_browser.py."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from random import Random

import pytest

from batchspec.replay.checker import check
from batchspec.replay.cli import main
from batchspec.replay.demo import claims as demo_claims
from batchspec.replay.demo import excerpt, late_seats
from batchspec.replay.overview import detail as details
from batchspec.replay.report.html.make import html_of
from batchspec.replay.simulate import trace_of
from batchspec.spec.catalogue import RULES
from batchspec.spec.events import Event
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.traces.header import Header
from batchspec.traces.recorder import Recorder
from batchspec.traces.scenario import parse_scenario
from batchspec.traces.trace import Trace

EVIL = "</script><script>alert(1)</script><!-- \"'&<img src=x onerror=alert(2)>\u202e\x1b[31m"
FEW = ("slots/range", "lifecycle/unknown-request")
VOID = {"meta", "input", "br", "img", "link", "hr"}


class Page(HTMLParser):
    """What a page holds: ids, links, scripts and the text between tags; tags that do not match fail."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            about, text = self.scripts[-1]
            self.scripts[-1] = (about, text + data)
        else:
            self.text.append(data)

    @property
    def ids(self):
        return [about["id"] for _, about in self.attributes if "id" in about]

    @property
    def data(self):
        return json.loads(next(text for about, text in self.scripts if about.get("id") == "data"))

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


def page_of(trace, profile=None, *, findings=5, rules=None, **options):
    return html_of(trace, check(trace, profile, findings=findings, rules=rules), **options)


def demo_trace():
    """The demo's second run, which takes up free seats a step too late, and what it claims."""
    profile = demo_claims()
    made = trace_of(excerpt(), late_seats(profile), seed=0)
    return Trace.from_events(list(made.events()), replace(made.header, config=profile.to_dict())), profile


@pytest.fixture(scope="module")
def broken():
    trace, profile = demo_trace()
    text = page_of(trace, profile)
    return trace, profile, text, Page(text)


def test_the_page_says_the_verdict_and_what_was_judged(broken):
    trace, profile, _, page = broken
    report = check(trace, profile)
    assert "violates" in page.words
    for result in report.rules:
        assert result.id in page.words
        assert RULES[result.id].sentence.split("|")[0][:40] in page.words
        for missing in result.missing:
            assert missing in page.words
    assert f"{report.events:,} events" in page.words


def test_each_finding_has_its_numbers_its_rows_its_stretch_and_a_scenario(broken):
    trace, profile, _, page = broken
    report = check(trace, profile, findings=5)
    assert report.findings
    for number, finding in enumerate(report.findings):
        assert f"finding-{number}" in page.ids
        for words in (finding.message, finding.observed, finding.expected):
            assert words in page.words
        at = page.data["findings"][number]["at"]
        assert page.data["breaks"][0][1] + at == finding.step
    canvases = [about for tag, about in page.attributes if tag == "canvas" and "data-finding" in about]
    assert len(canvases) == len(report.findings)


def test_the_scenario_of_an_early_finding_is_the_trace_so_far():
    text = "1 arrive A prompt=6\n1 arrive B prompt=4\n1 admit A slot=0\n1 admit B slot=0\n"
    page = Page(page_of(parse_scenario(text)))
    said = re.search(r"1 arrive A[^<]*?1 admit B slot=0", "".join(page.text))
    assert said is not None
    assert check(parse_scenario(said.group())).findings


def test_the_file_stands_alone(broken):
    *_, text, page = broken
    for tag, about in page.attributes:
        for name in ("src", "srcset", "href", "action", "data", "poster"):
            value = about.get(name)
            assert value is None or value.startswith("#"), f"{tag} {name}={value}"
        assert not [name for name in about if name.startswith("on")], f"{tag} has an inline handler"
    assert "@import" not in text
    assert not re.search(r"url\(\s*['\"]?(?!data:)", text)
    policy = next(
        about["content"]
        for _, about in page.attributes
        if about.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")


def test_only_the_scripts_of_the_package_may_run(broken):
    *_, page = broken
    policy = next(
        about["content"]
        for _, about in page.attributes
        if about.get("http-equiv") == "Content-Security-Policy"
    )
    ours = [text for about, text in page.scripts if about.get("type") != "application/json"]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in ours]
    assert policy.partition("script-src ")[2].split() == [f"'sha256-{each}'" for each in hashes]
    assert "unsafe-inline" not in policy.partition("script-src")[2]


def test_ids_are_unique_and_links_lead_somewhere(broken):
    *_, page = broken
    assert len(page.ids) == len(set(page.ids))
    links = [about["href"][1:] for tag, about in page.attributes if tag == "a"]
    assert links
    assert set(links) <= set(page.ids)
    labels = [about.get("aria-labelledby") for _, about in page.attributes]
    assert {label for label in labels if label} <= set(page.ids)


def test_whatever_a_trace_holds_stays_text():
    events = [
        Event(1, "arrive", EVIL, prompt_tokens=3, tenant=EVIL),
        Event(1, "arrive", "B", prompt_tokens=3, tenant="b"),
        Event(1, "admit", EVIL, slot=0, tenant=EVIL),
        Event(1, "admit", "B", slot=0),
        Event(1, "schedule", EVIL, start=0, tokens=3),
        Event(1, "step"),
        Event(2, "preempt", EVIL, cause=EVIL, reason="recompute"),
        Event(2, "preempt", "B", cause=EVIL, reason="recompute"),
        Event(2, "step"),
    ]
    text = page_of(Trace.from_events(events, Header(complete=True), path=EVIL), command=("check", EVIL))
    page = Page(text)
    assert len([about for about, _ in page.scripts]) == 5
    assert "<img" not in text
    assert "alert(1)" in page.words  # as text
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert page.data["tenants"][0].startswith("</script>")


def test_nothing_of_a_data_block_can_end_it(broken):
    *_, text, _ = broken
    block = text.partition('id="data">')[2].partition("</script>")[0]
    assert "<" not in block
    json.loads(block)


def test_the_same_trace_gives_the_same_file(broken):
    trace, profile, text, _ = broken
    assert page_of(trace, profile) == text


def test_a_table_of_requests_has_a_report_without_a_picture(tmp_path):
    table = tmp_path / "requests.csv"
    table.write_text(
        "request,arrival_ns,admitted_ns,first_token_ns,finish_ns,prompt_tokens,output_tokens\n"
        "A,0,10,30,90,5,4\nB,5,20,40,80,5,3\n"
    )
    out = tmp_path / "r.html"
    assert main(["report", str(table), "--out", str(out)]) == 0
    page = Page(out.read_text("utf-8"))
    assert "picture" not in page.ids
    assert page.data["latency"]["curves"]["time to first token"][0] == 30
    assert "level L0" in page.words


@pytest.mark.parametrize(
    "text",
    [
        "1 step\n",
        "7 arrive A prompt=3\n",
        "1 arrive A prompt=3\n1 reject A too_long\n9 step free=4\n",
        "1 admit ghost slot=900000\n1 finish ghost\n",
    ],
)
def test_traces_with_next_to_nothing_in_them_have_a_report_too(text):
    page = Page(page_of(parse_scenario(text)))
    assert page.data["steps"] >= 1


def test_latencies_without_a_clock_are_said_to_be_unknown():
    page = Page(page_of(parse_scenario("1 arrive A prompt=3\n1 step\n")))
    assert "The trace has no times" in page.words
    assert page.data["latency"] is None


def worst_trace(requests):
    """Requests of one step each, all with long names, over many slots: nothing repeats, nothing packs."""
    random, events = Random(1), []
    for step in range(requests // 64):
        for number in range(64):
            name = f"{random.getrandbits(200):050x}"
            events.append(
                Event(step, "arrive", name, prompt_tokens=random.randint(1, 9999), tenant=name[:30])
            )
            events.append(Event(step, "admit", name, slot=number * 997))
            events.append(Event(step, "schedule", name, start=0, tokens=random.randint(1, 9999)))
            events.append(Event(step, "preempt", name, cause=name, reason="recompute"))
        events.append(Event(step, "step", free_blocks=random.randint(0, 9999)))
    return Trace.from_events(events, Header(complete=False))


def test_the_page_does_not_grow_with_the_trace(monkeypatch):
    monkeypatch.setattr(details.Detail.__init__, "__defaults__", ((), 500))
    profile = Profile.from_dict({"limits": {"kv_blocks": 9999}})
    sizes = [len(page_of(worst_trace(many), profile, rules=FEW)) for many in (3_200, 6_400)]
    assert sizes[1] - sizes[0] < 0.25 * sizes[0]


@pytest.mark.slow
def test_the_page_of_a_million_events_is_under_five_megabytes():
    assert len(page_of(worst_trace(250_000), rules=FEW).encode()) < 5_000_000


def test_the_command_line_writes_it(tmp_path, capsys):
    trace, _ = demo_trace()
    path, out, other = tmp_path / "b.parquet", tmp_path / "new" / "r.html", tmp_path / "c.html"
    with Recorder(path, trace.header) as recorder:
        recorder.write_all(list(trace.events()))
    assert main(["report", str(path), "--out", str(out)]) == 1
    assert capsys.readouterr().out.startswith(f"wrote {out}: violates, ")
    assert main(["check", str(path), "--report", str(other), "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "violates"
    assert "violates" in Page(other.read_text("utf-8")).words
    assert main(["check", str(path), str(path), "--report", str(other)]) == 2
    assert "--report is the report of one trace" in capsys.readouterr().err
    assert main(["report", str(path), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["report", str(path), "--out", str(out), "--from", "9", "--to", "3"]) == 2


def test_coverage_is_on_the_page_where_it_was_asked_for(tmp_path, capsys):
    path, out = tmp_path / "s.txt", tmp_path / "r.html"
    path.write_text("1 arrive A prompt=3\n1 admit A slot=0\n1 schedule A start=0 tokens=3\n1 step\n")
    assert main(["check", str(path), "--report", str(out), "--coverage"]) == 0
    page = Page(out.read_text("utf-8"))
    assert "coverage" in page.ids
    assert "Actions that did not happen" in page.words
    main(["check", str(path), "--report", str(out)])
    assert "coverage" not in Page(out.read_text("utf-8")).ids


def test_a_stretch_that_is_asked_for_is_there_in_full(monkeypatch):
    monkeypatch.setattr(details.Detail.__init__, "__defaults__", ((), 400))
    records = [Record(number, number, 3, 4) for number in range(300)]
    trace = trace_of(records, Profile.from_dict({"limits": {"max_seqs": 1}}), seed=0)
    spans = Page(html_of(trace, check(trace), stretch=(700, 710))).data["seats"]["spans"]
    assert any(first <= 699 and last >= 709 for first, last in spans)
    assert sum(last - first + 1 for first, last in spans) < 1000
