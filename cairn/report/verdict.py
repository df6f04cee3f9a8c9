"""The sentences of a verdict: the advice first, then what is proven of each contender.

All sentences are written from a Verdict alone. A sentence on a contender names its measures in the
order time, CPU time, memory, page faults, and only those in which a difference is proven.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cairn import units
from cairn.compare import suitability
from cairn.model import Prospect
from cairn.report import formatting
from cairn.verdict import (
    AIMS,
    Advice,
    Beaten,
    Effect,
    Front,
    Judgement,
    Measure,
    Outcome,
    Partly,
    Recommendation,
    State,
    Verdict,
)

_DOCTOR = "'cairn doctor' says what the measurement needs."
ALONE_MOST = 4
"""Up to this number of contenders, each has a sentence of its own. If there are more, contenders
that are not recommended share a sentence if the same differences are proven of them."""

_SHOWN = (Outcome.BETTER, Outcome.WORSE)


class Says(Struct, frozen=True):
    """The sentences of a verdict, in the order in which a report prints them."""

    advice: tuple[str, ...]
    """The advice; at least one sentence."""
    evidence: tuple[str, ...] = ()
    """The proven differences of the contenders."""
    failures: tuple[str, ...] = ()
    """The contenders that failed."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """All sentences."""
        return (*self.advice, *self.evidence, *self.failures)


def says(verdict: Verdict) -> Says:
    """Returns the sentences. They are printable."""
    base = formatting.printable(verdict.baseline)
    failures = tuple(
        f"{_failure(f'Under {name},', formatting.message(one.why))} {name} is left out."
        for one in verdict.failed
        if one.contender != verdict.baseline
        for name in [formatting.printable(one.contender)]
    )
    advice: tuple[str, ...]
    match verdict.state:
        case State.BASELINE_FAILED:
            why = next(one.why for one in verdict.failed if one.contender == verdict.baseline)
            advice = (
                _failure(f"No verdict: under the baseline, {base},", formatting.printable(why)),
            )
        case State.OTHERS_FAILED:
            advice = (f"Keep {base}: every other contender failed.",)
        case State.ALONE:
            advice = (f"No verdict: only {base} was run. Add an allocator, such as -a jemalloc.",)
        case State.NO_ROUND:
            advice = ("No verdict: no round is complete.",)
        case State.TOO_FEW_ROUNDS:
            advice = (_too_few(verdict),)
        case State.JUDGED:
            few = _too_rarely_measured(verdict)
            advice = (*_waits(verdict), _advice(verdict), *few, *_other_aims(verdict))
            if verdict.front is not None:
                advice = (*_waits(verdict), *_front(verdict.front, verdict), *few)
            return Says(advice, tuple(_evidence(verdict)), failures)
    return Says(advice, (), failures)


def _failure(under: str, why: str) -> str:
    """A sentence on a failed contender. `why` is the rest of a sentence, or whole sentences."""
    if why[:1].islower():
        return f"{under} the program {why.removesuffix('.')}."
    return f"{under} the program failed: {why}"


def _waits(verdict: Verdict) -> Iterator[str]:
    """Yields a sentence if the program waits most of the time."""
    if verdict.waits and verdict.cpu_share is not None:
        yield suitability.waiting(under_load=verdict.under_load)


def _too_few(verdict: Verdict) -> str:
    """The sentence on a run whose rounds are too few for any interval."""
    rounds, least = verdict.rounds, verdict.rounds_least
    few = "1 round is" if rounds == 1 else f"{rounds} rounds are"
    sentence = f"No verdict yet: {few} too few for an interval."
    if least is None or least <= rounds:
        return sentence
    took = ""
    if verdict.rounds_least_s is not None:
        took = f", which takes about {units.duration(max(1.0, verdict.rounds_least_s))}"
    return f"{sentence} Run at least {least} (-r {least}){took}."


def _in_part_of_the_rounds(one: Partly, rounds: int) -> str:
    """Returns the clause that a measure is known in a part of the complete rounds only."""
    noun = one.measure.value
    were = "were" if noun.endswith("s") else "was"
    if not one.rounds:
        return f"in no round {were} {noun} measured under every contender"
    return f"{noun} {were} measured in {one.rounds} of {units.counted(rounds, 'round')}"


def _too_rarely_measured(verdict: Verdict) -> Iterator[str]:
    """Yields a sentence for each measure that is known in too few rounds for an interval.

    The advice itself names a contender whose measure is not known at all, see `_open`.
    """
    open_ = [one for one in verdict.measured if one.advice is Advice.OPEN]
    other = _possible(open_) or any(one.price_open for one in open_)
    named = [] if other else [one.aim for one in open_]
    for one in verdict.partly:
        if one.least is not None and (one.rounds or one.measure not in named):
            text = _in_part_of_the_rounds(one, verdict.rounds)
            yield f"{text[0].upper()}{text[1:]}, and an interval needs {one.least} such rounds."


def outlook(prospect: Prospect | None) -> Iterator[str]:
    """Yields a sentence on what more rounds would bring, if that is known."""
    if prospect is not None:
        more = units.counted(prospect.more, "more round")
        took = units.duration(max(1.0, prospect.more_s))
        width = units.percent(prospect.half_width, signed=False)
        yield f"{more} would take about {took} and narrow the 95 % intervals of time to ±{width}."


def _costs_nothing(only: Judgement, verdict: Verdict) -> Iterator[str]:
    """Yields sentences on the measures in which `only` is not shown to be better or worse.

    `only` is the only recommended contender. If the user gave a goal, these are all measures but
    the goal. Otherwise, they are the measures by which the advice is to keep the baseline.
    """
    level = [one.aim for one in verdict.measured if one.advice is Advice.KEEP]
    if verdict.aim.goal is not None:
        level = [aim for aim in AIMS if aim is not verdict.aim.goal]
    same = [aim.value for aim in level if only.effect(aim).outcome is Outcome.EQUIVALENT]
    if same:
        be = "is" if len(same) == 1 else "are"
        yield f"Its {_listed(same, 'and')} {be} the same within {_margin(verdict.margin)}."
    unclear = [aim for aim in level if only.effect(aim).outcome is Outcome.NOT_SHOWN]
    if unclear:
        most = [f"{_bound((only.effect(aim).high or 1.0) - 1)} more {aim.value}" for aim in unclear]
        yield (
            f"No difference in {_listed([aim.value for aim in unclear], 'or')} is shown: "
            f"{formatting.printable(only.contender)} takes at most {_listed(most, 'and')}."
        )


def _advice(verdict: Verdict) -> str:
    """The advice for each aim. Aims with the same advice share a sentence."""
    base = formatting.printable(verdict.baseline)
    measured = verdict.measured
    if verdict.aim.pareto:
        return f"No answer: time and memory were not both measured in every run. {_DOCTOR}"
    if not measured and verdict.aim.goal is not None:
        if any(one.least and one.measure is verdict.aim.goal for one in verdict.partly):
            return f"No answer yet: {verdict.aim.goal.value} is known in too few rounds."
        return f"No answer: {verdict.aim.goal.value} was not measured in every run. {_DOCTOR}"
    if not measured:
        return "No answer: neither time, CPU time nor memory was measured in every run. " + _DOCTOR
    if all(one.advice is Advice.KEEP for one in measured):
        sentence = _keep(verdict, measured)
        keep = f"Keep {base}: "
        if verdict.aim.goal is None or not sentence.startswith(keep):
            return sentence
        by = f"By {verdict.aim.goal.value}{_bounds(verdict)}"
        if all(
            one.effect(verdict.aim.goal).outcome is Outcome.EQUIVALENT for one in verdict.judgements
        ):
            return f"{by}, nothing is gained: {sentence.removeprefix(keep)}"
        return f"{by}: keep {base}, because {sentence.removeprefix(keep)}"
    if all(one.advice is Advice.OPEN for one in measured) and verdict.aim.goal is None:
        return f"N{_open(measured, verdict)[1:]}."
    only = verdict.only_choice
    if only is not None:
        by = _listed([one.aim.value for one in measured if one.best], "and")
        head = f"By {by}{_bounds(verdict)}: use {formatting.printable(only.contender)}."
        parts = [part for part in _parts([only], verdict.margin) if part.better is not None]
        proof = _takes("it", "takes", parts, base)
        proof = f"{proof[0].upper()}{proof[1:]}."
        return " ".join([head, proof, *_costs_nothing(only, verdict)])
    groups: dict[tuple[int, str], list[Recommendation]] = {}
    for one in measured:
        groups.setdefault(_what_to_do(verdict, one), []).append(one)
    sentences = []
    for (_, what), group in sorted(groups.items(), key=lambda pair: pair[0][0]):
        by = _listed([one.aim.value for one in group], "and")
        match group[0].advice:
            case Advice.USE:
                sentences.append(f"By {by}{_bounds(verdict)}: {_choice(group, verdict.margin)}.")
            case Advice.OPEN:
                sentences.append(f"By {by}{_bounds(verdict)}: {_open(group, verdict)}.")
            case _:
                sentences.append(f"By {by}: {what}.")
    return " ".join(sentences)


def _what_to_do(verdict: Verdict, one: Recommendation) -> tuple[int, str]:
    """Returns the rank of the advice for one aim, and its words.

    Aims with the same result share a sentence. The ranks give the order of the sentences: first
    what to use, then what to keep, then the aims that decide nothing.
    """
    outcomes = {judgement.effect(one.aim).outcome for judgement in verdict.judgements}
    match one.advice:
        case Advice.USE:
            return 0, " ".join(sorted(one.best))
        case Advice.KEEP if Outcome.WORSE in outcomes:
            return 1, f"keep {formatting.printable(verdict.baseline)}"
        case Advice.KEEP if outcomes == {Outcome.EQUIVALENT}:
            return 2, f"no difference beyond {_margin(verdict.margin)}"
        case Advice.KEEP:
            return 2, "no difference is shown"
    return 3, ""


def _choice(group: Sequence[Recommendation], margin: float) -> str:
    """The words "use …" for the contenders that are recommended, and how they compare.

    All aims in `group` recommend the same contenders.
    """
    first = formatting.printable(group[0].best[0])
    lean = next((one.leanest for one in group if one.leanest is not None), None)
    best = [formatting.printable(name) for name in group[0].in_order]
    names = f"use {_listed(best, 'or')}"
    if len(best) == 1:
        return names
    if lean is not None and len(best) > 2:
        of = f"the {len(best)} that are the same within {_margin(margin)}"
        if not all(one.alike for one in group):
            of = f"the {len(best)} that are not shown to be worse than the best of them"
        return f"use {best[0]}. It takes the least memory of {of}: {_listed(best, 'and')}"
    if all(one.alike for one in group):
        how = f"the same within {_margin(margin)}"
    elif len(best) == 2:
        how = "no difference between them is shown"
    else:
        how = f"no difference from the best, {first}, is shown"
    price = ""
    if lean is not None:
        price = f"; {formatting.printable(lean)} takes less memory"
    return f"{names} ({how}{price})"


def _bounds(verdict: Verdict) -> str:
    """The bounds of the aim, such as " with at most 5 % more time"; empty without bounds."""
    prices = _prices(verdict)
    return f" with at most {_listed(prices, 'and')}" if prices else ""


def _most(share: float) -> str:
    return f"{100 * share:.6g} %"


def _prices(verdict: Verdict) -> list[str]:
    """The bounds of the aim, such as "5 % more memory"."""
    return [f"{_most(one.most)} more {one.measure.value}" for one in verdict.aim.may_cost]


def _better_but(names: Sequence[str], verdict: Verdict) -> str:
    """The beginning of a sentence on contenders that are better by the user's goal."""
    goal = verdict.aim.goal
    takes = "takes" if len(names) == 1 else "take"
    listed = _listed([formatting.printable(name) for name in names], "and")
    return f"{listed} {takes} less {goal.value if goal else ''}, but"


