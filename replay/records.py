"""The check of request tables (level L0): the same report from one row a request."""

from collections.abc import Sequence

from batchspec.replay.checker import Waived
from batchspec.spec.catalogue import RULES
from batchspec.spec.profile import Profile
from batchspec.spec.rules.requests import RECORD_RULES, Broken, record_missing
from batchspec.spec.verdict import Finding, Report, RuleResult
from batchspec.traces.workload import RecordTable


def check_records(
    table: RecordTable,
    profile: Profile | None = None,
    *,
    findings: int = 1,
    rules: Sequence[str] | None = None,
    waived: Waived | None = None,
) -> Report:
    """Hold a table of requests against the spec. In a finding `step` is None and `row` the record's index.

    The records are held in memory (about 0.4 KB each): order and concurrency are facts about the whole.
    """
    profile = profile or Profile()
    records = list(table.records())
    results: list[RuleResult] = []
    listed: list[Finding] = []
    waivers = 0
    for rule, kind in RULES.items():
        if (rules is None and kind.opt_in) or (rules is not None and rule not in rules):
            continue
        missing = record_missing(rule, profile, table.columns)
        if missing:
            results.append(RuleResult(rule, "not checkable", missing=missing))
            continue
        checked, skipped, broken = RECORD_RULES[rule].judge(records, profile)
        found = [_finding(rule, one, table) for one in broken]
        kept = [finding for finding in found if waived is None or not waived(finding)]
        waivers += len(found) - len(kept)
        listed += kept[:findings]
        results.append(
            RuleResult(
                rule,
                "violates" if kept else "conforms",
                checked=checked,
                violations=len(kept),
                skipped=skipped,
                waived=len(found) - len(kept),
            )
        )
    listed.sort(key=lambda finding: (finding.row is None, finding.row or 0))
    return Report(
        trace=table.path,
        level="L0",
        profile=profile.name,
        config=profile.to_dict(),
        events=len(records),
        steps=0,
        requests=len(records),
        truncated=None,
        rules=tuple(results),
        findings=tuple(listed),
        waived=waivers,
    )


def _finding(rule: str, broken: Broken, table: RecordTable) -> Finding:
    rows = dict.fromkeys(broken.rows)
    names = tuple(next(iter(table.records(row, row + 1))).request for row in rows)
    return Finding(
        rule=rule,
        step=None,
        row=broken.rows[0],
        requests=names,
        expected=broken.expected,
        observed=broken.observed,
        message=broken.message,
    )
