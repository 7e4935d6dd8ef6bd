"""A ModelRun as parts: the tokens, every layer, and its proof."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attnscope.model_run import ModelRun
from attnscope.text.display import visible
from attnscope.views.look import SUMMARY_ABOVE, Look
from attnscope.views.parts import Line, Listing, Part, Tone
from attnscope.views.style import gap
from attnscope.views.tokens_parts import parts_of_tokens

if TYPE_CHECKING:
    from attnscope.model_run import ModelCall

_COLUMNS = ("layer", "module", "heads", "sees", "size", "seen by", "relative error")
_NUMERIC = (False, False, False, False, False, False, True)


def parts_of_model_run(run: ModelRun, look: Look) -> Iterator[Part]:
    """Return the overview of a model's run in reading order."""
    yield Line(f"{run.model} · {attention_count(run)}", Tone.HEADING)
    if look.shows("tokens", default=len(run.queries) <= SUMMARY_ABOVE or not look.summarise):
        for axis, title in ((run.source, "tokens of the source"), (run.queries, "tokens and ids")):
            if axis is not None and axis.tokens is not None:
                yield parts_of_tokens(axis.tokens, title)
    rows = tuple(_row(call) for call in run.calls)
    yield Listing("attention calls", _COLUMNS, rows, _NUMERIC)
    yield proof_of_all(run)
    yield Line("--layer N shows one layer's weights, --layer N --head H one head's", Tone.HINT)


def attention_count(run: ModelRun) -> str:
    """Return how many layers have attention: "2 of 4 layers have attention"."""
    calls = len({(call.site.part, call.site.layer) for call in run.calls})
    if run.without:
        total = calls + len(run.without)
        return f"{calls} of {total} layers have attention"
    return f"{calls} attention layer{'s' if calls != 1 else ''}"


def proof_of_all(run: ModelRun) -> Line:
    """Return whether every call reproduces the model's own output."""
    broken = [call for call in run.calls if not call.site.proven]
    if broken:
        return Line(f"{len(broken)} of {len(run.calls)} calls are NOT proven", Tone.WARNING)
    worst = max(run.calls, key=lambda call: call.site.error).site
    return Line(
        "proven: every record gives the model's own output, relative error at most "
        f"{gap(worst.error)} (tolerance {worst.tolerance:g})",
        Tone.GOOD,
    )


def heads_of(call: "ModelCall") -> str:
    """Return the number of query heads, and of key heads where they are fewer: "9 : 3"."""
    record = call.captured.call
    key_heads = getattr(record, "key_heads", record.heads)
    return str(record.heads) if key_heads == record.heads else f"{record.heads} : {key_heads}"


def _row(call: "ModelCall") -> tuple[str, ...]:
    site, record = call.site, call.captured.call
    return (
        site.name,
        visible(site.module_name),
        heads_of(call),
        {"none": "every key"}.get(call.mask_name, call.mask_name),
        f"{record.queries} × {record.keys}",
        site.route.replace("_", " "),
        gap(site.error) + ("" if site.proven else " !"),
    )
