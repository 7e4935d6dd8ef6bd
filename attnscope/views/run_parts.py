"""A Run as parts: which steps are shown, and in which order."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attnscope.run import Axis, Run
from attnscope.views.look import SUMMARY_ABOVE, Look
from attnscope.views.parts import Band, Grid, Line, Listing, Part, Tone
from attnscope.views.shapes import shapes_of_run
from attnscope.views.style import HIDDEN, STEPS, gap, number
from attnscope.views.tokens_parts import parts_of_tokens

if TYPE_CHECKING:
    from torch import Tensor

    from attnscope.attention.result import AttentionResult

Rows = tuple[int, ...]


def parts_of_run(run: Run, look: Look) -> Iterator[Part]:
    """Return the parts of a run in reading order."""
    long = max(len(run.queries), len(run.keys)) > SUMMARY_ABOVE
    walk = look.queries is not None and not look.show
    yield Line(_headline(run), Tone.HEADING)
    if look.shows("tokens", default=not walk and not long):
        yield from _tokens(run, look)
    if look.shows("shapes", default=not walk):
        yield shapes_of_run(run)
    yield from _inputs(run, look)
    for result in run.layers:
        if walk:
            yield from _walks(run, result, look)
        else:
            yield from matrices_of_result(run, result, look)
        yield from _agreement(result)
    if long and not look.show and not walk:
        yield Line(
            f"{len(run.queries)} queries × {len(run.keys)} keys: a summary. --show all prints every "
            "step, --query N one row",
            Tone.HINT,
        )


def _headline(run: Run) -> str:
    s = run.settings
    parts = [f"{s.variant} attention"]
    if s.heads > 1:
        shared = "" if s.key_heads == s.heads else f" ({s.key_heads} key heads)"
        parts.append(f"{s.heads} heads{shared}")
    if s.causal:
        parts.append(f"mask method {s.mask_method}")
    if s.align:
        parts.append(f"aligned {s.align}")
    if s.seed is not None:
        parts.append(f"seed {s.seed}")
    return " · ".join([*parts, s.dtype, s.device])


def _tokens(run: Run, look: Look) -> Iterator[Part]:
    title = "tokens and ids"
    if run.queries.tokens is not None:
        shown = f"{title} of the queries" if run.crossed else title
        yield parts_of_tokens(run.queries.tokens, shown, look.rows(len(run.queries)))
    if run.crossed and run.keys.tokens is not None:
        yield parts_of_tokens(run.keys.tokens, f"{title} of the keys")


def _inputs(run: Run, look: Look) -> Iterator[Part]:
    if run.inputs is None:
        return
    rows = look.rows(len(run.queries))
    width = _positions("x", run.inputs.query_inputs.shape[1])
    if look.shows("embeddings", default=False):
        title = STEPS["embeddings"]
        queries = _band("token", run.queries, rows)
        name = f"{title} of the queries" if run.crossed else title
        yield _grid("embeddings", name, queries, width, run.inputs.query_inputs)
        if run.crossed:
            keys = _band("token", run.keys)
            yield _grid("embeddings", f"{title} of the keys", keys, width, run.inputs.key_inputs)
    if look.shows("projections", default=False):
        weights = run.inputs.projections
        for head in look.heads(run.settings.heads):
            for name in ("w_query", "w_key", "w_value"):
                matrix = getattr(weights, name)[head]
                columns = _positions(name[2], matrix.shape[1])
                symbol = name.replace("w_", "W_")
                yield _grid("projections", symbol, width, columns, matrix, head)


def matrices_of_result(run: Run, result: "AttentionResult", look: Look) -> Iterator[Part]:
    """Return the matrices of one attention call, head by head, in the order of computation."""
    long = max(len(run.queries), len(run.keys)) > SUMMARY_ABOVE
    call, steps = result.call, result.mask_steps
    rows = look.rows(len(run.queries))
    queries, keys = _band("query", run.queries, rows), _band("key", run.keys)
    masked = bool(run.settings.causal) or not bool(result.steps.visible.all())
    for head in look.heads(call.heads):
        key_head = call.key_head(head)
        seen = result.visible[head]
        for step, band, tensor in (
            ("queries", queries, call.query[head]),
            ("keys", keys, call.key[key_head]),
            ("values", keys, call.value[key_head]),
        ):
            if look.shows(step, default=False):
                columns = _positions(step[0], tensor.shape[1])
                yield _grid(step, STEPS[step], band, columns, tensor, head)
        if look.shows("omegas", default=not long):
            yield _grid("omegas", STEPS["omegas"], queries, keys, result.scores[head], head)
        if look.shows("mask", default=False):
            yield _grid("mask", STEPS["mask"], queries, keys, seen, head, whole=True)
        if look.shows("scaled", default=masked and steps is None and not long):
            title = f"{STEPS['scaled']} {number(call.scale, 4)}·ω" + (
                f", {HIDDEN} hidden before the softmax" if masked and steps is None else ""
            )
            hide = seen if steps is None else None
            scaled = result.steps.scaled[head]
            yield _grid("scaled", title, queries, keys, scaled, head, seen=hide)
        if steps is not None:
            for step, tensor in (("unmasked", steps.unmasked), ("masked", steps.masked)):
                if look.shows(step, default=not long):
                    seen_here = seen if step == "masked" else None
                    yield _weights(step, queries, keys, tensor[head], head, seen_here)
            if look.shows("row-sums", default=not long):
                columns = Band("sum", ("row sum",))
                sums = steps.row_sums[head][:, None]
                yield _grid("row-sums", STEPS["row-sums"], queries, columns, sums, head)
        if look.shows("weights", default=not long):
            yield _weights("weights", queries, keys, result.weights[head], head, seen)
        if look.shows("summary", default=long):
            yield _summary(run, result, head, rows, look)
        if look.shows("context", default=not long):
            columns = _positions("z", result.context.shape[2])
            yield _grid("context", STEPS["context"], queries, columns, result.context[head], head)
    if call.heads > 1 and look.head is None and look.shows("concatenation", default=not long):
        yield _concatenation(result, queries)


def _concatenation(result: "AttentionResult", queries: Band) -> Grid:
    heads, total, width = result.context.shape
    joined = result.context.transpose(0, 1).reshape(total, heads * width)
    names = tuple(f"h{head} z{i}" for head in range(heads) for i in range(width))
    return _grid("concatenation", STEPS["concatenation"], queries, Band("value", names), joined)


def _walks(run: Run, result: "AttentionResult", look: Look) -> Iterator[Part]:
    """One query at a time, key by key: everything that leads to its context vector."""
    for head in look.heads(result.call.heads):
        for row in look.rows(len(run.queries)):
            yield from _walk(run, result, head, row)


def _walk(run: Run, result: "AttentionResult", head: int, row: int) -> Iterator[Part]:
    call = result.call
    key_head = call.key_head(head)
    query = _band("query", run.queries, (row,))
    name = f"query {query.heading(0)}"
    widths = _positions("q", call.query.shape[2])
    yield _grid("queries", f"{name}: q = x·W_query", query, widths, call.query[head], head)
    seen = result.visible[head][row].tolist()
    columns: list[tuple[str, list[float], bool]] = [
        ("ω = q·k", result.scores[head][row].tolist(), False),
        (f"ω·{number(call.scale, 4)}", result.steps.scaled[head][row].tolist(), True),
    ]
    if result.mask_steps is not None:
        columns.append(("softmax", result.mask_steps.unmasked[head][row].tolist(), False))
        columns.append(("masked", result.mask_steps.masked[head][row].tolist(), True))
    weight_column = len(columns)
    columns.append(("weight", result.weights[head][row].tolist(), True))
    for letter, tensor in (("k", call.key[key_head]), ("v", call.value[key_head])):
        by_column = tensor.transpose(0, 1).tolist()
        columns += [(f"{letter}{i}", column, False) for i, column in enumerate(by_column)]
    yield Grid(
        "walk",
        f"{name}: every key",
        _band("key", run.keys),
        Band("number", tuple(column[0] for column in columns)),
        tuple(zip(*(column[1] for column in columns), strict=True)),
        head,
        tuple(tuple(hide and not sees for _, _, hide in columns) for sees in seen),
        frozenset({weight_column}),
    )
    if result.mask_steps is not None:
        sums = result.mask_steps.row_sums[head][:, None]
        yield _grid("row-sums", f"{name}: row sum", query, Band("sum", ("row sum",)), sums, head)
    widths = _positions("z", result.context.shape[2])
    title = f"{name}: context z = Σ weight·v"
    yield _grid("context", title, query, widths, result.context[head], head)


def _summary(
    run: Run, result: "AttentionResult", head: int, rows: Rows, look: Look
) -> Listing:
    values = result.strongest_weights[head].tolist()
    places = result.strongest_keys[head].tolist()
    entropy = result.entropy[head].tolist()
    listed = []
    for row in rows:
        tops = [
            f"{key} {run.keys.labels[key]} {number(weight, look.precision)}"
            for weight, key in zip(values[row], places[row], strict=True)
            if key >= 0
        ]
        name = f"{row} {run.queries.labels[row]}"
        listed.append((name, ", ".join(tops) or "sees no key", number(entropy[row], look.precision)))
    title = f"{STEPS['summary']}{_of_head(head, result.call.heads)}"
    columns = ("query", "strongest keys and their weights", "entropy (nats)")
    return Listing(title, columns, tuple(listed), (False, False, True))


def _agreement(result: "AttentionResult") -> Iterator[Line]:
    if result.reference_gap is None:
        yield Line("torch has no kernel with a softcap to compare with", Tone.HINT)
        return
    if result.agrees:
        yield Line(f"agrees with torch: max |Δ| = {gap(result.reference_gap)}", Tone.GOOD)
    else:
        yield Line(f"differs from torch: max |Δ| = {gap(result.reference_gap)}", Tone.WARNING)


def _of_head(head: int | None, heads: int) -> str:
    return "" if head is None or heads == 1 else f" · head {head}"


def _band(name: str, axis: Axis, positions: Rows | None = None) -> Band:
    if positions is None:
        positions = tuple(range(len(axis)))
    return Band(name, tuple(axis.labels[i] for i in positions), positions)


def _positions(letter: str, width: int) -> Band:
    return Band("value", tuple(f"{letter}{i}" for i in range(width)))


def _weights(
    step: str, rows: Band, columns: Band, tensor: "Tensor", head: int, seen: "Tensor | None"
) -> Grid:
    return _grid(step, STEPS[step], rows, columns, tensor, head, seen=seen, tinted=True)


def _grid(
    step: str,
    title: str,
    rows: Band,
    columns: Band,
    tensor: "Tensor",
    head: int | None = None,
    *,
    seen: "Tensor | None" = None,
    tinted: bool = False,
    whole: bool = False,
) -> Grid:
    """Return rows of a matrix as a grid, those at the positions of the `rows` band."""
    picked = tensor if rows.positions is None else tensor[list(rows.positions)]
    hidden = None
    if seen is not None:
        shown = seen if rows.positions is None else seen[list(rows.positions)]
        hidden = tuple(tuple(row) for row in (~shown).tolist())
    values = tuple(tuple(row) for row in picked.tolist())
    tints = frozenset(range(len(columns.labels))) if tinted else frozenset[int]()
    return Grid(step, title, rows, columns, values, head, hidden, tints, whole)
