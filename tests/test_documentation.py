"""Every command and option is documented, and every example of the README runs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.real_models import smollm2

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
EXAMPLES = [
    line.removeprefix("$ ") for kind, text in BLOCKS if kind == "console"
    for line in text.splitlines() if line.startswith("$ ")
]  # fmt: skip
SNIPPETS = [text for kind, text in BLOCKS if kind == "python"]
COMMANDS = (
    "run", "show", "explain", "compare", "tokenize", "schema",
    "layers", "heads", "top", "who", "record",
)  # fmt: skip
# The model that the README fetches, in a folder that opens faster than the file.
MODEL = "smollm2.gguf"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A copy of the samples, where examples may write files."""
    place = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "samples", place / "samples")
    (place / "attnscope").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m attnscope "$@"\n')
    (place / "attnscope").chmod(0o755)
    return place


def run_example(workplace, example):
    """Run an example, after those that write the files it reads."""
    if MODEL in example and not (workplace / MODEL).exists():
        (workplace / MODEL).symlink_to(smollm2())
    for earlier in EXAMPLES[: EXAMPLES.index(example)]:
        for name in re.findall(r"(?:--save|--output|-o) (\S+)", earlier):
            reads = re.search(rf"(?<!--save )(?<!--output )(?<!-o ){re.escape(name)}", example)
            if reads and not (workplace / name).exists():
                run_example(workplace, earlier)
    command, _, expected = example.partition("  # exit ")
    path = f"{workplace}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=workplace, env={**os.environ, "PATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == int(expected or 0), done.stderr
    return done


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(workplace, example):
    written = re.findall(r"(?:--save|--output|-o) (\S+)", example)
    if written and (workplace / written[0]).exists():
        return  # it was run already, for one that reads what it writes
    done = run_example(workplace, example)
    assert done.stdout or written
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippet(snippet):
    done = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_there_are_examples_of_each_command():
    for command in COMMANDS:
        assert any(f"attnscope {command}" in example for example in EXAMPLES)


def test_the_two_commands_stand_first():
    first, second = [text for kind, text in BLOCKS if kind == "sh"][:2]
    for command in (first, second):
        assert command.count("\n") == 1
        assert "constraints.txt" in command
        assert ".venv" in command
    assert "attnscope run" in first
    assert "pytest" in second


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("width", ["40", "80"])
def test_help_says_what_each_option_does(cli, monkeypatch, command, width):
    monkeypatch.setenv("COLUMNS", width)
    done = cli(command, "--help")
    assert done.code == 0
    assert all(len(line) <= int(width) for line in done.out.splitlines())
    listed = done.out.split("\nOptions:", 1)[1]
    options = re.findall(r"^  (?:-\w, )?--([\w-]+)", listed, re.MULTILINE)
    assert "help" in options
    for name in options:
        (about,) = re.findall(
            rf"\n  (?:-\w, )?--{name}(?![\w-])(.*?)(?=\n  -|\Z)", listed, re.DOTALL
        )
        assert len(re.findall(r"[A-Za-z]{2,}", about)) >= 3, name


def test_help_names_every_step():
    from attnscope.cli.options import Show
    from attnscope.views.style import STEPS

    about = Show.__metadata__[0].help
    assert all(step in about for step in STEPS)


def test_brackets_in_help_are_printed(cli):
    assert "[UNK]" in cli("run", "--help").out
    assert "[default: …]" not in cli("run", "--help").out


def test_design_names_every_file():
    design = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    for path in sorted((ROOT / "attnscope").rglob("*.py")):
        name = path.relative_to(ROOT / "attnscope")
        known = (
            name.name in ("__init__.py", "__main__.py", "py.typed")
            or str(name) in design
            or f"`{name.name}`" in design
            or name.parts[0] in ("cli", "views")
        )
        assert known, f"{name} is not in docs/design.md"


def test_samples_that_train(tmp_path):
    script = ROOT / "samples" / "train_next_word.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Life is short eat dessert → first" in done.stdout
    assert "weights before:" in done.stdout


def test_samples_are_made_by_their_script(tmp_path):
    shutil.copytree(ROOT / "samples", tmp_path / "samples")
    made = ("tokenizer.json", "qkv.json", "qkv.npz", "qkv.safetensors", "underflow.json")
    for name in made:
        (tmp_path / "samples" / name).unlink()
    subprocess.run([sys.executable, tmp_path / "samples" / "make_samples.py"], check=True)
    for name in made:
        if name.endswith(".npz"):  # a zip archive holds the time it was made
            continue
        old = (ROOT / "samples" / name).read_bytes()
        assert Path(tmp_path / "samples" / name).read_bytes() == old, name
