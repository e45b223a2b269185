"""A workload driven into a scheduler under test: its requests, arrivals and lengths instead of drawn ones."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Final

from batchspec.replay.checker import Waived
from batchspec.replay.conform.case import Case, longest, prompt_of, request_of
from batchspec.replay.conform.judge import CALL_S, judge
from batchspec.replay.conform.result import Result
from batchspec.replay.conform.search import Found, Tally
from batchspec.replay.drive import Script
from batchspec.replay.harness import Factory, HarnessError
from batchspec.replay.workload import load_workload
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.traces.recorder import Recorder

SIZES: Final = {"max_seqs": 16, "token_budget": 512, "block_size": 16}
"""Limits of a run where neither profile nor config gives them; the pool then holds four of the longest."""

_VOCABULARY: Final = 28_000


def replayed(
    factory: Factory,
    claims: Profile,
    path: str | Path,
    *,
    limit: int | None = None,
    step_ns: int,
    subject: str = "",
    waived: Waived | None = None,
    call_s: float | None = CALL_S,
    out: Path | None = None,
) -> Result:
    """Drive the first `limit` requests of a workload; each step takes `step_ns` on its clock.

    The trace is written to `out`. Raises `TraceError` for a file that is no workload, `HarnessError`
    where the scheduler cannot have the sizes.
    """
    loaded = load_workload(path)
    records = list(islice(loaded.records, limit))
    if not records:
        raise HarnessError(f"{path}: holds no request")
    profile = _with_sizes(claims, records)
    most = longest(profile)
    scripts = [_script(number, record, loaded.hash_block) for number, record in enumerate(records)]
    kept = [one for one in scripts if len(one.request.prompt) + one.request.max_tokens <= most]
    if not kept:
        raise HarnessError(f"no request of {path} fits the limits: give larger ones with --config")
    judged = judge(factory, Case(profile, tuple(kept)), waived=waived, call_s=call_s, step_ns=step_ns)
    run = judged.run
    if out is not None and run.trace.header is not None:
        with Recorder(out, run.trace.header, overwrite=True) as recorder:
            recorder.write_all(run.trace.events())
            recorder.close(run.trace.complete)
    tally = Tally()
    tally.add(judged, f"workload {Path(path).name}", lambda case: judged)
    found = tuple(
        Found(finding, judged, f"workload {Path(path).name}", 0, 0) for finding in judged.broken.values()
    )
    header = run.trace.header
    return Result(
        scheduler=run.trace.path,
        version=(header.producer_version if header is not None else None) or "",
        subject=subject,
        profile=claims.name,
        claims=profile.to_dict(),
        level=tally.level,
        seed=0,
        examples=0,
        runs=1,
        refused=len(scripts) - len(kept),
        events=tally.rows,
        steps=tally.steps,
        requests=tally.requests,
        rules=tuple(tally.rules.values()),
        found=found,
        coverage=tally.coverage,
        waived=sum(result.waived for result in tally.rules.values()),
    )


def _with_sizes(claims: Profile, records: Iterable[Record]) -> Profile:
    longest_one = max((record.prompt_tokens or 1) + _outputs(record) for record in records)
    sizes = {name: size for name, size in SIZES.items() if getattr(claims.limits, name) is None}
    if not claims.batching.chunked_prefill and "token_budget" in sizes:
        sizes["token_budget"] = max(sizes["token_budget"], longest_one)
    block = claims.limits.block_size or sizes["block_size"]
    if claims.limits.kv_blocks is None:
        sizes["kv_blocks"] = 4 * -(-longest_one // block)
    made = claims.merged(Profile.from_dict({"limits": sizes}, "sizes"))
    if made.limits.max_model_len is None:
        made = made.merged(Profile.from_dict({"limits": {"max_model_len": max(2, longest(made))}}))
    if made.preemption.mode == "swap" and made.limits.host_blocks is None:
        made = made.merged(Profile.from_dict({"limits": {"host_blocks": made.limits.kv_blocks}}))
    return made


def _outputs(record: Record) -> int:
    return max(1, record.max_tokens or record.output_tokens or 1)


def _script(number: int, record: Record, unit: int | None) -> Script:
    outputs = max(1, min(record.output_tokens or 1, _outputs(record)))
    request = request_of(
        record.request,
        _prompt(number, record, unit),
        max(outputs, _outputs(record)),
        priority=record.priority or 0,
        tenant=record.tenant,
        arrival_ns=record.arrival_ns,
    )
    return Script(request, outputs)


def _prompt(number: int, record: Record, unit: int | None) -> tuple[int, ...]:
    """Token ids of the right number; behind equal prefix hashes stand equal tokens."""
    tokens = max(1, record.prompt_tokens or 1)
    head: list[int] = []
    for key in (record.prefix_hashes or ()) if unit else ():
        head += [3 + (key * 31 + index) % _VOCABULARY for index in range(unit or 0)]
        if len(head) >= tokens:
            break
    own = prompt_of(number, tokens)
    return (*head[:tokens], *own[len(head) :])
