"""The second door: a scheduler in any language, as a program that answers JSON lines.

The program reads one line of JSON from its standard input for each call and writes one line of JSON to its
standard output. It is started once and serves one run after the other.

    -> {"call": "describe"}
    <- {"limits": {"block_size": [16]}, "variants": [{}]}          both may be left out
    -> {"call": "hello", "profile": {"limits": {"max_seqs": 4, …}, …}}
    <- {"capabilities": {"name": "mine", "blocks": "counts", …}}   a fresh scheduler for a new run
    <- {"refused": "block_size must be 16"}                        it cannot have such sizes or claims
    -> {"call": "add", "request": {"id": "r0", "prompt": [5, 7], "max_tokens": 3, "stop_token": 2,
                                   "priority": 0, "tenant": null, "arrival_ns": 0}}
    <- {}   or   {"refused": "too_long"}
    -> {"call": "abort", "request": "r0"}
    <- {"rows": [{"event": "abort", "request": "r0", "reason": "client"}]}
    -> {"call": "plan"}
    <- {"rows": [{"event": "admit", "request": "r0"}, {"event": "schedule", "request": "r0", "tokens": 2}],
        "waiting": 0, "running": 1, "free_blocks": 7}
    -> {"call": "commit", "pass": 1, "tokens": {"r0": [17]}}
    <- {"rows": [{"event": "finish", "request": "r0", "reason": "length", "output_tokens": 1}]}
    <- {"error": "what went wrong"}                                in answer to any call

Rows have the columns of a trace; `step` and `time_ns` are the harness's. The answers are not trusted: a line
has a longest length, a call a longest time, and what is no answer ends the run with one line that says so.
"""

import json
import os
import selectors
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from batchspec.replay.harness import (
    Capabilities,
    HarnessError,
    Outcome,
    Plan,
    Refused,
    Request,
    Results,
    SchedulerFailed,
)
from batchspec.replay.timelimit import TookTooLong
from batchspec.spec.errors import BatchspecError
from batchspec.spec.events import COLUMNS, Event, RequestId
from batchspec.spec.profile import Profile
from batchspec.traces.text import nearest, one_line, shown

LONGEST_LINE: Final = 8 << 20
"""Bytes of an answer; more is no answer."""

START_S: Final = 60.0
"""How long a program may take from its start to its first answer, in seconds, whatever a call may take."""

_TAIL: Final = 2000
_COUNTERS: Final = ("free_blocks", "waiting", "running", "pinned_blocks", "shared_blocks")
_WORDS: Final = {str: "a text", int: "a whole number", bool: "true or false"}
_CAPABILITIES: Final = frozenset(Capabilities.__dataclass_fields__)


