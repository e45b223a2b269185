"""Scenarios: each file is a trace as text, and under the line `----` what a check says of it.

    # What is shown, where it was reported (URL), and why the rule finds it.
    # expect: memory/bound at L2            the rule must be violated, the trace be of that level
    # expect: memory/waste not checkable    a verdict may be named: conforms, not checkable, open
    cfg kv_blocks=12 block_size=16
    1 arrive A prompt=4 max=2
    ----
    violates memory/bound: step 1, row 2, A: 13 blocks are held ..., the pool has 12
    not checkable memory/waste: admission.reserve
    verdict: violates, level L2

A line for each violated rule, then one for each other rule that the file asks about with `# expect:`,
then the verdict. `pytest tests/scenarios --rewrite` writes these lines; read them before you commit.
`batchspec check FILE` takes the same file. faults/X.txt has a corrected twin, faults/X.ok.txt.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from batchspec.replay.checker import check
from batchspec.replay.claims import claimed
from batchspec.replay.cli import main
from batchspec.spec.catalogue import RULES
from batchspec.spec.events import Event
from batchspec.spec.profile import Profile
from batchspec.spec.verdict import Report
from batchspec.traces.reader import open_any
from batchspec.traces.scenario import EXPECTATION, parse_scenario
from batchspec.traces.trace import Trace

HERE = Path(__file__).parent
FILES = sorted(HERE.rglob("*.txt"))
NAMES = [str(path.relative_to(HERE)) for path in FILES]
TWINS = [path for path in FILES if path.name.endswith(".ok.txt")]
FAULTS = [path for path in FILES if path.parent.name == "faults" and path not in TWINS]
TRAPS = [path for path in FILES if path.parent.name == "traps"]
# Options that excuse something; what leaves them out claims more, not less.
LENIENT = {
    *("slot_lag", "block_lag", "overlap_member", "depth", "ordered_passes", "prefix", "same_pass"),
    *("K", "rules", "wall_ns", "tolerance_ns", "lookahead", "seqs_cap", "headroom_blocks", "keeps_blocks"),
    *("weights", "lift", "w_p", "w_q", "watermark_blocks"),
}

_EXPECT = re.compile(r"# expect: (\S+)(?: (violates|conforms|not checkable|open))?(?: at (L[0-4]))?")


def expectations(path: Path) -> dict[str, tuple[str, str | None]]:
    """Rule -> verdict and level, from the `# expect:` lines of a file."""
    found: dict[str, tuple[str, str | None]] = {}
    for line in path.read_text().split("\n"):
        if line.startswith("# expect"):
            match = _EXPECT.fullmatch(line)
            assert match, f"{path.name}: {line!r} is not `# expect: RULE [VERDICT] [at LEVEL]`"
            assert match[1] in RULES, f"{path.name}: no rule {match[1]}"
            found[match[1]] = (match[2] or "violates", match[3])
    return found


def judged(path: Path) -> Report:
    """The report of the reference checker on the file's scenario, under its own claims."""
    trace = parse_scenario(path.read_text(), path.name)
    header = trace.header
    assert header is not None
    return check(trace, claimed(header.profile, header.config))


def lines(report: Report, asked: dict[str, tuple[str, str | None]]) -> Iterator[str]:
    """What stands under `----`."""
    for finding in report.findings:
        names = "".join(f", {request}" for request in finding.requests)
        where = "end" if finding.step is None else f"step {finding.step}, row {finding.row}"
        follows = " (a consequence)" if finding.consequence else ""
        yield f"violates {finding.rule}: {where}{names}: {finding.message}{follows}"
    for result in report.rules:
        if result.id in asked and result.verdict != "violates":
            why = ": " + ", ".join(result.missing) if result.missing else ""
            yield f"{result.verdict} {result.id}{why}"
    yield f"verdict: {report.verdict}, level {report.level}"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_comes_out_as_written(path, request):
    text = path.read_text()
    told = "\n".join([EXPECTATION, *lines(judged(path), expectations(path)), ""])
    scenario, _, _ = text.partition(f"\n{EXPECTATION}\n")
    now = scenario.rstrip("\n") + "\n" + told
    if request.config.getoption("--rewrite"):
        path.write_text(now)
    else:
        assert text == now


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_each_rule_gets_the_verdict_and_level_that_the_file_expects(path):
    asked, report = expectations(path), judged(path)
    assert asked, "a file must name the rule that it guards in a line `# expect: RULE …`"
    results = {result.id: result for result in report.rules}
    for rule, (verdict, level) in asked.items():
        assert results[rule].verdict == verdict
        assert verdict == "not checkable" or results[rule].checked > 0, f"{rule} was never put to the test"
        assert level in (None, report.level)


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_begins_with_what_it_shows(path):
    rows = path.read_text().split("\n")
    comment = [row for row in rows if row.startswith("# ") and not row.startswith("# expect:")]
    assert rows[0] == comment[0]
    if path in FAULTS:
        assert "https://" in "\n".join(comment), "a fault cites its report"