def _too_dear(names: Sequence[str], verdict: Verdict) -> str:
    """The clause that contenders are better by the user's goal, but exceed a bound of the aim."""
    return f"{_better_but(names, verdict)} more than {_listed(_prices(verdict), 'or')}"


def _price_open(names: Sequence[str], verdict: Verdict) -> str:
    """The clause that contenders are better by the user's goal, but may exceed a bound."""
    if len(names) == 1 and len(verdict.aim.may_cost) == 1 and verdict.aim.goal is not None:
        measure = verdict.aim.may_cost[0].measure
        only = next(one for one in verdict.judgements if one.contender == names[0])
        effect = only.effect(measure)
        if effect.low is not None and effect.high is not None and effect.low >= 1:
            low, high = _bound(effect.low - 1), _bound(effect.high - 1)
            return (
                f"{formatting.printable(names[0])} takes less {verdict.aim.goal.value}, but "
                f"{low.removesuffix(' %')} to {high} more {measure.value}"
            )
    they = "it takes" if len(names) == 1 else "they take"
    return (
        f"{_better_but(names, verdict)} it is not shown that {they} at most "
        f"{_listed(_prices(verdict), 'and')}"
    )


def _other_aims(verdict: Verdict) -> Iterator[str]:
    """Yields sentences that follow the advice for the user's goal.

    The first ones name contenders that are better by the goal, but exceed a bound or may exceed it.
    The others say what to use by each other aim alone. An aim has no such sentence if it recommends
    the same contenders as the goal, or none.
    """
    goal = next((one for one in verdict.measured if one.aim is verdict.aim.goal), None)
    if goal is None:
        return
    if goal.too_dear and goal.advice is not Advice.KEEP:
        yield f"{_too_dear(goal.too_dear, verdict)}."
    if goal.price_open and goal.advice is Advice.USE:
        yield f"{_price_open(goal.price_open, verdict)}."
    groups: dict[tuple[str, ...], list[Recommendation]] = {}
    for one in verdict.recommendations:
        if one.aim is not goal.aim and one.advice is Advice.USE and set(one.best) != set(goal.best):
            groups.setdefault(tuple(sorted(one.best)), []).append(one)
    for group in groups.values():
        by = _listed([one.aim.value for one in group], "and")
        yield f"By {by} alone: {_choice(group, verdict.margin)}."


