"""`check`, `simulate`, `import` and `info` end to end: files in, exit status and output out."""

import json
import os
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from syrupy.assertion import SnapshotAssertion

from batchspec.replay.cli import main
from batchspec.replay.demo import claims, excerpt, late_seats
from batchspec.replay.simulate import header_of, simulate
from batchspec.spec.events import Event
from batchspec.spec.profile import Profile
from batchspec.traces.header import Header
from batchspec.traces.recorder import Recorder

SCHEMA = json.loads(resources.files("batchspec.replay.report").joinpath("schema.json").read_text("utf-8"))
Run = Callable[..., tuple[int, str, str]]
WORKED = """\
profile batchspec
cfg kv_blocks=3 block_size=4 max_seqs=2 token_budget=8
1 arrive A prompt=6 max=3
1 arrive B prompt=5 max=3
1 admit A slot=0 blocks=2
1 schedule A start=0 tokens=6 blocks=2
1 admit B slot=1 blocks=1
1 schedule B start=0 tokens=2 blocks=1
1 step free=0
2 schedule A start=6 tokens=1 blocks=2
2 preempt B recompute cause=B
2 step free=1
3 schedule A start=7 tokens=1 blocks=2
3 finish A length out=3
3 step free=3
"""
FILLED = WORKED + "4 resume B slot=0 blocks=2\n4 schedule B start=0 tokens=5 blocks=2\n4 step free=1\n"
EMPTY_SEAT = WORKED + "4 step free=3\n"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line: exit status, standard output, standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        status = main([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, so that paths in reports are short and the same everywhere."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, acts: Profile, says: Profile, requests: int = 24) -> Path:
    with Recorder(path, header_of(says)) as recorder:
        recorder.write_all(simulate(excerpt()[:requests], acts))
    return path


@pytest.fixture
def good(folder: Path) -> Path:
    return write(folder / "good.parquet", claims(), claims())


@pytest.fixture
def bad(folder: Path) -> Path:
    return write(folder / "bad.parquet", late_seats(claims()), claims(), requests=60)


def one_line(text: str) -> str:
    assert text.count("\n") == 1
    assert text.startswith("batchspec: ")
    return text


def test_a_trace_that_conforms_exits_with_0(run: Run, good: Path) -> None:
    status, out, err = run("check", good)
    assert (status, err) == (0, "")
    assert out.startswith(f"{good}: conforms (profile batchspec)\n")
    assert out.splitlines()[-1].startswith("verdict: conforms (rules: ")


def test_a_trace_that_violates_exits_with_1(run: Run, bad: Path) -> None:
    status, out, err = run("check", bad)
    assert (status, err) == (1, "")
    assert "[slots/reuse]" in out
    assert out.splitlines()[-1].startswith("verdict: violates, ")


def test_the_command_of_a_finding_can_be_run(run: Run, bad: Path) -> None:
    _, out, _ = run("check", bad, "--rule", "slots/reuse")
    command = next(line for line in out.splitlines() if "show:" in line).split("batchspec ", 1)[1]
    status, shown, err = run(*command.split())
    assert (status, err) == (1, "")
    assert "[slots/reuse]" in shown
    assert "!" in shown.split("tokens")[0]


def test_a_scenario_is_a_trace_too(run: Run, folder: Path, snapshot: SnapshotAssertion) -> None:
    Path("filled.txt").write_text(FILLED)
    Path("empty.txt").write_text(EMPTY_SEAT)
    assert run("check", "filled.txt", "--rule", "slots/reuse")[0] == 0
    status, out, err = run("check", "empty.txt", "--rule", "slots/reuse")
    assert (status, err) == (1, "")
    assert out == snapshot


def test_a_stretch_is_drawn(run: Run, folder: Path, snapshot: SnapshotAssertion) -> None:
    Path("empty.txt").write_text(EMPTY_SEAT)
    status, out, err = run("check", "empty.txt", "--rule", "slots/reuse", "--from", "2", "--to", "4")
    assert (status, err) == (1, "")
    assert out == snapshot


def test_json_is_one_object_and_nothing_else(run: Run, good: Path, bad: Path) -> None:
    for path, status, verdict in ((good, 0, "conforms"), (bad, 1, "violates")):
        found, out, err = run("check", path, "--format", "json")
        data = json.loads(out)
        jsonschema.validate(data, SCHEMA)
        assert (found, err, data["verdict"]) == (status, "", verdict)
        assert data["trace"] == str(path)
        assert data["config"]["limits"]["kv_blocks"] == 36


def test_json_and_text_agree(run: Run, bad: Path) -> None:
    data = json.loads(run("check", bad, "--format", "json", "--findings", "3")[1])
    text = run("check", bad, "--findings", "3")[1]
    for finding in data["findings"]:
        assert f"step {finding['step']}: {finding['message']}  [{finding['rule']}]" in text
    for rule in data["rules"]:
        assert f"  {rule['id']}" in text


def test_findings_sets_how_many_are_listed(run: Run, bad: Path) -> None:
    def listed(number: int) -> int:
        data = json.loads(
            run("check", bad, "--rule", "slots/reuse", "--findings", number, "--format", "json")[1]
        )
        assert data["rules"][0]["violations"] > 3
        return len(data["findings"])

    assert [listed(number) for number in (0, 1, 3)] == [0, 1, 3]


def test_rule_takes_rules_and_families(run: Run, good: Path) -> None:
    out = run("check", good, "--rule", "slots", "--rule", "batch/capacity", "--format", "json")[1]
    rules = [rule["id"] for rule in json.loads(out)["rules"]]
    assert set(rules) == {
        "slots/exclusive",
        "slots/range",
        "slots/early-reuse",
        "slots/reuse",
        "batch/capacity",
    }


def test_several_traces_are_judged_one_by_one(run: Run, good: Path, bad: Path) -> None:
    status, out, err = run("check", good, bad)
    assert (status, err) == (1, "")
    assert f"{good}: conforms" in out
    assert f"\n\n{bad}: violates" in out
    status, out, err = run("check", good, "none.parquet", bad, "--format", "json")
    data = json.loads(out)
    jsonschema.validate(data, SCHEMA)
    assert (status, data["verdict"], len(data["traces"])) == (2, "violates", 2)
    assert data["unusable"][0]["trace"] == "none.parquet"
    assert "none.parquet" in one_line(err)


def test_without_any_claim_the_report_says_so_first(run: Run, folder: Path) -> None:
    with Recorder(folder / "bare.parquet", Header()) as recorder:
        recorder.write_all(simulate(excerpt()[:4], claims()))
    status, out, _ = run("check", "bare.parquet")
    assert status == 0
    assert "only rules that need no claim are judged" in out.splitlines()[0]
    assert json.loads(run("check", "bare.parquet", "--format", "json")[1])["profile"] is None


def test_a_profile_and_a_config_of_the_user_replace_what_the_header_claims(run: Run, good: Path) -> None:
    Path("mine.toml").write_text("[limits]\nmax_seqs = 3\n")
    status, out, _ = run("check", good, "--profile", "vllm-v1", "--config", "mine.toml", "--format", "json")
    data = json.loads(out)
    assert (status, data["profile"]) == (1, "vllm-v1")
    assert data["config"]["limits"]["max_seqs"] == 3
    assert data["config"]["limits"]["kv_blocks"] == 36
    assert "batch/capacity" in {finding["rule"] for finding in data["findings"]}


@pytest.mark.parametrize(
    ("required", "status", "said"),
    [
        ("L1", 0, ""),
        ("L3", 0, ""),
        ("L4", 2, "level L4 is required, and this trace has level L3"),
        ("batch/capacity", 0, ""),
        ("fairness/service-gap", 2, "not checkable: needs"),
        ("admission/parked", 2, "nothing in this trace puts it to the test"),
    ],
)
def test_require_exits_with_2_where_that_was_not_judged(
    required: str, status: int, said: str, run: Run, good: Path
) -> None:
    found, out, err = run("check", good, "--require", required)
    assert found == status
    assert "verdict: conforms" in out
    assert said in err
    assert err.count("\n") == bool(said)


def test_require_names_a_rule_that_was_left_out(run: Run, good: Path) -> None:
    status, _, err = run("check", good, "--rule", "slots", "--require", "batch/capacity")
    assert status == 2
    assert "--rule left it out" in one_line(err)


def rows(**columns: Sequence[Any]) -> pa.Table:
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def unreadable(folder: Path) -> None:
    path = folder / "x"
    path.write_bytes(b"x")
    path.chmod(0)


GARBAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda folder: (folder / "x").write_bytes(b""),
    "text": lambda folder: (folder / "x").write_text("hello world\n"),
    "binary": lambda folder: (folder / "x").write_bytes(bytes(range(256)) * 40),
    "magic only": lambda folder: (folder / "x").write_bytes(b"PAR1" + b"\0" * 64 + b"PAR1"),
    "empty folder": lambda folder: (folder / "x").mkdir(),
    "no rows": lambda folder: pq.write_table(rows(step=[], event=[]), folder / "x"),
    "no step": lambda folder: pq.write_table(rows(event=["step"]), folder / "x"),
    "no event": lambda folder: pq.write_table(rows(step=[1]), folder / "x"),
    "null step": lambda folder: pq.write_table(rows(step=[1, None], event=["step", "step"]), folder / "x"),
    "wrong type": lambda folder: pq.write_table(rows(step=["1"], event=["step"]), folder / "x"),
    "unknown event": lambda folder: pq.write_table(rows(step=[1], event=["stop"]), folder / "x"),
    "no request": lambda folder: pq.write_table(rows(step=[1], event=["admit"]), folder / "x"),
    "records": lambda folder: (folder / "x.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n"),
    "device": lambda folder: None,
}


@pytest.mark.parametrize("what", GARBAGE)
@pytest.mark.parametrize("command", ["check", "info"])
def test_garbage_is_one_line_and_exit_status_2(what: str, command: str, run: Run, folder: Path) -> None:
    GARBAGE[what](folder)
    path = {"records": "x.csv", "device": "/dev/null"}.get(what, "x")
    status, out, err = run(command, path)
    assert (status, out) == (2, "")
    assert path in one_line(err)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read_is_one_line(run: Run, folder: Path) -> None:
    unreadable(folder)
    status, _, err = run("check", "x")
    assert status == 2
    assert "x" in one_line(err)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("{", "header"),
        ('{"schema_version": 2}', "schema_version"),
        ('{"profile": "vlm-v1"}', "did you mean 'vllm-v1'"),
        ('{"config": {"limits": {"max_seq": 3}}}', "did you mean 'max_seqs'"),
        ('{"config": {"batching": {"mode": "magic"}}}', "batching.mode"),
    ],
)
def test_a_broken_header_is_one_line(header: str, message: str, run: Run, folder: Path) -> None:
    table = rows(step=[1], event=["step"]).replace_schema_metadata({"batchspec": header})
    pq.write_table(table, folder / "x.parquet")
    status, out, err = run("check", "x.parquet")
    assert (status, out) == (2, "")
    assert message in one_line(err)


