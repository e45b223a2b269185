"""The bound 2U of the virtual token counter as a lemma (OSDI'24, arXiv 2401.00588, theorem 4.4).

For a fixed number of tenants; lengths, weights, memory and the number of steps are open. Amounts are weighted
tokens. U = w_q M, for w_p ≤ w_q and prompts that fit M. A request that is admitted charges a = w_p p at once,
may charge up to e = w_q m later, and reserves v = w_q (p + m) of the memory U: so v ≥ a + e, and all that is
reserved is at most U. Per tenant: counter c, requests that wait, debt d (what its running requests may still
charge), reserved r. `last` is the tenant that left the queue last. Each tenant's c + d stays within U of the
counter of everybody who waits: that is what a step keeps, and why a token that is emitted changes nothing.
"""

from functools import partial

from batchspec.spec.induction import Logic, Row, Term
from batchspec.spec.lemma import NOBODY, Claim, Lemma, Step, Values, with_values, within


def token_counter(tenants: int, *, lift: bool = True, empty_case: bool = True) -> Lemma:
    """The lemma for at least two tenants; false without the `lift`, or without its case of an empty queue."""
    who = range(tenants)
    zero = {f"{row}{one}": 0 for one in who for row in ("counter", "waits", "debt", "reserved")}
    start = {**zero, "last": NOBODY, "base": 0, "served0": 0, "served1": 0}
    steps = []
    for one in who:
        enter = partial(_enter, tenants, one, lift, empty_case)
        steps += [
            Step(f"enter {one}", _always, enter),
            Step(f"leave {one}", partial(_waits, one), partial(_leave, tenants, one)),
            Step(
                f"admit {one}",
                partial(_may_admit, tenants, one),
                partial(_admit, tenants, one),
                ("input", "output", "reserve"),
            ),
            Step(f"emit {one}", partial(_may_emit, one), partial(_emit, tenants, one), ("output",)),
            Step(f"end {one}", partial(_may_end, one), partial(_end, tenants, one), ("output", "reserve")),
        ]
    claims: dict[str, Claim] = {
        "amounts": partial(_amounts, tenants),
        "nobody left": partial(_nobody_left, tenants),
        "ahead of who waits": partial(_ahead, tenants),
        "ahead of the last": partial(_ahead_of_last, tenants),
        "counter gap U": partial(_gap, tenants),
        "ledger": _ledger,
        "service gap 2U": lambda logic, at: logic.any(
            [logic.negate(_both(logic, at)), within(logic, at["served0"] - at["served1"], 2 * at["U"])]
        ),
    }
    sentence = (
        "While two tenants have requests waiting their service differs by at most 2U (VTC, theorem 4.4)."
    )
    return Lemma("fairness/service-gap", f"{tenants} tenants", sentence, ("U",), start, steps, claims)


def _always(logic: Logic, at: Values, given: Row) -> Term:
    return logic.all([])


def _waits(one: int, logic: Logic, at: Values, given: Row) -> Term:
    return at[f"waits{one}"] >= 1


def _both(logic: Logic, at: Values) -> Term:
    return logic.all([at["waits0"] >= 1, at["waits1"] >= 1])


def _least(logic: Logic, tenants: int, at: Values) -> tuple[Term, Term]:
    """Whether anybody waits, and the least counter of those who do."""
    some, least = logic.any([]), 0
    for one in range(tenants):
        waits, counter = at[f"waits{one}"] >= 1, at[f"counter{one}"]
        better = logic.all([waits, logic.any([logic.negate(some), counter < least])])
        least = logic.choose(better, counter, least)
        some = logic.any([some, waits])
    return some, least


def _since(logic: Logic, before: Values, after: dict[str, Term]) -> Values:
    """Service is counted from when tenants 0 and 1 both wait."""
    fresh = logic.all([_both(logic, after), logic.negate(_both(logic, before))])
    gap = after["counter0"] - after["counter1"]
    return with_values(
        after,
        base=logic.choose(fresh, gap, after["base"]),
        served0=logic.choose(fresh, 0, after["served0"]),
        served1=logic.choose(fresh, 0, after["served1"]),
    )


def _enter(
    tenants: int, one: int, lift: bool, empty_case: bool, logic: Logic, at: Values, given: Row
) -> Values:
    """VT1. A tenant that waits already is not lifted."""
    own = at[f"counter{one}"]
    some, least = _least(logic, tenants, at)
    last = own
    for other in range(tenants):
        last = logic.choose(at["last"] == other, at[f"counter{other}"], last)
    goal = logic.choose(some, least, last if empty_case else own)
    lifted = logic.choose(logic.all([at[f"waits{one}"] == 0, goal > own]), goal, own) if lift else own
    return _since(
        logic, at, with_values(at, **{f"counter{one}": lifted, f"waits{one}": at[f"waits{one}"] + 1})
    )


def _leave(tenants: int, one: int, logic: Logic, at: Values, given: Row) -> Values:
    """A request is refused or aborted."""
    return _since(logic, at, with_values(at, **{f"waits{one}": at[f"waits{one}"] - 1, "last": one}))


