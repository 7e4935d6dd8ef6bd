"""HeadSurvey: what each head of a model does on some texts, beside what chance would give."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from attnscope.errors import OptionError
from attnscope.run import Site
from attnscope.text.display import visible

# What is measured, in the order in which it is shown. All but the last three are shares of a row.
MEASURES: dict[str, str] = {
    "first": "weight on the first token",
    "special": "weight on special tokens",
    "previous": "weight on the token before",
    "next": "weight on the token after",
    "same": "weight on earlier places of the row's token",
    "induction": "weight on what followed earlier places of the row's token",
    "local": "weight within the local distance",
    "distance": "mean distance, in tokens",
    "entropy": "entropy of a row, in nats",
    "largest": "largest weight of a row",
}
SORTS = ("name", "layer", "probe", *MEASURES)
LOCAL_DISTANCE = 8
SEED = 0
PROBE_TOKENS = 25


class Kind(StrEnum):
    """What a head is called by what it does."""

    PREVIOUS = "previous"
    NEXT = "next"
    INDUCTION = "induction"
    SAME = "same"
    FIRST = "first"
    SPECIAL = "special"
    LOCAL = "local"


# How much of the way from chance to all of a row a head must go to be called so. What many heads
# do a little of (rest on the first token, stay near) takes more.
LEAST = {
    Kind.PREVIOUS: 0.3, Kind.NEXT: 0.3, Kind.INDUCTION: 0.3, Kind.SAME: 0.3,
    Kind.FIRST: 0.5, Kind.SPECIAL: 0.5, Kind.LOCAL: 0.5,
}  # fmt: skip
# Whether tokens make such a head: then what random tokens at the same places get is chance too.
_OF_CONTENT = (Kind.INDUCTION, Kind.SAME)


@dataclass(frozen=True, slots=True)
class HeadOptions:
    """What to measure. `layer` is what --layer says; None: every layer."""

    layer: str | None = None
    window: int = LOCAL_DISTANCE
    no_sink: bool = False
    probe: bool = False
    seed: int = SEED

    def __post_init__(self) -> None:
        if not -(2**63) <= self.seed < 2**64:
            raise OptionError(f"--seed {self.seed} is out of range", "Give a number of 64 bits")


@dataclass(frozen=True, slots=True)
class Score:
    """A mean over `rows` rows, and what chance gives: None where nothing was to be measured.

    `control`: the same places with random tokens in them. `uniform`: a row that spreads evenly
    over what it may see.
    """

    value: float | None = None
    control: float | None = None
    uniform: float | None = None
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Name:
    """Something that a head does, how much of it, and whether the probe showed it."""

    kind: Kind
    value: float
    probed: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """One head: its scores by the name of the measure, and its names, the strongest first.

    `most` is the largest weight of all rows, `probe` what a repeated random sequence showed.
    """

    site: Site
    head: int
    key_head: int
    scores: dict[str, Score]
    most: Score
    probe: dict[str, Score] = field(default_factory=dict)
    names: tuple[Name, ...] = ()

    @property
    def effective_keys(self) -> float | None:
        """exp of the mean entropy: over how many keys a row spreads, as if it did so evenly."""
        entropy = self.scores["entropy"].value
        return None if entropy is None else math.exp(entropy)

    def value(self, measure: str) -> float | None:
        """Return a number by its name in `SORTS`, "name" being that of the strongest name."""
        if measure == "name":
            return self.names[0].value if self.names else None
        if measure == "probe":
            return self.probe["induction"].value if self.probe else None
        return None if measure == "layer" else self.scores[measure].value


@dataclass(frozen=True, slots=True)
class SurveyText:
    """A text that was measured; `source` for the encoder of an encoder-decoder."""

    text: str
    tokens: int
    source: str | None = None
    source_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class HeadSurvey:
    """What the heads of a model do; means are over the rows of all texts."""

    model: str
    texts: tuple[SurveyText, ...]
    options: HeadOptions
    heads: tuple[Head, ...]
    sites: tuple[Site, ...]
    without: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)


def names_of(scores: dict[str, Score], probe: dict[str, Score]) -> tuple[Name, ...]:
    """Return what a head does, the strongest first.

    A score counts by its way from chance c to all of the row: (value − c) / (1 − c). Weight on
    special tokens is a name only for a head without a first-token name, staying near only for one
    without any other.
    """
    found: list[tuple[float, Name]] = []
    for kind in (Kind.PREVIOUS, Kind.NEXT, Kind.SAME, Kind.FIRST):
        found += _named(kind, scores[kind])
    inductions = _named(Kind.INDUCTION, scores["induction"])
    inductions += _named(Kind.INDUCTION, probe.get("induction", Score()), probed=True)
    found += sorted(inductions, key=lambda pair: pair[0])[-1:]
    if all(name.kind is not Kind.FIRST for _, name in found):
        found += _named(Kind.SPECIAL, scores["special"])
    found = found or _named(Kind.LOCAL, scores["local"])
    return tuple(name for _, name in sorted(found, key=lambda pair: -pair[0]))


def _named(kind: Kind, score: Score, *, probed: bool = False) -> list[tuple[float, Name]]:
    value, chances = score.value, [score.uniform]
    if kind in _OF_CONTENT:
        chances.append(score.control)
    chance = max((c for c in chances if c is not None and not math.isnan(c)), default=0.0)
    if value is None or math.isnan(value) or chance >= 1.0:
        return []
    way = (value - chance) / (1.0 - chance)
    return [(way, Name(kind, value, probed))] if way >= LEAST[kind] else []


@dataclass(frozen=True, slots=True)
class Ranking:
    """Which heads to show, and in which order: `only` of this kind, at least `least` of `sort`."""

    sort: str = "name"
    only: str | None = None
    least: float | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.sort not in SORTS:
            raise OptionError(
                f'--sort "{visible(self.sort)}" is no measure', f"Give one of {', '.join(SORTS)}"
            )
        kinds = (*Kind, "none")
        if self.only is not None and self.only not in kinds:
            raise OptionError(
                f'--only "{visible(self.only)}" is no kind of head',
                f"Give one of {', '.join(kinds)}",
            )
        if self.limit is not None and self.limit < 1:
            raise OptionError(f"--limit {self.limit} is not positive", "Give 1 or more")
        if self.least is not None and not math.isfinite(self.least):
            raise OptionError(f"--min {self.least} is no limit", "Give a finite number")


def ranked(survey: HeadSurvey, asked: Ranking) -> HeadSurvey:
    """Return a survey with the heads that were asked for, in order, all of them.

    By name: first the heads that look for something, by how strongly; then those that stay near,
    then those that rest on the first token, then those without a name.
    """
    measure = "name" if asked.sort == "layer" else asked.sort
    heads = [head for head in survey.heads if _is(head, asked.only)]
    if asked.least is not None:
        heads = [head for head in heads if _reaches(head.value(measure), asked.least)]
    if asked.sort != "layer":
        heads = sorted(heads, key=lambda head: _place(head, measure))
    return replace(survey, heads=tuple(heads))


def counts_of(heads: Iterable[Head]) -> dict[str, int]:
    """Return how many heads have each kind as their first name, "none" for those without."""
    counts = dict.fromkeys((*Kind, "none"), 0)
    for head in heads:
        counts[head.names[0].kind if head.names else "none"] += 1
    return {kind: count for kind, count in counts.items() if count}


def _is(head: Head, kind: str | None) -> bool:
    if kind is None:
        return True
    return not head.names if kind == "none" else any(name.kind == kind for name in head.names)


def _reaches(value: float | None, least: float) -> bool:
    # a NaN is shown, whatever was asked: nobody knows how large it is
    return value is not None and (math.isnan(value) or value >= least)


def _place(head: Head, measure: str) -> tuple[bool, int, float]:
    value = head.value(measure)
    common = 0
    if measure == "name" and head.names:
        common = {Kind.LOCAL: 1, Kind.FIRST: 2}.get(head.names[0].kind, 0)
    size = math.inf if value is not None and math.isnan(value) else value
    return size is None, common, -(size or 0.0)


def check_measured(asked: Ranking, options: HeadOptions) -> None:
    """Raise OptionError if heads are to be sorted or chosen by what will not be measured."""
    if asked.sort == "probe" and not options.probe:
        raise OptionError("--sort probe sorts by the probe", "Add --probe")
    for name, value in (("--sort", asked.sort), ("--only", asked.only)):
        if options.no_sink and value == Kind.FIRST:
            raise OptionError(
                f"--no-sink leaves the first token out, and {name} first is about it",
                "Leave one out",
            )


def unsorted_note(survey: HeadSurvey, asked: Ranking) -> list[str]:
    """Return a note if no head has the number that heads are to be sorted by."""
    values = (head.value(asked.sort) for head in survey.heads)
    if asked.sort in ("name", "layer") or any(value is not None for value in values):
        return []
    return [f"--sort {asked.sort} changes nothing: in this text no head has that measure"]


def nonfinite(head: Head) -> int:
    """Return how many numbers of a head are NaN or infinite."""
    scores: Sequence[Score] = (*head.scores.values(), head.most, *head.probe.values())
    numbers = (n for score in scores for n in (score.value, score.control, score.uniform))
    return sum(1 for number in numbers if number is not None and not math.isfinite(number))
