"""docs/models.md, written from the fidelity matrix."""

import math

from tests.conftest import ROOT
from tests.sources.families import FAMILIES, WITHOUT
from tests.sources.matrix import cells

PATH = ROOT / "docs" / "models.md"
HEAD = ("family", "attention", "default", "route", "calls", "error", "weights", "padding")

INTRODUCTION = """\
# Models whose attention was proven

This page is written by `pytest tests/sources/test_capture_matrix.py --rewrite-golden`, and the
tests fail when it is out of date; the versions are those of `constraints.txt`. Each family was
built tiny (two layers, twelve tokens) with the code of transformers, its parameters drawn anew so
that attention is peaked: with flat attention every mistake is a small one. Each was run under the
implementation that it chooses by itself and under eager, without padding and with padding at the
left and at the right. In every run

- every tensor of the output was the same to the last bit with capture and without it;
- the context of every call, computed again from its record, was the implementation's own output:
  *error* is the largest relative difference, as the next power of ten;
- the weights were those that the eager model returns, within 1e-5, at the queries of all tokens
  that are not padding, where it returns them; elsewhere the table says why they were not compared;
- every call that the family makes was recorded: *calls*, of one text.

*Route* is how a call was seen: `interface`, the implementation that transformers chose; `sdpa` and
`multi_head_attention`, torch's own functions; `softmax`, attention written by hand. There the
record holds the weights themselves, and the error, 0, only says that weights and values belong
together; that they are the right weights is what the comparison with eager says. Flash attention
needs a GPU: its rules (causal, windows and padding told by no mask) were tested with a function
that computes the same.

Real models, whose heads have work that is known, were proven in the same way under their own fused
kernels: all-MiniLM-L6-v2 (head 2 of layer 0 looks at the previous token), the ALBERT of rxnmapper
(head 5 of layer 10 maps the atoms of a reaction, 11 of 11 right), SmolLM2-135M (head 0 of layer 16
looks at the previous token, head 6 of layer 18 behind the previous occurrence), Whisper tiny.en
(cross-attention follows the speech) and a transliteration by torch's nn.Transformer
(cross-attention aligns the letters).
"""

WITHOUT_HEAD = ("family", "attention", "calls", "what is said")
WITHOUT_INTRODUCTION = """
## What is not recorded

Attention that is no matrix of queries and keys, and layers without attention weights. Nothing
captured is an error, and what was met and left out is a line of `skipped`; never an empty result,
never a part of it for the whole. The blocks of a hybrid that have no attention are
`capture(...).without`.
"""


def power(error):
    """Return an error as the next power of ten; 0 and NaN as they are."""
    return f"{error:g}" if error == 0 or math.isnan(error) else f"1e{math.ceil(math.log10(error))}"


def row(name):
    """Return the line of a family."""
    family, found = FAMILIES[name], cells(name)
    default = found[None, None]
    recorded = min(cell.recorded for cell in found.values())
    routes = sorted(default.routes, reverse=True)
    eager = found["eager", None].routes - default.routes
    return line(
        name,
        family.attention,
        default.implementation,
        " and ".join(f"`{x}`" for x in routes) + "".join(f"; eager: `{x}`" for x in sorted(eager)),
        f"{recorded} of {family.calls}",
        power(max(cell.error for cell in found.values())),
        agreement(family, default.compared),
        ", ".join(family.sides) or "none to test",
    )


def agreement(family, compared):
    """Return what is known of the weights against the eager ones."""
    if family.differs:
        where = "" if None in family.differs_at else f", padded {' or '.join(family.differs_at)}"
        return f"equal under eager; by default not compared{where}: {family.differs}"
    if family.reason and not compared:
        return f"not compared: {family.reason}"
    if family.reason:
        return f"equal for {compared} of {family.calls}; {family.reason}"
    return "equal"


def line(*columns):
    return "| " + " | ".join(columns) + " |"


def without(name):
    """Return the line of a family that is not recorded."""
    family = WITHOUT[name]
    return line(name, family.attention, f"{family.recorded} of {family.calls}", family.says)


def document():
    """Return the whole page."""
    rows = [line(*HEAD), line(*["---"] * len(HEAD)), *map(row, FAMILIES)]
    others = [line(*WITHOUT_HEAD), line(*["---"] * len(WITHOUT_HEAD)), *map(without, WITHOUT)]
    return "\n".join([INTRODUCTION, *rows, WITHOUT_INTRODUCTION, *others, ""])


def same(mine, theirs):
    """Return whether two lines agree; errors may differ by one power, as processors do."""
    if mine == theirs:
        return True
    mine, theirs = mine.split(" | "), theirs.split(" | ")
    column = HEAD.index("error")
    if len(mine) != len(HEAD) or len(theirs) != len(HEAD):
        return False
    errors = float(mine.pop(column)), float(theirs.pop(column))
    if 0 in errors:
        return mine == theirs and max(errors) <= 1e-6
    return mine == theirs and abs(math.log10(errors[0] / errors[1])) < 1.5
