"""Draw the README's picture: what the terminal shows, as an SVG without fonts from elsewhere.

python docs/make_pictures.py
"""

import os
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

import attnscope
from attnscope.views import rich_tables
from attnscope.views.look import Look
from attnscope.views.run_parts import parts_of_run

HERE = Path(__file__).parent
SENTENCE = "Life is short, eat dessert first"
FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> None:
    """Write docs/run.svg."""
    look = Look(show=("tokens", "omegas", "weights", "context"), width=76)
    run = attnscope.run_sentence(SENTENCE, causal=True)
    renderable, width = rich_tables.render(parts_of_run(run, look), look)
    with Path(os.devnull).open("w") as nowhere:
        console = Console(
            record=True, width=width, file=nowhere, force_terminal=True, color_system="truecolor"
        )
        console.print(renderable)
        picture = console.export_svg(
            title=f'attnscope run "{SENTENCE}" --causal',
            theme=DIMMED_MONOKAI,
            code_format=FORMAT,
            unique_id="attnscope",
        )
    (HERE / "run.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