_NAMED_FRONT = 2
"""If the front has at most this many members, each has a sentence that names the others."""


def _use_of_front(front: Front, verdict: Verdict) -> str:
    """The advice on the certain members of the front: for time, for memory, or in between."""
    names = front.certain
    if len(names) == 1:
        return (
            f"{'keep' if names[0] == verdict.baseline else 'use'} {formatting.printable(names[0])}"
        )

    def ratio(name: str, measure: Measure) -> float:
        judged = [one for one in verdict.judgements if one.contender == name]
        return (judged[0].effect(measure).ratio or 1.0) if judged else 1.0

    fast, lean = (
        min(names, key=lambda name: ratio(name, measure))
        for measure in (Measure.TIME, Measure.MEMORY)
    )
    if fast == lean:
        return f"use {_listed([formatting.printable(name) for name in names], 'or')}"
    first, last = formatting.printable(fast), formatting.printable(lean)
    if len(names) == 2:
        return f"use {first} for time, or {last} for memory"
    between = [formatting.printable(name) for name in names if name not in (fast, lean)]
    return f"use {first} for time, {last} for memory, or {_listed(between, 'or')} in between"


def _front(front: Front, verdict: Verdict) -> Iterator[str]:
    """Yields the sentences on the front of time and memory."""
    head = "By time and memory together:"
    certain = [formatting.printable(name) for name in front.certain]
    everybody = [*front.members, *(one.contender for one in front.beaten)]
    if (
        not certain
        and not front.beaten
        and len(front.open) == len(everybody) * (len(everybody) - 1)
    ):
        yield f"{head} no verdict yet. The intervals are too wide to exclude any contender."
        return
    yield f"{head} {_use_of_front(front, verdict) if certain else 'no verdict yet'}."
    beats = {
        one.contender
        for one in front.beaten
        if [one.by] == list(front.certain)
        and all(effect.outcome is Outcome.BETTER for effect in one.effects)
    }
    if len(certain) == 1 and len(everybody) > 1 and beats == set(everybody) - set(front.certain):
        others = [formatting.printable(one) for one in everybody if one != front.certain[0]]
        than = others[0] if len(others) == 1 else f"each of the others: {_listed(others, 'and')}"
        yield f"{certain[0]} is both faster and leaner than {than}."
        return
    if len(certain) > _NAMED_FRONT:
        yield f"No contender is both faster and leaner than {_listed(certain, 'or')}."
    else:
        for name in front.certain:
            others = [formatting.printable(one) for one in everybody if one != name]
            than = f"both faster and leaner than {formatting.printable(name)}"
            if len(others) == 1:
                yield f"{others[0]} is not {than}."
            else:
                yield f"None of these is {than}: {_listed(others, 'and')}."
    if len(front.beaten) > ALONE_MOST:
        names = [formatting.printable(one.contender) for one in front.beaten]
        yield (
            f"{_listed(names, 'and')} are beaten: for each of them, one of the others takes less "
            "time or memory, and no more of the other."
        )
    else:
        # The evidence compares each contender with the baseline. So no sentence is needed here if
        # one of the two is the baseline, and one is better than the other in both time and memory.
        yield from (
            _beaten(one, verdict.margin)
            for one in front.beaten
            if verdict.baseline not in (one.contender, one.by)
            or any(effect.outcome is not Outcome.BETTER for effect in one.effects)
        )
    for member in dict.fromkeys(member for member, _ in front.open):
        names = [formatting.printable(other) for one, other in front.open if one == member]
        yield (
            f"Not known yet: whether {_listed(names, 'or')} is both faster and leaner than "
            f"{formatting.printable(member)}."
        )


