"""Links of many calls put together: what is said about one place, by all heads."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnscope.model_run import ModelRun
from attnscope.sources.model.head_entries import site_of
from attnscope.sources.model.sides import CallKey, key_of
from attnscope.survey.tokens import Focus, Link, LinkOptions, Place

# heads · places of one call: (weight, head, place, first)
Strongest = list[tuple[float, int, int, float]]


@dataclass(frozen=True, slots=True, eq=False)
class Strip:
    """The strongest links of each focus in one call.

    Shapes: total (focuses, others), the sum over heads; first (focuses,), the same.
    """

    call: int  # which call of the document
    group: int  # heads that share a key head
    part: str
    heads: int
    focuses: tuple[Place, ...]
    others: tuple[Place, ...]
    strongest: list[Strongest]
    total: Tensor
    first: Tensor | None


def focuses_of(
    strips: Sequence[Strip], document: ModelRun, names: dict[CallKey, str], options: LinkOptions
) -> list[Focus]:
    """Put the calls together that say something about the same place over the same others."""
    groups: dict[tuple[str, tuple[int, ...], int], list[tuple[Strip, int]]] = {}
    for one in strips:
        for number, place in enumerate(one.focuses):
            group = (one.part, place.positions, len(one.others))
            groups.setdefault(group, []).append((one, number))
    found = [
        _focus(part, members, document, names, options) for (part, *_), members in groups.items()
    ]
    return sorted(found, key=lambda focus: focus.place.positions)


def _focus(
    part: str,
    members: Sequence[tuple[Strip, int]],
    document: ModelRun,
    names: dict[CallKey, str],
    options: LinkOptions,
) -> Focus:
    """Join what several calls say about one place: the strongest links, and the means."""
    links = []
    for one, number in members:
        call = document.calls[one.call]
        site = site_of(call.site, key_of(call.captured), names)
        links += [
            Link(site, head, head // one.group, one.others[other], weight, first)
            for weight, head, other, first in one.strongest[number]
        ]
    # a NaN comes first: nobody knows how large it is
    links.sort(key=lambda link: (not math.isnan(link.weight), -link.weight))
    heads = sum(one.heads for one, _ in members)
    total = torch.stack([one.total[number] for one, number in members]).sum(dim=0) / heads
    best, places = torch.topk(total, min(options.limit, len(total)))
    others = members[0][0].others
    means = tuple(
        (others[place], mean)
        for mean, place in zip(best.tolist(), places.tolist(), strict=True)
        if mean != 0.0
    )
    firsts = [one.first[number] for one, number in members if one.first is not None]
    first = float(torch.stack(firsts).sum() / heads) if firsts else None
    place = members[0][0].focuses[members[0][1]]
    return Focus(part, place, heads, tuple(links[: options.limit]), means, first)
