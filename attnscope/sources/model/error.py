"""What can be wrong with a model, in one line."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

from attnscope.errors import AttnscopeError
from attnscope.text.display import visible

# The messages of other libraries go on for screens; their beginning says what is wrong.
_LONGEST_REASON = 300

PICKLE_HINT = (
    "attnscope reads pickled weights only with torch's weights-only loader; save the model as "
    "safetensors"
)


class ModelError(AttnscopeError):
    """The model cannot be used."""


@contextmanager
def failing_as(what: str, hint: str = "") -> Iterator[None]:
    """Turn every failure inside into a ModelError: `what` cannot be loaded, and why."""
    try:
        yield
    except AttnscopeError:
        raise
    except pickle.UnpicklingError:  # torch's own message tells how to run the code after all
        raise ModelError(
            f"{what} cannot be loaded: a pickled file is damaged or holds code, not only tensors",
            PICKLE_HINT,
        ) from None
    except Exception as error:  # transformers and what it calls each raise their own
        raise ModelError(f"{what} cannot be loaded: {reason_of(error)}", hint) from None


def reason_of(error: Exception) -> str:
    """Return the beginning of an error's message in one visible line."""
    reason = visible(" ".join(str(error).split())) or type(error).__name__
    if isinstance(error, KeyError):
        reason = f"there is no {reason}"
    if len(reason) > _LONGEST_REASON:
        reason = reason[:_LONGEST_REASON].rstrip() + "…"
    return reason.removesuffix(".")
