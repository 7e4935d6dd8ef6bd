"""MeasuredRun: exact numbers about attention of any length, without the matrices."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from attnscope.attention.call import AttentionCall
from attnscope.attention.head_choice import chosen_heads, chosen_measures
from attnscope.attention.measured import Measures
from attnscope.attention.verify import ObservedCall
from attnscope.errors import OptionError
from attnscope.run import Axis, Settings, Site


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredLayer:
    """One attention call: its measures, and its record if that was kept.

    `numbers` says which query head each head of the measures is; `key_heads` which head of keys
    each of those reads. `call` has the same heads as the measures. `site`: of a model.
    """

    measures: Measures
    numbers: tuple[int, ...]
    key_heads: tuple[int, ...]
    call: AttentionCall | ObservedCall | None = None
    site: Site | None = None

    def place(self, head: int) -> int | None:
        """Return where a query head stands in the measures; None if it was not measured."""
        return self.numbers.index(head) if head in self.numbers else None


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRun:
    """One text through attention, measured: every number but the matrices.

    `top`, `window` and `grid` are what the measures were asked with: how many of the strongest
    keys of each row, how near a local key is, how many cells the map has along an edge.
    """

    settings: Settings
    queries: Axis
    keys: Axis
    layers: tuple[MeasuredLayer, ...]
    top: int
    window: int
    grid: int | None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)

    @property
    def crossed(self) -> bool:
        """Whether the keys belong to another sequence than the queries."""
        return self.queries is not self.keys

    def layer_name(self, index: int) -> str:
        """Return the name of a layer, or its place in the run."""
        site = self.layers[index].site
        return str(index) if site is None else site.name

    def only(self, head: int | None) -> "MeasuredRun":
        """Return the run for one query head. Raises: OptionError if it was not measured."""
        if head is None:
            return self
        layers = tuple(_one_head(layer, head) for layer in self.layers)
        return replace(self, layers=layers)


def _one_head(layer: MeasuredLayer, head: int) -> MeasuredLayer:
    place = layer.place(head)
    if place is None:
        raise OptionError(
            f"--head {head} is not among the heads that were measured", _known(layer.numbers)
        )
    return replace(
        layer,
        measures=chosen_measures(layer.measures, [place]),
        numbers=(head,),
        key_heads=(layer.key_heads[place],),
        call=None if layer.call is None else chosen_heads(layer.call, [place]),
    )


def _known(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"There is {numbers[0]}"
    return f"There are {numbers[0]} to {numbers[-1]}"