def test_hostile_ids_cannot_steer_the_terminal(run: Run, folder: Path) -> None:
    name = "\x1b[2J\n\u202eevil"
    with Recorder(folder / "x.parquet", header_of(claims())) as recorder:
        recorder.write_all(
            [Event(1, "arrive", name, prompt_tokens=3), Event(1, "arrive", name), Event(1, "step")]
        )
    for options in ((), ("--from", "1"), ("--findings", "9")):
        status, out, err = run("check", "x.parquet", *options)
        assert (status, err) == (1, "")
        assert "evil" in out
        assert all(char == "\n" or char.isprintable() for char in out)


def test_a_workload_is_imported_simulated_and_checked(run: Run, folder: Path) -> None:
    source = resources.files("batchspec.replay.data") / "azure_code_2023.csv"
    with resources.as_file(source) as path:
        status, out, err = run("import", path, "--out", "code.parquet")
        assert (status, err) == (0, "")
        assert "160 requests imported" in out
        options = (
            "--max-seqs",
            8,
            "--token-budget",
            512,
            "--kv-blocks",
            600,
            "--block-size",
            16,
            "--limit",
            20,
        )
        for name in ("code.parquet", path):
            assert run("simulate", name, "--out", "run.parquet", *options)[0] == 0
            status, out, err = run("check", "run.parquet")
            assert (status, err) == (0, "")
            assert " 20 requests\n" in out
    assert run("info", "code.parquet")[0] == 0


