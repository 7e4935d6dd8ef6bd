"""From what was measured of each call to what a survey says of each head."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from attnscope.attention.head_scores import MEASURES, HeadScores
from attnscope.attention.verify import CapturedCall
from attnscope.model_run import ModelRun
from attnscope.run import Site
from attnscope.sources.model.sides import CallKey
from attnscope.survey.heads import Head, Score, names_of


@dataclass(slots=True, eq=False)
class CallScores:
    """What was measured of one call, over all texts so far."""

    captured: CapturedCall  # its outline
    key_heads: int
    error: float = 0.0
    scores: HeadScores | None = None
    control: HeadScores | None = None
    uniform: HeadScores | None = None
    probe: HeadScores | None = None
    probe_uniform: HeadScores | None = None

    def add(self, name: str, scores: HeadScores | None) -> None:
        """Add the rows of one more text to the scores called `name`."""
        before: HeadScores | None = getattr(self, name)
        if scores is not None:
            setattr(self, name, scores if before is None else before.plus(scores))

    def prove(self, error: float) -> None:
        """Remember the largest error."""
        # a NaN must stay, and max() drops it where it comes second
        self.error = error if error != error or error > self.error else self.error


def site_of(site: Site, key: CallKey, names: Mapping[CallKey, str]) -> Site:
    """Return where a call was made, under the name it has in `names`."""
    # of some layers alone, a name might be shorter than it is among all
    return replace(site, name=names.get(key, site.name))


def heads_of(
    found: Mapping[CallKey, CallScores], document: ModelRun, names: Mapping[CallKey, str]
) -> list[Head]:
    """Return every head of the calls of a document, which are those of `found`."""
    heads = []
    for (key, one), call in zip(found.items(), document.calls, strict=True):
        count = one.captured.call.heads
        for head in range(count):
            scores = {name: _score(one, name, head) for name in MEASURES}
            probe = {}
            if one.probe is not None and one.probe.rows("previous", head):
                probe = {name: _probe_score(one, name, head) for name in ("previous", "induction")}
            most = Score(
                _largest(one.scores, head),
                _largest(one.control, head),
                rows=scores["largest"].rows,
            )
            heads.append(
                Head(
                    site_of(call.site, key, names),
                    head,
                    head // (count // one.key_heads),
                    scores,
                    most,
                    probe,
                    names_of(scores, probe),
                )
            )
    return heads


def _score(found: CallScores, name: str, head: int) -> Score:
    if found.scores is None:
        return Score()
    return Score(
        found.scores.mean(name, head),
        None if found.control is None else found.control.mean(name, head),
        _uniform_mean(found.uniform, name, head),
        found.scores.rows(name, head),
    )


def _probe_score(found: CallScores, name: str, head: int) -> Score:
    assert found.probe is not None
    return Score(
        found.probe.mean(name, head),
        None,
        _uniform_mean(found.probe_uniform, name, head),
        found.probe.rows(name, head),
    )


def _largest(scores: HeadScores | None, head: int) -> float | None:
    return None if scores is None else float(scores.largest[head])


def _uniform_mean(uniform: HeadScores | None, name: str, head: int) -> float | None:
    if uniform is None:
        return None
    # one head stands for all, unless each sees different keys
    return uniform.mean(name, head if len(uniform.largest) > 1 else 0)
