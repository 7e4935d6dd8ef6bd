"""Where numbers come from, and how they were checked, in a line each."""

from typing import TYPE_CHECKING

from attnscope.run import Run, Site
from attnscope.text.display import visible
from attnscope.views.parts import Line, Tone
from attnscope.views.style import gap

if TYPE_CHECKING:
    from attnscope.attention.result import AttentionResult


def site_title(site: Site, result: "AttentionResult") -> str:
    """Return where a call was made, in a line."""
    call = result.call
    heads = f"{call.heads} heads"
    if call.key_heads != call.heads:
        heads += f", {call.key_heads} key heads"
    return f"layer {site.name} · {visible(site.module_name)} · {heads}"


def proof_line(run: Run, index: int) -> Line:
    """Return how a layer was checked: against the model's own output, or torch's kernel."""
    result = run.layers[index]
    if not run.sites:
        return agreement_line(result)
    site = run.sites[index]
    how = "the weights times the values give" if result.observed else "the record gives"
    if site.proven:
        return Line(
            f"proven: {how} the model's own output, relative error {gap(site.error)}", Tone.GOOD
        )
    return Line(
        f"NOT proven: {how} another output than the model's, relative error {gap(site.error)}, "
        f"tolerance {site.tolerance:g}",
        Tone.WARNING,
    )


def agreement_line(result: "AttentionResult") -> Line:
    """Return how far the context lies from that of torch's own kernel."""
    if result.reference_gap is None and result.call.softcap is None:
        return Line("not compared with torch's own kernel", Tone.HINT)
    if result.reference_gap is None:
        return Line("torch has no kernel with a softcap to compare with", Tone.HINT)
    if result.agrees:
        return Line(f"agrees with torch: max |Δ| = {gap(result.reference_gap)}", Tone.GOOD)
    return Line(f"differs from torch: max |Δ| = {gap(result.reference_gap)}", Tone.WARNING)
