"""Settings of the whole suite: the long runs' flag, and how many examples a property test tries."""

from importlib.util import find_spec

import pytest
from hypothesis import settings

# Both profiles are derandomized: the same examples at every run and on every machine.
settings.register_profile("suite", derandomize=True, deadline=None, database=None, max_examples=100)
settings.register_profile("long", derandomize=True, deadline=None, database=None, max_examples=2000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the long tests, with more examples each")
    parser.addoption("--rewrite", action="store_true", help="write what the scenarios now come out as")


def pytest_report_header() -> list[str]:
    if find_spec("torch"):
        return []
    return ["torch is not installed, so the engine's tests are left out: make test installs it"]


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--hypothesis-profile", None):
        settings.load_profile("long" if config.getoption("--long") else "suite")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="a long run: give --long"))
