"""Policies and rules of the user's own: by `module:name`, or installed; never from a trace."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchspec.replay import plugins
from batchspec.replay.cli import main
from batchspec.spec import policies, profile
from batchspec.spec.catalogue import RULES, register_rule
from batchspec.spec.errors import ProfileError, SpecError
from batchspec.spec.profile import Profile, add_word
from batchspec.spec.rule import Rule
from batchspec.traces.reader import open_trace

OWN = '''
from batchspec.spec.rule import Rule

def longest(request, profile):
    """The longest prompt first."""
    return (-(request.prompt or 0), request.place)

def newest(request, profile):
    return (-request.number,)

def divides(request, profile):
    return (1 / 0,)

def words(request, profile):
    return "first"

def nowhere(request, profile):
    return (float("nan"),)

number = 3

class Short(Rule):
    """A house rule."""
    id = "own/short"
    sentence = "No prompt is longer than 20 tokens."
    columns = ("prompt_tokens",)
    source = "the house"

    def after_arrive(self, event, record):
        self.checked += 1
        if (event.prompt_tokens or 0) > 20:
            self.flag(f"{event.request} is long", event.request,
                      expected="at most 20 tokens", observed=f"{event.prompt_tokens} tokens")

class Breaks(Short):
    id = "own/breaks"
    def after_arrive(self, event, record):
        raise KeyError("lost")

class Nameless(Rule):
    sentence = "Nothing."
    source = "nobody"

class Loud(Short):
    id = "LOUD"

class Taken(Short):
    id = "slots/reuse"
'''
WORKLOAD = "arrival_ns,prompt_tokens,output_tokens\n0,5,3\n0,30,3\n0,20,3\n0,25,3\n"
SIZES = ["--max-seqs", "1", "--token-budget", "64", "--kv-blocks", "64", "--block-size", "4"]


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is forgotten after it."""
    kept = [(table, dict(table)) for table in (policies.ORDERS, policies.VICTIMS, RULES, plugins._LOADED)]
    words = {path: dict(known) for path, known in profile._ADDED.items()}
    path, modules = list(sys.path), set(sys.modules)
    yield
    for table, was in kept:
        table.clear()
        table.update(was)
    for name, known in words.items():
        profile._ADDED[name].clear()
        profile._ADDED[name].update(known)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("own_"):
            del sys.modules[name]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module and a workload, which commands run in."""
    (tmp_path / "own_things.py").write_text(OWN)
    (tmp_path / "work.csv").write_text(WORKLOAD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def installed(folder: Path, name: str, *lines: str) -> None:
    """A package with entry points, as an installer leaves it."""
    made = folder / f"{name}-1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (made / "entry_points.txt").write_text("\n".join(lines))


def admitted(trace: str) -> list[object]:
    return [event.request for event in open_trace(trace).events() if event.event == "admit"]


# -- by name ---------------------------------------------------------------------------------------


def test_a_policy_of_ones_own_schedules_and_is_checked(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--policy", "own_things:longest"]
    assert main(["simulate", "work.csv", "--out", "run.parquet", *SIZES, *own]) == 0
    assert "check run.parquet --policy own_things:longest" in capsys.readouterr().out
    assert admitted("run.parquet") == [1, 3, 2, 0]
    assert main(["check", "run.parquet", *own, "--require", "admission/order"]) == 0
    assert main(["check", "run.parquet", *own, "--rule", "admission/order", "--policy", "fcfs"]) == 1


def test_a_trace_cannot_bring_code_in(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["simulate", "work.csv", "--out", "run.parquet", *SIZES, "--policy", "own_things:longest"])
    del policies.ORDERS["own_things:longest"]
    profile._ADDED["admission.order"].clear()
    del sys.modules["own_things"]
    capsys.readouterr()
    assert main(["check", "run.parquet"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "one of your own: --policy module:name" in err
    assert "own_things" not in sys.modules


def test_a_victim_rule_of_ones_own_chooses(here: Path) -> None:
    small = ["--max-seqs", "4", "--token-budget", "64", "--kv-blocks", "24", "--block-size", "4"]
    (here / "work.csv").write_text("arrival_ns,prompt_tokens,output_tokens\n0,20,30\n0,20,30\n0,20,30\n")
    own = ["--victim", "own_things:newest"]
    assert main(["simulate", "work.csv", "--out", "run.parquet", *small, *own]) == 0
    kinds = [event.event for event in open_trace("run.parquet").events()]
    assert "preempt" in kinds
    assert main(["check", "run.parquet", *own, "--require", "preemption/victim"]) == 0


def test_a_rule_of_ones_own_is_judged_and_reported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["simulate", "work.csv", "--out", "run.parquet", *SIZES])
    capsys.readouterr()
    assert main(["check", "run.parquet", "--use", "own_things:Short"]) == 1
    out = capsys.readouterr().out
    assert "1 is long  [own/short]" in out
    assert "No prompt is longer than 20 tokens." in out
    assert "--use own_things:Short" in out, "the command that shows it loads it too"
    assert "violates       own/short" in out
    for kind in ("json", "junit", "sarif"):
        assert main(["check", "run.parquet", "--rule", "own_things:Short", "--format", kind]) == 1
        assert "own/short" in capsys.readouterr().out
    assert main(["check", "run.parquet", "--use", "own_things:Short", "--coverage"]) == 1


def test_a_rule_of_ones_own_can_be_explained_and_waived(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["simulate", "work.csv", "--out", "run.parquet", *SIZES])
    assert main(["rules", "own/short", "--use", "own_things:Short"]) == 0
    assert "prompt_tokens" in capsys.readouterr().out
    (here / "waive.toml").write_text('[[waiver]]\nrule = "own/short"\nreason = "old workload"\n')
    assert main(["check", "run.parquet", "--use", "own_things:Short", "--waive", "waive.toml"]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "own_things:divides"], "own_things:divides failed: ZeroDivisionError"),
        (["--policy", "own_things:words"], "must return a tuple of numbers, not 'first'"),
        (["--policy", "own_things:nowhere"], "must return a tuple of numbers, not (nan,)"),
        (["--policy", "own_things:number"], "is no policy"),
        (["--policy", "own_things:longst"], "did you mean 'longest'?"),
        (["--policy", "own_nothing:longest"], "own_nothing cannot be imported (ModuleNotFoundError"),
        (["--policy", "own_things:"], "write it as module:name"),
        (["--policy", ":longest"], "write it as module:name"),
        (["--policy", "lifo"], "admission.order must be one of"),
        (["--victim", "oldest"], "preemption.victim must be one of"),
        (["--cost", "own_things:number"], "is no cost model"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    options: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "work.csv", "--out", "run.parquet", *SIZES, *options]) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert (out, err.count("\n")) == ("", 1)
    assert "internal error" not in err


def test_a_rule_that_fails_says_where(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["simulate", "work.csv", "--out", "run.parquet", *SIZES])
    capsys.readouterr()
    assert main(["check", "run.parquet", "--use", "own_things:Breaks"]) == 2
    assert "own_things:Breaks failed: KeyError: 'lost' (own_things.py, line" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_things:longest", "is no rule"),
        ("own_things:Nameless", "lacks its id"),
        ("own_things:Loud", "must read family/name"),
        ("own_things:Taken", "exists already"),
    ],
)
def test_what_is_no_rule_is_one_line(
    name: str, message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["simulate", "work.csv", "--out", "run.parquet", *SIZES])
    capsys.readouterr()
    assert main(["check", "run.parquet", "--use", name]) == 2
    assert message in capsys.readouterr().err


def test_a_module_that_raises_as_it_loads_is_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "own_broken.py").write_text("raise RuntimeError('not\\ntoday')\n")
    assert main(["simulate", "work.csv", "--out", "r.parquet", "--policy", "own_broken:x"]) == 2
    assert "own_broken cannot be imported (RuntimeError: not today)" in capsys.readouterr().err


# -- installed -------------------------------------------------------------------------------------


def test_installed_policies_are_known_by_name_and_loaded_when_asked(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(here, "own-policies", "[batchspec.policies]", "lpf = own_things:longest")
    monkeypatch.syspath_prepend(str(here))
    assert main(["simulate", "work.csv", "--out", "plain.parquet", *SIZES]) == 0
    assert "own_things" not in sys.modules
    assert main(["simulate", "work.csv", "--out", "run.parquet", *SIZES, "--policy", "lpf"]) == 0
    assert admitted("run.parquet") == [1, 3, 2, 0]
    assert main(["check", "run.parquet", "--require", "admission/order"]) == 0


def test_installed_victims_and_rules(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(
        here,
        "own-rest",
        "[batchspec.victims]",
        "newest = own_things:newest",
        "[batchspec.rules]",
        "short = own_things:Short",
    )
    monkeypatch.syspath_prepend(str(here))
    assert main(["simulate", "work.csv", "--out", "run.parquet", *SIZES, "--victim", "newest"]) == 0
    assert main(["check", "run.parquet"]) == 1
    assert "[own/short]" in capsys.readouterr().out
    assert main(["rules", "own"]) == 0
    assert "own/short" in capsys.readouterr().out


def test_an_installed_rule_that_does_not_load_names_its_package(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(here, "own-wrong", "[batchspec.rules]", "x = own_things:Missing")
    monkeypatch.syspath_prepend(str(here))
    assert main(["rules"]) == 2
    assert "x of the package own-wrong cannot be loaded" in capsys.readouterr().err


# -- the registers ---------------------------------------------------------------------------------


def test_a_registered_policy_may_be_claimed() -> None:
    with pytest.raises(ProfileError, match="must be one of"):
        Profile.from_dict({"admission": {"order": "lifo"}})
    policies.register_order("lifo", lambda request, _: (-request.place,))
    claims = Profile.from_dict({"admission": {"order": "lifo"}})
    assert Profile.from_dict(claims.to_dict()) == claims
    policies.register_victim("oldest", lambda request, _: (request.number,))
    assert Profile.from_dict({"preemption": {"victim": "oldest"}}).preemption.victim == "oldest"
    with pytest.raises(ProfileError, match="must be one of"):
        Profile.from_dict({"preemption": {"victim": "lifo"}})


def test_the_same_again_is_no_mistake_and_another_one_is() -> None:
    policies.register_order("fcfs", policies.fcfs)
    with pytest.raises(SpecError, match="exists already"):
        policies.register_order("fcfs", policies.sjf)
    register_rule(RULES["slots/reuse"])
    with pytest.raises(SpecError, match="exists already"):
        register_rule(type("Other", (Rule,), {"id": "slots/reuse", "sentence": "x", "source": "y"}))


def test_only_policies_take_words_of_ones_own() -> None:
    with pytest.raises(ProfileError, match="takes no words of your own"):
        add_word("batching.mode", "magic")
