"""The SVG heat map as a PNG, drawn by resvg without a display. [extra: png]"""

from attnscope.errors import MissingExtraError
from attnscope.run import Run
from attnscope.views.look import Look
from attnscope.views.svg_heatmap import render_svg

_ZOOM = 2.0  # pixels per unit of the SVG: sharp on a screen and in print


def render_png(run: Run, look: Look) -> bytes:
    """Return the picture. Raises: MissingExtraError without resvg-py; SizeError as the SVG."""
    try:
        import resvg_py
    except ImportError:
        raise MissingExtraError(
            "resvg-py is not installed", 'Install the extra: pip install "attnscope[png]"'
        ) from None
    return bytes(resvg_py.svg_to_bytes(svg_string=render_svg(run, look), zoom=_ZOOM))
