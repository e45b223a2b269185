"""What a finding leaves behind: a folder with scenario, timeline, trace and a script that shows it again."""

from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from pprint import pformat

from batchspec.replay.conform.case import case_text, script_data
from batchspec.replay.conform.result import Result
from batchspec.replay.conform.search import Found
from batchspec.replay.drive import Script
from batchspec.replay.report.page import plain
from batchspec.replay.timeline import collect, timeline_page
from batchspec.traces.recorder import Recorder
from batchspec.traces.scenario import format_scenario

BEFORE = 12
AFTER = 3
"""Steps around a finding that its timeline shows."""


def folder_of(rule: str) -> str:
    """The name of a finding's folder: `slots-reuse` of `slots/reuse`."""
    return rule.replace("/", "-")


def write(result: Result, folder: str | Path) -> list[Path]:
    """Write the files of every finding. The folders, in the order of the findings.

    Raises `OSError` or `TraceError` where that is not possible.
    """
    return [_write(result, found, Path(folder) / folder_of(found.finding.rule)) for found in result.found]


def _write(result: Result, found: Found, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    finding, trace = found.finding, found.judged.run.trace
    head = f"# {plain(finding.message)}  [{finding.rule}]\n# {plain(result.name)}, found by {found.origin}\n"
    (folder / "scenario.txt").write_text(head + format_scenario(trace), encoding="utf-8")
    step = finding.step or 0
    picture = timeline_page(
        collect(trace.events(), max(0, step - BEFORE), step + AFTER), [finding], title=finding.message
    )
    (folder / "timeline.txt").write_text(picture.text(), encoding="utf-8")
    if trace.num_rows and trace.header is not None:
        with Recorder(folder / "trace.parquet", trace.header, overwrite=True) as recorder:
            recorder.write_all(trace.events())
            recorder.close(trace.complete)
    (folder / "case.json").write_text(case_text(found.judged.case) + "\n", encoding="utf-8")
    (folder / "reproduce.py").write_text(script(result, found), encoding="utf-8")
    return folder


def script(result: Result, found: Found) -> str:
    """A program that drives the scheduler by the same case; status 1 where the rule is broken again."""
    case, finding = found.judged.case, found.finding
    requests = "".join(f"    {line},\n" for line in _asks(case.scripts))
    sentence, name = _quotable(finding.message), _quotable(result.name)
    return (
        f'"""{sentence}  [{finding.rule}]\n\n'
        f"{name}; written by batchspec {version('batchspec')}. Run it where the scheduler can\n"
        "be imported; another scheduler can be named behind it. Status 1: the rule is broken again.\n"
        '"""\n\n'
        "import sys\n\n"
        "from batchspec.replay.conform.subjects import ask, reproduce\n\n"
        f"SCHEDULER = {result.subject!r}\n"
        f"PROFILE = {case.profile.name!r}\n"
        f"CLAIMS = {pformat(case.profile.to_dict(), width=100, sort_dicts=False)}\n"
        f"REQUESTS = [\n{requests}]\n"
        f"RULE = {finding.rule!r}\n"
        f"ORIGIN = {found.origin!r}\n\n"
        'if __name__ == "__main__":\n'
        "    sys.exit(reproduce(SCHEDULER, PROFILE, CLAIMS, REQUESTS, RULE, ORIGIN, sys.argv[1:]))\n"
    )


def _quotable(text: str) -> str:
    """Somebody else's text as part of a docstring."""
    return plain(text).replace("\\", "\\\\").replace('"', "'")


def _asks(scripts: Iterable[Script]) -> Iterable[str]:
    for one in scripts:
        data = script_data(one)
        name, prompt = data.pop("id"), data.pop("prompt")
        words = [repr(name), f"prompt={prompt!r}"]
        yield f"ask({', '.join([*words, *(f'{key}={value!r}' for key, value in data.items())])})"
