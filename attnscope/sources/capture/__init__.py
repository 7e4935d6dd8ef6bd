"""Watch a model compute, and keep every attention call that it makes.

with capture(model) as cap:      # any torch.nn.Module
    model(**inputs)              # or model.generate(...)
cap.calls                        # one CapturedCall per attention call and text
cap.run.layer(0).head(0).weights # the same as a document: proven, put together, named

Three layers, the surest first: the implementation that a transformers model uses is wrapped
where the model asks for it; torch's own attention functions are seen by a TorchFunctionMode;
attention written by hand is found by its softmax. The model computes what it computes without:
its implementation is never exchanged, and everything is put back at the end.
"""

from collections.abc import Callable

from torch.nn import Module

from attnscope.attention.verify import CapturedCall as CapturedCall
from attnscope.attention.verify import ObservedCall as ObservedCall
from attnscope.sources.capture.session import Capture as Capture
from attnscope.sources.capture.session import CaptureError as CaptureError


def capture(model: Module, *, on_call: Callable[[CapturedCall], None] | None = None) -> Capture:
    """Return a context in which the attention calls of `model` are recorded.

    Only this model, only in this thread. Its output is bit-identical, with two exceptions that
    torch leaves no choice in: the fused path of nn.TransformerEncoder and nn.MultiheadAttention
    steps aside for the ordinary one, and compiled code for the code it was compiled from. Both
    differ in the last digits, the first also at padded places.
    `on_call` is given each call instead of `calls`, so that a long run need not keep them all.
    Raises: OptionError if it is no module; CaptureError for TorchScript.
    """
    return Capture(model, on_call)
