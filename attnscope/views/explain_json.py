"""An Explanation as strict JSON."""

from typing import TYPE_CHECKING, Any

from attnscope.views.json_text import dump, run_document
from attnscope.views.look import Look

if TYPE_CHECKING:
    from attnscope.explain import Explanation, Step
    from attnscope.explain.document import Sum, Table

VERSION = 1
# What an explanation says of its run, in the words of the run's own document.
_OF_THE_RUN = (
    "text", "key_text", "tokens", "key_tokens", "vocabulary", "settings", "shapes", "selection",
    "warnings", "notes", "provenance",
)  # fmt: skip


def render_explanation(explanation: "Explanation", head: int | None = None) -> str:
    """Return an explanation, of `head` if it was made of one, as one JSON document."""
    look = Look(queries=tuple(walk.query for walk in explanation.walks), head=head)
    whole = run_document(explanation.run, look)
    return dump(
        {
            "schema": "attnscope.explanation",
            "version": VERSION,
            **{name: whole[name] for name in _OF_THE_RUN},
            "queries": [
                {
                    "query": walk.query,
                    "label": walk.label,
                    "steps": [_step(step) for step in walk.steps],
                }
                for walk in explanation.walks
            ],
            "visible_prefixes": [
                {"query": p.query, "sees": p.sees, "words": p.words, "next": p.next}
                for p in explanation.prefixes
            ],
        }
    )


def _step(step: "Step") -> dict[str, Any]:
    return {
        "number": step.number,
        "name": step.name,
        "head": step.head,
        "title": step.title,
        "shape": step.shape,
        "formula": step.formula,
        "sentence": step.sentence,
        "words": dict(step.words),
        "facts": dict(step.facts),
        "sums": [_sum(worked) for worked in step.sums],
        "tables": [_table(table) for table in step.tables],
        "left_out": [
            {"what": m.what, "count": m.count, "measure": m.measure, "largest": m.largest}
            for m in step.left_out
        ],
    }


def _sum(worked: "Sum") -> dict[str, Any]:
    return {
        "name": worked.name,
        "terms": [
            {"place": t.place, "left": t.left, "right": t.right, "product": t.product}
            for t in worked.terms
        ],
        "terms_left_out": worked.left_out,
        "left_out_sum": worked.left_out_sum,
        "result": worked.result,
    }


def _table(table: "Table") -> dict[str, Any]:
    return {
        "row_kind": table.row_name,
        "rows": table.rows,
        "positions": table.positions,
        "columns": table.columns,
        "values": [
            [None if table.is_hidden(i, j) else value for j, value in enumerate(row)]
            for i, row in enumerate(table.values)
        ],
        "hidden": table.hidden,
    }
