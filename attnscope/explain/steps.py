"""The steps from one token to its context vector, head by head."""

from collections.abc import Iterator

from torch import Tensor

from attnscope.explain.document import Step, Table
from attnscope.explain.flash import flash_steps
from attnscope.explain.numbers import Column, Row, kept, key_table, left_out, sum_of, vector
from attnscope.explain.weights import neg_inf_steps, renormalize_steps
from attnscope.run import Run
from attnscope.text.display import label


def steps_of_query(
    run: Run, query: int, head: int | None, dims: int, flash: int | None
) -> Iterator[Step]:
    """Return the steps of one query, in the order of computation."""
    result = run.layers[0]
    first = Row(run, result, 0, query, dims)
    if run.queries.tokens is not None:
        yield _token(first)
    if run.inputs is not None:
        yield _embedding(first)
    for each in range(result.call.heads) if head is None else (head,):
        row = Row(run, result, each, query, dims)
        yield _query(row)
        yield _keys(row)
        yield _values(row)
        yield _omegas(row)
        yield _scaled(row)
        masking = neg_inf_steps if result.mask_steps is None else renormalize_steps
        yield from masking(row)
        yield _context(row)
        if flash is not None:
            yield from flash_steps(row, flash)
    if result.call.heads > 1 and head is None:
        yield _concatenation(first)


def _token(row: Row) -> Step:
    tokens = row.run.queries.tokens
    assert tokens is not None
    source = tokens.source(row.query)
    return Step(
        "token",
        "token and id",
        "id = vocabulary[token]",
        "The vocabulary gives each token a whole number: its id.",
        words=(
            ("position", str(row.query)),
            ("token", tokens.labels[row.query]),
            ("id", str(tokens.ids[row.query])),
            ("text", label(source) if source else "–"),
        ),
    )


def _embedding(row: Row) -> Step:
    assert row.run.inputs is not None
    x = row.run.inputs.query_inputs[row.query].detach().cpu()
    places = kept(x, row.dims)
    size = row.run.settings.vocabulary_size
    return Step(
        "embedding",
        "embedding x",
        "x = table[id]",
        "The id picks one row of the embedding table"
        + (f" ({size} rows × {len(x)}): " if size else ": ")
        + "the vector that stands for this token.",
        tuple(x.shape),
        tables=(vector("token", row.query_name, "x", x, places),),
        left_out=left_out("numbers of x", x, places),
    )


def _query(row: Row) -> Step:
    q = row.query_vector
    places = kept(q, row.dims)
    missing = left_out("numbers of q", q, places)
    if row.run.inputs is None:
        return Step(
            "query",
            "query q",
            "q is given",
            "The query says what this position looks for; "
            + ("the model computed it." if row.run.sites else "the file holds it as it is."),
            tuple(q.shape),
            row.head,
            tables=(vector("query", row.query_name, "q", q, places),),
            left_out=missing,
        )
    x = row.run.inputs.query_inputs[row.query].detach().cpu()
    weights = row.run.inputs.projections.w_query[row.head].detach().cpu()
    names = [f"x{i}" for i in range(len(x))]
    return Step(
        "query",
        "query q",
        f"q = x·W_query, {_shape(x)} · {_shape(weights)}",
        "Each number of q adds up the numbers of x, each times its weight in one column of "
        "W_query. The query says what this token looks for.",
        tuple(q.shape),
        row.head,
        sums=tuple(sum_of(f"q{i}", x, weights[:, i], q[i], row.dims, names) for i in places),
        left_out=missing,
    )


def _keys(row: Row) -> Step:
    places = kept(row.query_vector, row.dims)
    made = row.run.inputs is not None
    other = " of the other text" if row.run.crossed else ""
    return Step(
        "keys",
        "keys k",
        "k = x·W_key" if made else "k is given",
        (f"Every token{other} is multiplied by W_key in the same way. " if made else "")
        + "A key says what a token can be found by.",
        tuple(row.keys.shape),
        row.head,
        tables=(_vectors(row, "k", row.keys, places),),
        left_out=(
            *row.keys_left_out(),
            *left_out("columns of k", row.keys.abs().amax(dim=0), places),
        ),
    )


