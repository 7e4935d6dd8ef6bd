"""A Run as parts: which steps are shown, and in which order."""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attnscope.run import Run
from attnscope.views.grids import band, dimensions, grid, scaling, weights_grid, weights_of_head
from attnscope.views.look import SUMMARY_ABOVE, Look
from attnscope.views.parts import Band, Grid, Line, Listing, Part, Tone
from attnscope.views.proof_parts import proof_line, site_title
from attnscope.views.shapes import shapes_of_run
from attnscope.views.style import HIDDEN, NORMS, STEPS, number
from attnscope.views.tokens_parts import parts_of_tokens
from attnscope.views.walk import WIDEST, walks_of_result

if TYPE_CHECKING:
    from attnscope.attention.result import AttentionResult

Rows = tuple[int, ...]
# What a model that was only observed does not tell.
_NOT_OBSERVED = ("queries", "keys", "omegas", "scaled")


def parts_of_run(run: Run, look: Look) -> Iterator[Part]:
    """Return the parts of a run in reading order."""
    long = is_long(run) and look.summarise
    walk = look.queries is not None and not look.show
    yield Line(headline(run), Tone.HEADING)
    if look.shows("tokens", default=not walk and not long):
        yield from _tokens(run, look)
    if look.shows("shapes", default=not walk):
        yield shapes_of_run(run)
    yield from _inputs(run, look)
    for i, result in enumerate(run.layers):
        if run.sites:
            yield Line(site_title(run.sites[i], result), Tone.SECTION)
        if result.observed:
            yield Line("seen in the model as weights: its queries and keys were not", Tone.HINT)
        if walk:
            yield from (_named(part, run, i) for part in walks_of_result(run, result, look))
        else:
            yield from matrices_of_result(run, result, look, i)
        if _too_wide(result) and not look.show and not walk:
            width = result.context.shape[2]
            yield Line(
                f"--show context prints the context vectors, {width} numbers each", Tone.HINT
            )
        yield proof_line(run, i)
    if long and not look.show and not walk:
        if look.norms:
            yield Line("--show norms,output-norms prints the lengths that --norms adds", Tone.HINT)
        less = "--rows and --keys a smaller window" if look.window else "--query N one row"
        yield Line(
            f"{len(run.queries)} queries × {len(run.keys)} keys: a summary. --show all prints "
            f"every step, {less}",
            Tone.HINT,
        )


def is_long(run: Run) -> bool:
    """Return whether a run has too many tokens to show every number at once."""
    return max(len(run.queries), len(run.keys)) > SUMMARY_ABOVE


def steps_missing(run: Run, asked: tuple[str, ...]) -> list[str]:
    """Return a note for each step that was asked for and that this run does not have."""
    if set(STEPS) <= set(asked):  # all: everything there is
        return []
    reasons: dict[str, str] = {}
    if run.inputs is None:
        reasons |= dict.fromkeys(("embeddings", "projections"), "the vectors came alone")
        if run.queries.tokens is None:
            reasons["tokens"] = "the vectors came alone"
    if run.settings.mask_method != "renormalize":
        steps = ("unmasked", "masked", "row-sums")
        reasons |= dict.fromkeys(steps, "it is a step of --mask-method renormalize")
    if run.settings.heads == 1:
        reasons["concatenation"] = "there is one head"
    if all(result.projected_lengths is None for result in run.layers):
        reasons["output-norms"] = "the output projection is not known"
    if all(result.observed for result in run.layers):
        reasons |= dict.fromkeys(_NOT_OBSERVED, "the model was only observed")
    return [f"--show {step} shows nothing: {reasons[step]}" for step in asked if step in reasons]


def headline(run: Run) -> str:
    """Return what kind of run this is, in a line."""
    s = run.settings
    parts = [f"{s.variant} attention"] if s.model is None else [s.model, f"{s.variant} attention"]
    if s.heads > 1:
        shared = "" if s.key_heads == s.heads else f" ({s.key_heads} key heads)"
        parts.append(f"{s.heads} heads{shared}")
    if s.causal and s.model is None:
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
        yield parts_of_tokens(
            run.queries.tokens, shown, look.rows(len(run.queries)), run.queries.first
        )
    if run.crossed and run.keys.tokens is not None:
        yield parts_of_tokens(run.keys.tokens, f"{title} of the keys", None, run.keys.first)


def _inputs(run: Run, look: Look) -> Iterator[Part]:
    if run.inputs is None:
        return
    rows = look.rows(len(run.queries))
    width = dimensions("x", run.inputs.query_inputs.shape[1])
    if look.shows("embeddings", default=False):
        title = STEPS["embeddings"]
        queries = band("token", run.queries, rows)
        name = f"{title} of the queries" if run.crossed else title
        yield grid("embeddings", name, queries, width, run.inputs.query_inputs)
        if run.crossed:
            keys = band("token", run.keys)
            yield grid("embeddings", f"{title} of the keys", keys, width, run.inputs.key_inputs)
    if look.shows("projections", default=False):
        weights = run.inputs.projections
        for head in look.heads(run.settings.heads):
            for name in ("w_query", "w_key", "w_value"):
                matrix = getattr(weights, name)[head]
                columns = dimensions(name[2], matrix.shape[1])
                symbol = name.replace("w_", "W_")
                yield grid("projections", symbol, width, columns, matrix, head)


def matrices_of_result(
    run: Run, result: "AttentionResult", look: Look, layer: int = 0
) -> Iterator[Part]:
    """Return the matrices of one attention call, head by head, in the order of computation."""
    return (_named(part, run, layer) for part in _matrices(run, result, look))