class Program:
    """A running program, and one exchange of lines at a time."""

    def __init__(self, words: Sequence[str], call_s: float) -> None:
        """Not started yet. No exchange may take longer than `call_s` seconds."""
        self.words = list(words)
        self._call_s = call_s
        self._process: subprocess.Popen[bytes] | None = None
        self._said = b""
        self._rest = b""

    def ask(self, **call: Any) -> dict[str, Any]:
        """One call and its answer.

        Raises `SchedulerFailed` where the program has ended or says so itself, `TookTooLong` where it
        does not answer, `HarnessError` for what is no answer; after the last two it is started anew.
        """
        limit = max(START_S, self._call_s) if self._process is None else self._call_s
        process = self._started()
        line = json.dumps(call, separators=(",", ":")).encode() + b"\n"
        try:
            raw = self._exchange(process, line, limit)
            answer = _parsed(raw)
        except (TookTooLong, HarnessError, SchedulerFailed):
            self.close()
            raise
        if "error" in answer:
            raise SchedulerFailed(f"the program answers: {one_line(answer['error'])}")
        return answer

    def close(self) -> None:
        """End the program."""
        process, self._process = self._process, None
        self._rest = self._said = b""
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            try:
                self._process = subprocess.Popen(
                    self.words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                )
            except (OSError, ValueError) as error:
                said = error.strerror if isinstance(error, OSError) else error
                raise HarnessError(f"{shown(self.words[0])} cannot be started ({said})") from error
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                os.set_blocking(stream.fileno(), False)  # type: ignore[union-attr]
        return self._process

    def _exchange(self, process: subprocess.Popen[bytes], line: bytes, limit: float) -> bytes:
        """Write a line and read one, whichever the program is ready for; its standard error is drained."""
        deadline = time.monotonic() + limit
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdin, selectors.EVENT_WRITE)  # type: ignore[arg-type]
            ready.register(process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
            if process.stderr is not None and not process.stderr.closed:
                ready.register(process.stderr, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TookTooLong(limit)
                for key, _ in ready.select(left):
                    stream: Any = key.fileobj
                    if stream is process.stdin:
                        line = self._write(ready, stream, line)
                    elif stream is process.stdout:
                        self._read(process, stream)
                    else:
                        self._listen(ready, stream)
        answer, _, self._rest = self._rest.partition(b"\n")
        return answer

    def _write(self, ready: selectors.BaseSelector, stream: Any, line: bytes) -> bytes:
        try:
            line = line[os.write(stream.fileno(), line[:65536]) :]
        except BlockingIOError:
            return line
        except OSError:
            line = b""  # it reads no more; what it says, or its end, comes from the other pipes
        if not line:
            ready.unregister(stream)
        return line

    def _read(self, process: subprocess.Popen[bytes], stream: Any) -> None:
        with suppress(BlockingIOError):
            more = os.read(stream.fileno(), 1 << 20)
            if not more:
                raise SchedulerFailed(self._ended(process))
            self._rest += more
        if len(self._rest) > LONGEST_LINE:
            raise HarnessError(f"an answer has more than {LONGEST_LINE:,} bytes")

    def _listen(self, ready: selectors.BaseSelector, stream: Any) -> None:
        with suppress(BlockingIOError):
            more = os.read(stream.fileno(), 65536)
            self._said = (self._said + more)[-_TAIL:]
            if not more:
                ready.unregister(stream)

    def _ended(self, process: subprocess.Popen[bytes]) -> str:
        """How it ended, with the last line that it wrote on standard error."""
        if process.stderr is not None:
            with suppress(BlockingIOError, OSError):
                self._said = (self._said + os.read(process.stderr.fileno(), 65536))[-_TAIL:]
        try:
            status = f"with status {process.wait(min(1.0, self._call_s))}"
        except subprocess.TimeoutExpired:
            status = "its output and runs on"
        lines = self._said.decode("utf-8", "replace").strip().splitlines()
        return f"the program has ended {status}" + (f": {one_line(lines[-1])}" if lines else "")


class CommandScheduler:
    """One run of a program behind the protocol."""

    def __init__(self, program: Program, profile: Profile) -> None:
        """Say hello. Raises `HarnessError` where the program refuses the sizes or answers with none."""
        self._program = program
        answer = program.ask(call="hello", profile=profile.to_dict())
        if "refused" in answer:
            raise HarnessError(f"the program refuses: {one_line(answer['refused'])}")
        self.capabilities = _capabilities(answer.get("capabilities"))

    def add(self, request: Request) -> None:
        """A request arrives."""
        answer = self._program.ask(
            call="add",
            request={
                "id": request.id,
                "prompt": list(request.prompt),
                "max_tokens": request.max_tokens,
                "stop_token": request.stop_token,
                "priority": request.priority,
                "tenant": request.tenant,
                "arrival_ns": request.arrival_ns,
            },
        )
        if "refused" in answer:
            raise Refused(one_line(answer["refused"], 40), one_line(answer.get("why", "")))

    def abort(self, request: RequestId) -> Iterable[Event]:
        """The client ends a request."""
        return _rows(self._program.ask(call="abort", request=request))

    def plan(self) -> Plan:
        """Decide the next iteration."""
        answer = self._program.ask(call="plan")
        return Plan(_rows(answer), **_counters(answer))

    def commit(self, results: Results) -> Outcome:
        """Take the results of a pass."""
        tokens = {str(name): list(ids) for name, ids in results.tokens.items()}
        answer = self._program.ask(call="commit", tokens=tokens, **{"pass": results.pass_})
        return Outcome(_rows(answer), **_counters(answer))


class CommandFactory:
    """A factory of schedulers from a program's words. `close` ends the program."""

    def __init__(self, words: Sequence[str], call_s: float = 20.0) -> None:
        """Start the program and ask what it can have. Raises `HarnessError` where it cannot be started."""
        if not words:
            raise HarnessError("name a program, as in --command 'python3 scheduler.py'")
        self.program = Program(words, call_s)
        answer: Mapping[str, Any] = {}
        try:
            answer = self.program.ask(call="describe")
        except TookTooLong as late:
            raise HarnessError(f"{shown(words[0])} does not answer: {late}") from None
        except SchedulerFailed as failed:
            if "the program answers" not in str(failed):
                raise HarnessError(f"{shown(words[0])}: {failed}") from None
        self.limits = _sizes(answer.get("limits", {}))
        self.variants = _variants(answer.get("variants", []))
        if not self.variants:
            del self.variants

    def __call__(self, profile: Profile) -> CommandScheduler:
        """A fresh scheduler."""
        return CommandScheduler(self.program, profile)

    def close(self) -> None:
        """End the program."""
        self.program.close()


# -- answers ---------------------------------------------------------------------------------------


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise HarnessError(f"an answer is no JSON: {shown(raw[:60].decode('utf-8', 'replace'))}") from error
    if not isinstance(answer, dict):
        raise HarnessError(f"an answer must be a JSON object, not {type(answer).__name__}")
    return answer


def _rows(answer: Mapping[str, Any]) -> list[Event]:
    rows = answer.get("rows", [])
    if not isinstance(rows, list):
        raise HarnessError(f"rows must be a list, not {type(rows).__name__}")
    return [_row(row) for row in rows]


def _row(row: Any) -> Event:
    if not isinstance(row, dict) or not isinstance(row.get("event"), str):
        raise HarnessError("a row must be an object with an event")
    values: dict[str, Any] = {}
    for key, value in row.items():
        if key not in COLUMNS:
            raise HarnessError(f"a row has no column {shown(key)}{nearest(str(key), COLUMNS)}")
        if key in ("step", "time_ns"):
            continue
        values["pass_" if key == "pass" else key] = tuple(value) if isinstance(value, list) else value
    return Event(0, **values)


def _counters(answer: Mapping[str, Any]) -> dict[str, int | None]:
    found = {}
    for name in _COUNTERS:
        value = answer.get(name)
        if value is not None and (type(value) is not int or abs(value) >= 2**63):
            raise HarnessError(f"{name} must be a whole number, not {shown(value)}")
        found[name] = value
    return found


def _capabilities(data: Any) -> Capabilities:
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise HarnessError("the answer to hello must have capabilities with a name")
    for key in data:
        if key not in _CAPABILITIES:
            raise HarnessError(f"there is no capability {shown(key)}{nearest(str(key), _CAPABILITIES)}")
    for key, value in data.items():
        kind = {"name": str, "version": str, "blocks": str, "outputs": str, "depth": int}.get(key, bool)
        if type(value) is not kind:
            raise HarnessError(f"capability {key} must be {_WORDS[kind]}, not {shown(value)}")
    made = Capabilities(**{**data, "name": one_line(data["name"], 80)})
    if made.blocks not in ("none", "counts", "ids") or made.outputs not in ("derived", "recorded", "late"):
        raise HarnessError("capabilities: blocks is none, counts or ids; outputs derived, recorded or late")
    if not 1 <= made.depth <= 16:
        raise HarnessError("capabilities: depth is a number from 1 to 16")
    return made


def _sizes(data: Any) -> dict[str, list[int]]:
    if not isinstance(data, dict):
        raise HarnessError("the answer to describe: limits must be an object of lists")
    try:
        for name, values in data.items():
            for value in values:
                Profile.from_dict({"limits": {name: value}}, "describe")
    except (BatchspecError, TypeError) as error:
        raise HarnessError(f"the answer to describe: {error}") from error
    return {name: list(values) for name, values in data.items() if values}


def _variants(data: Any) -> list[dict[str, Any]]:
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise HarnessError("the answer to describe: variants must be a list of claims")
    for item in data:
        try:
            Profile.from_dict(item, "describe: variants")
        except BatchspecError as error:
            raise HarnessError(str(error)) from error
    return data
