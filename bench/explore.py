"""How fast a configuration is explored: the packed form against the readable space, in the same run.

    python bench/explore.py [--states N] [--repeat K]

Five requests that may be cancelled, on four seats under memory pressure. The packed form goes through all of
it on two cores, the readable space through the first N states; both print transitions and distinct states
a second. A smaller configuration is gone through by both, and the counts are compared. Compiling is not
timed.
"""

import argparse
import time
from collections.abc import Callable

from batchspec.replay.packed.search import Packed, explore_packed
from batchspec.replay.report.page import Page
from batchspec.spec.explore import Exploration, explore
from batchspec.spec.frame import Job
from batchspec.spec.library import load_profile
from batchspec.spec.profile import Profile
from batchspec.spec.space import Space

SMALL = ((2, 4, 3, 2), (Job(3, 2), Job(2, 3), Job(2, 2)))
LARGE = ((4, 8, 8, 2), (Job(4, 3), Job(3, 3), Job(5, 2), Job(4, 2), Job(6, 2)))


def space_of(sizes: tuple[int, int, int, int], jobs: tuple[Job, ...]) -> Space:
    """A space under the profile `vllm-v1`; sizes are S, T, N and b."""
    names = ("max_seqs", "token_budget", "kv_blocks", "block_size")
    limits = Profile.from_dict({"limits": dict(zip(names, sizes, strict=True))})
    return Space(load_profile("vllm-v1").merged(limits), jobs, aborts=True)


def timed(work: Callable[[], Exploration], repeat: int) -> tuple[Exploration, float, float]:
    """What was found, and the least wall and CPU seconds of `repeat` runs."""
    walls, processors = [], []
    for _ in range(repeat):
        wall, processor = time.perf_counter(), time.process_time()
        found = work()
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    return found, min(walls), min(processors)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--states", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    small, large = space_of(*SMALL), space_of(*LARGE)
    for workers in (1, 2):
        mine, other = explore_packed(Packed(small), workers=workers), explore(small)
        same = (mine.states, mine.transitions, mine.depth) == (other.states, other.transitions, other.depth)
        if not same or mine.holds != other.holds:
            raise SystemExit("the packed form and the readable space do not count the same")
    packed, most = Packed(large), 50_000_000
    runs = [
        ("readable", timed(lambda: explore(large, most=options.states), 1)),
        ("packed, 1 core", timed(lambda: explore_packed(packed, most=most, workers=1), options.repeat)),
        ("packed, 2 cores", timed(lambda: explore_packed(packed, most=most), options.repeat)),
    ]
    base = runs[0][1][0].transitions / runs[0][1][1]
    rows = []
    for name, (found, wall, processor) in runs:
        rows.append(
            (
                name,
                f"{found.states:,}",
                f"{found.transitions:,}",
                f"{wall:.2f}",
                f"{processor:.2f}",
                f"{found.transitions / wall:,.0f}",
                f"{found.states / wall:,.0f}",
                f"{found.transitions / wall / base:,.0f}",
            )
        )
    page = Page()
    page.add(
        f"both count the same in a smaller space: {other.states:,} states, {other.transitions:,} transitions"
    )
    head = ("engine", "states", "transitions", "wall s", "CPU s", "transitions/s", "states/s", "x readable")
    page.table(head, rows, "lrrrrrrr", indent=0)
    print(page.text(), end="")


if __name__ == "__main__":
    main()
