"""The bounds of deficit round robin as a lemma (Shreedhar and Varghese, SIGCOMM'95).

For a fixed number of flows that are all backlogged, one quantum Q for all, packets of at most L; Q and L are
open, and so are the sizes of packets and the number of rounds. Turn by turn a flow is granted Q and sends
while the head of its queue is within its deficit. `rounds` is what each was granted in all full rounds.
"""

from functools import partial

from batchspec.spec.induction import Logic, Row, Term
from batchspec.spec.lemma import NOBODY, Claim, Lemma, Step, Values, with_values, within


def deficits(flows: int, *, resets: bool = False) -> Lemma:
    """The lemma for backlogged flows. It is false if a flow that cannot send `resets` its deficit."""
    start = {f"{row}{one}": 0 for one in range(flows) for row in ("deficit", "granted", "sent")}
    start |= {"next": 0, "turn": NOBODY, "rounds": 0}
    steps = []
    for one in range(flows):
        steps += [
            Step(f"turn {one}", partial(_may_turn, one), partial(_turn, one)),
            Step(f"send {one}", partial(_may_send, one), partial(_send, one), ("size",)),
            Step(f"pass {one}", partial(_may_pass, one), partial(_pass, flows, one, resets), ("size",)),
        ]
    claims: dict[str, Claim] = {
        "amounts": partial(_turns, flows),
        "nothing is lost": lambda logic, at: logic.all(
            [at[f"deficit{one}"] == at[f"granted{one}"] - at[f"sent{one}"] for one in range(flows)]
        ),
        "rounds": partial(_rounds, flows),
        "deficit below L": lambda logic, at: logic.all(
            [logic.any([at["turn"] == one, at[f"deficit{one}"] < at["L"]]) for one in range(flows)]
        ),
        "service of a flow": partial(_share, flows),
        "service gap Q + L": lambda logic, at: logic.all(
            [
                within(logic, at[f"sent{one}"] - at[f"sent{two}"], at["Q"] + at["L"])
                for one in range(flows)
                for two in range(one)
            ]
        ),
    }
    sentence = (
        "Of backlogged flows a deficit stays below the longest packet L after a turn, and service differs by "
        "at most Q + L."
    )
    return Lemma("fairness/deficit", f"{flows} flows", sentence, ("Q", "L"), start, steps, claims)


def _may_turn(one: int, logic: Logic, at: Values, given: Row) -> Term:
    return logic.all([at["turn"] == NOBODY, at["next"] == one])


def _turn(one: int, logic: Logic, at: Values, given: Row) -> Values:
    more = {f"{row}{one}": at[f"{row}{one}"] + at["Q"] for row in ("deficit", "granted")}
    return with_values(at, turn=one, **more)


def _may_send(one: int, logic: Logic, at: Values, given: Row) -> Term:
    size = given[0]
    return logic.all([at["turn"] == one, size >= 1, size <= at["L"], size <= at[f"deficit{one}"]])


def _send(one: int, logic: Logic, at: Values, given: Row) -> Values:
    size = given[0]
    return with_values(
        at, **{f"deficit{one}": at[f"deficit{one}"] - size, f"sent{one}": at[f"sent{one}"] + size}
    )


def _may_pass(one: int, logic: Logic, at: Values, given: Row) -> Term:
    """The head of its queue is larger than what it has left."""
    size = given[0]
    return logic.all([at["turn"] == one, size >= 1, size <= at["L"], size > at[f"deficit{one}"]])


def _pass(flows: int, one: int, resets: bool, logic: Logic, at: Values, given: Row) -> Values:
    after = with_values(at, turn=NOBODY, next=(one + 1) % flows)
    if one == flows - 1:
        after["rounds"] = at["rounds"] + at["Q"]
    if resets:
        after[f"deficit{one}"] = 0
    return after


def _turns(flows: int, logic: Logic, at: Values) -> Term:
    """The turn is that of the next, or nobody's; nobody sends more than it has."""
    claims = [
        at["next"] >= 0,
        at["next"] < flows,
        logic.any([at["turn"] == NOBODY, at["turn"] == at["next"]]),
    ]
    return logic.all([*claims, *(at[f"deficit{one}"] >= 0 for one in range(flows))])


def _rounds(flows: int, logic: Logic, at: Values) -> Term:
    """Who has had its turn in this round was granted one quantum more than the others."""
    claims = []
    for one in range(flows):
        had = logic.any([at["next"] > one, at["turn"] == one])
        claims.append(at[f"granted{one}"] == at["rounds"] + logic.choose(had, at["Q"], 0))
    return logic.all(claims)


def _share(flows: int, logic: Logic, at: Values) -> Term:
    """Of m full rounds a flow has sent more than m Q - L, and in the one under way at most Q more."""
    claims = []
    for one in range(flows):
        claims += [at[f"sent{one}"] > at["rounds"] - at["L"], at[f"sent{one}"] <= at["rounds"] + at["Q"]]
    return logic.all(claims)
