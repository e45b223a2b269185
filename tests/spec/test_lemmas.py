"""The bounds of fairness: proved, false without what they rest on, and true of the counters of the spec."""

import random
from importlib.util import find_spec

import pytest

from batchspec.spec.counters import token_counter
from batchspec.spec.deficits import deficits
from batchspec.spec.induction import Numbers
from batchspec.spec.lemma import Lemma
from batchspec.spec.lemmas import lemmas
from batchspec.spec.policies import FairShares

PLAIN = Numbers()
solver = pytest.mark.skipif(find_spec("z3") is None, reason="needs the extra prove")


def proofs(lemma: Lemma):
    from batchspec.spec.prove import prove_lemma

    return list(prove_lemma(lemma))


@solver
@pytest.mark.parametrize("lemma", lemmas(4), ids=lambda lemma: f"{lemma.id}, {lemma.parties}")
def test_every_claim_is_kept_by_every_step(lemma):
    parts = proofs(lemma)

    assert [part for part in parts if not part.kept] == []
    assert len(parts) == len(lemma.claims) * (len(lemma.steps) + 1)


@solver
@pytest.mark.parametrize(
    ("lemma", "claim", "step"),
    [
        (token_counter(2, lift=False), "counter gap U", "enter 0"),
        (token_counter(2, empty_case=False), "ahead of who waits", "enter 0"),
        (deficits(2, resets=True), "nothing is lost", "pass 0"),
    ],
    ids=["no lift", "no empty case", "deficit lost"],
)
def test_without_what_it_rests_on_a_step_leads_out(lemma, claim, step):
    (broken,) = [part for part in proofs(lemma) if not part.kept and (part.claim, part.move) == (claim, step)]

    assert broken.values is not None
    (taken,) = [one for one in lemma.steps if one.name == step]
    given = tuple(broken.values[choice] for choice in taken.choices)
    assert taken.guard(PLAIN, broken.values, given)
    assert all(holds(PLAIN, broken.values) for holds in lemma.claims.values())
    assert not lemma.claims[claim](PLAIN, taken.effect(PLAIN, broken.values, given))


class Follower:
    """A state of a lemma in numbers that takes steps, each guard and each claim asked."""

    def __init__(self, lemma: Lemma, **sizes: int) -> None:
        self.lemma, self.at = lemma, {**sizes, **lemma.start}
        self.steps = {step.name: step for step in lemma.steps}

    def take(self, name: str, *given: int) -> None:
        step = self.steps[name]
        assert step.guard(PLAIN, self.at, given), (name, given, self.at)
        self.at = step.effect(PLAIN, self.at, given)
        broken = [claim for claim, holds in self.lemma.claims.items() if not holds(PLAIN, self.at)]
        assert broken == [], (name, given, self.at)


@pytest.mark.parametrize("seed", range(20))
def test_the_counters_of_the_spec_take_the_steps_of_the_lemma(seed):
    """A server with full reservation: whatever it does to `FairShares` is a step of the lemma."""
    rng = random.Random(seed)
    names, memory, w_p, w_q = "xyz", 12, rng.randint(1, 2), 2
    shares = FairShares(w_p=w_p, w_q=w_q)
    follower = Follower(token_counter(len(names)), U=w_q * memory)
    queue: list[tuple[int, int, int]] = []
    running: list[list[int]] = []

    def agree() -> None:
        for number, name in enumerate(names):
            assert shares.counter(name) == follower.at[f"counter{number}"]

    for _ in range(120):
        for _ in range(rng.choice((0, 0, 1, 2))):
            one = rng.randrange(len(names))
            queue.append((one, rng.randint(1, 5), rng.randint(1, 4)))
            shares.enter(names[one])
            follower.take(f"enter {one}")
        if queue and rng.random() < 0.1:
            one, _, _ = queue.pop(rng.randrange(len(queue)))
            shares.leave(names[one])
            follower.take(f"leave {one}")
        while queue:
            least = min(queue, key=lambda request: shares.counter(names[request[0]]))
            one, prompt, most = least
            if sum(p + m for _, p, m, _ in running) + prompt + most > memory:
                break
            queue.remove(least)
            running.append([one, prompt, most, most])
            shares.leave(names[one])
            shares.admit(names[one], prompt)
            follower.take(f"admit {one}", w_p * prompt, w_q * most, w_q * (prompt + most))
        for request in running:
            shares.emit(names[request[0]], 1)
            request[3] -= 1
        shares.end_step()
        for request in running:
            follower.take(f"emit {request[0]}", w_q)
        for one, prompt, most, left in [r for r in running if not r[3] or rng.random() < 0.2]:
            running.remove([one, prompt, most, left])
            follower.take(f"end {one}", w_q * left, w_q * (prompt + most))
        agree()
    assert max(follower.at[f"counter{one}"] for one in range(len(names))) > 4 * w_q * memory


@pytest.mark.parametrize("seed", range(10))
def test_round_robin_as_it_is_written_takes_the_steps_of_the_lemma(seed):
    """Shreedhar and Varghese, figure 2, with queues that never run dry."""
    rng = random.Random(seed)
    flows, quantum, largest = 3, rng.randint(1, 9), rng.randint(1, 9)
    follower = Follower(deficits(flows), Q=quantum, L=largest)
    deficit, sent = [0] * flows, [0] * flows
    heads = [rng.randint(1, largest) for _ in range(flows)]
    for _ in range(60):
        for flow in range(flows):
            deficit[flow] += quantum
            follower.take(f"turn {flow}")
            while heads[flow] <= deficit[flow]:
                deficit[flow] -= heads[flow]
                sent[flow] += heads[flow]
                follower.take(f"send {flow}", heads[flow])
                heads[flow] = rng.randint(1, largest)
            follower.take(f"pass {flow}", heads[flow])
            assert (deficit[flow], sent[flow]) == (
                follower.at[f"deficit{flow}"],
                follower.at[f"sent{flow}"],
            )
