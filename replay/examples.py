"""The examples of the rules, judged: what a check says of the traces that spec/examples/ keeps."""

from batchspec.replay.checker import check
from batchspec.replay.claims import claimed
from batchspec.spec.catalogue import RULES
from batchspec.spec.verdict import Report
from batchspec.traces.scenario import parse_scenario
from batchspec.traces.trace import Trace


def judged(text: str, rule_id: str) -> tuple[Trace, Report]:
    """A trace in text form and its report under its own claims, as `batchspec check` would give it.

    A rule that is judged on request only is asked for, and alone.
    """
    trace = parse_scenario(text, "scenario.txt")
    header = trace.header
    claims = claimed(header.profile, header.config) if header else None
    return trace, check(trace, claims, rules=(rule_id,) if RULES[rule_id].opt_in else None)
