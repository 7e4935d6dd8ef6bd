"""Show a ModelRun: its layers and proofs, or the matrices of the layers that were asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnscope.cli.options import Format
from attnscope.cli.output import Target, say
from attnscope.cli.present import Drawing, look_for, notes_of, rendered
from attnscope.errors import CheckFailed, OptionError
from attnscope.text.display import visible
from attnscope.views.look import Look

if TYPE_CHECKING:
    from attnscope.model_run import ModelRun
    from attnscope.run import Run, Site
    from attnscope.views.parts import Part

_EXCERPT = 60  # characters of a text in its heading
_ONE_DRAWING = (Format.HTML, Format.SVG, Format.PNG, Format.CSV)


@dataclass(frozen=True, slots=True)
class Selection:
    """What to show of a model's run, as asked on the command line. None: not given."""

    layer: str | None = None
    steps: tuple[str, ...] = ()
    query: str | None = None
    head: int | None = None
    precision: int = 4
    strict: bool = False
    norms: bool = False

    def look(self, run: "Run", target: Target) -> Look:
        """Return how to show the layers that were chosen."""
        return look_for(run, target, self.steps, self.query, self.head, self.precision, self.norms)

    def check(self, target: Target, drawing: Drawing) -> None:
        """Raise OptionError for what needs a layer that is not named."""
        if self.layer is not None or target.format is Format.HTML:
            return
        steps = [step for step in self.steps if step != "tokens"]
        for name, given in (
            ("--head", self.head is not None),
            ("--query", self.query is not None),
            ("--show", bool(steps)),
            ("--heatmap", drawing.heatmap),
            ("--norms", self.norms),
            (f"--format {target.format}", target.format in (Format.SVG, Format.PNG)),
        ):
            if given:
                raise OptionError(
                    f"{name} is about weights, and a model has many layers",
                    "Choose with --layer N, or --layer all",
                )


def present_models(
    runs: "Sequence[ModelRun]", target: Target, asked: Selection, drawing: Drawing
) -> None:
    """Print notes and warnings, and write one document for each text.

    Raises: CheckFailed after all is written, if a call is not proven and `asked.strict`.
    """
    if len(runs) > 1 and target.format in _ONE_DRAWING:
        raise OptionError(
            f"{target.format} is written of one text, and there are {len(runs)}", "Give one text"
        )
    chosen = [(run, _chosen(run, target, asked)) for run in runs]
    if target.format in (Format.TABLE, Format.PLAIN):
        target.write_parts(_parts(chosen, target, asked, drawing), _look(target, asked))
    else:
        for run, part in chosen:
            _say(run, part, asked)
        target.write_all([_document(run, part, target, asked, drawing) for run, part in chosen])
    if asked.strict:
        check_proofs(runs)


def present_model(
    run: "ModelRun",
    target: Target,
    *,
    layer: str | None,
    steps: tuple[str, ...],
    query: str | None,
    head: int | None,
    precision: int,
    drawing: Drawing,
    strict: bool = False,
) -> None:
    """Show one text; see `present_models`."""
    asked = Selection(layer, steps, query, head, precision, strict)
    asked.check(target, drawing)
    present_models([run], target, asked, drawing)


def check_proofs(runs: "Sequence[ModelRun]") -> None:
    """Raise CheckFailed naming the first call that is not proven."""
    check_sites([call.site for run in runs for call in run.calls])


def check_sites(sites: "Sequence[Site]") -> None:
    """Raise CheckFailed naming the first of some calls that is not proven."""
    broken = [site for site in sites if not site.proven]
    if broken:
        error = broken[0].error
        raise CheckFailed(
            f"{len(broken)} of {len(sites)} attention calls are not proven: layer "
            f"{broken[0].name} has relative error {'NaN' if error != error else f'{error:.2g}'}, "
            f"tolerance {broken[0].tolerance:g}"
        )


def _chosen(run: "ModelRun", target: Target, asked: Selection) -> "Run | None":
    """Return the layers that were asked for; a page has all that fit one another."""
    layer = "all" if asked.layer is None and target.format is Format.HTML else asked.layer
    return None if layer is None else run.run_of(run.find(layer))


def _look(target: Target, asked: Selection) -> Look:
    return Look(
        asked.steps, None, None, asked.precision, target.width, target.for_people, target.colours
    )


def _say(run: "ModelRun", chosen: "Run | None", asked: Selection) -> None:
    if chosen is not None:
        notes_of(chosen, asked.steps)
        return
    say("note", run.notes)
    say("warning", run.warnings)
    say("warning", (f"not recorded: {line}" for line in run.skipped))


def _document(
    run: "ModelRun", chosen: "Run | None", target: Target, asked: Selection, drawing: Drawing
) -> str | bytes:
    if chosen is not None:
        look = asked.look(chosen, target)
        return rendered(chosen, target, look, drawing)
    if target.format is Format.JSON:
        from attnscope.views.model_json import render_model_run

        return render_model_run(run)
    from attnscope.views import csv_text
    from attnscope.views.model_parts import parts_of_model_run

    return csv_text.render(parts_of_model_run(run, Look(show=("layers",))))


def _parts(
    chosen: "Sequence[tuple[ModelRun, Run | None]]",
    target: Target,
    asked: Selection,
    drawing: Drawing,
) -> "list[Part]":
    from attnscope.cli.present import parts_for_people
    from attnscope.views.model_parts import parts_of_model_run
    from attnscope.views.parts import Line, Tone

    parts: list[Part] = []
    for number, (run, one) in enumerate(chosen):
        _say(run, one, asked)
        if len(chosen) > 1:
            tone = Tone.SECTION if number else Tone.HEADING
            which, text = f"text {number + 1} of {len(chosen)}", _excerpt(run)
            parts.append(Line(f"{which}: {text}" if text else which, tone))
        if one is None:
            parts += parts_of_model_run(run, _look(target, asked))
        else:
            look = asked.look(one, target)
            parts += parts_for_people(one, look, drawing)
    return parts


def _excerpt(run: "ModelRun") -> str:
    axis = run.source or run.queries
    text = "" if axis.tokens is None else " ".join(axis.tokens.text.split())
    return visible(text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…")
