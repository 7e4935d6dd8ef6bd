"""`attnscope record`: programs run as Python runs them, and what was recorded of them."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from attnscope.attention import device
from attnscope.errors import SizeError
from attnscope.recordfile import load_record
from attnscope.sources.capture import capture
from attnscope.sources.program import Program
from attnscope.sources.recorder import Recorder
from attnscope.sources.recording import Keeper, Limits
from tests.conftest import PYTHON

RECORD = [PYTHON, "-m", "attnscope", "record"]
ATTENTION = """
import torch
torch.manual_seed(0)
model = torch.nn.MultiheadAttention(16, 4, batch_first=True)
x = torch.randn(1, 5, 16)
def attend(): return model(x, x, x, need_weights=False)[0]
"""


@pytest.fixture
def recorded(tmp_path):
    """Run a program plainly and recorded; return (plain, recorded, runs)."""

    def run(source, *arguments, options=(), plain=True):
        (tmp_path / "program.py").write_text(source, encoding="utf-8")
        program = ["program.py", *arguments]
        first = execute([PYTHON, *program], tmp_path) if plain else None
        record = execute([*RECORD, "--force", *options, *program], tmp_path)
        path = tmp_path / "attnscope-record.safetensors"
        return first, record, load_record(path) if path.exists() else []

    return run


def execute(command, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=120
    )


def said(record):
    return [line for line in record.stderr.splitlines() if line.startswith("attnscope: ")]


def test_a_program_is_main_with_its_arguments(recorded):
    source = (
        ATTENTION
        + """
import sys
print(sys.argv, __name__, __file__, __package__, __spec__, sys.path[0], __builtins__)
print(sys.modules["__main__"].model is model, attend().sum().item().hex())
"""
    )
    plain, record, runs = recorded(source, "--calls", "1", "-o", "x", "--", "--help")
    assert (record.returncode, record.stdout) == (0, plain.stdout)
    assert len(runs) == 1
    (line,) = said(record)
    assert line.startswith("attnscope: recorded 1 attention call of MultiheadAttention to /")
    assert all(call.site.proven for call in runs[0].calls)


def test_a_training_loop_computes_the_same(recorded):
    source = """
