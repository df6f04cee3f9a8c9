"""The sentences of a verdict: the advice first, then what is proven of each contender.

All sentences are written from a Verdict alone. A sentence on a contender names its measures in the
order time, CPU time, memory, page faults, and only those in which a difference is proven.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cairn import units
from cairn.compare import suitability
from cairn.model import Prospect
from cairn.report import formatting
from cairn.verdict import (
    Advice,
    Effect,
    Judgement,
    Measure,
    Outcome,
    Recommendation,
    State,
    Verdict,
)

ALONE_MOST = 4
"""Up to this many contenders have a sentence each. Of more, those that are not recommended share a
sentence if the same is proven of them."""

_SHOWN = (Outcome.BETTER, Outcome.WORSE)


@dataclass(frozen=True, slots=True)
class Says:
    """The sentences of a verdict, in the order in which a report prints them."""

    advice: tuple[str, ...]
    """What to do; at least one sentence."""
    evidence: tuple[str, ...] = ()
    """What is proven of the contenders."""
    failures: tuple[str, ...] = ()
    """The contenders that failed."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.advice, *self.evidence, *self.failures)


def says(verdict: Verdict) -> Says:
    """Returns the sentences. They are printable."""
    base = formatting.printable(verdict.baseline)
    failures = tuple(
        _failure(formatting.printable(one.contender), formatting.message(one.why))
        for one in verdict.failed
        if one.contender != verdict.baseline
    )
    match verdict.state:
        case State.BASELINE_FAILED:
            why = next(one.why for one in verdict.failed if one.contender == verdict.baseline)
            advice: tuple[str, ...] = (
                f"No verdict: the program fails under {base}, so there is nothing to compare with.",
                _failure("It", formatting.printable(why), out=False),
            )
        case State.OTHERS_FAILED:
            advice = (f"Keep {base}: every other contender failed.",)
        case State.ALONE:
            advice = (f"Keep {base}: no other contender was run.",)
        case State.NO_ROUND:
            advice = ("No verdict yet: no round is complete.",)
        case State.TOO_FEW_ROUNDS:
            advice = (_too_few(verdict),)
        case State.JUDGED:
            return Says((*_waits(verdict), _advice(verdict)), tuple(_evidence(verdict)), failures)
    return Says(advice, (), failures)


def _failure(name: str, why: str, *, out: bool = True) -> str:
    """A sentence on a failed contender. `why` is the rest of a sentence, or a sentence."""
    left = " It is left out." if out else ""
    if why[:1].islower():
        return f"{name} {why.removesuffix('.')}.{left}"
    return f"{name} failed: {why}{left}" if out else why


def _waits(verdict: Verdict) -> Iterator[str]:
    """Yields a sentence if the program waits most of the time."""
    if verdict.waits and verdict.cpu_share is not None:
        yield suitability.waiting(verdict.cpu_share, under_load=verdict.under_load)


def _too_few(verdict: Verdict) -> str:
    """The sentence on a run whose rounds are too few for any interval."""
    rounds, least = verdict.rounds, verdict.rounds_least
    few = "1 round is" if rounds == 1 else f"{rounds} rounds are"
    sentence = f"No answer yet: {few} too few for an interval."
    if least is None or least <= rounds:
        return sentence
    took = ""
    if verdict.rounds_least_s is not None:
        took = f", which take about {units.duration(max(1.0, verdict.rounds_least_s))}"
    return f"{sentence} At least {least} rounds are needed{took}: -r {least}."


def outlook(prospect: Prospect | None) -> Iterator[str]:
    """Yields a sentence on what more rounds would bring, if that is known."""
    if prospect is not None:
        more = units.counted(prospect.more, "more round")
        took = units.duration(max(1.0, prospect.more_s))
        width = units.percent(prospect.half_width, signed=False)
        yield f"{more}, about {took}, would narrow the intervals of time to ±{width}."


def _costs_nothing(only: Judgement, verdict: Verdict) -> Iterator[str]:
    """Yields sentences on the aims by which the only choice is level with the baseline."""
    level = [one.aim for one in verdict.measured if one.advice is Advice.KEEP]
    same = [aim.value for aim in level if only.effect(aim).outcome is Outcome.EQUIVALENT]
    if same:
        be = "is" if len(same) == 1 else "are"
        yield f"Its {_listed(same, 'and')} {be} the same within {_margin(verdict.margin)}."
    unclear = [aim for aim in level if only.effect(aim).outcome is Outcome.NOT_SHOWN]
    if unclear:
        most = [f"{_bound((only.effect(aim).high or 1.0) - 1)} more {aim.value}" for aim in unclear]
        yield (
            f"No difference in {_listed([aim.value for aim in unclear], 'or')} is shown: at most "
            f"{_listed(most, 'or')} is possible."
        )