def _beaten(one: Beaten, margin: float) -> str:
    """The sentence that says by which contender another one is beaten, and by how much."""
    name, by = formatting.printable(one.contender), formatting.printable(one.by)
    better = [effect for effect in one.effects if effect.outcome is Outcome.BETTER]
    parts = [_share(effect.measure, [effect]) for effect in better]
    text = _takes(by, "takes", parts, name)
    level = [effect.measure.value for effect in one.effects if effect not in better]
    same = f", and the same {_listed(level, 'and')} within {_margin(margin)}" if level else ""
    return f"{text}{same}."


def _open(group: Sequence[Recommendation], verdict: Verdict) -> str:
    """The advice for aims by which a contender may still be better, because intervals are wide."""
    unpriced = [name for one in group for name in one.price_open]
    if unpriced:
        return f"no verdict yet, because {_price_open(unpriced, verdict)}"
    possible = _possible(group)
    if possible:
        other = "program" if verdict.programs else "allocator"
        return f"no verdict yet, because another {other} may still save up to {possible}"
    missing = next(one for one in group if one.possible_with is not None)
    name = formatting.printable(missing.possible_with or "")
    return f"no verdict, because the {missing.aim.value} of {name} is not known in every round"


def _possible(aims: Sequence[Recommendation]) -> str:
    """The savings that are still possible as a list; empty if none is known."""
    savings = [_less(aim) for aim in aims if aim.possible is not None]
    return _listed(savings, "or") if savings else ""


