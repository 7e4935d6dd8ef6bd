"""The weights of a run as coloured cells in the terminal, several heads side by side."""

from collections.abc import Iterator

from attnscope.run import Run
from attnscope.views.grids import band, weights_of_head
from attnscope.views.look import Look
from attnscope.views.parts import HeatMaps, Line, Part, Tone
from attnscope.views.proof_parts import proof_line, site_title
from attnscope.views.run_parts import headline


def parts_of_heatmap(run: Run, look: Look) -> Iterator[Part]:
    """Return the weights of every head to show as one grid of heat maps."""
    yield Line(headline(run), Tone.HEADING)
    for i, result in enumerate(run.layers):
        if run.sites:
            yield Line(site_title(run.sites[i], result), Tone.SECTION)
        maps = [
            weights_of_head(result, head, band("query", run.queries), band("key", run.keys))
            for head in look.heads(result.call.heads)
        ]
        yield HeatMaps(tuple(maps), same_axes=not run.crossed and result.call.sinks is None)
        yield proof_line(run, i)
