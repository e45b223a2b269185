"""The second door: a program that answers JSON lines, and programs that answer with something else."""

import sys
from pathlib import Path

import pytest

from batchspec.replay.conform.search import Subject, Tally, direct, search
from batchspec.replay.conform.subjects import factory_of
from batchspec.replay.drive import Script, attempt
from batchspec.replay.harness import HarnessError, Request
from batchspec.replay.jsonlines import CommandFactory
from batchspec.spec.library import load_profile
from batchspec.spec.profile import Profile

PROGRAM = Path(__file__).parent / "programs" / "scheduler.py"
LIMITS = {"max_seqs": 2, "token_budget": 16, "kv_blocks": 8, "block_size": 4}
HELLO = '{"capabilities": {"name": "odd"}}'


def odd(answers: str, call_s: float = 5.0) -> CommandFactory:
    """A program that answers the calls hello, add, plan … with these lines of Python."""
    code = f"""
import json, sys, time
for line in sys.stdin:
    call = json.loads(line)["call"]
    if call == "describe": print("{{}}", flush=True)
    elif call == "hello": print('{HELLO}', flush=True)
    elif call == "add": print("{{}}", flush=True)
    else:
        {answers}
"""
    return CommandFactory([sys.executable, "-c", code], call_s)


def run_of(factory: CommandFactory):
    profile = load_profile("orca").merged(Profile.from_dict({"limits": LIMITS}))
    script = Script(Request("A", (5, 6, 7), 2, 2), 2)
    try:
        return attempt(factory(profile), [script], profile)
    finally:
        factory.close()


def test_the_example_program_conforms():
    factory = CommandFactory([sys.executable, str(PROGRAM)])
    try:
        subject = Subject(factory, load_profile("orca"), call_s=None)
        tally = Tally()
        direct(subject, tally)
        search(subject, tally, examples=15)
    finally:
        factory.close()

    assert {rule: one[0].broken[rule].message for rule, one in tally.broken.items()} == {}
    assert tally.level == "L2"
    assert tally.requests > 150


def test_a_name_on_the_command_line_may_be_a_program():
    factory = factory_of(f"command:{sys.executable} {PROGRAM}")
    try:
        assert factory(load_profile("orca").merged(Profile.from_dict({"limits": LIMITS}))).plan().rows == []
    finally:
        factory.close()


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ('print("no json", flush=True)', 'an answer is no JSON: "no json"'),
        ('print("[1]", flush=True)', "an answer must be a JSON object, not list"),
        ('print("[" * 100000, flush=True)', "an answer is no JSON"),
        ("print('{\"rows\": 3}', flush=True)", "rows must be a list, not int"),
        ("print('{\"rows\": [{}]}', flush=True)", "a row must be an object with an event"),
        (
            'print(\'{"rows": [{"event": "admit", "requst": "A"}]}\', flush=True)',
            "a row has no column \"requst\" (did you mean 'request'?)",
        ),
        (
            'print(\'{"rows": [{"event": "schedule", "request": "A", "tokens": "3"}]}\', flush=True)',
            "a plan: schedule: tokens must be a whole number, not '3'",
        ),
        (
            'print(\'{"rows": [{"event": "arrive", "request": "A"}]}\', flush=True)',
            "a plan cannot hold a row of the kind 'arrive'",
        ),
        ("print('{\"free_blocks\": 1e400}', flush=True)", "free_blocks must be a whole number, not Infinity"),
        ('sys.stdout.write("x" * (9 << 20)); sys.stdout.flush()', "an answer has more than 8,388,608 bytes"),
    ],
)
def test_what_is_no_answer_ends_the_run_with_one_line(answers, said):
    run = run_of(odd(answers))

    assert run.broken is not None
    assert run.broken.startswith(said)
    assert "\n" not in run.broken


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ("sys.exit(3)", "the program has ended with status 3"),
        ('raise KeyError("slot")', "the program has ended with status 1: KeyError: 'slot'"),
        ('print(\'{"error": "no block left"}\', flush=True)', "the program answers: no block left"),
        ("sys.stderr.write('x' * 1000000); sys.exit(4)", "the program has ended with status 4: xxx"),
    ],
)
def test_a_program_that_fails_is_a_crash(answers, said):
    run = run_of(odd(answers))

    assert run.crash is not None
    assert run.crash.startswith(said)


def test_a_program_that_does_not_answer_hangs():
    run = run_of(odd("time.sleep(60)", call_s=1.5))

    assert run.hung == "plan() did not return within 1.5 s"


def test_a_program_that_answers_bit_by_bit_hangs_too():
    run = run_of(odd("while True: sys.stdout.write('x'); sys.stdout.flush(); time.sleep(0.01)", call_s=1.5))

    assert run.hung == "plan() did not return within 1.5 s"


def test_a_program_is_started_anew_after_it_failed():
    factory = odd("sys.exit(3)")
    profile = load_profile("orca").merged(Profile.from_dict({"limits": LIMITS}))
    script = Script(Request("A", (5, 6, 7), 2, 2), 2)
    try:
        runs = [attempt(factory(profile), [script], profile) for _ in range(2)]
    finally:
        factory.close()

    assert [run.crash for run in runs] == ["the program has ended with status 3"] * 2


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        ("{}", "the answer to hello must have capabilities with a name"),
        (
            '{"capabilities": {"name": "x", "dept": 2}}',
            "there is no capability \"dept\" (did you mean 'depth'?)",
        ),
        ('{"capabilities": {"name": "x", "depth": "2"}}', 'capability depth must be a whole number, not "2"'),
        ('{"capabilities": {"name": "x", "depth": 99}}', "capabilities: depth is a number from 1 to 16"),
        ('{"refused": "blocks of 16 only"}', "the program refuses: blocks of 16 only"),
    ],
)
def test_a_hello_that_is_none_is_refused(hello, said):
    code = f"import sys\nfor line in sys.stdin: print('{hello}' if 'hello' in line else '{{}}', flush=True)"
    factory = CommandFactory([sys.executable, "-c", code])
    try:
        with pytest.raises(HarnessError) as raised:
            factory(Profile())
    finally:
        factory.close()

    assert str(raised.value) == said


def test_sizes_and_variants_come_from_the_program():
    code = """
import sys
for line in sys.stdin:
    print('{"limits": {"block_size": [16]}, "variants": [{}, {"reuse": {"prefix": true}}]}', flush=True)
"""
    factory = CommandFactory([sys.executable, "-c", code])
    factory.close()

    assert factory.limits == {"block_size": [16]}
    assert factory.variants == [{}, {"reuse": {"prefix": True}}]


def test_a_program_that_ends_at_once_is_one_line():
    with pytest.raises(HarnessError, match=r"the program has ended with status 7$"):
        CommandFactory([sys.executable, "-c", "raise SystemExit(7)"])


def test_a_program_that_is_not_there_is_one_line():
    with pytest.raises(HarnessError, match=r"^.no-such-program. cannot be started \(No such file"):
        CommandFactory(["no-such-program"])