@pytest.mark.parametrize("path", FAULTS, ids=lambda path: path.stem)
def test_fault_is_found_at_the_level_named_and_its_twin_is_clean(path):
    asked = expectations(path)
    broken = {rule: level for rule, (verdict, level) in asked.items() if verdict == "violates"}
    hidden = [rule for rule, (verdict, _) in asked.items() if verdict == "not checkable"]
    assert broken or hidden
    assert all(broken.values()), "write the level: `# expect: RULE at L2`"
    if hidden and not broken:
        return  # no event carries the facts of this fault
    twin = path.with_suffix(".ok.txt")
    assert twin in TWINS
    results = {result.id: result for result in judged(twin).rules}
    for rule in broken:
        assert expectations(twin)[rule][0] == "conforms"
        assert results[rule].verdict == "conforms"
        assert results[rule].checked > 0


@pytest.mark.parametrize("path", [*TWINS, *TRAPS], ids=lambda path: path.stem)
def test_correct_traces_raise_no_alarm(path):
    report = judged(path)
    assert not report.findings
    assert any(verdict == "conforms" for verdict, _ in expectations(path).values())


def test_every_fault_of_the_catalogue_is_here():
    numbers = {path.name.partition("-")[0] for path in FAULTS if path.name.startswith("B")}
    assert numbers == {f"B{number:02}" for number in range(1, 130, 2)}


@pytest.mark.parametrize("path", [*TWINS, *TRAPS], ids=lambda path: path.stem)
def test_less_of_a_correct_trace_raises_no_alarm_either(path):
    trace = parse_scenario(path.read_text(), path.name)
    header, events = trace.header, list(trace.events())
    profile = claimed(header.profile, header.config)
    cut = replace(header, complete=False)
    for length in range(1, len(events)):
        found = check(Trace.from_events(events[:length], cut, "cut"), profile).findings
        # Before its first `deliver` row a trace says that the finish is the delivery.
        assert not [one for one in found if one.rule != "fairness/delivery-order"], length
    for field in sorted({field for event in events for field in Event._fields[3:] if getattr(event, field)}):
        less = [event._replace(**{field: None}) for event in events]
        assert not check(Trace.from_events(less, header, "less"), profile).findings, field


@pytest.mark.parametrize("path", [*TWINS, *TRAPS], ids=lambda path: path.stem)
def test_fewer_claims_raise_no_alarm_either(path):
    trace = parse_scenario(path.read_text(), path.name)
    config = (claimed(trace.header.profile, trace.header.config) or Profile()).to_dict()
    for group, table in config.items():
        for option in table.keys() - LENIENT:
            fewer = {**config, group: {key: value for key, value in table.items() if key != option}}
            assert not check(trace, Profile.from_dict(fewer)).findings, option


def test_every_twin_belongs_to_a_fault():
    assert [twin for twin in TWINS if twin.with_name(twin.name.replace(".ok", "")) not in FAULTS] == []


def test_the_command_line_takes_the_same_files(capsys):
    good = [path for path in FILES if judged(path).verdict == "conforms"]
    assert main(["check", *map(str, good)]) == 0
    assert all(main(["check", str(path)]) == 1 for path in FILES if path not in good)
    assert capsys.readouterr().err == ""
    assert open_any(good[0]).num_rows > 0
