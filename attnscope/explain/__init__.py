"""A Run in; one query worked out from the word to its context vector, as plain numbers, out.

What the Run holds is taken as it is. What lies between its numbers (products, exponentials, what
a sum leaves out) is worked out in float64 from them, and never replaces one of them.
"""

from dataclasses import replace

import torch

from attnscope.errors import OptionError
from attnscope.explain.document import Explanation, Prefix, Step, Walk
from attnscope.explain.steps import steps_of_query
from attnscope.run import Run, check_head
from attnscope.text.display import visible

__all__ = ["DIMS", "Explanation", "Prefix", "Step", "Walk", "explain", "visible_prefixes"]

DIMS = 8


def explain(
    run: Run,
    queries: tuple[int, ...],
    *,
    head: int | None = None,
    dims: int = DIMS,
    step: str | None = None,
    flash: int | None = None,
) -> Explanation:
    """Work out queries of a run: every head or one, every step or one (by number or name).

    `dims` limits the terms of a sum and the numbers of a vector; `flash` is the number of keys in
    a block of FlashAttention. Raises: OptionError naming the value and what there is.
    """
    for name, value in (("--dims", dims), ("--flash", flash)):
        if value is not None and value < 1:
            raise OptionError(f"{name} {value} is not positive", "Give 1 or more")
    check_head(run, head)
    if run.layers[0].observed:
        raise OptionError(
            f"layer {run.layer_name(0)} was only observed: its weights are known, not its queries "
            "and keys",
            "Use attnscope run, which shows the weights",
        )
    walks = []
    with torch.no_grad():
        for query in queries:
            steps = _numbered(list(steps_of_query(run, query, head, dims, flash)))
            chosen = steps if step is None else _chosen(steps, step)
            walks.append(Walk(query, run.queries.labels[query], tuple(chosen)))
    return Explanation(run, tuple(walks), () if step is not None else visible_prefixes(run))


def visible_prefixes(run: Run) -> tuple[Prefix, ...]:
    """Return what each token of a causal run over one text may see, and the token after it.

    Empty for other runs, and for vectors that came without words. The last token has no next.
    """
    if run.crossed or not run.settings.causal or run.queries.tokens is None:
        return ()
    labels, seen = run.queries.labels, run.layers[0].visible[0].tolist()
    found = []
    for query in range(len(labels) - 1):
        sees = tuple(key for key, sees in enumerate(seen[query]) if sees)
        words = " ".join(labels[key] for key in sees)
        found.append(Prefix(query, sees, words, labels[query + 1]))
    return tuple(found)


def _numbered(steps: list[Step]) -> list[Step]:
    """Number the steps; a step of several heads has one number."""
    names = list(dict.fromkeys(step.name for step in steps))
    return [replace(step, number=names.index(step.name) + 1) for step in steps]


def _chosen(steps: list[Step], wanted: str) -> list[Step]:
    chosen = [step for step in steps if wanted in (step.name, str(step.number))]
    if not chosen:
        listed = ", ".join(dict.fromkeys(f"{step.number} {step.name}" for step in steps))
        raise OptionError(f'--step "{visible(wanted)}" is not a step', f"Give one of: {listed}")
    return chosen
