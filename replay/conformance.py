"""The conformance suite as a class for pytest: subclass it in one test file of your own.

    from batchspec.replay.conformance import SchedulerConformance
    from mine import Scheduler

    class TestMine(SchedulerConformance):
        profile = "vllm-v1"

        def scheduler(self, profile):
            return Scheduler(profile)

pytest then runs a test for each rule that the profile claims, all over the same runs: the directed cases,
input outside the contract, and a search. Without pytest: `batchspec conform`.
"""

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, ClassVar

from batchspec.replay.claims import load_config, named_profile
from batchspec.replay.conform.artifacts import write
from batchspec.replay.conform.kinds import ALL_RULES, obligation
from batchspec.replay.conform.result import Result
from batchspec.replay.conform.search import EXAMPLES, Found
from batchspec.replay.conform.suite import conform
from batchspec.replay.harness import Factory, Scheduler
from batchspec.replay.report.conformance import finding_page
from batchspec.replay.report.text import state_of
from batchspec.replay.waivers import Waived, load_waivers
from batchspec.spec.profile import Profile
from batchspec.spec.rule import claimed


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a suite is to be run: what a class says, or the options of pytest in its place."""

    profile: str = "batchspec"
    config: Mapping[str, Any] | str | None = None
    examples: int = EXAMPLES
    seed: int = 0
    strict: bool = False
    waive: str | None = None
    trace_dir: str | None = None

    def claims(self) -> Profile:
        """What the scheduler claims."""
        claims = named_profile(self.profile)
        if isinstance(self.config, str):
            return claims.merged(load_config(self.config))
        return claims.merged(Profile.from_dict(self.config or {}, "config"))

    def rules(self) -> list[str]:
        """The rules that these claims make judged, whatever the trace then lacks."""
        claims = self.claims()
        return [
            rule_id
            for rule_id, rule in ALL_RULES.items()
            if not rule.opt_in and all(claimed(claims, item) for item in rule.premise if _is_policy(item))
        ]

    def run(self, factory: Factory, subject: str) -> Result:
        """The suite, with the files of its findings written."""
        waivers = () if self.waive is None else load_waivers(self.waive)
        result = conform(
            factory,
            self.claims(),
            subject=subject,
            examples=self.examples,
            seed=self.seed,
            waived=Waived(waivers, date.today()) if waivers else None,
            strict=self.strict,
        )
        if self.trace_dir is not None:
            write(result, self.trace_dir)
        return result


def _is_policy(premise: str) -> bool:
    """Sizes are the suite's to choose; only policies are claimed or not."""
    return not premise.startswith("limits.") or premise.startswith("limits.host_blocks")


def verdict_of(result: Result, rule: str, wanted: Wanted) -> None:
    """End a test as the rule came out: pass, fail, xfail (a SHOULD that is broken) or skip."""
    import pytest

    __tracebackhide__ = True
    found = next((one for one in result.found if one.finding.rule == rule), None)
    if found is not None:
        text = failure_text(found, wanted.trace_dir)
        if wanted.strict or obligation(rule) == "MUST":
            pytest.fail(text, pytrace=False)
        pytest.xfail(f"SHOULD, broken: {found.finding.message}")
    judged = next((one for one in result.rules if one.id == rule), None)
    if judged is None or judged.verdict == "not checkable":
        pytest.skip("not checkable: needs " + (", ".join(judged.missing) if judged else "runs of its own"))
    if state_of(judged) == "not exercised":
        pytest.skip("not exercised: no run puts it to the test")


def failure_text(found: Found, files: str | None) -> str:
    """A finding as the text of a failed test."""
    return f"{found.finding.message}\n\n{finding_page(found, files).text()}"


class SchedulerConformance:
    """Base class of a conformance test. Set `profile`, define `scheduler`; the rest has defaults.

    `config` is laid over the profile, in the shape of a profile file, or names one. `waive` is the path of
    a waiver file, `trace_dir` a folder for the files of findings. Options of pytest
    (`--batchspec-examples`, `--batchspec-seed`, `--batchspec-strict`, `--batchspec-waive`,
    `--batchspec-trace-dir`) come before what the class says. A broken SHOULD is an expected failure, under
    `strict` a failure.
    """

    profile: ClassVar[str] = "batchspec"
    config: ClassVar[Mapping[str, Any] | str | None] = None
    examples: ClassVar[int] = EXAMPLES
    seed: ClassVar[int] = 0
    strict: ClassVar[bool] = False
    waive: ClassVar[str | None] = None
    trace_dir: ClassVar[str | None] = None

    conformance_results: ClassVar[dict[str, Result]] = {}
    """What each subclass came to: the suite runs once for all of its tests."""

    def scheduler(self, profile: Profile) -> Scheduler:
        """A fresh scheduler under test for the claims and limits of a run."""
        raise NotImplementedError(f"{type(self).__name__} must define scheduler(self, profile)")

    @classmethod
    def wanted(cls, config: Any = None) -> Wanted:
        """How to run: the class's own settings, and the options of pytest where `config` has them."""
        own = Wanted(cls.profile, cls.config, cls.examples, cls.seed, cls.strict, cls.waive, cls.trace_dir)
        given = {
            name: option_of(config, name) for name in ("examples", "seed", "strict", "waive", "trace_dir")
        }
        given = {name: value for name, value in given.items() if value}
        if "trace_dir" in given:
            given["trace_dir"] = os.path.join(given["trace_dir"], cls.__name__)
        return replace(own, **given)

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """A test for each rule that the profile claims."""
        if "conformance_rule" in metafunc.fixturenames:
            metafunc.parametrize("conformance_rule", metafunc.cls.wanted().rules())

    def test_rule(self, conformance_rule: str, request: Any) -> None:
        """The scheduler keeps this rule in every run of the suite."""
        __tracebackhide__ = True
        cls = type(self)
        wanted = cls.wanted(request.config)
        key = f"{cls.__module__}:{cls.__qualname__}"
        if key not in self.conformance_results:
            subject = f"{inspect.getsourcefile(cls)}:{cls.__qualname__}"
            self.conformance_results[key] = wanted.run(self.scheduler, subject)
        verdict_of(self.conformance_results[key], conformance_rule, wanted)


def option_of(config: Any, name: str) -> Any:
    """The value of one of the plugin's options; None where it was not given, or the plugin is off."""
    return None if config is None else config.getoption(f"batchspec_{name}", None)
