"""The errors a user can cause.

AttnscopeError
├── OptionError       options that contradict each other, or a value out of range
├── TextError         text that cannot be read or has no tokens
├── TokenizerError    a tokenizer file that cannot be used
├── TensorError       a tensor file that cannot be read
├── ShapeError        tensors whose shapes do not fit together
├── DeviceError       a device that is not there
├── SizeError         more memory than this machine has
├── RunFileError      a run file that cannot be read
├── ModelError        a model that cannot be used (sources/model)
├── CaptureError      a model whose attention cannot be captured (sources/capture)
├── MissingExtraError a package of an extra is not installed
├── OutputError       a result that cannot be written
└── CheckFailed       a check the user asked for did not hold (exit code 1)
"""

from typing import ClassVar


class AttnscopeError(Exception):
    """What went wrong, naming the value, and a hint that names the way out."""

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


class OptionError(AttnscopeError):
    """Options contradict each other, or a value is out of range."""


class TextError(AttnscopeError):
    """The text cannot be read, or no token is left of it."""


class TokenizerError(AttnscopeError):
    """The tokenizer file cannot be used."""


class TensorError(AttnscopeError):
    """The tensor file cannot be read."""


class ShapeError(AttnscopeError):
    """The shapes of some tensors do not fit together."""


class DeviceError(AttnscopeError):
    """The device is not there."""


class SizeError(AttnscopeError):
    """The work needs more memory than this machine has."""


class RunFileError(AttnscopeError):
    """The run file cannot be read."""


class MissingExtraError(AttnscopeError):
    """A package of an extra is not installed."""


class OutputError(AttnscopeError):
    """The result cannot be written."""


class CheckFailed(AttnscopeError):
    """A check the user asked for did not hold."""

    exit_code: ClassVar[int] = 1
