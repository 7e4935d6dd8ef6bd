"""What can be wrong with a model, in one line."""

import pickle
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnscope.errors import AttnscopeError
from attnscope.text.display import visible

# The messages of other libraries go on for screens; their beginning says what is wrong.
_LONGEST_REASON = 300

PICKLE_HINT = (
    "attnscope reads pickled weights only with torch's weights-only loader; save the model as "
    "safetensors"
)
_PACKAGE = str(Path(__file__).parents[2])
# Where a model calls us: what fails in the first belongs to the model, what fails in the second
# is what we do with its calls.
_THROUGH, _OURS = "mode.py", "_hand_on"


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


@contextmanager
def running(name: str) -> Iterator[None]:
    """Turn a failure of a model's own code into a ModelError: it failed as it ran, and why.

    Want of memory, and what is wrong in attnscope itself, stay what they are.
    """
    try:
        yield
    except (AttnscopeError, MemoryError):
        raise
    except Exception as error:
        if "memory" in str(error).lower() or _is_ours(error):
            raise
        raise ModelError(
            f"{name} failed as it ran: {type(error).__name__} {reason_of(error)}",
            "Check that config.json and the weights belong together, and that this transformers "
            "can run them",
        ) from error


def _is_ours(error: Exception) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    last = Path(frames[-1].filename)
    here = str(last).startswith(_PACKAGE) and last.name != _THROUGH
    return here or any(frame.name == _OURS for frame in frames)


def reason_of(error: Exception) -> str:
    """Return the beginning of an error's message in one visible line."""
    reason = visible(" ".join(str(error).split())) or type(error).__name__
    if isinstance(error, KeyError):
        reason = f"there is no {reason}"
    if len(reason) > _LONGEST_REASON:
        reason = reason[:_LONGEST_REASON].rstrip() + "…"
    return reason.removesuffix(".")
