"""The fidelity matrix: a tiny model of each family, run plainly, captured, and run as eager."""

import copy
import functools
import math
from dataclasses import dataclass

import torch

from attnscope.attention import engine
from attnscope.attention.masks import HIDDEN_AT_MOST
from attnscope.attention.verify import ObservedCall, verify, widened
from attnscope.sources.capture import capture
from tests.sources.families import FAMILIES
from tests.sources.models import redrawn

PADDED, TOKENS, TARGETS, SAMPLES = 4, 12, 7, 56
IMPLEMENTATIONS = (None, "eager")  # None: what the model chooses by itself


@dataclass(frozen=True)
class Cell:
    """What was found for one family, one implementation and one side of padding."""

    implementation: str
    identical: bool  # the output with and without capture
    recorded: int  # calls of a text
    routes: frozenset
    unknown: frozenset
    skipped: tuple
    without: tuple
    error: float  # the largest of verify
    weights: float  # the largest difference from the eager weights, at the queries of real tokens
    compared: int  # calls for which the eager model returns weights
    peak: float  # the mean of the rows' largest weights


def built(family, implementation=None):
    """Return a tiny model of a family; implementation None is the one the model chooses."""
    import transformers

    kind = getattr(transformers, family.model)
    configuration = kind.config_class(**copy.deepcopy(family.options))
    more = {} if implementation is None else {"attn_implementation": implementation}
    return redrawn(kind._from_config(configuration, **more), family.gain)


@functools.cache
def model_of(name, implementation=None):
    return built(FAMILIES[name], implementation)


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def real(length, side, padded=PADDED):
    """Return which tokens of two texts are real: the second is padded."""
    mask = torch.ones(2, length, dtype=torch.long)
    if side is not None:
        mask[1, slice(0, padded) if side == "left" else slice(length - padded, length)] = 0
    return mask


def given(family, side=None, tokens=TOKENS):
    """Return what a family's model is called with: two texts, images or sounds."""
    ids = torch.randint(3, 64, (2, tokens), generator=torch.Generator().manual_seed(1))
    text = {"input_ids": ids, "attention_mask": real(tokens, side)}
    target = {
        "decoder_input_ids": ids[:, :TARGETS],
        "decoder_attention_mask": real(TARGETS, side, 2),
    }
    if family.given == "sound":
        mask = {} if side is None else {"attention_mask": real(SAMPLES, side, 20)}
        return {"input_values": drawn(2, SAMPLES), **mask}
    if family.given == "sound and text":
        return {"input_features": drawn(2, 8, 24), **target}
    size = family.options.get("image_size") or family.options.get("vision_config", {}).get(
        "image_size"
    )
    image = {"pixel_values": drawn(2, 3, size, size)} if "image" in family.given else {}
    return {
        "text": text,
        "pair": text | target,
        "image": image,
        "image and text": text | image,
    }[family.given]


def tensors_of(output):
    """Yield every tensor of an output, in order."""
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, dict):
        yield from tensors_of(list(output.values()))
    elif isinstance(output, list | tuple):
        for part in output:
            yield from tensors_of(part)


def returned_weights(family, output):
    """Return the eager weights in the order of the calls: encoder, then self and cross by layer."""
    if family.given == "image and text":
        return [*output.vision_model_output.attentions, *output.text_model_output.attentions]
    if "encoder_attentions" not in output:
        return list(output.attentions)
    pairs = zip(output.decoder_attentions, output.cross_attentions, strict=True)
    return [*output.encoder_attentions, *(weights for pair in pairs for weights in pair)]


def weights_and_rows(captured):
    """Return the weights, and which rows may see a key: (heads, queries)."""
    call = captured.call
    if isinstance(call, ObservedCall):
        if call.scores is None:
            return call.weights, torch.ones(call.weights.shape[:2], dtype=torch.bool)
        return call.weights, ~(call.scores <= HIDDEN_AT_MOST).all(-1)
    steps = engine.compute(widened(call))
    return steps.weights, steps.visible.expand_as(steps.weights).any(-1)


def rows_of_tokens(captured, inputs):
    """Return weights and the rows of real tokens; what is computed at padding is nobody's."""
    weights, rows = weights_and_rows(captured)
    for name in ("attention_mask", "decoder_attention_mask"):
        mask = inputs.get(name)
        if mask is not None and mask.shape[1] == weights.shape[1]:
            return weights, rows & mask[captured.text].bool()
    return weights, rows


def grouped(calls):
    """Return the calls of all texts together, by the attention call that they belong to."""
    groups = {}
    for captured in calls:
        groups.setdefault((captured.module_name, captured.nth, captured.step), []).append(captured)
    return list(groups.values())


def run(model, inputs, **more):
    with torch.no_grad():
        return model(**inputs, **more)


def watched(model, inputs):
    """Return the capture of a forward, and whether its output is that of one without capture."""
    plain = list(tensors_of(run(model, inputs)))
    with capture(model) as cap:
        seen = list(tensors_of(run(model, inputs)))
    identical = len(plain) == len(seen) and all(map(torch.equal, plain, seen))
    return cap, identical


def eager_gap(family, inputs, groups, reference):
    """Return the largest difference from the eager weights, and how many calls have any."""
    gap, compared = 0.0, 0
    for calls, number in zip(groups, family.expected, strict=True):
        if number is None:
            continue
        compared += 1
        for captured in calls:
            weights, rows = rows_of_tokens(captured, inputs)
            difference = (weights - reference[number][captured.text])[rows].abs().max()
            gap = max(gap, float(difference)) if not math.isnan(difference) else math.nan
    return gap, compared


@functools.cache
def cell(name, implementation, side):
    """Return one cell of the matrix."""
    family, model = FAMILIES[name], model_of(name, implementation)
    inputs = given(family, side)
    cap, identical = watched(model, inputs)
    groups = grouped(cap.calls)
    eager = run(model_of(name, "eager"), inputs, output_attentions=True)
    gap, compared = math.nan, 0
    if len(groups) == family.calls:
        gap, compared = eager_gap(family, inputs, groups, returned_weights(family, eager))
    peaks = []
    for captured in cap.calls:
        weights, rows = rows_of_tokens(captured, inputs)
        peaks.append(float(weights[rows].max(-1).values.mean()))
    return Cell(
        implementation=model.config._attn_implementation,
        identical=identical,
        recorded=len(groups),
        routes=frozenset(captured.route for captured in cap.calls),
        unknown=frozenset(word for captured in cap.calls for word in captured.unknown),
        skipped=tuple(cap.skipped),
        without=tuple(cap.without),
        error=max(map(verify, cap.calls), default=math.nan),
        weights=gap,
        compared=compared,
        peak=sum(peaks) / max(1, len(peaks)),
    )


def sides(name):
    """Return the paddings of a family: none, left, right."""
    return (None, *FAMILIES[name].sides)


def cells(name):
    """Return every cell of a family by implementation and side."""
    return {(i, side): cell(name, i, side) for i in IMPLEMENTATIONS for side in sides(name)}