def _keep(verdict: Verdict, aims: Sequence[Recommendation]) -> str:
    """The sentence that advises to keep the baseline, for aims by which no contender is better."""
    base = formatting.printable(verdict.baseline)
    effects = [one.effect(aim.aim) for one in verdict.judgements for aim in aims]
    outcomes = {effect.outcome for effect in effects}
    names = [aim.aim.value for aim in aims]
    many = len(verdict.judgements) > 1
    dear = [name for one in aims for name in one.too_dear]
    if dear:
        sentence = f"Keep {base}: {_too_dear(dear, verdict)}."
        possible = _possible(aims)
        return f"{sentence} No other can save more than {possible}." if possible else sentence
    if outcomes == {Outcome.EQUIVALENT}:
        subject = "every contender takes" if many else f"{_only(verdict)} takes"
        return (
            f"Keep {base}: {subject} the same {_listed(names, 'and')} within "
            f"{_margin(verdict.margin)}."
        )
    if outcomes == {Outcome.WORSE}:
        return f"Keep {base}: it takes the least {_listed(names, 'and')}."
    if outcomes == {Outcome.WORSE, Outcome.EQUIVALENT}:
        subject = "no contender takes" if many else f"{_only(verdict)} does not take"
        return f"Keep {base}: {subject} less {_listed(names, 'or')}."
    subject = "no contender is" if many else f"{_only(verdict)} is not"
    than = f" by more than {100 * verdict.margin:g} %" if Outcome.BETTER in outcomes else ""
    sentence = f"Keep {base}: {subject} shown to be better{than}."
    possible = _possible(aims)
    if not possible:
        return sentence
    return f"{sentence} {'None can' if many else 'It cannot'} save more than {possible}."


