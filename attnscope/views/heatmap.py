"""The weights of a run as coloured cells in the terminal, several heads side by side."""

from collections.abc import Iterator

from attnscope.run import Run
from attnscope.views.grids import band, weights_grid
from attnscope.views.look import Look
from attnscope.views.parts import HeatMaps, Line, Part, Tone
from attnscope.views.run_parts import agreement_line, headline


def parts_of_heatmap(run: Run, look: Look) -> Iterator[Part]:
    """Return the weights of every head to show as one grid of heat maps."""
    yield Line(headline(run), Tone.HEADING)
    for result in run.layers:
        maps = [
            weights_grid(
                "weights",
                band("query", run.queries),
                band("key", run.keys),
                result.weights[head],
                head,
                result.visible[head],
            )
            for head in look.heads(result.call.heads)
        ]
        yield HeatMaps(tuple(maps), same_axes=not run.crossed)
        yield agreement_line(result)