def _advice(verdict: Verdict) -> str:
    """What to do by each aim. Aims with the same advice share a sentence."""
    base = formatting.printable(verdict.baseline)
    measured = verdict.measured
    if not measured:
        return "No answer: neither time, CPU time nor memory was measured in every run."
    if all(one.advice is Advice.KEEP for one in measured):
        return _keep(verdict, measured)
    if all(one.advice is Advice.OPEN for one in measured):
        return f"N{_open(measured)[1:]}."
    only = verdict.only_choice
    if only is not None:
        by = _listed([one.aim.value for one in measured if one.best], "and")
        head = f"By {by}: use {formatting.printable(only.contender)}."
        parts = [part for part in _parts([only], verdict.margin) if part.better is not None]
        proof = f"It takes {_joined(parts)} {parts[-1].preposition} {base}."
        return " ".join([head, proof, *_costs_nothing(only, verdict)])
    groups: list[list[Recommendation]] = []
    for one in measured:
        same = next((group for group in groups if _same(group[0], one)), None)
        if same is None:
            groups.append([one])
        else:
            same.append(one)
    sentences = []
    for group in groups:
        by = _listed([one.aim.value for one in group], "and")
        match group[0].advice:
            case Advice.USE:
                what = f"use {_choice(group, verdict.margin)}"
            case Advice.KEEP:
                what = f"keep {base}"
            case _:
                what = _open(group)
        sentences.append(f"By {by}: {what}.")
    return " ".join(sentences)


def _same(one: Recommendation, other: Recommendation) -> bool:
    return one.advice is other.advice and set(one.best) == set(other.best)


def _choice(group: Sequence[Recommendation], margin: float) -> str:
    """The recommended contenders of aims that have the same ones, and how they compare."""
    first = formatting.printable(group[0].best[0])
    lean = next((one.leanest for one in group if one.leanest is not None), None)
    best = [formatting.printable(name) for name in group[0].in_order]
    names = _listed(best, "or")
    if len(best) == 1:
        return names
    if all(one.alike for one in group):
        how = f"equal within {_margin(margin)}"
    elif len(best) == 2:
        how = "no difference between them shown"
    else:
        how = f"none is shown to be worse than {first}"
    price = ""
    if lean is not None:
        most = "the least" if len(best) > 2 else "less"
        price = f"; {formatting.printable(lean)} takes {most} memory"
    return f"{names} ({how}{price})"


def _open(group: Sequence[Recommendation]) -> str:
    """The advice where a difference may still hide in a wide interval."""
    possible = _possible(group)
    if possible:
        return f"no answer yet: up to {possible} is still possible"
    missing = next(one.possible_with for one in group if one.possible_with is not None)
    return f"no answer yet, since it is not known for {formatting.printable(missing)}"


def _possible(aims: Sequence[Recommendation]) -> str:
    """The savings that are still possible as a list; empty if none is known."""
    savings = [_less(aim) for aim in aims if aim.possible is not None]
    return _listed(savings, "or") if savings else ""


def _keep(verdict: Verdict, aims: Sequence[Recommendation]) -> str:
    """The sentence when no contender is shown to be better by any aim."""
    base = formatting.printable(verdict.baseline)
    effects = [one.effect(aim.aim) for one in verdict.judgements for aim in aims]
    names = [aim.aim.value for aim in aims]
    many = len(verdict.judgements) > 1
    if all(effect.outcome is Outcome.EQUIVALENT for effect in effects):
        subject = "every contender takes" if many else f"{_only(verdict)} takes"
        return (
            f"Keep {base}: {subject} the same {_listed(names, 'and')} within "
            f"{_margin(verdict.margin)}."
        )
    if all(effect.outcome is Outcome.WORSE for effect in effects):
        return f"Keep {base}: it takes the least {_listed(names, 'and')}."
    subject = "no contender is" if many else f"{_only(verdict)} is not"
    tiny = any(effect.outcome is Outcome.BETTER for effect in effects)
    less = f"over {100 * verdict.margin:g} % less" if tiny else "less"
    sentence = f"Keep {base}: {subject} shown to take {less} {_listed(names, 'or')}."
    possible = _possible(aims)
    return f"{sentence} At most {possible} is possible." if possible else sentence


def _only(verdict: Verdict) -> str:
    return formatting.printable(verdict.judgements[0].contender)


def _less(aim: Recommendation) -> str:
    """The saving that is still possible, for example "2.3 % less time"."""
    return f"{_bound(aim.possible or 0.0)} less {aim.aim.value}"


def _bound(ratio: float) -> str:
    """A bound in percent, rounded up."""
    percent = 100 * ratio
    digits = 0 if percent >= 10 else 1 if percent >= 1 else 2
    up = math.ceil(percent * 10**digits - 1e-9) / 10**digits
    return f"{up:.{digits}f} %"


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
    for place, group in enumerate(told):
        named = place == 0 and only is None
        yield _sentence(group, base if named else "", verdict.margin)
    silent = [formatting.printable(one.contender) for group in unknown for one in group]
    if silent and (told or only is not None):
        yield f"No difference is shown for {_listed(silent, 'and')}."
    lazy = [formatting.printable(one.contender) for one in verdict.judgements if one.lazily_freed]
    if lazy:
        yield (
            f"The additional memory of {_listed(lazy, 'and')} is lazily freed: the kernel can "
            "take it back."
        )


