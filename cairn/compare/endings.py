"""Judges whether a contender failed by the way in which its processes ended. Pure.

An exit code of the command says little: a parent may ignore how its children end. So the endings of
all processes are compared with those under the baseline, by program. A contender has failed if

- a process was killed by a crash signal, even once, and no process of this program was killed by
  this signal in any run of the baseline so far; or
- another ending was in at least ROUNDS_LEAST rounds and in more than half of the runs, it was in no
  run of the baseline, or less often there (see `_more`), and chance hardly explains this (see
  CHANCE).

"exit 0" is not a failure. A process that its parent kills under the baseline may well have finished
before that under a faster allocator. The number of processes is not compared either, since a parent
that polls starts more of them when it waits longer.

docs/decisions has the probability that this calls a healthy contender failed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from cairn.model import NOT_SEEN, Contender, Run, Sample, signal_name

CRASHES = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP", "SIGSYS")
"""The signals that end a process because it did something wrong."""
SUCCESS = "exit 0"
ROUNDS_LEAST = 3
"""The fewest rounds in which an ending must occur before it can count as a failure. The baseline,
too, must have at least this many runs."""
CHANCE = 0.03
"""An ending counts as a failure only if chance explains it with at most this probability.

It is the probability that, of two equal contenders, one has all runs with the ending (`_is_most`).
Without this limit, an ending that comes in a third of the runs by chance would be called a failure
in 3 of 100 comparisons; with it, in about 1 of 100. Even the shortest comparison can meet the
limit: if the ending is in all four runs of a contender (three rounds and the warm-up) and in none
of three runs of the baseline, the probability is 1 / C(7, 4) = 0.029.
"""
CONSTANT_LEAST = 6
"""The fewest runs of the baseline for `_more`. If all of them have the same number of processes
with an ending, the number is taken to be constant."""
_NAMED_MOST = 8
"""The most endings that a sentence names."""

Counts = Mapping[str, Mapping[str, int]]
"""By program and ending: the number of processes that ended so; see Sample.endings."""


class Trials(Struct):
    """The endings in the trials of one contender on one workload, the warm-up included."""

    runs: int = 0
    _patterns: dict[tuple[int, tuple[tuple[str, tuple[tuple[str, int], ...]], ...]], list[int]] = (
        field(default_factory=dict)
    )
    """The trials, grouped by their number of runs and by the endings of all their processes. The
    values are the number of trials in the group, and how many of them belong to a round instead of
    the warm-up.

    Nearly all trials of a program have the same endings. So there are few groups, and a judgement
    is quick even after many rounds.
    """

    def add(self, counts: Counts | None, *, counted: bool, repeats: int = 1) -> None:
        """Adds a trial. None, for a trial of an earlier version, adds nothing.

        counted: whether the trial belongs to a round; the warm-up does not.
        repeats: the number of runs of the program whose endings are added up in `counts`.
        """
        if counts is None:
            return
        pattern = tuple((program, tuple(of.items())) for program, of in counts.items())
        found = self._patterns.setdefault((repeats, pattern), [0, 0])
        found[0] += 1
        found[1] += counted
        self.runs += 1

    def each(self) -> Iterator[tuple[Counts, int, int]]:
        """Yields the endings of each group of trials, and its numbers of trials and of rounds."""
        for (_, pattern), (runs, rounds) in self._patterns.items():
            yield {program: dict(counts) for program, counts in pattern}, runs, rounds

    def most_repeated(self) -> Trials:
        """The trials with the most runs. With --repeat, a trial of the warm-up has fewer runs."""
        most = max((repeats for repeats, _ in self._patterns), default=1)
        of = {key: numbers for key, numbers in self._patterns.items() if key[0] == most}
        return Trials(sum(number for number, _ in of.values()), of)

    def programs(self) -> set[str]:
        """The programs that ran in any trial."""
        return {program for counts, _, _ in self.each() for program in counts}

    def of(self, program: str) -> list[tuple[Mapping[str, int], int, int]]:
        """As `each`, but only the endings of one program."""
        return [(counts.get(program, {}), runs, rounds) for counts, runs, rounds in self.each()]


def of_samples(samples: Iterable[Sample]) -> Trials:
    """The endings of these trials."""
    trials = Trials()
    for sample in samples:
        trials.add(sample.endings, counted=sample.trial.round > 0, repeats=sample.repeats)
    return trials


def together(all_trials: Sequence[Trials]) -> Trials:
    """Puts the trials of several contenders together, as if one contender had run them all."""
    result = Trials()
    for trials in all_trials:
        result.runs += trials.runs
        for key, (runs, rounds) in trials._patterns.items():
            found = result._patterns.setdefault(key, [0, 0])
            found[0] += runs
            found[1] += rounds
    return result


class _Ending(Struct, frozen=True):
    """An ending of one program that speaks against a contender."""

    program: str
    ending: str
    number: int
    """The number of processes that ended so, in the trial with the most of them."""
    processes: int
    """The number of processes of this program in that trial."""
    runs: int
    """The number of trials with this ending."""

    def says(self) -> str:
        of = f" ({self.number} of {self.processes} processes)" if self.processes > 1 else ""
        return f"{self.program}{of} {_ended(self.ending)}"


def crashes(own: Trials, base: Trials) -> list[_Ending]:
    """The crashes that speak against a contender. The crash of the most processes comes first.

    The list is empty while there is no trial of the baseline to compare with.
    """
    if base.runs == 0:
        return []
    return [
        one
        for one in _endings(own)
        if one.ending in CRASHES and not _runs_with(base, one.program, one.ending)
    ]


def differences(own: Trials, base: Trials) -> list[_Ending]:
    """The endings other than crashes that speak against a contender, ordered as in `crashes`."""
    if base.runs < ROUNDS_LEAST:
        return []
    return [
        one
        for one in _endings(own)
        if one.ending != SUCCESS
        and (_new(own, base, one.program, one.ending) or _more(own, base, one.program, one.ending))
        and (not _is_signal(one.ending) or _more_in_all(own, base, one.ending))
    ]


def crashes_alone(own: Trials, other: Trials) -> list[_Ending]:
    """The crashes that speak against the baseline, ordered as in `crashes`.

    own: the trials of the baseline. other: those of one contender. A crash counts if it is in most
    runs of the baseline and in none of the contender's, and if chance hardly explains this. The
    baseline then does less work than the contender, so the two cannot be compared.
    """
    return [one for one in crashes(own, other) if _new(own, other, one.program, one.ending)]


def rare(own: Trials, base: Trials) -> list[_Ending]:
    """The endings that the report names although they need not make a contender fail.

    Such an ending is in at least ROUNDS_LEAST rounds and in no run of the baseline, and chance
    hardly explains this. It need not be in most runs. The order is that of `crashes`.
    """
    if base.runs < ROUNDS_LEAST:
        return []
    return [
        one
        for one in _endings(own)
        if one.ending not in (SUCCESS, NOT_SEEN)
        and not _is_signal(one.ending)
        and not _runs_with(base, one.program, one.ending)
        and _is_beyond_chance(_having(own, one.program, one.ending), own, base)
    ]


def _is_signal(ending: str) -> bool:
    """Whether another process may have caused this ending."""
    return ending.startswith("SIG") and ending not in CRASHES


def _more_in_all(own: Trials, base: Trials, ending: str) -> bool:
    """Whether most runs have this ending more often than any run of the baseline, in all programs.

    A parent may kill a child before or after the child executes another program. So the name of the
    killed program depends on the speed of the contender.
    """

    def total(counts: Counts) -> int:
        return sum(of.get(ending, 0) for of in counts.values())

    most = max((total(counts) for counts, _, _ in base.each()), default=0)
    having = [(runs, rounds) for counts, runs, rounds in own.each() if total(counts) > most]
    return _is_most(having, own, base)


def _new(own: Trials, base: Trials, program: str, ending: str) -> bool:
    """Whether most runs have this ending, and no run of the baseline has it.

    NOT_SEEN counts as an ending only if the baseline has a process of this program whose end was
    seen. Otherwise the ends of this program may never be seen.
    """
    if _runs_with(base, program, ending):
        return False
    if ending == NOT_SEEN and not any(counts for counts, _, _ in base.of(program)):
        return False
    return _is_most(_having(own, program, ending), own, base)


def _having(own: Trials, program: str, ending: str) -> list[tuple[int, int]]:
    """(runs, rounds) for each group of trials in which the program has this ending."""
    return [(runs, rounds) for counts, runs, rounds in own.of(program) if counts.get(ending)]


def _more(own: Trials, base: Trials, program: str, ending: str) -> bool:
    """Whether most runs have this ending more often than every run of the baseline.

    The baseline must have at least CONSTANT_LEAST trials, all with the same endings of this
    program. A trial of the contender counts only if it has as many processes of this program as
    those trials have. With --repeat, a trial in a round adds up the endings of several runs, and a
    trial of the warm-up has fewer runs. So the baseline's warm-up is left out.
    """
    base = base.most_repeated()
    usual = base.of(program)
    if base.runs < CONSTANT_LEAST or any(counts != usual[0][0] for counts, _, _ in usual):
        return False
    before = usual[0][0]
    having = [
        (runs, rounds)
        for counts, runs, rounds in own.of(program)
        if counts.get(ending, 0) > before.get(ending, 0)
        and sum(counts.values()) == sum(before.values())
    ]
    return _is_most(having, own, base)


def _is_most(having: Sequence[tuple[int, int]], own: Trials, base: Trials) -> bool:
    """Whether the runs in `having` are most of the contender's, and chance hardly explains it."""
    runs = sum(number for number, _ in having)
    return 2 * runs > own.runs and _is_beyond_chance(having, own, base)