def _only(verdict: Verdict) -> str:
    return formatting.printable(verdict.judgements[0].contender)


def _less(aim: Recommendation) -> str:
    """The saving that is still possible, for example "2.3 % of time"."""
    return f"{_bound(aim.possible or 0.0)} of {aim.aim.value}"


def _bound(ratio: float) -> str:
    """The end of an interval in percent, with about as many digits as in the table."""
    percent = 100 * ratio
    return f"{percent:.{0 if percent >= 10 else 1 if percent >= 1 else 2}f} %"


def _evidence(verdict: Verdict) -> Iterator[str]:
    """Yields the sentences on the contenders: the recommended ones first."""
    recommended = verdict.recommended
    only = verdict.only_choice
    judged = {one.contender: one for one in verdict.judgements}
    first = [judged[name] for name in recommended if judged[name] is not only]
    rest = [one for one in verdict.judgements if one.contender not in recommended]
    groups: list[list[Judgement]]
    if len(verdict.judgements) <= ALONE_MOST:
        groups = [[one] for one in (*first, *rest)]
    else:
        groups = [*_alike(first, len(first) > ALONE_MOST), *_alike(rest, True)]
    if all(
        effect.outcome is Outcome.EQUIVALENT for one in verdict.judgements for effect in one.effects
    ):
        return
    unknown = [group for group in groups if not _told(group[0])]
    told = [group for group in groups if _told(group[0])]
    base = formatting.printable(verdict.baseline)
    level = [group for group in told if _only_level(group)]
    for group in told:
        if group not in level:
            yield _sentence(group, base, verdict.margin)
    if level:
        yield _sentence([one for group in level for one in group], base, verdict.margin)
    silent = [formatting.printable(one.contender) for group in unknown for one in group]
    if silent and (told or only is not None):
        yield f"No difference is shown for {_listed(silent, 'and')}."
    lazy = [formatting.printable(one.contender) for one in verdict.judgements if one.lazily_freed]
    if lazy:
        yield (
            f"The additional memory of {_listed(lazy, 'and')} is lazily freed: the kernel takes it "
            "back when other programs need memory."
        )


