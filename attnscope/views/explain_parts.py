"""An Explanation as parts: for each query its steps, each with formula, sentence and numbers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attnscope.views.look import SUMMARY_ABOVE, Look
from attnscope.views.parts import Band, Grid, Line, Listing, Part, Tone
from attnscope.views.style import number

if TYPE_CHECKING:
    from attnscope.explain import Explanation, Step
    from attnscope.explain.document import LeftOut, Sum, Table, Term

Numbers = tuple[float, ...]


def parts_of_explanation(
    explanation: "Explanation", look: Look, *, every_number: bool = False
) -> Iterator[Part]:
    """Return the parts of an explanation in reading order.

    With `every_number`, sums and single numbers are grids too: for a format that has no lines.
    """
    settings = explanation.run.settings
    for walk in explanation.walks:
        yield Line(f"query {walk.query} {walk.label}: from the word to its context vector",
                   Tone.HEADING)  # fmt: skip
        yield Line(_rounding(look, settings.dtype), Tone.HINT)
        for step in walk.steps:
            # in CSV a step is all that says which query a number belongs to
            name = step.name if len(explanation.walks) == 1 else f"{walk.query}/{step.name}"
            where = f" · head {step.head}" if step.head is not None and settings.heads > 1 else ""
            yield from _step(step, where, look)
            title = f"query {walk.query} {walk.label}: {step.title}{where}"
            for table in step.tables:
                yield _grid(title, step, table, name)
            for missing in step.left_out:
                yield Line(_left_out(missing, look), Tone.HINT)
            if every_number:
                yield from _lines_as_grids(title, step, name)
    yield from _prefixes(explanation)


def _rounding(look: Look, dtype: str) -> str:
    half = "" if dtype in ("float32", "float64") else (
        f" This run computes in {dtype}, which has few figures: a sum may differ by more."
    )  # fmt: skip
    decimals = "1 decimal" if look.precision == 1 else f"{look.precision} decimals"
    return (
        f"Numbers are rounded to {decimals} when they are printed. Sums are added before that, so "
        f"the last decimal of a sum may differ from its printed terms.{half}"
    )


def _step(step: "Step", where: str, look: Look) -> Iterator[Part]:
    size = " × ".join(str(n) for n in step.shape)
    shape = f" · shape {size}" if size else ""
    yield Line(" ")  # some air on a screen; Rich draws nothing for an empty text
    yield Line(f"{step.number}. {step.title}{where}{shape}", Tone.HEADING)
    yield Line(step.formula)
    yield Line(step.sentence)
    if step.words:
        names, words = zip(*step.words, strict=True)
        yield Listing(f"{step.title}{where}", names, (words,), (False,) * len(names))
    for name, value in step.facts:
        yield Line(f"{name} = {number(value, look.precision)}")
    for worked in step.sums:
        yield Line(_sum_line(worked, look))


def _sum_line(worked: "Sum", look: Look) -> str:
    """Return a sum written out: "q0 = 0.1794·0.2961 + 1.8951·0.2517 = 0.5300"."""
    if not worked.terms:
        return f"{worked.name} = {number(worked.result, look.precision)}"
    terms = [_term(term, worked, look, first=i == 0) for i, term in enumerate(worked.terms)]
    if worked.left_out:
        many = "term that is" if worked.left_out == 1 else "terms that add to"
        rest = number(worked.left_out_sum, look.precision)
        terms.append(f"… and {worked.left_out} more {many} {rest}")
    return f"{worked.name} = {' + '.join(terms)} = {number(worked.result, look.precision)}"


def _term(term: "Term", worked: "Sum", look: Look, *, first: bool) -> str:
    text = _factor(term.left, look, bare=first)
    if term.right is not None:
        text += f"·{_factor(term.right, look, bare=False)}"
    # where some terms are left out, a reader cannot count which ones are there
    return f"{text} ({term.place})" if worked.left_out else text


def _factor(value: float, look: Look, *, bare: bool) -> str:
    text = number(value, look.precision)
    return f"({text})" if text.startswith("-") and not bare else text


def _left_out(missing: "LeftOut", look: Look) -> str:
    largest = number(missing.largest, look.precision)
    return f"… and {missing.count} more of the {missing.what}, {missing.measure} {largest}"


def _grid(title: str, step: "Step", table: "Table", name: str) -> Grid:
    return Grid(
        name,
        title,
        Band(table.row_name, table.rows, table.positions),
        Band("number", table.columns),
        table.values,
        step.head,
        table.hidden,
        table.weight_columns,
    )


def _lines_as_grids(title: str, step: "Step", name: str) -> Iterator[Grid]:
    """Return the numbers of the lines of a step as grids."""

    def grid(
        kind: str, rows: tuple[str, ...], columns: tuple[str, ...], values: tuple[Numbers, ...]
    ) -> Grid:
        return Grid(name, title, Band(kind, rows), Band("number", columns), values, step.head)

    if step.facts:
        names, facts = zip(*step.facts, strict=True)
        yield grid("step", (step.title,), names, (facts,))
    for worked in step.sums:
        places = tuple(term.place for term in worked.terms)
        if any(term.right is None for term in worked.terms):
            terms: tuple[Numbers, ...] = tuple((term.left,) for term in worked.terms)
            yield grid(f"term of {worked.name}", places, ("term",), terms)
        elif worked.terms:
            terms = tuple((t.left, t.right or 0.0, t.product) for t in worked.terms)
            yield grid(f"term of {worked.name}", places, ("left", "right", "product"), terms)
        result = (float(worked.left_out), worked.left_out_sum, worked.result)
        yield grid("sum", (worked.name,), ("terms left out", "left out", "result"), (result,))


def _prefixes(explanation: "Explanation") -> Iterator[Part]:
    asked = {walk.query for walk in explanation.walks}
    every = len(explanation.run.queries) <= SUMMARY_ABOVE
    listed = [p for p in explanation.prefixes if every or p.query in asked]
    if listed:
        rows = tuple((f"{p.words} → {p.next}",) for p in listed)
        yield Listing("what each word may see → the word that comes next", ("sees → next",), rows,
                      (False,))  # fmt: skip
