"""One model of a program that is recorded: a capture that is entered for each forward anew."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch.nn import Module

from attnscope.attention.verify import CapturedCall
from attnscope.model_run import ModelRun
from attnscope.sources.capture.assemble import Assembly
from attnscope.sources.capture.document import model_run
from attnscope.sources.capture.seen import unseen
from attnscope.sources.capture.session import Capture, CaptureError
from attnscope.sources.recording import Keeper
from attnscope.text.display import visible

# What the modules that wrap a model call it: torch.compile, parallel training.
_WRAPPED = ({"_orig_mod"}, {"module"})
_NOBODY = Module()


class RecordedModel:
    """A model, what was captured of it, and what of that was kept.

    Between two forwards it holds no module, so that the program can let go of the model.
    """

    def __init__(self, root: Module, keeper: Keeper) -> None:
        self.name = _name_of(root)
        self.forwards = 0
        self.left_out = 0  # forwards that --steps leaves out
        self.without: list[str] = []
        self.reason = ""
        self.documents: list[Assembly] = []
        self.capture = Capture(root, self._take)
        self._keeper = keeper
        self._forward: list[CapturedCall] = []
        self._begun: set[tuple[object, ...]] = set()
        self._hold(_NOBODY, _NOBODY)

    def knows(self, part: Module) -> bool:
        """Return whether all modules of a part have been there from the start."""
        return all(id(module) in self.capture.places.names for module in part.modules())

    @contextmanager
    def hearing(self, root: Module, part: Module) -> Iterator[None]:
        """Capture one forward of the model, or of a part that the program called itself."""
        before = self.capture.captured
        self._hold(root, part)
        try:
            with ExitStack() as stack:
                try:
                    stack.enter_context(self.capture)
                except Exception as error:  # the program runs as if nobody looked
                    self.capture.skipped.append(f"{self.name}: {error}")
                yield
        finally:
            self.forwards += self.capture.captured > before
            self._conclude(root)
            with unseen():
                self._put_together()

    def runs(self) -> Iterator[ModelRun]:
        """Yield what was kept, one document per text and forward that began anew."""
        skipped = tuple(dict.fromkeys(self.capture.skipped))
        for document in self.documents:
            for _, records in document.texts():
                yield model_run(
                    self.name,
                    records,
                    without=self.without,
                    skipped=skipped,
                    notes=self._keeper.notes(),
                )

    def _hold(self, root: Module, part: Module) -> None:
        self.capture.model = root
        self.capture.part = self.capture.places.model = part  # a call of the part is a forward

    def _conclude(self, root: Module) -> None:
        """Ask what must be asked while the model is there, and let go of it."""
        self._hold(root, root)
        self.without = self.capture.without
        try:
            self.capture.require()
        except CaptureError as error:
            self.reason = str(error)
        self.capture.places.rest()
        self._hold(_NOBODY, _NOBODY)

    def _take(self, call: CapturedCall) -> None:
        if self._keeper.wants(call, self.name):
            self._forward.append(call)

    def _put_together(self) -> None:
        """Add a forward to the document that it goes on with, e.g. a step of `generate`.

        An encoder that was called by itself goes with the decoder that is called next.
        """
        calls, self._forward = self._forward, []
        if not calls:
            return
        anew = any(
            call.kind == "self" and not call.query_offset and _turn(call) in self._begun
            for call in calls
        )
        if anew or not self.documents:
            self.documents.append(Assembly())
            self._begun.clear()
        for call in calls:
            self._begun.add(_turn(call))
            try:
                self.documents[-1].take(call)
            except Exception as error:  # e.g. no memory to prove it with
                self.capture.skipped.append(f"{call.module_name}: {error}")


def _turn(call: CapturedCall) -> tuple[object, ...]:
    return call.text, call.module_name, call.nth, call.layer, call.kind


def _name_of(model: Module) -> str:
    while set(model._modules) in _WRAPPED:
        (inner,) = model._modules.values()
        if inner is None:
            break
        model = inner
    return visible(type(model).__name__)
