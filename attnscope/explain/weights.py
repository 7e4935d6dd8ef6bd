"""The steps from scaled scores to weights: the mask and the softmax, in either order."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnscope.attention.online_softmax import SafeSoftmax, safe_softmax
from attnscope.explain.document import Step, Sum, Table
from attnscope.explain.numbers import Column, Row, key_table, sum_of


def neg_inf_steps(row: Row) -> Iterator[Step]:
    """Yield the mask (if the run has one) before the softmax, and the softmax."""
    logits = row.of(row.result.logits)
    if _masked(row):
        scaled = row.of(row.result.steps.scaled)
        yield Step(
            "mask",
            "mask",
            "logit = scaled, or −∞ where hidden",
            _who_sees(row) + " A hidden key gets −∞, so that its weight becomes exactly 0.",
            tuple(logits.shape),
            row.head,
            tables=(
                key_table(row, [("scaled", scaled, False, False), ("logit", logits, True, False)]),
            ),
        )
    yield _softmax(row, logits, row.of(row.result.weights), "weights", hides=True)


def renormalize_steps(row: Row) -> Iterator[Step]:
    """Yield the softmax over all keys, then the mask, then the division by the row sum."""
    steps = row.result.mask_steps
    assert steps is not None
    scaled, unmasked = row.of(row.result.steps.scaled), row.of(steps.unmasked)
    masked, weights = row.of(steps.masked), row.of(row.result.weights)
    yield _softmax(row, scaled, unmasked, "softmax", hides=False)
    columns: list[Column] = [
        ("softmax", unmasked, False, True),
        ("mask", row.seen.double(), False, False),
        ("masked", masked, True, True),
    ]
    yield Step(
        "mask",
        "mask",
        "masked = softmax · mask",
        _who_sees(row) + " The mask is 1 where this query may see the key and 0 where not.",
        tuple(masked.shape),
        row.head,
        tables=(key_table(row, columns),),
    )
    names = [row.key_name(j) for j in range(len(masked))]
    places = row.seen.nonzero()[:, 0].tolist()
    total = row.of(steps.row_sums)
    blind = " This query may see no key: its weights are 0." if not places else ""
    yield Step(
        "weights",
        "weights",
        "weight = masked / row sum",
        "What the mask left is divided by its sum, so that it adds to 1 again." + blind,
        tuple(weights.shape),
        row.head,
        sums=(
            sum_of("row sum", masked[places], None, total, row.dims, [names[j] for j in places]),
        ),
        tables=(
            key_table(row, [("masked", masked, True, False), ("weight", weights, True, True)]),
        ),
    )


def _softmax(row: Row, logits: Tensor, weights: Tensor, name: str, *, hides: bool) -> Step:
    """Return the softmax worked out: maximum, exponentials, their sum, the quotient."""
    worked = safe_softmax(logits, row.sink)
    places = row.seen.nonzero()[:, 0].tolist() if hides else list(range(len(logits)))
    columns: list[Column] = [
        ("scaled" if not hides else "logit", logits, hides, False),
        ("− maximum", worked.shifted, hides, False),
        ("exp", worked.exponentials, hides, False),
        ("weight" if hides else "softmax", weights, hides, True),
    ]
    sentence = (
        "The row's maximum is subtracted, which changes no weight and keeps exp from overflowing; "
        "each exponential is divided by their sum."
    )
    tables, facts = [key_table(row, columns)], []
    if not places:
        sentence = "This query may see no key: there is nothing to add up, and its weights are 0."
    else:
        facts = [("row maximum", float(worked.maximum))]
    if row.sink is not None:
        sentence += " The sink is one more logit without a value; it takes a part of the weight."
        tables.append(_sink_table(row.sink, worked))
    return Step(
        name,
        "softmax" if hides else "softmax over all keys",
        f"{'weight' if hides else 'softmax'} = exp({columns[0][0]} − maximum) / sum",
        sentence,
        tuple(weights.shape),
        row.head,
        facts=tuple(facts),
        sums=(_sum_of_exponentials(row, worked, places),) if places else (),
        tables=tuple(tables),
    )


def _sum_of_exponentials(row: Row, worked: SafeSoftmax, places: list[int]) -> Sum:
    terms, names = worked.exponentials[places], [row.key_name(j) for j in places]
    if worked.sink_exponential is not None:
        terms = torch.cat([terms, worked.sink_exponential[None]])
        names.append("sink")
    return sum_of("sum", terms, None, worked.total, row.dims, names)


def _sink_table(sink: Tensor, worked: SafeSoftmax) -> Table:
    assert worked.sink_exponential is not None
    share = worked.sink_exponential / worked.total
    numbers = (sink.double(), sink.double() - worked.maximum, worked.sink_exponential, share)
    columns = ("logit", "− maximum", "exp", "weight")
    return Table("sink", ("sink",), columns, (tuple(float(number) for number in numbers),))


def _masked(row: Row) -> bool:
    return row.run.settings.causal or not bool(row.result.steps.visible.all())


def _who_sees(row: Row) -> str:
    seen, total = int(row.seen.sum()), len(row.seen)
    rule = "Each token sees itself and what comes before it. " if _square_causal(row) else ""
    label = row.run.queries.labels[row.query]
    return f'{rule}Query {row.query} ("{label}") may see {seen} of {total} keys.'


def _square_causal(row: Row) -> bool:
    return row.run.settings.causal and not row.run.crossed
