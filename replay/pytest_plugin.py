"""The pytest plugin: options of the conformance suite, and the suite itself on `--scheduler`.

    pytest --scheduler mine:make --profile vllm-v1

Loaded in every pytest run of an environment that has batchspec, so it loads nothing else until it is asked.
The short names of options are taken only where neither another plugin nor a conftest has them.
"""

from argparse import ArgumentError
from collections.abc import Generator
from typing import Any

import pytest

_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("--batchspec-scheduler", "--scheduler"),
        {"metavar": "MODULE:FACTORY", "help": "run the conformance suite on this scheduler"},
    ),
    (
        ("--batchspec-profile", "--profile"),
        {"metavar": "NAME", "help": "what that scheduler claims: a shipped profile, or a file"},
    ),
    (
        ("--batchspec-config",),
        {"metavar": "FILE", "help": "limits and policies on top of the profile"},
    ),
    (
        ("--batchspec-examples",),
        {"metavar": "N", "type": int, "help": "cases that each conformance search draws"},
    ),
    (("--batchspec-seed",), {"metavar": "N", "type": int, "help": "same seed, same cases"}),
    (
        ("--batchspec-trace-dir",),
        {"metavar": "DIR", "help": "write scenario, timeline, trace and script of each finding here"},
    ),
    (("--batchspec-waive",), {"metavar": "FILE", "help": "findings that are accepted, with reasons"}),
    (
        ("--batchspec-strict",),
        {"action": "store_true", "help": "a broken SHOULD is a failure as well"},
    ),
)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser
) -> Generator[None, Any, Any]:
    """Add the options last of all, so that a short name that somebody else has stays theirs."""
    result = yield
    group = parser.getgroup("batchspec", "conformance of batch schedulers")
    for names, options in _OPTIONS:
        try:
            group.addoption(*names, default=None, **options)
        except (ArgumentError, ValueError):
            group.addoption(names[0], default=None, **options)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Put a test for each rule before the others, where a scheduler is named."""
    name = config.getoption("batchspec_scheduler", None)
    if name is None:
        return
    from batchspec.replay.conform.subjects import factory_of
    from batchspec.replay.conformance import Wanted, option_of, verdict_of
    from batchspec.spec.errors import BatchspecError

    given = {
        key: value
        for key in ("profile", "config", "examples", "seed", "strict", "waive", "trace_dir")
        if (value := option_of(config, key)) is not None
    }
    wanted = Wanted(**given)
    results: list[Any] = []

    class RuleItem(pytest.Item):
        """One rule over the runs of the suite, which the first of them makes."""

        def runtest(self) -> None:
            if not results:
                try:
                    results.append(wanted.run(factory, name))
                finally:
                    done = getattr(factory, "close", None)
                    if done is not None:
                        done()
            verdict_of(results[0], self.name, wanted)

        def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
            if isinstance(excinfo.value, BatchspecError):
                return f"batchspec: {' '.join(str(excinfo.value).split())}"
            return super().repr_failure(excinfo, style)

        def reportinfo(self) -> tuple[Any, None, str]:
            return self.path, None, f"{name}: {self.name}"

    try:
        rules = wanted.rules()
        factory = factory_of(name)
    except BatchspecError as error:
        raise pytest.UsageError(" ".join(str(error).split())) from None
    items[:0] = [RuleItem.from_parent(session, name=rule, nodeid=f"{name}::{rule}") for rule in rules]
