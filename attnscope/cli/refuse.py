"""Options that say nothing about what was asked for are refused, never ignored."""

from attnscope.errors import OptionError


def refuse_with_model(**given: object) -> None:
    """Raise OptionError for an option of seeded sentences or tensor files beside --model."""
    for name in _named(given):
        raise OptionError(
            f"--model brings its own weights and tokenizer, and --{name} is given",
            "Leave one out",
        )


def refuse_without_model(**given: object) -> None:
    """Raise OptionError for an option of models where there is none."""
    for name in _named(given):
        raise OptionError(f"--{name} is about a real model", "Name one with --model PATH")


def _named(given: dict[str, object]) -> list[str]:
    return [
        name.replace("_", "-") for name, value in given.items() if value not in (None, False, [])
    ]
