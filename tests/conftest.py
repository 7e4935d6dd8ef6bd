"""What all tests share: the program in this process, the golden numbers, golden files."""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from attnscope.cli import main

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parent.parent
LESSON_SENTENCE = "Life is short, eat dessert first"

# Every control character that must not reach a terminal: C0 without line feed, DEL, C1, bidi.
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self):
        def refuse(constant):
            raise ValueError(f"{constant} is not strict JSON")

        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture
def cli(capsys, monkeypatch):
    """Run the command line in this process: cli("run", "text") -> Done."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def lesson():
    return json.loads((GOLDEN / "lesson.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def cases():
    listed = json.loads((GOLDEN / "cases.json").read_text(encoding="utf-8"))["cases"]
    return {case["id"]: case for case in listed}


def pytest_addoption(parser):
    parser.addoption("--rewrite-golden", action="store_true", help="write golden files anew")


@pytest.fixture
def golden(request):
    """Compare text with a golden file; --rewrite-golden writes it, and fails where it differs."""

    def check(name, text):
        path = GOLDEN / name
        old = path.read_text(encoding="utf-8") if path.exists() else None
        if old != text and request.config.getoption("--rewrite-golden"):
            path.write_text(text, encoding="utf-8")
            pytest.fail(f"{name} was rewritten: look at the difference")
        assert text == old, f"differs from {name}"

    return check


def assert_close(mine, theirs, tolerance=1e-5):
    """Assert that nested lists are equal within an absolute tolerance; null equals only null."""
    if isinstance(theirs, list):
        assert isinstance(mine, list)
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs, strict=True):
            assert_close(a, b, tolerance)
    elif theirs is None:
        assert mine is None
    else:
        assert mine == pytest.approx(theirs, abs=tolerance)


PYTHON = sys.executable
