"""The reference scheduler: stepped from outside, it answers with the rows of one iteration."""

from collections.abc import Callable

from batchspec.spec.errors import SpecError
from batchspec.spec.events import Event, RequestId
from batchspec.spec.need import never_fits
from batchspec.spec.profile import Profile
from batchspec.spec.records import Record
from batchspec.spec.reference.board import Board, StepShape
from batchspec.spec.reference.decide import Decisions, Drafter
from batchspec.spec.reference.forming import window_end_ns
from batchspec.spec.reference.job import PARKED, WAITING, Job
from batchspec.spec.reference.joining import plan_joining
from batchspec.spec.reference.pool import mix
from batchspec.spec.reference.settings import UNBOUNDED, Settings
from batchspec.spec.verdict import LEVELS

Predictor = Callable[[Record], int]
"""The predicted output tokens of a request."""

Cost = Callable[[StepShape], int]
"""What a step takes: the shape of its pass to nanoseconds."""


class ReferenceScheduler:
    """A deterministic scheduler that does what a profile claims and obeys every rule.

    It reads no clock and draws no random number: time comes with each call, the length of every
    output is scripted by its record. Feed it `add`, `cancel`, `park` and `ready` between two steps;
    each takes effect in the next `step`. Same calls, same rows.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        level: str = "L3",
        cost: Cost | None = None,
        drafter: Drafter | None = None,
        predictor: Predictor | None = None,
        outputs: str = "derived",
        hash_block: int | None = None,
    ) -> None:
        """A scheduler without requests.

        `level` is what the rows show (L1 to L4). `cost` gives a step's length, by which the rows of
        its results are later than those of its decisions; without it time stands still inside a
        step. `drafter` makes decodes speculative. `predictor` foretells how many tokens a request
        emits, where admission rests on that (`ratio`, `peak`); without it max_tokens. `outputs` is
        `recorded` where each emitted token has a row of its own, as it always has under speculation
        and overlap. `hash_block` is the number of tokens behind one prefix hash of the records.
        Raises `ProfileError` where claims contradict each other, `SpecError` for other arguments.
        """
        if level not in LEVELS[1:]:
            raise SpecError(f"level must be one of {', '.join(LEVELS[1:])}, not {level!r}")
        settings = Settings.of(profile)
        if drafter is not None and settings.depth > 1:
            raise SpecError("the reference scheduler does not draft with two passes in flight")
        recorded = outputs == "recorded" or drafter is not None or settings.depth > 1
        self.settings = settings
        self.recorded = recorded
        self._board = Board(settings, level, recorded)
        self._cost = cost
        self._drafter = drafter
        self._predictor = predictor or _most_tokens
        self._hash_block = hash_block
        self._arriving: list[tuple[Record, int]] = []
        self._cancelled: list[RequestId] = []
        self._parking: dict[RequestId, str] = {}
        self._readied: list[RequestId] = []
        self._parked: dict[RequestId, Job] = {}

    # -- between two steps -------------------------------------------------------------------------

    def add(self, record: Record, now_ns: int) -> None:
        """A request arrives at `now_ns`. Raises `SpecError` where its id is live or its lengths are bad."""
        if record.request in self._board.jobs:
            raise SpecError(f"request {record.request!r} is live already; give each request its own id")
        for name, value in (("prompt_tokens", record.prompt_tokens), ("output_tokens", record.output_tokens)):
            if value is None or value < 1:
                raise SpecError(f"request {record.request!r}: {name} must be at least 1, not {value}")
        self._arriving.append((record, now_ns))

    def cancel(self, request: RequestId) -> None:
        """The client wants a request to end. One that is not live by then is left alone."""
        self._cancelled.append(request)

    def park(self, request: RequestId, reason: str) -> None:
        """Set a waiting request aside until `ready`. One that is not waiting by then is left alone."""
        self._parking[request] = reason

    def ready(self, request: RequestId) -> None:
        """What a parked request waited for has come; before it was set aside, it never is."""
        if self._parking.pop(request, None) is None:
            self._readied.append(request)

    def ends_after(self, request: RequestId, outputs: int) -> None:
        """Script the length of a live or arriving request's output anew: it stops after so many tokens."""
        job = self._board.jobs.get(request)
        if job is not None:
            job.target = max(1, min(outputs, job.max_tokens))
        for place, (record, now_ns) in enumerate(self._arriving):
            if record.request == request:
                most = _most_tokens(record)
                anew = record._replace(output_tokens=max(1, min(outputs, most)), max_tokens=most)
                self._arriving[place] = (anew, now_ns)

    @property
    def idle(self) -> bool:
        """Whether nothing is live, in flight or to be told: the next step would be empty."""
        board = self._board
        news = self._arriving or self._cancelled or self._readied
        return not (board.jobs or board.flight or board.unreleased or news)

    @property
    def settles(self) -> bool:
        """Whether the mere passing of steps changes something: a result, seat or block comes back."""
        board = self._board
        return bool(board.flight or board.unreleased or board.late_seats or board.tables.late)

    def is_live(self, request: RequestId) -> bool:
        """Whether a request has arrived and not ended, or is about to arrive."""
        arriving = any(record.request == request for record, _ in self._arriving)
        return arriving or request in self._board.jobs

    @property
    def live(self) -> int:
        """Requests that are live or about to arrive: waiting, set aside, running or interrupted."""
        return len(self._board.jobs) + len(self._arriving)

    @property
    def step_number(self) -> int:
        """The number of the last step; 0 before the first."""
        return self._board.step

    @property
    def now_ns(self) -> int:
        """The time of the last step's results."""
        return self._board.now_ns

    @property
    def emitted(self) -> int:
        """Output tokens of all requests so far."""
        return self._board.emitted

    @property
    def known_tokens(self) -> int:
        """Prompts and outputs of all live requests together: what may have to be computed (again)."""
        return sum(job.known for job in self._board.jobs.values())

    def wake_ns(self) -> int | None:
        """The next moment at which a step may do more without any news; None where there is none."""
        board = self._board
        times = [end] if (end := window_end_ns(board)) is not None else []
        if self.settings.queue_timeout_ns < UNBOUNDED:
            waiting = (job for job in board.jobs.values() if job.state in (WAITING, PARKED))
            times += [job.arrived_ns + self.settings.queue_timeout_ns + 1 for job in waiting][:1]
        return min(times, default=None)

    # -- the step ----------------------------------------------------------------------------------

    def step(self, now_ns: int) -> list[Event]:
        """One iteration that starts at `now_ns`: its rows, in order."""
        board = self._board
        if now_ns < board.now_ns:
            raise SpecError(f"time runs backwards: step at {now_ns} ns after {board.now_ns} ns")
        board.open(board.step + 1, now_ns)
        arrived = self._arrivals()
        self._ends()
        self._refuse(arrived)
        Decisions(board, self._drafter).decide()
        self._report_passed_over()
        self._results()
        board.close()
        return board.rows

    def _arrivals(self) -> list[Job]:
        board = self._board
        arrived = []
        for record, now_ns in self._arriving:
            prediction = self._predictor(record) if self.settings.predicts else None
            job = board.arrive(record, now_ns, prediction)
            if self.settings.shares:
                job.keys = self._keys_of(record, job)
            arrived.append(job)
        self._arriving.clear()
        for request in self._readied:
            parked = board.jobs.get(request)
            if parked is not None and parked.state == PARKED:
                board.ready(parked)
        self._readied.clear()
        return arrived

    def _keys_of(self, record: Record, job: Job) -> tuple[int, ...]:
        """Content keys of the prompt's blocks, from hashes that may stand for blocks of another size."""
        hashes = record.prefix_hashes or ()
        size = self.settings.block_size
        unit = self._hash_block or size
        keys = []
        key = 0
        for index in range(job.prompt // size):
            first, end = index * size // unit, -(-(index + 1) * size // unit)
            if end > len(hashes):
                break
            key = mix(key, index, *hashes[first:end])
            keys.append(key)
        return tuple(keys)

    def _ends(self) -> None:
        board = self._board
        for request in self._cancelled:
            job = board.jobs.get(request)
            if job is not None:
                board.cancel(job)
                board.abort(job, "client")
        self._cancelled.clear()
        timeout = self.settings.queue_timeout_ns
        if timeout < UNBOUNDED:
            overdue = [
                job
                for job in board.jobs.values()
                if job.state in (WAITING, PARKED) and board.now_ns > job.arrived_ns + timeout
            ]
            for job in overdue:
                board.abort(job, "timeout")

    def _refuse(self, arrived: list[Job]) -> None:
        """Refuse newcomers that can never run, that find the queue full, or that are over a quota."""
        board, s = self._board, self.settings
        waiting = 0
        if arrived and s.max_waiting < UNBOUNDED:
            new = {job.id for job in arrived}
            waiting = sum(
                1 for job in board.jobs.values() if job.state in (WAITING, PARKED) and job.id not in new
            )
        for job in arrived:
            if job.id not in board.jobs:
                # Cancelled at once, but not refused: it counts.
                board.rates.accept(job.tenant, job.arrived_ns)
                continue
            if never_fits(s.profile, job.prompt, job.max_tokens) is not None:
                board.reject(job, "too_long")
            elif board.rates.exceeded(job.tenant, job.arrived_ns):
                board.reject(job, "rate")
            elif waiting >= s.max_waiting:
                board.reject(job, "queue_full")
            else:
                board.rates.accept(job.tenant, job.arrived_ns)
                waiting += 1
        for request, reason in self._parking.items():
            job_to_park = board.jobs.get(request)
            if job_to_park is not None and job_to_park.state == WAITING:
                board.park(job_to_park, reason)
                self._parked[request] = job_to_park
        self._parking.clear()

    def _report_passed_over(self) -> None:
        """Say of each request that was parked once why it still waits: it is owed a look."""
        board = self._board
        for request, job in list(self._parked.items()):
            if job.state == WAITING:
                why = plan_joining(board, job)
                board.skip(job, why if isinstance(why, str) else "policy")
            elif job.state != PARKED:
                del self._parked[request]

    def _results(self) -> None:
        board = self._board
        if self.settings.shares:
            board.tables.pass_over()
        members = list(board.members.values())
        if members:
            board.flight.append((board.step, members))
            if board.shows_passes:
                board.rows.append(Event(board.step, "dispatch", time_ns=board.now_ns, pass_=board.step))
            if self._cost is not None:
                board.now_ns += self._cost(board.shape())
        while board.flight and board.flight[0][0] <= board.step - self.settings.depth + 1:
            number, landed = board.flight.popleft()
            if board.shows_passes:
                board.rows.append(Event(board.step, "complete", time_ns=board.now_ns, pass_=number))
            for member in landed:
                board.land(number, member)


def _most_tokens(record: Record) -> int:
    return record.max_tokens or record.output_tokens or 1
