import pytest
import torch

from batchspec.engine.errors import EngineError
from batchspec.engine.sampler import GREEDY, Sampling, margins, sample


def test_greedy_takes_the_best_and_the_margin_says_by_how_much() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [5.0, 2.0, 4.5]])
    assert sample(logits, [(GREEDY, 0), (GREEDY, 7)]) == [1, 0]
    assert margins(logits) == [2.0, 0.5]


def test_a_drawn_token_depends_on_seed_and_position_alone() -> None:
    logits = torch.zeros(1, 1000)
    other = torch.randn(3, 1000)
    drawn = Sampling(temperature=1.0, seed=4)
    alone = [sample(logits, [(drawn, emitted)])[0] for emitted in range(20)]
    batch = torch.cat([other, logits])
    assert alone == [sample(batch, [(GREEDY, 0)] * 3 + [(drawn, at)])[3] for at in range(20)]
    assert len(set(alone)) > 15


def test_draws_follow_the_distribution_and_its_cuts() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -5.0]])
    weights = logits[0].exp() / logits[0].exp().sum()
    counts = torch.zeros(4)
    for seed in range(2000):
        counts[sample(logits, [(Sampling(1.0, seed=seed), 0)])[0]] += 1
    assert (counts / 2000 - weights).abs().max() < 0.04
    top = {sample(logits, [(Sampling(1.0, top_k=2, seed=seed), 0)])[0] for seed in range(200)}
    assert top == {1, 2}
    head = {sample(logits, [(Sampling(1.0, top_p=0.5, seed=seed), 0)])[0] for seed in range(200)}
    assert head == {2}


def test_what_is_no_distribution_is_refused() -> None:
    for bad in ({"temperature": -1.0}, {"top_k": -1}, {"top_p": 0.0}):
        with pytest.raises(EngineError):
            Sampling(**bad)  # type: ignore[arg-type]
