"""`batchspec conform` as people and scripts see it."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from batchspec.replay import cli
from batchspec.replay.checker import check
from batchspec.replay.conform.artifacts import write
from batchspec.replay.conform.case import parse_case
from batchspec.replay.conform.result import Result
from batchspec.replay.conform.subjects import factory_of
from batchspec.replay.conform.suite import conform
from batchspec.replay.report.conformance import conformance_page
from batchspec.replay.report.conformance_data import (
    conformance_junit,
    conformance_markdown,
    conformance_sarif,
)
from batchspec.spec.library import load_profile
from batchspec.traces.reader import open_any
from batchspec.traces.scenario import parse_scenario

HERE = Path(__file__).parent
RIGHT = f"{HERE / 'broken' / 'base.py'}:make"
LEAKS = f"{HERE / 'broken' / 'memory.py'}:LosesTheRaggedTail"
WASTES = f"{HERE / 'broken' / 'policy.py'}:WaitsForAnEmptyBatch"
SCHEMA = HERE.parent.parent / "replay" / "report" / "conformance.schema.json"
PROFILE = ("--profile", "orca")


@pytest.fixture(scope="module")
def leaks() -> Result:
    return conform(factory_of(LEAKS), load_profile("orca"), examples=5, subject=LEAKS)


@pytest.fixture(scope="module")
def wastes() -> Result:
    return conform(factory_of(WASTES), load_profile("orca"), examples=30, subject=WASTES)


def run(capsys, *words: str) -> tuple[int, str, str]:
    status = cli.main(["conform", *words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_scheduler_that_conforms(capsys):
    status, out, err = run(capsys, RIGHT, *PROFILE, "--examples", "5")

    assert (status, err) == (0, "")
    assert out.startswith("small: conforms (profile orca)\nlevel L3, ")
    assert out.splitlines()[-1].startswith("verdict: conforms; broken: 0 MUST, 0 SHOULD; ")


def test_a_finding_as_it_is_read(leaks, snapshot):
    text = conformance_page(leaks, "found").text()
    at = text.index("MUST found by", text.index("[memory/conservation]") - 200)

    assert text[at : text.index("\n\n", at)] == snapshot


def test_the_files_of_a_finding_show_it_again(leaks, tmp_path):
    write(leaks, tmp_path)

    folder = tmp_path / "memory-conservation"
    assert {path.name for path in folder.iterdir()} == {
        "scenario.txt",
        "timeline.txt",
        "trace.parquet",
        "case.json",
        "reproduce.py",
    }
    case = parse_case((folder / "case.json").read_text())
    scenario = parse_scenario((folder / "scenario.txt").read_text())
    trace = open_any(folder / "trace.parquet")
    assert list(trace.events()) == list(scenario.events())
    assert "memory/conservation" in {finding.rule for finding in check(trace, case.profile).findings}
    assert "[memory/conservation]" in (folder / "timeline.txt").read_text()
    again = subprocess.run([sys.executable, folder / "reproduce.py"], capture_output=True, text=True)
    assert (again.returncode, again.stderr) == (1, "")
    assert "[memory/conservation]" in again.stdout
    mended = subprocess.run([sys.executable, folder / "reproduce.py", RIGHT], capture_output=True, text=True)
    assert (mended.returncode, mended.stderr) == (0, "")
    assert mended.stdout.endswith("memory/conservation is not broken here (broken: nothing)\n")


def test_one_object_for_programs(capsys, tmp_path):
    words = ("--examples", "2", "--format", "json", "--trace-dir", str(tmp_path))
    status, out, _ = run(capsys, LEAKS, *PROFILE, *words)
    data = json.loads(out)

    jsonschema.validate(data, json.loads(SCHEMA.read_text()))
    assert status == 1
    assert (data["verdict"], data["scheduler"], data["profile"]) == ("violates", "small", "orca")
    finding = next(item for item in data["findings"] if item["rule"] == "memory/conservation")
    assert finding["obligation"] == "MUST"
    assert finding["seen"] == [3, 3]
    assert len(finding["case"]["requests"]) == 1
    assert finding["scenario"].splitlines()[0] == "profile orca"
    assert Path(finding["files"], "reproduce.py").is_file()


def test_a_broken_should_is_said_and_counts_only_when_asked(capsys):
    waiver = HERE / "data" / "conform-waivers.toml"
    words = (WASTES, *PROFILE, "--examples", "1", "--waive", str(waiver), "--format", "json")
    status, out, err = run(capsys, *words)
    strict, _, _ = run(capsys, *words, "--strict")
    data = json.loads(out)

    assert {item["rule"]: item["obligation"] for item in data["findings"]} == {
        "admission/needless-wait": "SHOULD"
    }
    assert (status, strict, err) == (0, 1, "")
    assert data["waived"] > 0


def test_waivers_that_match_nothing_are_named(capsys, tmp_path):
    waiver = tmp_path / "waivers.toml"
    waiver.write_text('[[waiver]]\nrule = "conform/crash"\nreason = "known"\n')
    status, _, err = run(capsys, RIGHT, *PROFILE, "--examples", "3", "--waive", str(waiver))

    assert status == 0
    assert err == (
        f"batchspec: {waiver}: waiver 1 (conform/crash) matches nothing: remove it, or mend what it names\n"
    )


def test_junit(wastes):
    suite = ET.fromstring(conformance_junit([wastes])).find("testsuite")
    cases = {case.get("name"): case for case in suite.findall("testcase")}

    assert cases["slots/reuse"].find("failure") is not None
    assert cases["admission/needless-wait"].find("skipped").get("message").startswith("SHOULD, broken: ")
    assert int(suite.get("failures")) == sum(case.find("failure") is not None for case in cases.values())
    strict = ET.fromstring(conformance_junit([replace(wastes, strict=True)])).find("testsuite")
    assert int(strict.get("failures")) == int(suite.get("failures")) + 1


def test_sarif(wastes):
    results = conformance_sarif(wastes, files="found")["runs"][0]["results"]

    assert {item["ruleId"]: item["level"] for item in results} == {
        "slots/reuse": "error",
        "admission/needless-wait": "warning",
    }
    places = [item["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for item in results]
    assert places == ["found/slots-reuse/trace.parquet", "found/admission-needless-wait/trace.parquet"]


def test_markdown(leaks, wastes):
    text = conformance_markdown([leaks, wastes])

    assert text.count("![batchspec: orca violates](https://img.shields.io/badge/orca-violates-red)") == 2
    assert "| `memory/conservation` | MUST | **violates** |" in text
    assert "- SHOULD `admission/needless-wait`: " in text


def test_a_program_may_stand_for_the_factory(capsys):
    command = f"{sys.executable} {HERE / 'programs' / 'scheduler.py'}"
    status, out, err = run(capsys, "--command", command, "--profile", "orca", "--examples", "0")

    assert (status, err) == (0, "")
    assert out.startswith("json example 1: conforms (profile orca)\nlevel L2, ")


def test_a_workload_instead_of_the_suite(capsys, tmp_path):
    words = (str(HERE.parent.parent / "replay" / "data" / "azure_code_2023.csv"), "--limit", "12")
    status, out, err = run(capsys, RIGHT, *PROFILE, "--workload", *words, "--trace-dir", str(tmp_path))

    assert (status, err) == (0, "")
    assert ", 1 run, " in out
    assert ", 12 requests; " in out
    trace = open_any(tmp_path / "trace.parquet")
    assert trace.complete
    assert trace.kinds["arrive"] == 12


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            (),
            "Invalid value: name one scheduler: MODULE:FACTORY, or a program with --command; see batchspec",
        ),
        (("nocolon",), "name the scheduler as module:factory, not 'nocolon'"),
        (("no_such_module:x",), "no_such_module cannot be imported (ModuleNotFoundError: "),
        (("json:lods",), "json has no 'lods' (did you mean 'loads'?)"),
        (("json:JSONDecodeError.x",), "json has no 'x'"),
        (("json:__doc__",), "json:__doc__ is no factory: it cannot be called with a profile"),
        ((RIGHT, "--profile", "vlm-v1"), "unknown profile 'vlm-v1'"),
        (("--command", "'x"), "the command cannot be split into words (No closing quotation)"),
        (("no/such.py:make",), "no/such.py: no Python file"),
    ],
)
def test_a_users_mistake_is_one_line(capsys, words, said):
    status, out, err = run(capsys, *words)

    assert (status, out) == (2, "")
    assert err.startswith(f"batchspec: {said}")
    assert err.count("\n") == 1


def test_a_factory_that_can_have_nothing_is_one_line(capsys, tmp_path):
    module = tmp_path / "picky.py"
    module.write_text(
        "from batchspec.replay.harness import HarnessError\n"
        "def make(profile):\n    raise HarnessError('limits.block_size must be 7')\n"
    )
    status, _, err = run(capsys, f"{module}:make")

    assert (status, err) == (2, "batchspec: limits.block_size must be 7\n")


def test_a_factory_that_fails_is_a_crash_and_no_traceback(capsys, tmp_path):
    module = tmp_path / "failing.py"
    module.write_text("def make(profile):\n    raise ValueError('no seats')\n")
    status, _, err = run(capsys, f"{module}:make")

    assert status == 2
    assert err == "batchspec: the factory failed: ValueError: no seats (failing.py, line 2)\n"


def test_sizes_are_those_that_the_factory_can_have(tmp_path):
    module = tmp_path / "sized.py"
    module.write_text(
        "from batchspec.replay.adapters.reference import make as right\n"
        "def make(profile):\n"
        "    assert profile.limits.block_size == 16 and profile.limits.max_seqs in (2, 3)\n"
        "    return right(profile)\n"
        "make.limits = {'block_size': [16], 'max_seqs': [2, 3]}\n"
    )

    assert factory_of(f"{module}:make").limits["block_size"] == [16]
    assert cli.main(["conform", f"{module}:make", "--examples", "2", "--format", "json"]) == 0