def _alike(judgements: Sequence[Judgement], together: bool) -> list[list[Judgement]]:
    """Groups the contenders of which the same is proven, if `together`; else each is a group."""
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


def _sentence(group: Sequence[Judgement], base: str, margin: float) -> str:
    """What is proven of contenders of which the same is proven.

    The sentence names the baseline if `base` is not empty.
    """
    names = _listed([formatting.printable(one.contender) for one in group], "and")
    it = "It takes" if len(group) == 1 else "They take"
    takes = "takes" if len(group) == 1 else "take"
    parts = list(_parts(group, margin))
    text = _joined(parts)
    if base:
        text += f" {parts[-1].preposition} {base}"
    match group[0].effects[0].outcome:
        case Outcome.NOT_SHOWN:
            return f"{names}: no difference in time shown. {it} {text}."
        case Outcome.NOT_KNOWN:
            return f"{names}: time is not known. {it} {text}."
    return f"{names} {takes} {text}."


@dataclass(frozen=True, slots=True)
class _Share:
    """One proven difference in words."""

    how: str
    """The part that equal differences share, such as "36 % less"."""
    what: str
    """The measure, such as "time"."""
    note: str
    """The amount in brackets, or nothing."""
    better: bool | None
    preposition: str
    """The word before the baseline: "than", "as" or "of"."""

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
    if max(ratios) >= _TWICE:
        how = _range([_multiple(effect) for effect in _ends(effects)])
        what = {Measure.TIME: "as long", Measure.FAULTS: f"as many {noun}"}.get(
            measure, f"as much {noun}"
        )
        how = "twice" if how == "2.0" else f"{how} times"
        return _Share(how, what, f" ({size} more)" if size else "", better, "as")
    if max(ratios) <= _TENTH:
        parts = [round(1 / ratio) for ratio in sorted(ratios, reverse=True)]
        how = f"{_ordinal(parts[0])} of the"
        if parts[-1] != parts[0]:
            how = f"1/{parts[0]} to 1/{parts[-1]} of the"
        return _Share(how, noun, f" ({size} less)" if size else "", better, "of")
    word = "less" if better else "more"
    if better and measure is Measure.FAULTS:
        word = "fewer"
    how = _range([_percent(effect) for effect in _ends(effects)])
    if how == "50" and better:
        return _Share("half the", noun, f" ({size} less)" if size else "", better, "of")
    return _Share(f"{how} % {word}", noun, f" ({size})" if size else "", better, "than")


_TWICE, _TENTH = 1.995, 0.1
"""From a ratio of 2 on, a difference is a multiple: "2.4 times as long". Down to a tenth it is a
percentage, and below it is a part: "a 20th of the time"."""


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
    half_width = ((effect.high or 0.0) - (effect.low or 0.0)) / 2
    return f"{ratio:,.{1 if ratio < 9.95 and half_width < 1 else 0}f}"


def _ordinal(number: int) -> str:
    """A part in words: "a 20th", "an 11th", "a 1,000th"."""
    tens = number % 100
    ending = "th" if 10 <= tens <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    spoken = f"{number:,}".partition(",")[0]
    article = "an" if spoken.startswith("8") or spoken in ("11", "18") else "a"
    return f"{article} {number:,}{ending}"


def _joined(parts: Sequence[_Share]) -> str:
    """The parts as a list. "but" separates the better ones from the worse ones, if it can."""
    merged: list[_Share] = []
    for part in parts:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.how == part.how
            and last.preposition == part.preposition != "as"
            and not last.note
        ):
            what = f"{last.what} and {part.what}"
            merged[-1] = _Share(last.how, what, part.note, last.better, last.preposition)
        else:
            merged.append(part)
    # A part that is neither better nor worse stands on the side of the first one.
    sides = [part.better for part in merged]
    turns = [
        place
        for place in range(1, len(sides))
        if sides[place] != sides[place - 1] and sides[place - 1] is not None
    ]
    if sides[0] is None and len(sides) > 1 and len(set(sides[1:])) == 1:
        turns = [1]
    texts = [part.text for part in merged]
    if len(turns) == 1:
        turn = turns[0]
        return f"{_listed(texts[:turn], 'and')}, but {_listed(texts[turn:], 'and')}"
    return _listed(texts, "and")


def _listed(words: Sequence[str], last: str) -> str:
    """A list in words, with the conjunction `last`: "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _margin(margin: float) -> str:
    return f"±{100 * margin:g} %"
