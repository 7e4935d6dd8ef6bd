"""A call that a source has made ready, before anything of it is computed."""

from dataclasses import dataclass

import torch

from attnscope.attention.call import AttentionCall
from attnscope.attention.device import check_fits
from attnscope.attention.engine import find_method
from attnscope.attention.result import attend
from attnscope.attention.warnings import warnings_of
from attnscope.run import Axis, Inputs, Run, Settings
from attnscope.sources.provenance import provenance


@dataclass(frozen=True, slots=True, eq=False)
class GivenCall:
    """One attention call, what was asked, and what is to be said of it."""

    call: AttentionCall
    settings: Settings
    queries: Axis
    keys: Axis
    notes: tuple[str, ...] = ()
    inputs: Inputs | None = None


def run_call(given: GivenCall) -> Run:
    """Compute every matrix of a call. Raises: SizeError if they do not fit into memory."""
    call, method = given.call, find_method(given.settings.mask_method)
    check_fits(call.heads, call.queries, call.keys, call.query.dtype)
    with torch.no_grad():
        result = attend(call, method)
    return Run(
        given.settings,
        given.queries,
        given.keys,
        (result,),
        given.inputs,
        tuple(warnings_of(result, given.queries.labels, given.keys.labels)),
        given.notes,
        provenance(call.query),
    )
