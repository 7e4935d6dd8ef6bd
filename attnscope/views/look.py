"""How to show a document: what the person asked for, and nothing of the numbers."""

from dataclasses import dataclass

from attnscope.errors import OptionError
from attnscope.text.display import visible
from attnscope.views.style import STEPS

# From this many tokens on, tables start with a summary instead of matrices.
SUMMARY_ABOVE = 32

# A float64 has at most 17 significant decimals.
MOST_DECIMALS = 17


@dataclass(frozen=True, slots=True)
class Look:
    """The steps, rows and heads to show, and how.

    `queries` are row positions; None shows all. `show` is empty for the default steps. A long text
    is summarised unless `summarise` is False. `norms`: the lengths of weighted values too.
    `window`: what is shown was cut out of more rows or keys.
    """

    show: tuple[str, ...] = ()
    queries: tuple[int, ...] | None = None
    head: int | None = None
    precision: int = 4
    width: int = 80
    summarise: bool = True
    colour: bool = True
    norms: bool = False
    window: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.precision <= MOST_DECIMALS:
            raise OptionError(
                f"--precision {self.precision} is out of range", f"Give 0 to {MOST_DECIMALS}"
            )

    def shows(self, step: str, *, default: bool) -> bool:
        """Return whether a step is to be shown."""
        return default if not self.show else step in self.show

    def rows(self, total: int) -> tuple[int, ...]:
        """Return the row positions to show."""
        return tuple(range(total)) if self.queries is None else self.queries

    def heads(self, total: int) -> tuple[int, ...]:
        """Return the heads to show."""
        return tuple(range(total)) if self.head is None else (self.head,)


def read_steps(asked: str | None) -> tuple[str, ...]:
    """Return the steps in a comma-separated list; "all" means every step.

    Raises: OptionError naming the step that is not known.
    """
    if asked is None:
        return ()
    names = [name.strip() for name in asked.split(",") if name.strip()]
    if not names:
        raise OptionError("--show names no step", f"Give some of: {', '.join(STEPS)}, all")
    for name in names:
        if name not in STEPS and name != "all":
            raise OptionError(
                f'--show "{visible(name)}" is not a step', f"Give some of: {', '.join(STEPS)}, all"
            )
    return tuple(STEPS) if "all" in names else tuple(names)
