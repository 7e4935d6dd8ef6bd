"""A model's run of any length: every number of short texts, measures of long ones."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attnscope.cli.long import LONG, Shown, measured_note
from attnscope.cli.model_source import ModelAsked, ReadyTexts, progress_bar
from attnscope.cli.options import Format
from attnscope.cli.output import say, write_file
from attnscope.cli.present import present
from attnscope.cli.present_measured import present_measured, save_measured
from attnscope.cli.present_model import Selection, check_sites, present_models
from attnscope.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnscope.run import Axis, Site
    from attnscope.sources.measured import MeasureAsked


def show_model(asked: ModelAsked, selection: Selection, shown: Shown) -> None:
    """Run texts through a model and write what was asked of them."""
    special = _special(shown)
    if special is not None:
        _check_one_text(asked, selection, special)
    else:
        selection.check(shown.target, shown.drawing)
    ready = asked.ready()
    several = len(ready.tokens) > 1 or asked.generate is not None
    if several and special is None:
        _check_room(asked, ready, selection, shown)
    if special is None and (several or not _is_long(ready, selection, shown)):
        _show_all(asked, ready, selection, shown)
        return
    if asked.norms:
        raise OptionError(
            f"--norms is about whole matrices, and {len(ready.tokens[0]):,} tokens are measured "
            "without them",
            "Leave it out, or add --show norms if there is room",
        )
    if selection.layer is None and shown.target.format is not Format.HTML:
        _show_proofs(ready, selection, shown)
    elif shown.long.is_window:
        _show_window(ready, selection, shown)
    else:
        _show_measures(ready, selection, shown, asked_for=special is not None)


def _special(shown: Shown) -> str | None:
    """Return the option that asks for measures or a window, whatever the length."""
    for name, given in (
        ("--rows or --keys", shown.long.is_window),
        ("--measures, --top, --near or --grid", shown.long.measured),
        ("--format ndjson", shown.target.format is Format.NDJSON),
    ):
        if given:
            return name
    return None


def _check_one_text(asked: ModelAsked, selection: Selection, special: str) -> None:
    if asked.more or asked.per_line or asked.generate is not None:
        raise OptionError(
            f"{special} measures one text as it is", "Leave out --text, --per-line and --generate"
        )
    if asked.norms:
        raise OptionError(f"{special} and --norms contradict each other", "Leave one out")
    if selection.layer is None:
        raise OptionError(
            f"{special} is about weights, and a model has many layers",
            "Choose with --layer N, or --layer all",
        )


def _is_long(ready: ReadyTexts, selection: Selection, shown: Shown) -> bool:
    """Return whether the matrices of the layers, or all their vectors, would be too large."""
    count = max(len(text) for text in ready.first if text is not None)
    people = shown.target.for_people and not shown.steps
    if people and count > LONG:
        return True
    return not shown.budget.allows(_bytes_of(count, ready, selection, shown))


def _check_room(asked: ModelAsked, ready: ReadyTexts, selection: Selection, shown: Shown) -> None:
    """Raise SizeError if texts that are kept together do not fit: they cannot be measured."""
    more = asked.generate or 0
    counts = [len(text) for text in ready.tokens]
    for place, target in enumerate(ready.targets or ()):
        counts[place] = max(counts[place], len(target))
    needed = sum(_bytes_of(count + more, ready, selection, shown) for count in counts)
    texts = "1 text" if len(counts) == 1 else f"{len(counts)} texts"
    if more:
        texts += f" and {more} tokens more"
    way_out = "Choose with --layer N" if selection.layer == "all" else "Give shorter texts"
    if len(counts) > 1:
        way_out += ", or give one text at a time"
    shown.budget.check(needed, f"all vectors and matrices of {texts}", way_out)


def _bytes_of(count: int, ready: ReadyTexts, selection: Selection, shown: Shown) -> int:
    """Return what is kept of a text of so many tokens: vectors of all layers, some matrices."""
    from attnscope.attention.device import DTYPES, dense_bytes

    config = ready.loaded.model.config.get_text_config()
    heads = getattr(config, "num_attention_heads", None) or 16
    width = getattr(config, "hidden_size", None) or 1024
    layers = getattr(config, "num_hidden_layers", None) or 16
    kept = 4 * count * width * layers * 4  # query, key, value and output of every layer
    chosen = 0 if selection.layer is None else 1
    if selection.layer == "all" or shown.target.format is Format.HTML:
        chosen = layers
    matrices: int = chosen * dense_bytes(heads, count, count, DTYPES["float32"])
    return kept + matrices


def _show_all(asked: ModelAsked, ready: ReadyTexts, selection: Selection, shown: Shown) -> None:
    runs = asked.run(ready)
    if shown.save is not None:
        from attnscope.recordfile import dump_record

        layer = selection.layer
        kept = [run if layer is None else run.only(run.find(layer)) for run in runs]
        write_file(shown.save, dump_record(kept), force=shown.force)
    present_models(runs, shown.target, selection, shown.drawing)


def _show_proofs(ready: ReadyTexts, selection: Selection, shown: Shown) -> None:
    from attnscope.sources.model.measured import prove_text

    if shown.save is not None:
        raise OptionError(
            f"the vectors of every layer of {len(ready.tokens[0]):,} tokens are not kept",
            "Choose with --layer N; --keep-qkv saves its vectors too",
        )
    with reporting() as report:
        run = prove_text(ready.loaded, ready.first, report)
    present_models([run], shown.target, selection, shown.drawing)


def _show_window(ready: ReadyTexts, selection: Selection, shown: Shown) -> None:
    from attnscope.sources.model.measured import window_of_text

    if shown.query is not None:
        raise OptionError("--rows and --query both choose queries", "Give one of them")
    if shown.save is not None:
        raise OptionError("a window of a model is not saved", "Leave out --save, or the window")
    layer = "" if selection.layer is None else selection.layer
    with reporting() as report:
        run = window_of_text(
            ready.loaded, ready.first, layer, shown.long.window, shown.budget, report
        )
    present(run, shown.target, shown.look(run), shown.drawing)
    _check_strictly(selection, run.sites)


def _show_measures(
    ready: ReadyTexts, selection: Selection, shown: Shown, *, asked_for: bool
) -> None:
    from attnscope.sources.model.measured import measure_text

    shown.check_measured()

    def asked(queries: "Axis") -> "MeasureAsked":
        return shown.asked(queries)

    layer = "all" if selection.layer is None else selection.layer
    with reporting() as report:
        run = measure_text(ready.loaded, ready.first, layer, asked, report)
    if not asked_for:
        say("note", [measured_note(len(run.queries), len(run.keys))])
    if shown.save is not None:
        save_measured(run, shown.save, keep_qkv=shown.long.keep_qkv, force=shown.force)
    present_measured(run, shown.target, shown.look_at_measures(), shown.drawing)
    _check_strictly(selection, [layer.site for layer in run.layers if layer.site is not None])


def _check_strictly(selection: Selection, sites: "Sequence[Site]") -> None:
    if selection.strict:
        check_sites(sites)


@contextlib.contextmanager
def reporting() -> "Iterator[Callable[..., None]]":
    """Show how far a model's layers are, on a terminal. What is printed inside goes there too."""
    with progress_bar() as report:
        yield report or (lambda *_: None)
