"""Need: how many tokens, and so how many KV blocks, a request asks for under `admission.test` and `reserve`.

Notation: known length n = p + o, tokens that are still allowed m = max_tokens - o. The values are
those of the profile: `step` (what this step computes), `known` (all of n), `known+k`, `full` (n + m),
`ratio` and `peak` (what is predicted for the whole life, at least n).
"""

from batchspec.spec.profile import Profile, parse_need


def blocks_for(tokens: int, block_size: int) -> int:
    """Blocks of `block_size` positions that hold `tokens` positions: ceil(tokens / block_size)."""
    return -(-tokens // block_size)


def need_tokens(
    need: str, *, known: int, step_end: int, allowed: int | None, predicted: int | None = None
) -> int | None:
    """Positions that must have a home under `need`; None where the need cannot be known.

    `known` is n. `step_end` is the last position of this step's part, exclusive: resident positions
    plus the tokens of the step. `allowed` is m, None where max_tokens is unknown. `predicted` is the
    length that the request is predicted to reach, prompt included; `ratio` and `peak` need it.
    """
    word, extra = parse_need(need)
    if word == "step":
        return step_end
    if word == "known":
        return known + extra
    if word == "full":
        return None if allowed is None else known + allowed
    return None if predicted is None else max(known, predicted)


def least_need(profile: Profile, prompt: int, max_tokens: int | None) -> int | None:
    """The fewest positions a request must ever have room for to get anywhere: p, under `known+k` and
    `full` (of test or reserve) that many tokens. None where it cannot be known."""
    least: int | None = prompt
    for need in (profile.admission.test, profile.admission.reserve):
        if need is None or least is None:
            continue
        if parse_need(need)[0] == "full" and max_tokens is None:
            return None
        tokens = need_tokens(need, known=prompt, step_end=prompt, allowed=max_tokens)
        least = least if tokens is None else max(least, tokens)
    return least


def never_fits(profile: Profile, prompt: int, max_tokens: int | None) -> str | None:
    """Why a request can never run under these limits, in words; None where it can or nobody knows.

    It can not where its least need is over the pool, its prompt fills the model's length, or,
    without chunked prefill, its prompt is over the token budget. One whose max_tokens alone could
    outgrow the pool may still run, except where the need counts them (`full`).
    """
    limits = profile.limits
    if limits.max_model_len is not None and prompt >= limits.max_model_len:
        return f"prompt {prompt} leaves no room below max_model_len {limits.max_model_len}"
    whole = profile.batching.chunked_prefill is False
    if whole and limits.token_budget is not None and prompt > limits.token_budget:
        return f"prompt {prompt} is over the token budget {limits.token_budget}, and is not chunked"
    least = least_need(profile, prompt, max_tokens)
    if least is not None and limits.kv_blocks is not None and limits.block_size is not None:
        blocks = blocks_for(least, limits.block_size)
        if blocks > limits.kv_blocks:
            return f"needs {blocks} blocks of {limits.kv_blocks}"
    return None
