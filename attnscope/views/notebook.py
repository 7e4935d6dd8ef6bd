"""A Run in a notebook: its page in a frame, its numbers as arrays and data frames."""

import html
from typing import TYPE_CHECKING, Any

from attnscope.errors import MissingExtraError, OptionError, SizeError
from attnscope.run import Run
from attnscope.views.csv_text import table_of_grids
from attnscope.views.html_page import render_html
from attnscope.views.look import Look
from attnscope.views.run_parts import parts_of_run

if TYPE_CHECKING:
    import numpy as np

_ARRAYS = ("scores", "logits", "weights", "context", "visible", "entropy")
_FRAME_HEIGHT = 720  # pixels
# A notebook keeps its output in its file, so a page in it must be small.
_BUDGET_BYTES = 20_000_000


def html_frame(run: Run) -> str | None:
    """Return the page of a run in a sandboxed frame, or None if it is too large for a notebook."""
    try:
        page = render_html(run, Look(), budget_bytes=_BUDGET_BYTES)
    except SizeError:
        return None
    return (
        f'<iframe sandbox="allow-scripts" style="width:100%;height:{_FRAME_HEIGHT}px;border:0" '
        f'srcdoc="{html.escape(page)}"></iframe>'
    )


def to_numpy(run: Run, name: str = "weights") -> "np.ndarray[Any, Any]":
    """Return one step of the first layer as an array.

    `name` is that of an attribute of AttentionResult: scores, logits, weights, context, visible.
    Shapes: (heads, queries, keys); context (heads, queries, d_value). bfloat16 comes as float32.
    """
    if name not in _ARRAYS:
        raise OptionError(f"unknown step {name!r}", f"Give one of {', '.join(_ARRAYS)}")
    tensor = getattr(run.layers[0], name).detach().cpu()
    if tensor.is_floating_point() and tensor.element_size() < 4:
        tensor = tensor.float()
    array: np.ndarray[Any, Any] = tensor.numpy()
    return array


def to_pandas(run: Run) -> Any:
    """Return every number of a run as a data frame, one a row: what `--format csv` writes.

    Columns: step, layer (of a model), head, row_kind, row, row_label, column_kind, column,
    column_label, value; a hidden cell has the value NaN and True in `hidden`.
    Raises: MissingExtraError if pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas is not installed", "pip install pandas") from None
    header, cells = table_of_grids(parts_of_run(run, Look(summarise=False)))
    rows = [(*names, float(str(value or "nan")), value == "") for *names, value in cells]
    return pandas.DataFrame(rows, columns=[*header, "hidden"])
