"""The case: one run to be driven, limits and requests, as plain data that can be written down and shrunk."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batchspec.replay.drive import Script
from batchspec.replay.harness import HarnessError, Request
from batchspec.spec.events import RequestId
from batchspec.spec.need import never_fits
from batchspec.spec.profile import Profile, parse_need

STOP: int = 2
"""The stop token of every request; no other output has this id."""


@dataclass(frozen=True, slots=True)
class Case:
    """A profile with its limits, and what happens under it. Scripts are in order of arrival."""

    profile: Profile
    scripts: tuple[Script, ...]

    @property
    def size(self) -> tuple[int, ...]:
        """How much there is to read, for "smaller": requests, tokens, arrival, oddities, limits."""
        limits = self.profile.limits
        tokens = sum(len(script.request.prompt) + script.outputs for script in self.scripts)
        odd = sum(
            (script.abort_ns is not None) + (script.request.priority != 0) + bool(script.request.tenant)
            for script in self.scripts
        )
        last = max((script.request.arrival_ns for script in self.scripts), default=0)
        sizes = (limits.max_seqs, limits.token_budget, limits.kv_blocks, limits.block_size)
        return (len(self.scripts), tokens, odd, last, sum(size or 0 for size in sizes))


def longest(profile: Profile) -> int:
    """The most tokens (prompt and outputs) that a request may come to, so that it can run to its end.

    Alone in the pool it finds room for all of them, a preempted one can be built up again, and nothing
    reaches past the model's length.
    """
    limits = profile.limits
    bounds = [limits.max_model_len or 1 << 40]
    if limits.kv_blocks is not None and limits.block_size is not None:
        extra = max(
            parse_need(need)[1] if need is not None and need.startswith("known+") else 0
            for need in (profile.admission.test, profile.admission.reserve)
        )
        bounds.append(limits.kv_blocks * limits.block_size - extra)
    if not profile.batching.chunked_prefill and limits.token_budget is not None:
        bounds.append(limits.token_budget)
    return min(bounds)


def permitted(case: Case) -> bool:
    """Whether the profile permits every request of the case: each could run to its end alone."""
    most = longest(case.profile)
    names = [script.request.id for script in case.scripts]
    arrivals = [script.request.arrival_ns for script in case.scripts]
    return (
        len(set(names)) == len(names)
        and arrivals == sorted(arrivals)
        and all(_whole(script, most, case.profile) for script in case.scripts)
    )


def _whole(script: Script, most: int, profile: Profile) -> bool:
    request = script.request
    prompt = len(request.prompt)
    return (
        prompt >= 1
        and 1 <= script.outputs <= request.max_tokens
        and prompt + request.max_tokens <= most
        and never_fits(profile, prompt, request.max_tokens) is None
    )


# -- as text ---------------------------------------------------------------------------------------


def case_text(case: Case) -> str:
    """The case as JSON."""
    data = {
        "profile": case.profile.name,
        "claims": case.profile.to_dict(),
        "requests": [script_data(script) for script in case.scripts],
    }
    return json.dumps(data, indent=1)


def script_data(script: Script) -> dict[str, Any]:
    """One request and what becomes of it, as plain data."""
    request = script.request
    data: dict[str, Any] = {
        "id": request.id,
        "arrival_ns": request.arrival_ns,
        "prompt": list(request.prompt),
        "max_tokens": request.max_tokens,
        "outputs": script.outputs,
    }
    if request.priority:
        data["priority"] = request.priority
    if request.tenant is not None:
        data["tenant"] = request.tenant
    if script.abort_ns is not None:
        data["abort_ns"] = script.abort_ns
        data["abort_in_flight"] = script.abort_in_flight
    if script.accept:
        data["accept"] = script.accept
    return data


def parse_case(text: str) -> Case:
    """A case from its JSON. Raises `HarnessError` where it is none."""
    try:
        data = json.loads(text)
        profile = Profile.from_dict(
            {**data["claims"], **({"name": data["profile"]} if data["profile"] else {})}
        )
        return Case(profile, tuple(_script(item) for item in data["requests"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise HarnessError(f"not a case of the suite ({type(error).__name__}: {error})") from error


def _script(data: Mapping[str, Any]) -> Script:
    return Script(
        request_of(
            data["id"],
            tuple(data["prompt"]),
            data["max_tokens"],
            priority=data.get("priority", 0),
            tenant=data.get("tenant"),
            arrival_ns=data["arrival_ns"],
        ),
        data["outputs"],
        abort_ns=data.get("abort_ns"),
        abort_in_flight=data.get("abort_in_flight", False),
        accept=data.get("accept", 0),
    )


def request_of(
    name: RequestId,
    prompt: tuple[int, ...],
    max_tokens: int,
    *,
    priority: int = 0,
    tenant: str | None = None,
    arrival_ns: int = 0,
) -> Request:
    """A request of the suite: they all have the same stop token."""
    return Request(name, prompt, max_tokens, STOP, priority, tenant, arrival_ns)


def prompt_of(number: int, tokens: int, shared: int = 0, template: int = 0) -> tuple[int, ...]:
    """`tokens` token ids, the first `shared` of them those of a template, the others like nobody else's."""
    head = [100 + template * 1000 + index for index in range(min(shared, tokens))]
    return (*head, *(10_000 + (number * 997 + index) % 18_000 for index in range(len(head), tokens)))
