"""`check` end to end with waivers, with coverage, and as JUnit and SARIF."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from batchspec.replay.cli import main

SCHEMA = json.loads(resources.files("batchspec.replay.report").joinpath("schema.json").read_text("utf-8"))
Run = Callable[..., tuple[int, str, str]]
BAD = "1 arrive A prompt=6\n1 arrive B prompt=4\n1 admit A slot=0\n1 admit B slot=0\n"
GOOD = "1 arrive A prompt=6\n1 admit A slot=0\n"
WAIVER = '[[waiver]]\nrule = "slots/exclusive"\nreason = "both sit there"\nexpires = 2026-06-30\n'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line in a folder with a good trace, a bad one and a waiver file."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("bad.txt", BAD), ("good.txt", GOOD), ("w.toml", WAIVER)):
        (tmp_path / name).write_text(text)

    def run(*arguments: object) -> tuple[int, str, str]:
        status = main(["check", *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


def test_a_waiver_turns_the_exit_status(run: Run) -> None:
    assert run("bad.txt")[0] == 1
    status, out, err = run("bad.txt", "--waive", "w.toml", "--today", "2026-06-30")
    assert (status, err) == (0, "")
    (line,) = [line for line in out.splitlines() if "  slots/exclusive " in line]
    assert line.split() == ["conforms", "slots/exclusive", "2", "judged", "1", "waived"]
    assert ", 1 waived (" in out.splitlines()[-1]


def test_the_day_after_it_does_not(run: Run) -> None:
    status, out, err = run("bad.txt", "--waive", "w.toml", "--today", "2026-07-01")
    assert status == 1
    assert "[slots/exclusive]" in out
    assert err == (
        "batchspec: w.toml: waiver 1 (slots/exclusive) expired on 2026-06-30 "
        "and no longer covers 1 violation\n"
    )


def test_a_waiver_that_matches_nothing_is_one_line_on_standard_error(run: Run) -> None:
    options = ("--waive", "w.toml", "--today", "2026-01-01")
    status, _, err = run("good.txt", *options)
    assert status == 0
    assert err.count("\n") == 1
    assert "waiver 1 (slots/exclusive) matches nothing" in err
    assert run("good.txt", "bad.txt", *options)[2] == ""
    assert run("good.txt", *options, "--rule", "time")[2] == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--waive", "none.toml"), "none.toml: cannot be read"),
        (("--waive", "bad.txt"), "bad.txt: not valid TOML"),
        (("--today", "tomorrow"), "--today must be a day such as 2027-01-31, not tomorrow"),
        (("--format", "junit", "--coverage"), "--coverage is said with --format text or json"),
        (("--format", "sarif", "--from", "1"), "use them with --format text"),
        (("--format", "xml"), "'text', 'json', 'junit', 'sarif'"),
    ],
)
def test_a_usage_error_is_one_line(options: tuple[str, ...], message: str, run: Run) -> None:
    status, out, err = run("good.txt", *options)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_an_unknown_rule_in_a_waiver_names_the_nearest(run: Run) -> None:
    Path("w.toml").write_text(WAIVER.replace("exclusive", "exclusiv"))
    status, _, err = run("good.txt", "--waive", "w.toml")
    assert status == 2
    assert "did you mean 'slots/exclusive'" in err


def test_the_json_has_its_keys_and_coverage_only_on_request(run: Run) -> None:
    plain = json.loads(run("good.txt", "--format", "json")[1])
    asked = json.loads(run("good.txt", "--format", "json", "--coverage")[1])
    assert list(asked) == [*plain, "coverage"]
    jsonschema.validate(asked, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert asked["coverage"]["actions"]["exercised"] == 2


def test_the_json_of_several_traces_has_the_merged_coverage(run: Run) -> None:
    status, out, _ = run("good.txt", "bad.txt", "none.txt", "--format", "json", "--coverage")
    data = json.loads(out)
    assert status == 2
    jsonschema.validate(data, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert [report["coverage"]["traces"] for report in data["traces"]] == [1, 1]
    assert data["coverage"]["traces"] == 2
    rows = {
        (clause["event"], clause["state"]): clause["rows"]
        for clause in data["coverage"]["actions"]["clauses"]
    }
    assert rows["admit", "waiting"] == 3


def test_the_text_ends_with_the_coverage_of_all(run: Run) -> None:
    _, out, _ = run("good.txt", "bad.txt", "--coverage")
    assert out.count("coverage of ") == 1
    assert out.index("coverage of 2 traces") > out.rindex("verdict: ")


def test_a_table_of_requests_has_rules_and_premises_at_work_but_no_actions(run: Run) -> None:
    Path("table.csv").write_text("arrival_ns,prompt_tokens,output_tokens\n0,3,2\n5,3,2\n")
    status, out, _ = run("table.csv", "--format", "json", "--coverage")
    if status == 2:
        pytest.skip("tables of requests are not read as text")
    assert json.loads(out)["coverage"]["actions"]["exercised"] == 0


def test_junit_on_standard_output(run: Run) -> None:
    status, out, _ = run("bad.txt", "good.txt", "none.txt", "--format", "junit")
    assert status == 2
    root = ET.fromstring(out.encode())
    assert [suite.get("name") for suite in root] == ["bad.txt", "good.txt", "none.txt"]
    assert [suite.get("failures") for suite in root] == ["1", "0", "0"]
    assert root.get("errors") == "1"


def test_sarif_on_standard_output(run: Run) -> None:
    status, out, _ = run("bad.txt", "--format", "sarif", "--waive", "w.toml", "--today", "2026-01-01")
    (log,) = json.loads(out)["runs"]
    assert status == 0
    (result,) = log["results"]
    assert result["ruleId"] == "slots/exclusive"
    assert result["suppressions"][0]["justification"] == "both sit there"
    status, out, _ = run("bad.txt", "none.txt", "--format", "sarif")
    (log,) = json.loads(out)["runs"]
    assert log["invocations"][0]["exitCode"] == status == 2
    assert "suppressions" not in log["results"][0]
