"""The laws of the house: imports go down only, and torch stays in its rooms."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import attnscope

PACKAGE = Path(attnscope.__file__).parent
# A room may import from itself and from these.
BELOW = {
    "errors": set(),
    "text": {"errors"},
    "attention": {"text", "errors"},
    "modules": {"attention", "errors"},
    "run": {"attention", "text", "errors"},
    "model_run": {"run", "attention", "text", "errors"},
    "measured_run": {"run", "attention", "text", "errors"},
    "survey": {"run", "text", "errors"},
    "document_file": {"text", "errors"},
    "runfile_checks": {"run", "attention", "text", "errors"},
    "runfile": {"document_file", "runfile_checks", "run", "attention", "text", "errors"},
    "recordfile_checks": {"model_run", "runfile_checks", "run", "attention", "text", "errors"},
    "recordfile": {
        "document_file",
        "recordfile_checks",
        "model_run",
        "runfile_checks",
        "run",
        "attention",
        "text",
        "errors",
    },
    "measuredfile_checks": {
        "recordfile_checks",
        "measured_run",
        "runfile_checks",
        "run",
        "attention",
        "text",
        "errors",
    },
    "measuredfile": {
        "document_file",
        "measuredfile_checks",
        "recordfile_checks",
        "measured_run",
        "runfile_checks",
        "run",
        "attention",
        "text",
        "errors",
    },
    "pooling": {"run", "attention", "text", "errors"},
    "compare": {"run", "attention", "text", "errors"},
    "explain": {"run", "attention", "text", "errors"},
    "sources": {"survey", "measured_run", "model_run", "run", "attention", "text", "errors"},
    "views": {
        "survey",
        "measured_run",
        "model_run",
        "run",
        "compare",
        "explain",
        "attention",
        "text",
        "errors",
    },
    "library": {
        "model_run",
        "measured_run",
        "runfile",
        "recordfile",
        "measuredfile",
        "sources",
        "views",
        "modules",
        "run",
        "attention",
        "text",
        "errors",
    },
    "cli": {
        "pooling",
        "runfile",
        "recordfile",
        "measuredfile",
        "sources",
        "views",
        "compare",
        "explain",
        "survey",
        "measured_run",
        "model_run",
        "run",
        "attention",
        "text",
        "errors",
    },
    "__main__": {"cli"},
}
TORCH_ROOMS = {
    "document_file",
    "attention",
    "sources",
    "modules",
    "compare",
    "explain",
    "runfile",
    "runfile_checks",
    "recordfile",
    "recordfile_checks",
    "measuredfile",
    "measuredfile_checks",
    "pooling",
}
LONGEST_FILE, LONGEST_FUNCTION = 300, 60


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(tree, *, running):
    """Yield the modules that a file imports; `running` leaves out `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        if running and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from imports_of(node, running=running)


def broken_laws(room, source):
    """Return what a file of a room may not import."""
    tree = ast.parse(source)
    broken = []
    for name in imports_of(tree, running=False):
        parts = name.split(".")
        if parts[0] == "attnscope" and len(parts) > 1:
            other = parts[1]
            if other in BELOW and other != room and other not in BELOW[room]:
                broken.append(f"{room} imports {name}")
    for name in imports_of(tree, running=True):
        if name.split(".")[0] == "torch" and room not in TORCH_ROOMS:
            broken.append(f"{room} imports torch")
        if name.split(".")[0] == "click":
            broken.append(f"{room} imports click")
    return broken


FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path):
    assert broken_laws(room_of(path), path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_stay_small(path):
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= LONGEST_FILE
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and room_of(path) != "cli":
            assert node.end_lineno - node.lineno < LONGEST_FUNCTION, node.name


def test_every_room_is_known():
    assert {room_of(path) for path in FILES} <= set(BELOW)


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("views", "from attnscope.sources.sentence import run_tokens"),
        ("sources", "import attnscope.views.style"),
        ("text", "from attnscope import attention"),
        ("text", "def f():\n    import torch"),
        ("views", "import torch.nn"),
        ("cli", "import click"),
        ("views", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import attnscope.cli"),
    ],
)
def test_the_test_can_fail(room, source):
    assert broken_laws(room, source)


def test_types_of_torch_are_allowed_in_views():
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torch import Tensor"
    assert broken_laws("views", source) == []


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["--help"], ["run", "--help"], ["tokenize", "a b"], ["schema"], ["run"]],
    ids=" ".join,
)
def test_what_needs_no_torch_does_not_load_it(arguments):
    program = (
        "import sys; from attnscope.cli import main; code = main(sys.argv[1:]); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_loads_nothing_heavy():
    program = (
        "import sys, attnscope; heavy = {'torch', 'rich', 'tokenizers', 'typer', 'numpy'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_public_names():
    for name in attnscope.__all__:
        assert getattr(attnscope, name) is not None
    assert set(attnscope.__all__) <= set(dir(attnscope))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = attnscope.nothing