def _named(part: Part, run: Run, layer: int) -> Part:
    """Name the layer and the head in the title where there are several."""
    if not isinstance(part, Grid):
        return part
    title, name = part.title, None
    if run.sites:
        name = run.layer_name(layer)
        title += f" · layer {name}" if len(run.layers) > 1 else ""
    if part.head is not None and run.settings.heads > 1:
        title += f" · head {part.head}"
        call = run.layers[layer].call
        if call.key_heads != call.heads:
            title += f", key head {call.key_head(part.head)}"
    return dataclasses.replace(part, title=title, layer=name)


@dataclasses.dataclass(frozen=True, slots=True)
class _Showing:
    """The steps that were asked for, and that a result has."""

    look: Look
    result: "AttentionResult"

    def shows(self, step: str, *, default: bool) -> bool:
        if self.result.observed and step in _NOT_OBSERVED:
            return False
        return self.look.shows(step, default=default)


def _matrices(run: Run, result: "AttentionResult", look: Look) -> Iterator[Part]:
    long = is_long(run) and look.summarise
    call, steps = result.call, result.mask_steps
    rows = look.rows(len(run.queries))
    queries, keys = band("query", run.queries, rows), band("key", run.keys)
    masked = bool(run.settings.causal) or not bool(result.steps.visible.all())
    show = _Showing(look, result)
    for head in look.heads(call.heads):
        key_head = call.key_head(head)
        seen = result.visible[head]
        for step, edge, tensor in (
            ("queries", queries, call.query[head]),
            ("keys", keys, call.key[key_head]),
            ("values", keys, call.value[key_head]),
        ):
            if show.shows(step, default=False):
                columns = dimensions(step[0], tensor.shape[1])
                yield grid(step, STEPS[step], edge, columns, tensor, head)
        if show.shows("omegas", default=not long):
            yield grid("omegas", STEPS["omegas"], queries, keys, result.scores[head], head)
        if show.shows("mask", default=False):
            yield grid("mask", STEPS["mask"], queries, keys, seen, head, whole=True)
        if show.shows("scaled", default=masked and steps is None and not long):
            title = f"{STEPS['scaled']} {scaling(call)}" + (
                f", {HIDDEN} hidden before the softmax" if masked and steps is None else ""
            )
            hide = seen if steps is None else None
            scaled = result.steps.scaled[head]
            yield grid("scaled", title, queries, keys, scaled, head, seen=hide)
        if steps is not None:
            for step, tensor in (("unmasked", steps.unmasked), ("masked", steps.masked)):
                if show.shows(step, default=not long):
                    seen_here = seen if step == "masked" else None
                    yield weights_grid(step, queries, keys, tensor[head], head, seen_here)
            if show.shows("row-sums", default=not long):
                columns = Band("sum", ("row sum",))
                sums = steps.row_sums[head][:, None]
                yield grid("row-sums", STEPS["row-sums"], queries, columns, sums, head)
        if show.shows("weights", default=not long):
            yield weights_of_head(result, head, queries, keys)
        for step in NORMS:
            # asked for by itself, whatever else is shown; a summary has no room for them
            if show.shows(step, default=False) or (look.norms and (look.show or not long)):
                yield from _norms(result, step, head, queries, keys)
        if show.shows("summary", default=long):
            yield _summary(run, result, head, rows, look)
        if show.shows("context", default=not long and not _too_wide(result)):
            columns = dimensions("z", result.context.shape[2])
            yield grid("context", STEPS["context"], queries, columns, result.context[head], head)
    if (
        call.heads > 1
        and look.head is None
        and show.shows("concatenation", default=not long and not _too_wide(result))
    ):
        yield _concatenation(result, queries)


def _norms(
    result: "AttentionResult", step: str, head: int, queries: Band, keys: Band
) -> Iterator[Grid]:
    lengths = result.norms if step == "norms" else result.output_norms
    if lengths is not None:
        seen = result.visible[head]
        yield grid(step, STEPS[step], queries, keys, lengths[head], head, seen=seen)


def _too_wide(result: "AttentionResult") -> bool:
    return bool(result.context.shape[2] > WIDEST)


def _concatenation(result: "AttentionResult", queries: Band) -> Grid:
    heads, total, width = result.context.shape
    joined = result.context.transpose(0, 1).reshape(total, heads * width)
    names = tuple(f"h{head} z{i}" for head in range(heads) for i in range(width))
    return grid("concatenation", STEPS["concatenation"], queries, Band("value", names), joined)


def _summary(run: Run, result: "AttentionResult", head: int, rows: Rows, look: Look) -> Listing:
    values = result.strongest_weights[head].tolist()
    places = result.strongest_keys[head].tolist()
    entropy = result.entropy[head].tolist()
    nothing = "sees no key" + (" of these" if run.queries.first or run.keys.first else "")
    listed = []
    for row in rows:
        tops = [
            f"{run.keys.first + key} {run.keys.labels[key]} {number(weight, look.precision)}"
            for weight, key in zip(values[row], places[row], strict=True)
            if key >= 0
        ]
        name = f"{run.queries.first + row} {run.queries.labels[row]}"
        listed.append((name, ", ".join(tops) or nothing, number(entropy[row], look.precision)))
    title = STEPS["summary"] + (f" · head {head}" if result.call.heads > 1 else "")
    columns = ("query", "strongest keys and their weights", "entropy (nats)")
    return Listing(title, columns, tuple(listed), (False, False, True))
