"""Submits the rounds of a fleet, and waits until all are delivered.

A round is in one of three states: it was delivered, or its job waits or runs, or it needs a new
job. A job that was lost with its node or was preempted does not count as a failure. After any other
end without a delivery, the round is tried again, on another node if a node refused it. After the
third failure, the round is given up.

--resume tries all missing rounds again, also those that were given up or cancelled. So jobs that
ended before it do not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct, field

from cairn import units
from cairn.errors import CairnError
from cairn.matrix import schedulers
from cairn.matrix.fleet import COMPLETE, Fleet, Job, missing
from cairn.matrix.schedulers import Fate, Scheduler
from cairn.model import NOT_MEASURED, TIME_BUDGET
from cairn.run import stop_request

TRIES = 3
"""The number of failures after which a round is given up."""
_POLL_S = 2.0

Tell = Callable[[str, str], None]
"""Shows a line to the user: its subject and a sentence."""


class _State(Struct):
    """What is known about a round that was not delivered."""

    failures: int = 0
    why: str = ""
    """The last failure, as a sentence."""
    cancelled: bool = False
    judged: set[str] = field(default_factory=set)
    """The ids of the ended jobs whose end was counted."""
    gone_since: float | None = None
    """The time since which no job of the round waits or runs; None if one does."""


class FleetWatch:
    """Waits for the rounds of a fleet. It holds no state that a later call would need."""

    def __init__(
        self,
        fleet: Fleet,
        scheduler: Scheduler,
        tell: Tell,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._fleet = fleet
        self._scheduler = scheduler
        self._tell = tell
        self._clock = clock
        self._sleep = sleep
        self._states: dict[int, _State] = {}
        self._told = set(fleet.numbers())
        self._refused = set(fleet.refusals())
        self._absent: set[tuple[str, str]] = set()
        self._bad: list[str] = []
        """Nodes that refused a round, or on which a job failed."""
        self._past = {job.id for job in fleet.submitted()}
        """The ids of jobs that were submitted before this watch began, and were not seen alive."""
        self._unreachable = False
        self._reasons: set[str] = set()
        """The reasons of waiting jobs that were told already."""
        self._since: float | None = None
        """The time at which the budget begins; None while all jobs wait in the queue."""

    def wait(self, poll_s: float = _POLL_S) -> str:
        """Waits until every round was delivered, given up or cancelled, or the budget ends.

        Returns why measuring ended. Raises CairnError if the scheduler refuses jobs.
        """
        self._fleet.go_on()
        while True:
            because = self._look()
            if because is not None:
                if because != COMPLETE:
                    self._fleet.end(because)
                return because
            self._sleep(poll_s)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs of rounds that were not delivered."""
        left = set(missing(self._fleet))
        return tuple(job for job in self._fleet.submitted() if job.round in left)

    def _look(self) -> str | None:
        """Looks once at all rounds. Returns why measuring ended; None if it goes on."""
        self._tell_delivered()
        left = tuple(missing(self._fleet))
        if not left:
            return COMPLETE
        jobs = self.jobs
        budget = self._fleet.plan.budget_s
        spent = 0.0 if self._since is None else self._clock() - self._since
        if budget is not None and spent >= budget:
            self._fleet.end(TIME_BUDGET)
            self._scheduler.cancel(jobs)
            return TIME_BUDGET
        alive = self._scheduler.alive(jobs)
        if alive is None:
            self._tell_unreachable()
            return None
        self._unreachable = False
        self._past.difference_update(alive)
        if any(state != "PENDING" for state in alive.values()):
            self._begin_budget()
        self._tell_reasons(jobs)
        self._note_refusals([job for job in jobs if alive.get(job.id) == "PENDING"])
        running = {job.round for job in jobs if job.id in alive}
        for number in running:
            self._state(number).gone_since = None
        for number in left:
            if number not in running:
                self._judge_ended(number, [job for job in jobs if job.round == number])
        waiting = [n for n in left if n not in running and not self._given_up(n)]
        if not waiting and not running:
            return self._why_not(left)
        due = [n for n in waiting if self._is_due(n, jobs)]
        # A job that may never begin takes no place, or the rounds that are due would wait for ever.
        stuck = self._scheduler.reasons
        going = {job.round for job in jobs if job.id in alive and job.id not in stuck}
        most = self._scheduler.most
        if most is None and going:
            # A further array would run beside the jobs of the earlier ones.
            most = schedulers.at_once(self._fleet.plan.rounds)
        room = len(due) if most is None else max(0, most - len(going))
        if due[:room]:
            self._submit(due[:room])
        return None

    def _state(self, number: int) -> _State:
        return self._states.setdefault(number, _State())

    def _given_up(self, number: int) -> bool:
        state = self._state(number)
        return state.cancelled or state.failures >= TRIES

    def _judge_ended(self, number: int, jobs: list[Job]) -> None:
        """Counts how the jobs of a round ended. No job of the round waits or runs any more.

        A job that has just ended may have delivered a round that this machine does not see yet. So
        the end is counted only after the scheduler's `patience_s`.
        """
        state = self._state(number)
        ended = [job for job in jobs if job.id not in state.judged]
        if not ended:
            return
        now = self._clock()
        if state.gone_since is None:
            state.gone_since = now
        if now - state.gone_since >= self._scheduler.patience_s:
            state.gone_since = None
            for job in ended:
                if job.id not in self._past:
                    self._judge(state, job)
            state.judged.update(job.id for job in ended)
            if ended[-1].id in self._past:
                self._tell_past(ended[-1])

    def _tell_past(self, job: Job) -> None:
        """Tells how the last job of a round ended before this watch began.

        The ends of the round's earlier jobs were told before the last one was submitted.
        """
        fate = self._scheduler.fate(job)
        if fate.ending == "lost":
            self._tell_lost(job, fate)
        elif fate.state:
            self._tell(
                "▲",
                f"round {job.round}: job {job.id} ended as {fate.state} without a result; the "
                "round is tried again",
            )

    def _tell_lost(self, job: Job, fate: Fate) -> None:
        self._tell("lost", f"round {job.round} on {fate.node or 'a node'}: {fate.state}")

    def _judge(self, state: _State, job: Job) -> None:
        """Counts the end of a job. `_note_refusals` counts the refusals of nodes."""
        fate = self._scheduler.fate(job)
        if fate.ending == "lost":
            self._tell_lost(job, fate)
        elif fate.ending == "cancelled":
            state.cancelled = True
            state.why = f"job {job.id} was cancelled"
        else:
            said = schedulers.log_of(self._fleet, job)
            how = f"ended as {fate.state}" if fate.state else "ended"
            state.failures += 1
            state.why = f"job {job.id} {how} without a result" + (f": {said}" if said else "")
            self._tell("▲", f"round {job.round}: {state.why}")
            if fate.ending == "failed" and fate.node:
                self._shun(fate.node)

    def _is_due(self, number: int, jobs: tuple[Job, ...]) -> bool:
        """Whether the ends of all earlier jobs of a round were counted, so a new job may begin."""
        judged = self._state(number).judged
        return all(job.id in judged for job in jobs if job.round == number)

    def _submit(self, rounds: list[int]) -> None:
        try:
            # A job that was not noted would go on unseen.
            with stop_request.postponed():
                made = self._scheduler.submit(rounds, self._bad)
                self._fleet.note_submitted(made)
        except CairnError as error:
            stop_request.check()
            if not self._bad:
                raise
            refused = "; ".join(dict.fromkeys(self._state(n).why for n in rounds)) or str(error)
            raise CairnError(
                f"no node is left for {_rounds(rounds)}: {refused.rstrip('.')}"
            ) from None
        ids = sorted({job.id.partition("_")[0] for job in made})
        self._tell("jobs", f"{_rounds(rounds)} submitted as {', '.join(ids)}")

    def _tell_delivered(self) -> None:
        for number in self._fleet.numbers():
            if number in self._told:
                continue
            self._told.add(number)
            self._begin_budget()
            node = self._fleet.delivered(number).node
            self._tell(
                "round",
                f"{number} measured by {node.name}, {len(self._told)} of {self._fleet.plan.rounds}",
            )
            for says in node.absent:
                if (node.name, says) not in self._absent:
                    self._absent.add((node.name, says))
                    self._tell("▲", f"{node.name}: {says}")

    def _begin_budget(self) -> None:
        """Begins the time of the budget, unless it has begun already."""
        if self._since is None:
            self._since = self._clock()

    def _tell_reasons(self, jobs: tuple[Job, ...]) -> None:
        """Tells each new reason for which a job may wait for ever."""
        reasons = self._scheduler.reasons
        for reason in dict.fromkeys(reasons.values()):
            if reason in self._reasons:
                continue
            self._reasons.add(reason)
            waiting = [job.round for job in jobs if reasons.get(job.id) == reason]
            advice = "ctrl-C ends cairn, and scancel ends the jobs"
            if reason == "PartitionTimeLimit":
                advice = (
                    f"the partition does not allow the {schedulers.limit_min(self._fleet)} minutes "
                    f"of a job; {advice}; then begin a new run with --sbatch time=N"
                )
            self._tell("▲", f"Slurm does not start {_rounds(waiting)} yet: {reason}; {advice}")

    def _note_refusals(self, waiting: list[Job]) -> None:
        """Counts the rounds that nodes refused, and keeps waiting jobs away from these nodes."""
        refusals = self._fleet.refusals()
        new = [one for name, one in refusals.items() if name not in self._refused]
        for one in new:
            state = self._state(one.round)
            state.failures += 1
            state.why = f"{one.node}: {one.says}"
            state.judged |= {job.id for job in self.jobs if job.round == one.round}
            self._tell("▲", f"round {one.round} on {state.why}")
            self._shun(one.node)
        if new:
            self._scheduler.avoid(waiting, self._bad)
        self._refused |= set(refusals)

    def _shun(self, node: str) -> None:
        if node not in self._bad:
            self._bad.append(node)

    def _tell_unreachable(self) -> None:
        if not self._unreachable:
            why = f": {self._scheduler.trouble.rstrip('.')}" if self._scheduler.trouble else ""
            self._tell(
                "▲",
                f"the scheduler does not answer{why}; cairn asks it again until it does; ctrl-C "
                "ends cairn, and --resume continues the run",
            )
        self._unreachable = True

    def _why_not(self, left: tuple[int, ...]) -> str:
        whys = dict.fromkeys(self._state(number).why for number in left)
        return f"{_rounds(left)} {NOT_MEASURED}{'; '.join(filter(None, whys))}"


def _rounds(numbers: tuple[int, ...] | list[int]) -> str:
    """The numbers of rounds in a few words."""
    if len(numbers) == 1:
        return f"round {numbers[0]}"
    if len(numbers) > 6:
        return units.counted(len(numbers), "round")
    return f"rounds {', '.join(map(str, numbers))}"
