"""LayerSurvey: what each layer of a model is, as its attention was seen to be."""

import re
from dataclasses import dataclass, field

from attnscope.run import Site


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """One attention call.

    `sees`: what its mask lets a query see; `limit`: what the configuration says beyond, which a
    short text cannot show. `positions`: how it knows where a token stands. `share`: of all
    query × key cells, those that may be seen. None: not known for a call that was only observed.
    """

    site: Site
    module_class: str
    sees: str
    limit: str | None
    heads: int
    key_heads: int
    queries: int
    keys: int
    d_key: int | None
    d_value: int
    scale: float | None
    softcap: float | None
    sinks: bool
    bias: bool
    positions: str
    share: float


@dataclass(frozen=True, slots=True)
class Without:
    """A block that has no attention: its name, and what stands in its place."""

    name: str
    mixer: str  # the name of a class
    kind: str  # "linear" or "none"

    @property
    def layer(self) -> int | None:
        """The number in the name."""
        numbers = re.findall(r"(?:^|\.)([0-9]+)(?:\.|$)", self.name)
        return int(numbers[-1]) if numbers else None


@dataclass(frozen=True, slots=True)
class LayerSurvey:
    """The layers of a model, those without attention too."""

    model: str
    architecture: str
    tokens: int
    source_tokens: int | None
    layers: tuple[LayerFacts, ...]
    without: tuple[Without, ...] = ()
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)

    def in_order(self) -> "list[LayerFacts | Without]":
        """Return all layers by their numbers; in a model of several parts, by part."""
        rows: list[tuple[tuple[int, int], LayerFacts | Without]] = []
        parts = list(dict.fromkeys(facts.site.part for facts in self.layers))
        rows += [((parts.index(f.site.part), f.site.layer), f) for f in self.layers]
        for block in self.without:
            layer = block.layer
            rows.append(((0, 1 << 30) if layer is None else (0, layer), block))
        return [row for _, row in sorted(rows, key=lambda pair: pair[0])]