def test_the_same_simulation_gives_the_same_trace(run: Run, folder: Path) -> None:
    source = resources.files("batchspec.replay.data") / "azure_code_2023.csv"
    with resources.as_file(source) as path:
        for name in ("a.parquet", "b.parquet"):
            assert run("simulate", path, "--out", name, "--limit", 9, "--seed", 3, "--mode", "static")[0] == 0
    assert pq.read_table("a.parquet").equals(pq.read_table("b.parquet"), check_metadata=True)


def test_a_trace_is_no_workload(run: Run, good: Path) -> None:
    status, _, err = run("simulate", good, "--out", "again.parquet")
    assert status == 2
    assert "not a workload" in one_line(err)
    assert not Path("again.parquet").exists()


def test_an_import_that_fails_leaves_no_file(run: Run, folder: Path) -> None:
    Path("x.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,5,x\n")
    status, _, err = run("import", "x.csv", "--out", "x.parquet", "--strict")
    assert status == 2
    assert "line 2" in one_line(err)
    assert not Path("x.parquet").exists()


def test_an_output_that_cannot_be_written_is_one_line(run: Run, folder: Path) -> None:
    Path("file").write_text("")
    source = resources.files("batchspec.replay.data") / "azure_code_2023.csv"
    with resources.as_file(source) as path:
        for command in ("simulate", "import"):
            status, _, err = run(command, path, "--out", "file/run.parquet")
            assert status == 2
            assert "file" in one_line(err)


def test_info_says_what_can_be_judged(run: Run, good: Path) -> None:
    status, out, err = run("info", good)
    assert (status, err) == (0, "")
    assert out.startswith(f"{good}: trace, level L3, complete\n")
    assert "slots/reuse" in out.split("not checkable")[0]
    assert "fairness/service-gap" in out.split("not checkable")[1]