import torch
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(2, 7, 16)
for _ in range(3):
    loss = (model(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
print(torch.rand(1).item().hex())
"""
    plain, record, runs = recorded(source)
    assert record.stdout == plain.stdout
    assert len(runs) == 6  # three forwards of two texts
    assert [call.site.name for call in runs[0].calls] == ["0", "1"]
    assert "records are NOT proven" in record.stderr  # dropout
    assert any("dropout 0.1 was on" in line for line in runs[0].warnings)


def test_the_steps_of_generate_are_one_run_and_an_encoder_belongs_to_it(recorded):
    pytest.importorskip("transformers")
    source = """
import torch, transformers
torch.manual_seed(0)
small = dict(d_model=32, d_kv=8, d_ff=32, num_layers=2, num_heads=4, vocab_size=100)
config = transformers.T5Config(**small, decoder_start_token_id=0)
model = transformers.T5ForConditionalGeneration(config).eval()
for _ in range(2):
    ids = torch.arange(3, 12)[None]
    print(model.generate(ids, max_new_tokens=4, min_new_tokens=4, do_sample=False))
"""
    plain, record, runs = recorded(source)
    assert record.stdout == plain.stdout
    assert [run.model for run in runs] == ["T5ForConditionalGeneration"] * 2
    for run in runs:
        names = [f"{part}.{n}" for part in ("encoder", "decoder", "cross") for n in (0, 1)]
        assert {call.site.name for call in run.calls} == set(names)
        assert run.find("decoder.1")[0].captured.call.queries == 4
        assert all(call.site.proven for call in run.calls)


def test_two_models_and_a_function_without_a_module(recorded):
    source = (
        ATTENTION
        + """
class Wrapper(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([model])
    def forward(self, x):
        return self.blocks[0](x, x, x)[0]
wrapper = Wrapper()
print(wrapper(x).sum().item(), attend().sum().item())
other = torch.nn.MultiheadAttention(8, 2, batch_first=True)
y = torch.randn(1, 3, 8)
other(y, y, y)
q = torch.randn(1, 2, 4, 8)
torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
"""
    )
    plain, record, runs = recorded(source)
    assert record.stdout == plain.stdout
    # a model that the program made a part of another belongs to that
    assert [run.model for run in runs] == ["Wrapper"] * 2 + ["MultiheadAttention", "(no module)"]
    assert [run.calls[0].site.module_name for run in runs[:2]] == ["blocks.0"] * 2
    assert runs[3].calls[0].mask_name == "causal"
    assert "3 of MultiheadAttention" not in record.stderr


def test_a_part_called_by_itself_is_a_forward_of_its_own(recorded):
    source = """
import torch
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
x = torch.randn(1, 5, 16)
model.layers[1](x)
model(x)
model.layers[0](x)
model.layers[0](x)
"""
    _, _, runs = recorded(source, plain=False)
    layers = [[call.site.name for call in run.calls] for run in runs]
    assert layers == [["1"], ["0", "1"], ["0"], ["0"]]
    assert {run.model for run in runs} == {"TransformerEncoder"}


def test_between_forwards_a_model_is_as_without(recorded):
    source = (
        ATTENTION
        + """
import copy, gc, io, pickle, threading, weakref
plain = set(vars(model))
attend()
print(set(vars(model)) == plain, len(model._forward_hooks), len(pickle.dumps(model)))
twin = copy.deepcopy(model)
print(torch.equal(twin(x, x, x)[0], model(x, x, x)[0]))
thread = threading.Thread(target=attend)
thread.start(), thread.join()
with torch.device("cpu"):
    attend()
gone = weakref.ref(model)
del model
gc.collect()
print(gone() is None)
"""
    )
    plain, record, runs = recorded(source)
    assert record.stdout == plain.stdout
    assert plain.stdout.endswith("True\nTrue\n")
    assert len(runs) == 4  # not the one of the thread


def test_torchscript_and_tracing_go_on(recorded):
    source = (
        ATTENTION
        + """
import warnings
warnings.simplefilter("ignore")
traced = torch.jit.trace(torch.nn.Linear(16, 3), x)
print(traced(x).shape, [node.kind() for node in traced.graph.nodes()], attend().shape)
"""
    )
    plain, record, runs = recorded(source)
    assert record.stdout == plain.stdout
    assert len(runs) == 1
    assert "not recorded: TopLevelTracedModule: it is TorchScript" in record.stderr


def test_compiled_code_runs_as_what_it_was_compiled_from(recorded):
    source = (
        ATTENTION
        + """
compiled = torch.compile(model)
step = torch.compile(lambda: attend() * 2)
print(compiled(x, x, x)[0].shape, step().shape, type(compiled).__name__)
"""
    )
    _, record, runs = recorded(source, plain=False)
    assert record.stdout == "torch.Size([1, 5, 16]) torch.Size([1, 5, 16]) OptimizedModule\n"
    assert [run.model for run in runs] == ["MultiheadAttention"] * 2
    assert runs[0].calls[0].site.module_name == ""


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("raise SystemExit('a reason')", 1),
        ("raise SystemExit", 0),
        ("import sys; sys.exit(-1)", 255),
        ("try: 1 / 0\nexcept ZeroDivisionError as error: raise ValueError('boom') from error", 1),
        ("import sys; sys.excepthook = lambda *_: print('hook'); 1 / 0", 1),
        ("import sys; sys.stdout.close()", 0),
        ("import io, sys; sys.stdout = io.TextIOWrapper(sys.stdout.buffer); print('x')", 0),
    ],
)
def test_however_a_program_ends_that_is_the_end(recorded, end, code):
    plain, record, runs = recorded(f"{ATTENTION}\nattend()\nprint('out', flush=True)\n{end}\n")
    assert plain.returncode == record.returncode == code
    assert record.stdout == plain.stdout
    mine = [line for line in record.stderr.splitlines() if not line.startswith("attnscope: ")]
    assert mine == plain.stderr.splitlines()
    assert len(runs) == 1
    assert len(said(record)) == 1


def test_a_traceback_names_the_programs_lines_only(recorded):
    source = """
import torch
class Wrong(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(16, 4)
    def forward(self, x):
        self.attention(x, x, x)
        raise KeyError("inside")
Wrong()(torch.zeros(3, 16))
"""
    _, record, runs = recorded(source, plain=False)
    assert record.returncode == 1
    assert "KeyError: 'inside'" in record.stderr
    assert "attnscope/" not in record.stderr.replace("attnscope-record", "").split("KeyError")[0]
    assert len(runs) == 1


def test_a_syntax_error_is_the_programs(recorded):
    plain, record, _ = recorded("x = (\n")
    assert record.returncode == plain.returncode == 1
    assert record.stderr.startswith(plain.stderr)
    assert said(record) == ["attnscope: nothing was recorded: it did not load torch"]


def test_what_a_program_leaves_open_is_written_and_its_exit_functions_run(recorded, tmp_path):
    source = (
        ATTENTION
        + """
import atexit, threading, time
atexit.register(print, "at exit")
left = open("left.txt", "w")
left.write("not closed")
def late(): time.sleep(0.3); print("late")
threading.Thread(target=late).start()
attend()
"""
    )
    plain, record, _ = recorded(source)
    assert record.stdout == plain.stdout == "late\nat exit\n"
    assert (tmp_path / "left.txt").read_text() == "not closed"


def test_an_interrupted_program(tmp_path):
    source = f"{ATTENTION}\nattend()\nprint('ready', flush=True)\nimport time; time.sleep(60)\n"
    (tmp_path / "program.py").write_text(source)
    process = subprocess.Popen(
        [*RECORD, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"KeyboardInterrupt" in stderr
    assert len(load_record(tmp_path / "attnscope-record.safetensors")) == 1


def test_a_forked_child_writes_no_record(recorded):
    source = (
        ATTENTION
        + """
import os
attend()
if os.fork():
    os.wait()
"""
    )
    _, record, runs = recorded(source, plain=False)
    assert record.returncode == 0
    assert len(said(record)) == 1
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("print('x')", "it did not load torch"),
        ("import torch", "no module of torch ran"),
        ("import torch; torch.nn.Linear(2, 2)(torch.zeros(2))", "no softmax attention ran in L"),
    ],
)
def test_a_program_without_attention(recorded, source, why):
    plain, record, runs = recorded(source)
    assert (plain.returncode, record.returncode) == (0, 2)
    assert record.stdout == plain.stdout
    assert why in record.stderr
    assert record.stderr.count("\n") == 1
    assert runs == []
    _, record, _ = recorded(f"{source}\nraise SystemExit(7)", plain=False)
    assert record.returncode == 7


def test_torch_is_not_loaded_before_the_program_loads_it(recorded):
    source = """
import sys
print("torch" in sys.modules, [type(one).__name__ for one in sys.meta_path])
import torch
print(type(torch.__spec__.loader).__name__, "exec_module" in vars(torch.__spec__.loader))
"""
    _, record, _ = recorded(source, plain=False)
    assert record.stdout.startswith("False ['_Waiting'")
    assert record.stdout.endswith("SourceFileLoader False\n")


def test_limits(recorded):
    source = """
import torch
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
for _ in range(3): model(torch.randn(1, 5, 16))
"""

    def kept(*options):
        _, record, runs = recorded(source, options=options, plain=False)
        assert record.returncode == 0, record.stderr
        return [[call.site.layer for call in run.calls] for run in runs], record.stderr

    everything = [[0, 1, 2, 3]] * 3
    assert kept()[0] == everything
    found, message = kept("--calls", "6")
    assert found == [[0, 1, 2, 3], [0, 1]]
    assert "--calls 6 left out 6 attention calls" in message
    found, message = kept("--layers", "0,2-3")
    assert found == [[0, 2, 3]] * 3
    assert "left out 3 attention calls" in message
    found, message = kept("--steps", "2")
    assert found == everything[:2]
    assert "--steps 2 left out 1 forward" in message
    _, record, _ = recorded(source, options=("--layers", "9"), plain=False)
    assert record.returncode == 2
    assert "no attention call was in --layers 9: those made were in 0, 1, 2, 3" in record.stderr


def test_after_a_call_without_room_none_is_kept(monkeypatch):
    model = torch.nn.MultiheadAttention(16, 4)
    x = torch.zeros(3, 16)
    with capture(model) as cap:
        model(x, x, x)
    room = iter((True, False, True))

    def check_bytes(_needed, _what):
        if not next(room):
            raise SizeError("none is left")

    monkeypatch.setattr(device, "check_bytes", check_bytes)
    keeper = Keeper(Limits())
    assert [keeper.wants(cap.calls[0], "m") for _ in range(3)] == [True, False, False]
    assert keeper.notes() == (
        "use --calls, --steps or --layers: there was no memory for 2 attention calls",
    )


def test_a_module_as_python_takes_it(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    source = f"{ATTENTION}\nimport sys\nattend(); print(sys.argv, __package__, sys.path[0])\n"
    (tmp_path / "package" / "__main__.py").write_text(source)
    plain = execute([PYTHON, "-m", "package", "-m"], tmp_path)
    record = execute([*RECORD, "-m", "package", "-m"], tmp_path)
    assert (record.returncode, record.stdout) == (0, plain.stdout)
    record = execute([*RECORD, "--force", "-m", "nothing"], tmp_path)
    assert record.returncode == 2
    assert record.stderr == "attnscope: there is no module nothing to run. Check its name\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("nothing.py",), "there is no program nothing.py"),
        (("a\x00b",), "cannot be read"),
        ((".",), "is a folder"),
        (("--calls", "0", "p.py"), "--calls 0 keeps nothing"),
        (("--steps", "-1", "p.py"), "--steps -1 keeps nothing"),
        (("--layers", "3-1", "p.py"), '--layers "3-1" does not name layers'),
        (("--layers", "a", "p.py"), '--layers "a" does not name layers'),
        (("--output", "no/where", "p.py"), "there is no folder no"),
        (("--output", "p.py", "p.py"), "p.py exists"),
        ((), "Missing argument"),
    ],
)
def test_what_is_wrong_is_said_before_the_program_starts(
    cli, tmp_path, monkeypatch, arguments, why
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.py").write_text("raise AssertionError('it ran')")
    done = cli("record", *arguments)
    assert done.code == 2
    assert why in done.err
    assert done.err.count("\n") == 1


def test_everything_is_put_back(tmp_path, monkeypatch):
    for name in ("argv", "path", "meta_path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    (tmp_path / "p.py").write_text(f"{ATTENTION}\nattend()\nraise SystemExit(5)\n")
    functional, registered = torch.nn.functional, torch.nn.modules.module
    hooks = dict(registered._global_module_registration_hooks)
    before = torch.nn.Module.__call__, torch.compile, functional.scaled_dot_product_attention
    recorder = Recorder(Limits())
    assert Program(str(tmp_path / "p.py")).run(recorder.start) == 5
    assert torch.nn.Module.__call__ is not before[0]
    recorder.stop()
    after = torch.nn.Module.__call__, torch.compile, functional.scaled_dot_product_attention
    assert after == before
    assert dict(registered._global_module_registration_hooks) == hooks
    recording = recorder.recording()
    assert recording.summary == "1 attention call of MultiheadAttention"
    assert (len(recording.runs), recording.unproven) == (1, 0)