def _is_beyond_chance(having: Sequence[tuple[int, int]], own: Trials, base: Trials) -> bool:
    """Whether the runs in `having` are in enough rounds, and hardly all the contender's by chance.

    having: (runs, rounds) for each group of the contender's trials that has the ending, or has it
    more often than the baseline. No baseline run has it as often. So Fisher's exact test gives
    the probability that chance puts all n such runs among the contender's:
    C(own, n) / C(own + base, n).
    """
    runs = sum(number for number, _ in having)
    return sum(rounds for _, rounds in having) >= ROUNDS_LEAST and math.comb(
        own.runs, runs
    ) <= CHANCE * math.comb(own.runs + base.runs, runs)


def _runs_with(trials: Trials, program: str, ending: str) -> int:
    return sum(runs for counts, runs, _ in trials.of(program) if counts.get(ending))


def _endings(trials: Trials) -> list[_Ending]:
    """Each ending of each program in these trials. That of the most processes comes first."""
    found = []
    for program in trials.programs():
        of = trials.of(program)
        for ending in dict.fromkeys(ending for counts, _, _ in of for ending in counts):
            most = max((counts for counts, _, _ in of), key=lambda counts: counts.get(ending, 0))
            found.append(
                _Ending(
                    program=program,
                    ending=ending,
                    number=most[ending],
                    processes=sum(most.values()),
                    runs=_runs_with(trials, program, ending),
                )
            )
    return sorted(found, key=lambda one: (-one.number, one.program, one.ending))


