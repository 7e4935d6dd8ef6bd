"""Draw the README's pictures: what the terminal shows, as SVGs without fonts from elsewhere.

python docs/make_pictures.py [smollm2.gguf]
"""

import itertools
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

import attnscope
from attnscope.explain import explain
from attnscope.views import rich_tables
from attnscope.views.explain_parts import parts_of_explanation
from attnscope.views.heatmap import parts_of_heatmap
from attnscope.views.look import Look
from attnscope.views.parts import Line, Part
from attnscope.views.run_parts import parts_of_run
from attnscope.views.svg_heatmap import render_svg

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


def draw(name: str, parts: Iterable[Part], look: Look, command: str) -> None:
    """Write one picture."""
    renderable, width = rich_tables.render(parts, look)
    with Path(os.devnull).open("w") as nowhere:
        console = Console(
            record=True, width=width, file=nowhere, force_terminal=True, color_system="truecolor"
        )
        console.print(renderable)
        picture = console.export_svg(
            title=command, theme=DIMMED_MONOKAI, code_format=FORMAT, unique_id=name
        )
    # an SVG collapses the spaces that a line of plain text begins with
    spaced = picture.replace("<text ", '<text xml:space="preserve" ')
    (HERE / f"{name}.svg").write_text(spaced, encoding="utf-8")


def main() -> None:
    """Write docs/run.svg, heatmap.svg, heads.svg and explain.svg."""
    run = attnscope.run_sentence(SENTENCE, causal=True)
    look = Look(show=("tokens", "omegas", "weights", "context"), width=76)
    draw("run", parts_of_run(run, look), look, f'attnscope run "{SENTENCE}" --causal')
    heads = attnscope.run_sentence(SENTENCE, causal=True, heads=4)
    look = Look(width=80)
    command = f'attnscope run "{SENTENCE}" --causal --heads 4 --heatmap'
    draw("heatmap", parts_of_heatmap(heads, look), look, command)
    (HERE / "heads.svg").write_text(render_svg(heads, Look()), encoding="utf-8")
    explained = explain(run, (1,), head=None, dims=8, step=None, flash=None)
    command = f'attnscope explain "{SENTENCE}" --query is --causal'
    parts = itertools.takewhile(
        lambda part: not (isinstance(part, Line) and part.text.startswith("7. ")),
        parts_of_explanation(explained, look),
    )
    draw("explain", parts, look, command)


def draw_model(path: str) -> None:
    """Write docs/model.svg and named-heads.svg, of the model that the README uses."""
    from attnscope.sources.model.cut import cut
    from attnscope.sources.model.loaded import load_model
    from attnscope.sources.model.place import find_model
    from attnscope.sources.model.survey import survey_heads
    from attnscope.sources.model.watch import run_texts
    from attnscope.survey.heads import SEED, HeadOptions, Ranking, ranked
    from attnscope.views.heads_parts import parts_of_heads

    loaded = load_model(find_model(path, offline=True))
    sentence = "The cat sat because it was tired"
    (run,) = run_texts(loaded, [cut(loaded, sentence)])
    look = Look(show=("weights",), head=0, width=80)
    command = "attnscope run … --model smollm2.gguf --layer 16 --head 0"
    draw("model", parts_of_run(run.layer(16), look), look, command)
    sentence = "The quick brown fox jumps. The quick brown fox"
    options = HeadOptions(None, no_sink=False, probe=True, seed=SEED)
    survey = survey_heads(loaded, [cut(loaded, sentence)], None, options)
    survey = ranked(survey, Ranking("name", None, None, None))
    look = Look(precision=2, width=92)
    command = "attnscope heads … --model smollm2.gguf --probe --limit 6"
    draw("named-heads", parts_of_heads(survey, look, 6), look, command)


if __name__ == "__main__":
    main()
    for model in sys.argv[1:]:
        draw_model(model)
