"""Whatever a file holds, an importer gives rows that a table can hold, or says in one line why not."""

import random
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchspec.spec.errors import TraceError
from batchspec.traces.header import Header
from batchspec.traces.importers import IMPORTERS, ImportLog, detect, gives_events
from batchspec.traces.recorder import Recorder
from batchspec.traces.workload import write_records

DATA = Path(__file__).parents[2] / "data"
SAMPLES = [
    path
    for path in sorted(DATA.rglob("*"))
    if path.suffix in (".csv", ".json", ".jsonl", ".log", ".prom")
    and not path.name.startswith("expected_")
    and not path.name.endswith(("_2000.csv", "-dataset.json"))
]
TOKENS = re.compile(rb'"(?:[^"\\\n]|\\.)*"|[-+]?[0-9][0-9.eE+-]*|true|false|null|[A-Za-z_#][\w.#-]*')
HOSTILE = [
    b"",
    b"null",
    b"true",
    b"-1",
    b"0",
    b"NaN",
    b"1e999999999999",
    b"1e300",
    b"1E-400",
    b"9" * 400,
    b"9" * 5000,
    b"9223372036854775807",
    b"18446744073709551616",
    b"-9223372036854775809",
    b"2147483648",
    b"4611686018427387904",
    b"0.1",
    b"[]",
    b"{}",
    b'[{"a":1}]',
    b"[" * 3000,
    b'{"a":' * 3000,
    b'""',
    b'"\\ud800"',
    b'"\\u0000"',
    b'"' + b"x" * 70_000 + b'"',
    "\u2028µ\u0663".encode(),
    b"\xff\xfe",
    b"\0",
    b"9999-12-31 23:59:59",
    b"0000-00-00 99:99:99",
    b"2026-03-01T09:30:00.000000000+99:99",
    b"1969-12-31 23:59:59",
    b"\n",
    b"\r\n\r\n",
    b",,,,,,",
    b'"',
]


@st.composite
def mutations(draw):
    """A few changes, each by a place in the file and what to do there; they fit any file."""
    kinds = st.sampled_from(["token", "token", "token", "cut", "drop", "twice", "bytes", "swap"])
    change = st.tuples(kinds, st.floats(0, 1), st.floats(0, 1), st.sampled_from(HOSTILE))
    return draw(st.lists(change, min_size=1, max_size=4))


def mutated(data: bytes, changes) -> bytes:
    for kind, one, two, hostile in changes:
        if not data:
            break
        at = min(int(one * len(data)), len(data) - 1)
        lines = data.splitlines(keepends=True)
        first, second = (min(int(place * len(lines)), len(lines) - 1) for place in (one, two))
        if kind == "token":
            found = TOKENS.search(data, at)
            if found:
                data = data[: found.start()] + hostile + data[found.end() :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "bytes":
            data = data[:at] + hostile + data[at:]
        elif kind == "swap":
            lines[first], lines[second] = lines[second], lines[first]
            data = b"".join(lines)
        else:
            lines[first : first + 1] = [] if kind == "drop" else [lines[first]] * 2
            data = b"".join(lines)
    return data


def carried_over(importer, path: Path, folder: Path, log: ImportLog) -> None:
    """All that `import` does with a file."""
    header = importer.header(path)
    assert Header.from_json(header.to_json()) == header
    if gives_events(importer):
        with Recorder(folder / "out.parquet", header) as recorder:
            recorder.write_all(importer.events(path, log))
        assert recorder.rows == log.kept > 0
    else:
        assert write_records(folder / "out.parquet", importer.read(path, log), header) == log.kept > 0
    assert all(line.isprintable() for line in log.summary())


def judged(importer, name: str, data: bytes, strict: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        if name.endswith("-trace.csv"):
            shutil.copy(DATA / name.replace("-trace.csv", "-dataset.json"), folder)
        try:
            carried_over(importer, path, Path(folder), ImportLog(strict=strict))
        except TraceError as error:
            assert str(error).isprintable()  # noqa: PT017
            assert len(str(error)) < 1000  # noqa: PT017
            # Said by the importer, in the words of the source, not by the table it is written to.
            assert not re.search(r"row \d+: column", str(error))  # noqa: PT017


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
@settings(
    max_examples=max(12, settings.default.max_examples // 5),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(changes=mutations(), strict=st.booleans())
def test_a_damaged_file_is_one_line_or_a_table(sample, changes, strict):
    importer = detect(sample)
    judged(importer, sample.name, mutated(sample.read_bytes(), changes), strict)


def shortened(sample: Path) -> bytes:
    """A file of the same format with few rows, so that one of its values is met often."""
    data = sample.read_bytes()
    lines = data.splitlines(keepends=True)
    return b"".join(lines[:40] if sample.suffix == ".json" or sample.suffix == ".prom" else lines[:4])


def swept(sample: Path, cases: int) -> None:
    """One value of the file replaced by one that is hostile, for so many of all such files."""
    importer = detect(sample)
    data = sample.read_bytes() if sample.stat().st_size < 20_000 else shortened(sample)
    tokens = [found.span() for found in TOKENS.finditer(data)]
    first = {}
    for start, end in tokens:
        # Of values that differ in their digits alone, one stands for all.
        before = data[max(0, start - 24) : start]
        first.setdefault(re.sub(rb"[0-9]+", b"0", before + data[start:end]), (start, end))
    chosen = [(span, hostile) for span in first.values() for hostile in HOSTILE]
    for (start, end), hostile in random.Random(0).sample(chosen, min(cases, len(chosen))):
        judged(importer, sample.name, data[:start] + hostile + data[end:], strict=False)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_a_hostile_value_is_one_line_or_a_table(sample):
    swept(sample, 60)


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_many_more_hostile_values_are_one_line_or_a_table(sample):
    swept(sample, 600)


@settings(max_examples=max(40, settings.default.max_examples))
@given(
    sample=st.sampled_from(SAMPLES),
    name=st.sampled_from(sorted(IMPORTERS)),
    changes=st.one_of(st.just([]), mutations()),
)
def test_a_file_of_another_format_is_one_line_or_a_table(sample, name, changes):
    data = mutated(sample.read_bytes(), changes)
    for importer in IMPORTERS.values():
        importer.detect(data[:65_536], sample)
    judged(IMPORTERS[name], sample.name, data, strict=False)


@given(data=st.binary(max_size=200), name=st.sampled_from(sorted(IMPORTERS)))
def test_any_bytes_are_one_line_or_a_table(data, name):
    assert isinstance(IMPORTERS[name].detect(data, DATA), bool)
    judged(IMPORTERS[name], "x-trace.csv.any", data, strict=False)