def _alike(judgements: Sequence[Judgement], together: bool) -> list[list[Judgement]]:
    """Groups contenders by what is proven of them. Without `together`, each is a group alone."""
    if not together:
        return [[one] for one in judgements]
    groups: dict[tuple[object, ...], list[Judgement]] = {}
    for one in judgements:
        time, *others = one.effects
        pattern = (
            time.outcome,
            *(effect.outcome if effect.outcome in _SHOWN else None for effect in others),
        )
        groups.setdefault(pattern, []).append(one)
    return list(groups.values())


def _told(one: Judgement) -> bool:
    """Whether anything is proven of the contender: a difference, or that its time is the same."""
    time, *others = one.effects
    return time.outcome in (*_SHOWN, Outcome.EQUIVALENT) or any(
        effect.outcome in _SHOWN for effect in others
    )


def _only_level(group: Sequence[Judgement]) -> bool:
    """Whether all that is proven of the contenders is that their time is the same."""
    time, *others = group[0].effects
    return time.outcome is Outcome.EQUIVALENT and not any(
        effect.outcome in _SHOWN for effect in others
    )


def _sentence(group: Sequence[Judgement], base: str, margin: float) -> str:
    """The sentence on contenders that have the same proven differences."""
    names = _listed([formatting.printable(one.contender) for one in group], "and")
    takes = "takes" if len(group) == 1 else "take"
    text = _takes(names, takes, list(_parts(group, margin)), base)
    match group[0].effects[0].outcome:
        case Outcome.NOT_SHOWN:
            return f"{text}; no difference in time is shown."
        case Outcome.NOT_KNOWN:
            return f"{text}; time is not known."
    return f"{text}."


class _Share(Struct, frozen=True):
    """One proven difference in words."""

    how: str
    """The size and the direction, such as "36 % less". If two measures have the same size and
    direction, a sentence names it once: "36 % less time and memory"."""
    what: str
    """The measure, such as "time"."""
    note: str
    """The amount in brackets, such as " (1.2 MiB less)", or ""."""
    better: bool | None
    preposition: str
    """The word before the baseline: "than" or "of"."""

    @property
    def text(self) -> str:
        return f"{self.how} {self.what}{self.note}"


def _parts(group: Sequence[Judgement], margin: float) -> Iterator[_Share]:
    """Yields the proven differences of a group, in the order of the measures."""
    for measure in Measure:
        effects = [one.effect(measure) for one in group]
        outcome = effects[0].outcome
        if outcome in _SHOWN:
            yield _share(measure, effects)
        elif measure is Measure.TIME and outcome is Outcome.EQUIVALENT:
            yield _Share("the same", f"time within {_margin(margin)}", "", None, "as")


def _share(measure: Measure, effects: Sequence[Effect]) -> _Share:
    """The differences of one measure, which are all better or all worse, as one phrase."""
    better = effects[0].outcome is Outcome.BETTER
    ratios = [effect.ratio or 1.0 for effect in effects]
    noun = measure.value
    amount = effects[0].amount
    size = ""
    if measure is Measure.MEMORY and amount is not None and len(effects) == 1:
        size = units.size(abs(amount))
    if max(ratios) >= formatting.TWICE:
        how = _range([_multiple(effect) for effect in _ends(effects)])
        how = "twice the" if how == "2.0" else f"{how} times the"
        return _Share(how, noun, f" ({size} more)" if size else "", better, "of")
    if max(ratios) <= formatting.TENTH:
        parts = [f"1/{round(1 / ratio):,}" for ratio in sorted(ratios, reverse=True)]
        how = f"{_range([parts[0], parts[-1]])} of the"
        return _Share(how, noun, f" ({size} less)" if size else "", better, "of")
    word = "less" if better else "more"
    if better and measure is Measure.FAULTS:
        word = "fewer"
    how = _range([_percent(effect) for effect in _ends(effects)])
    if how == "50" and better:
        return _Share("half the", noun, f" ({size} less)" if size else "", better, "of")
    return _Share(f"{how} % {word}", noun, f" ({size})" if size else "", better, "than")


