"""The dimensions of everything in a run, as one table."""

from attnscope.run import Run
from attnscope.views.parts import Listing


def shape_rows(run: Run) -> list[tuple[str, tuple[int, ...], str]]:
    """Return name, shape and meaning of every array of a run, in the order of the computation."""
    result = run.layers[0]
    call = result.call
    rows: list[tuple[str, tuple[int, ...], str]] = []
    if run.inputs is not None:
        weights = run.inputs.projections
        table = (run.settings.vocabulary_size or 0, run.settings.d_model or 0)
        rows.append(("embedding table", table, "vocabulary size × d_model"))
        name = "query embeddings" if run.crossed else "embeddings"
        rows.append((name, tuple(run.inputs.query_inputs.shape), "tokens × d_model"))
        if run.crossed:
            shape = tuple(run.inputs.key_inputs.shape)
            rows.append(("key embeddings", shape, "tokens × d_model"))
        rows.append(("W_query", tuple(weights.w_query.shape), "heads × d_model × d_key"))
        rows.append(("W_key", tuple(weights.w_key.shape), "heads × d_model × d_key"))
        rows.append(("W_value", tuple(weights.w_value.shape), "heads × d_model × d_value"))
    keyed = "heads" if call.heads == call.key_heads else "key heads"
    if not result.observed:  # else there are weights and values alone
        rows.append(("queries", tuple(call.query.shape), "heads × queries × d_key"))
        rows.append(("keys", tuple(call.key.shape), f"{keyed} × keys × d_key"))
    rows.append(("values", tuple(call.value.shape), f"{keyed} × keys × d_value"))
    if not result.observed:
        rows.append(("omegas", tuple(result.scores.shape), "heads × queries × keys"))
    rows += [
        ("weights", tuple(result.weights.shape), "heads × queries × keys"),
        ("context", tuple(result.context.shape), "heads × queries × d_value"),
    ]
    if call.heads > 1:
        heads, queries, width = result.context.shape
        rows.append(("concatenation", (queries, heads * width), "queries × heads·d_value"))
    return rows


def shapes_of_run(run: Run) -> Listing:
    """Return the shapes of a run as a table."""
    rows = tuple(
        (name, " × ".join(str(n) for n in shape), meaning)
        for name, shape, meaning in shape_rows(run)
    )
    return Listing("shapes", ("array", "shape", "axes"), rows, (False, False, False))