def _values(row: Row) -> Step:
    places = kept(row.context, row.dims)
    made = row.run.inputs is not None
    return Step(
        "values",
        "values v",
        "v = x·W_value" if made else "v is given",
        ("The same tokens are multiplied by W_value as well. " if made else "")
        + "A value is what a token hands over when it is attended to.",
        tuple(row.values.shape),
        row.head,
        tables=(_vectors(row, "v", row.values, places),),
        left_out=(
            *row.keys_left_out(),
            *left_out("columns of v", row.values.abs().amax(dim=0), places),
        ),
    )


def _omegas(row: Row) -> Step:
    scores = row.of(row.result.scores)
    q = row.query_vector
    names = [f"q{i}·k{i}" for i in range(len(q))]
    return Step(
        "omegas",
        "omegas ω",
        "ω = q·k",
        "The dot product of the query with each key: large where the two point the same way.",
        tuple(scores.shape),
        row.head,
        sums=tuple(
            sum_of(f"ω with key {row.key_name(j)}", q, row.keys[j], scores[j], row.dims, names)
            for j in row.worked_keys
        ),
        left_out=row.keys_left_out(),
    )


def _scaled(row: Row) -> Step:
    call, omegas = row.call, row.of(row.result.scores)
    formula, facts = "scale·ω", [("scale", call.scale)]
    columns: list[Column] = [("ω", omegas, False, False)]
    sentence = (
        "Dot products grow with the width of the vectors; times the scale (1/√d_key unless the "
        "call has its own) they keep a size that suits the softmax."
    )
    if call.softcap is not None:
        columns.append(("scale·ω", omegas.double() * call.scale, False, False))
        formula = "softcap·tanh(scale·ω / softcap)"
        facts.append(("softcap", call.softcap))
        sentence += " The softcap bends them so that none passes it."
    if call.bias is not None:
        formula += " + bias"
        bias = call.bias.expand(call.heads, call.queries, call.keys)
        columns.append(("bias", row.of(bias), False, False))
        sentence += " The bias is added to them."
    columns.append(("scaled", row.of(row.result.steps.scaled), False, False))
    return Step(
        "scaled",
        "scaled scores",
        f"scaled = {formula}",
        sentence,
        tuple(omegas.shape),
        row.head,
        facts=tuple(facts),
        tables=(key_table(row, columns),),
    )


def _context(row: Row) -> Step:
    weights = row.of(row.result.weights)
    # A hidden key adds 0, unless its value is not a number, which 0 times it is not either.
    adds = (row.seen[:, None] | (weights[:, None] * row.values).isnan()).any(dim=1)
    adds &= bool(row.seen.any())
    keys = adds.nonzero()[:, 0].tolist()
    places = kept(row.context, row.dims)
    names = [row.key_name(j) for j in keys]
    listed = weights[keys]
    return Step(
        "context",
        "context z",
        "z = Σ weight·v",
        "The values of the keys are added up, each times its weight: what this query takes away."
        if keys
        else "This query may see no key, so it takes nothing away: its context is 0.",
        tuple(row.context.shape),
        row.head,
        sums=tuple(
            sum_of(f"z{i}", listed, row.values[keys, i], row.context[i], row.dims, names)
            for i in places
        ),
        left_out=left_out("numbers of z", row.context, places),
    )


def _concatenation(row: Row) -> Step:
    joined = row.result.context[:, row.query].detach().cpu()
    heads, width = joined.shape
    flat = joined.reshape(-1)
    places = kept(flat, max(row.dims, heads))
    columns = tuple(f"h{i // width} z{i % width}" for i in places)
    values = (tuple(flat[places].tolist()),)
    return Step(
        "concatenation",
        "all heads",
        "z = head 0, head 1, … one after the other",
        "Each head looked for something else; their context vectors are put side by side.",
        tuple(flat.shape),
        tables=(Table("query", (row.query_name,), columns, values),),
        left_out=left_out("numbers of z", flat, places),
    )


def _vectors(row: Row, letter: str, vectors: Tensor, places: list[int]) -> Table:
    columns: list[Column] = [(f"{letter}{i}", vectors[:, i], False, False) for i in places]
    return key_table(row, columns, row.worked_keys)


def _shape(tensor: Tensor) -> str:
    return "(" + " × ".join(str(n) for n in tensor.shape) + ")"