def says(found: Sequence[_Ending], own: Trials, base: Trials, baseline: str) -> str:
    """Says which processes ended badly, as the end of a sentence after a colon."""
    named = [one.says() for one in found[:_NAMED_MOST]]
    if len(found) > _NAMED_MOST:
        named.append(f"{len(found) - _NAMED_MOST} more")
    runs = max(one.runs for one in found)
    if own.runs == 1:
        when = "in its first run"
    elif runs == own.runs:
        when = "in every run"
    else:
        when = f"in {runs} of {own.runs} runs"
    usual = "this did not happen" if len(found) > 1 else _usually(found[0], base)
    listed = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    return f"{listed} {when}; under {baseline} {usual}"


def _usually(found: _Ending, base: Trials) -> str:
    """How the processes of the program in `found` ended under the baseline."""
    of = [counts for counts, _, _ in base.of(found.program)]
    endings = {ending for counts in of for ending in counts}
    if not endings:
        return "it was not started"
    if endings == {found.ending} or found.ending in endings:
        most = max(of, key=lambda counts: counts.get(found.ending, 0))
        return f"{most[found.ending]} of {sum(most.values())} did"
    if len(endings) > 1:
        return "every end was seen" if found.ending == NOT_SEEN else f"none {_ended(found.ending)}"
    alone = all(sum(counts.values()) == 1 for counts in of)
    return f"{'it' if alone else 'all'} {_ended(endings.pop())}"


def _ended(ending: str) -> str:
    """The ending as a verb in the past, which fits one process and several."""
    if ending == NOT_SEEN:
        return "ended unseen"
    if ending.startswith("exit "):
        return f"exited {ending.removeprefix('exit ')}"
    return f"was killed by {ending}"


def is_only(found: Sequence[_Ending], signal: int | None) -> bool:
    """Whether the only crash in `found` is that of the command itself, which `signal` killed."""
    return (
        signal is not None
        and [one.number for one in found] == [1]
        and found[0].ending == signal_name(signal)
    )


def crashes_of(trials: Trials) -> str | None:
    """Says which processes of the baseline crash, as a clause; None if none does."""
    found = [one for one in _endings(trials) if one.ending in CRASHES]
    if not found:
        return None
    named = [one.says() for one in found[:_NAMED_MOST]]
    if len(found) > _NAMED_MOST:
        named.append(f"{len(found) - _NAMED_MOST} more")
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def bases(run: Run, contender: Contender) -> tuple[str, ...]:
    """The contenders with whose endings those of `contender` are compared.

    They are the baseline, and for a contender that runs with the probe for --why also the baseline
    with the probe.
    """
    baseline = next(one for one in run.contenders if one.name == run.baseline)
    if not (run.settings.why and contender.probed):
        return (run.baseline,)
    twins = (
        one.name
        for one in run.contenders
        if one.probed
        and one.name != contender.name
        and (one.preload, one.knobs) == (baseline.preload, baseline.knobs)
    )
    return (run.baseline, *twins)