def _may_admit(tenants: int, one: int, logic: Logic, at: Values, given: Row) -> Term:
    """VT2: the least counter of those who wait; its whole length fits."""
    charge, later, reserve = given
    first = [
        logic.any([at[f"waits{other}"] == 0, at[f"counter{one}"] <= at[f"counter{other}"]])
        for other in range(tenants)
    ]
    room = sum(at[f"reserved{other}"] for other in range(tenants)) + reserve <= at["U"]
    amounts = [charge >= 0, later >= 0, reserve >= charge + later]
    return logic.all([at[f"waits{one}"] >= 1, *first, *amounts, room])


def _admit(tenants: int, one: int, logic: Logic, at: Values, given: Row) -> Values:
    charge, later, reserve = given
    after = with_values(
        at,
        **{
            f"waits{one}": at[f"waits{one}"] - 1,
            f"counter{one}": at[f"counter{one}"] + charge,
            f"debt{one}": at[f"debt{one}"] + later,
            f"reserved{one}": at[f"reserved{one}"] + reserve,
            "last": one,
        },
    )
    return _since(logic, at, _served(one, at, after, charge))


def _may_emit(one: int, logic: Logic, at: Values, given: Row) -> Term:
    return logic.all([given[0] >= 0, given[0] <= at[f"debt{one}"]])


def _emit(tenants: int, one: int, logic: Logic, at: Values, given: Row) -> Values:
    """VT3: what was emitted is charged."""
    charge = given[0]
    after = with_values(
        at, **{f"counter{one}": at[f"counter{one}"] + charge, f"debt{one}": at[f"debt{one}"] - charge}
    )
    return _since(logic, at, _served(one, at, after, charge))


def _served(one: int, at: Values, after: dict[str, Term], charge: Term) -> dict[str, Term]:
    return with_values(after, **{f"served{one}": at[f"served{one}"] + charge}) if one < 2 else after


def _may_end(one: int, logic: Logic, at: Values, given: Row) -> Term:
    """A request ends: what it would have charged, and what it reserved, is gone."""
    left, reserve = given
    rest, kept = at[f"debt{one}"] - left, at[f"reserved{one}"] - reserve
    return logic.all([left >= 0, rest >= 0, reserve >= 0, kept >= rest])


def _end(tenants: int, one: int, logic: Logic, at: Values, given: Row) -> Values:
    left, reserve = given
    return with_values(
        at, **{f"debt{one}": at[f"debt{one}"] - left, f"reserved{one}": at[f"reserved{one}"] - reserve}
    )


def _amounts(tenants: int, logic: Logic, at: Values) -> Term:
    claims = [at["last"] >= NOBODY, at["last"] < tenants]
    claims.append(sum(at[f"reserved{one}"] for one in range(tenants)) <= at["U"])
    for one in range(tenants):
        claims += [at[f"{row}{one}"] >= 0 for row in ("counter", "waits", "debt")]
        claims.append(at[f"debt{one}"] <= at[f"reserved{one}"])
    return logic.all(claims)


def _nobody_left(tenants: int, logic: Logic, at: Values) -> Term:
    nothing = [at[f"{row}{one}"] == 0 for one in range(tenants) for row in ("counter", "debt")]
    return logic.any([at["last"] != NOBODY, logic.all(nothing)])


def _ahead(tenants: int, logic: Logic, at: Values) -> Term:
    """Who waits is at most U behind what anybody was and may yet be charged."""
    return logic.all(
        [
            logic.any([at[f"waits{two}"] == 0, _reach(at, one) <= at[f"counter{two}"] + at["U"]])
            for one in range(tenants)
            for two in range(tenants)
        ]
    )


def _ahead_of_last(tenants: int, logic: Logic, at: Values) -> Term:
    """The same of the last that left, while nobody waits."""
    some, _ = _least(logic, tenants, at)
    return logic.all(
        [
            logic.any([some, at["last"] != two, _reach(at, one) <= at[f"counter{two}"] + at["U"]])
            for one in range(tenants)
            for two in range(tenants)
        ]
    )


def _reach(at: Values, one: int) -> Term:
    return at[f"counter{one}"] + at[f"debt{one}"]


def _gap(tenants: int, logic: Logic, at: Values) -> Term:
    """Lemma 4.3."""
    pairs = [(one, two) for one in range(tenants) for two in range(one)]
    return logic.all(
        [
            logic.any(
                [
                    at[f"waits{one}"] == 0,
                    at[f"waits{two}"] == 0,
                    within(logic, at[f"counter{one}"] - at[f"counter{two}"], at["U"]),
                ]
            )
            for one, two in pairs
        ]
    )


def _ledger(logic: Logic, at: Values) -> Term:
    """While both wait nobody is lifted: counters move by service alone, from a gap of at most U."""
    moved = at["served0"] - at["served1"] == at["counter0"] - at["counter1"] - at["base"]
    return logic.any([logic.negate(_both(logic, at)), logic.all([moved, within(logic, at["base"], at["U"])])])
