"""Which checker judges a trace: the fast one where it pays and is able, else the readable one.

Both give the same report. Nothing compiled is loaded before a trace is long enough for it.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal

from batchspec.replay.checker import Observer, Progress, Waived, check
from batchspec.replay.compiled import available
from batchspec.spec.errors import BatchspecError
from batchspec.spec.profile import Profile
from batchspec.spec.verdict import Report
from batchspec.traces.trace import Trace

Engine = Literal["auto", "reference", "fast"]

SHORT: Final = 20_000
"""`auto` has traces of fewer events judged by the readable checker: loading compiled code takes longer."""

WITHOUT_COMPILER: Final = (
    "numba is not installed, so the readable checker judges, with the same findings, slower "
    "(pip install 'batchspec[fast]')"
)


def check_with(
    engine: Engine,
    trace: Trace,
    profile: Profile | None = None,
    *,
    findings: int = 1,
    rules: Sequence[str] | None = None,
    waived: Waived | None = None,
    progress: Progress | None = None,
    observe: Observer | None = None,
    say: Callable[[str], None] | None = None,
) -> Report:
    """`checker.check` by the engine asked for; `say` is told in one line where that one is not there.

    Whoever observes the books row by row is served by the readable checker. A `waived` that counts
    should have a method `reset`: a trace may have to be begun anew. Raises `TraceError` as `check` does.
    """
    if engine != "reference" and observe is None and (engine == "fast" or trace.num_rows >= SHORT):
        if not available():
            if say is not None:
                say(WITHOUT_COMPILER)
        else:
            report = _fast(trace, profile, findings, rules, waived, progress)
            if report is not None:
                return report
    return check(
        trace, profile, findings=findings, rules=rules, waived=waived, progress=progress, observe=observe
    )


def _fast(
    trace: Trace,
    profile: Profile | None,
    findings: int,
    rules: Sequence[str] | None,
    waived: Waived | None,
    progress: Progress | None,
) -> Report | None:
    from batchspec.replay.fast.session import Session

    session = Session(
        trace, profile, findings=findings, rules=rules, waived=waived, progress=progress, reset=_reset(waived)
    )
    try:
        report = session.report()
    except BatchspecError:
        report = None  # the readable checker comes to the same error, and says it in its own words
    if report is None:
        _reset(waived)()
    return report


def _reset(waived: Waived | None) -> Callable[[], None]:
    reset: Callable[[], None] | None = getattr(waived, "reset", None)
    return (lambda: None) if reset is None else reset