def _ends(effects: Sequence[Effect]) -> list[Effect]:
    """The effects with the smallest and the largest difference from 1."""
    ordered = sorted(effects, key=lambda effect: abs((effect.ratio or 1.0) - 1))
    return [ordered[0], ordered[-1]]


def _range(texts: Sequence[str]) -> str:
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def _percent(effect: Effect) -> str:
    """The difference in percent, without a sign and no more precise than its interval."""
    percent = abs(100 * ((effect.ratio or 1.0) - 1))
    half_width = 50 * ((effect.high or 0.0) - (effect.low or 0.0))
    # Two significant digits, after rounding: 9.98 is 10, not 10.0.
    most = 1 - math.floor(math.log10(float(f"{percent:.1e}"))) if percent else 0
    digits = most if half_width <= 0 else min(most, -math.floor(math.log10(half_width)))
    digits = max(0, min(digits, 2))
    text = f"{percent:.{digits}f}"
    return text if float(text) else f"{percent:.{max(0, most)}f}"


def _multiple(effect: Effect) -> str:
    ratio = effect.ratio or 1.0
    return formatting.multiple(ratio, ((effect.high or 0.0) - (effect.low or 0.0)) / 2)


def _takes(subject: str, verb: str, parts: Sequence[_Share], base: str) -> str:
    """A sentence on the parts, without a full stop. "but" separates better parts from worse ones.

    On each side the measures keep their order. The side of the first difference comes first. If all
    parts need the same word before the baseline, that word and the baseline follow the last part.
    Otherwise the sentence begins with the baseline.
    """
    sides = [part.better for part in parts if part.better is not None]
    first = [part for part in parts if part.better in (None, *sides[:1])]
    rest = [part for part in parts if part not in first]
    if first and first[0].better is None and False in sides[:1] and len(first) > 1:
        first, rest = ([first[0]], [*first[1:]]) if not rest else (first, rest)
    sides_merged = [_merged(side) for side in (first, rest) if side]
    if len({part.preposition for part in parts}) > 1:
        return f"Compared with {base}, {subject} {verb} {_sides_text(sides_merged)}"
    last = sides_merged[-1][-1]
    if last.preposition == "of":
        # The amount is of the measure: "twice the memory of system (100 MiB more)".
        sides_merged[-1][-1] = replace(last, note=f" of {base}{last.note}")
        tail = ""
    else:
        tail = f" {last.preposition} {base}"
    return f"{subject} {verb} {_sides_text(sides_merged)}{tail}"


def _sides_text(sides: Sequence[Sequence[_Share]]) -> str:
    return ", but ".join(_listed([part.text for part in side], "and") for side in sides)


def _merged(parts: Sequence[_Share]) -> list[_Share]:
    """Joins parts with equal differences: "20 % less time and CPU time"."""
    merged: list[_Share] = []
    for part in parts:
        last = merged[-1] if merged else None
        if last is not None and last.how == part.how and not last.note:
            what = f"{last.what.replace(' and ', ', ')} and {part.what}"
            merged[-1] = _Share(last.how, what, part.note, last.better, last.preposition)
        else:
            merged.append(part)
    return merged


def _listed(words: Sequence[str], last: str) -> str:
    """A list in words, with the conjunction `last`: "a, b and c", or "a and b, and c"."""
    if len(words) == 1:
        return words[0]
    comma = "," if any(f" {last} " in word for word in words) else ""
    return f"{', '.join(words[:-1])}{comma} {last} {words[-1]}"


def _margin(margin: float) -> str:
    return f"±{100 * margin:g} %"
