"""The suite: directed cases, input outside the contract, the search; then every finding made small."""

from collections.abc import Callable

from batchspec.replay.checker import Waived
from batchspec.replay.conform.judge import CALL_S
from batchspec.replay.conform.result import Result
from batchspec.replay.conform.search import (
    EXAMPLES,
    SHRINK_RUNS,
    Subject,
    Tally,
    direct,
    repeat,
    search,
    settled,
)
from batchspec.replay.harness import Factory
from batchspec.spec.profile import Profile


def conform(
    factory: Factory,
    claims: Profile,
    *,
    subject: str = "",
    examples: int = EXAMPLES,
    seed: int = 0,
    shrink_runs: int = SHRINK_RUNS,
    waived: Waived | None = None,
    strict: bool = False,
    call_s: float | None = CALL_S,
    ran: Callable[[int], None] | None = None,
) -> Result:
    """Run the whole suite on the schedulers that a factory makes, under these claims.

    `subject` is what the factory is called on a command line, `ran` is called after each run with the rows
    so far. Same factory, claims, seed and examples: the same result. Raises `HarnessError` where nothing
    can be run.
    """
    under_test = Subject(factory, claims, waived=waived, call_s=call_s)
    tally = Tally(ran=ran)
    direct(under_test, tally)
    repeat(under_test, tally)
    search(under_test, tally, examples=examples, seed=seed)
    found = settled(under_test, tally, shrink_runs=shrink_runs)
    shows = under_test.shows[0]
    return Result(
        scheduler=shows.name,
        version=shows.version,
        subject=subject,
        profile=claims.name,
        claims=claims.to_dict(),
        level=tally.level,
        seed=seed,
        examples=examples,
        runs=tally.runs,
        refused=tally.refused,
        events=tally.rows,
        steps=tally.steps,
        requests=tally.requests,
        rules=tuple(tally.rules.values()),
        found=tuple(found),
        coverage=tally.coverage,
        waived=sum(result.waived for result in tally.rules.values()),
        strict=strict,
    )
