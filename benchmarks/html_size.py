"""Size, build time and peak memory of HTML views, beside bertviz and circuitsvis, in one run.

    pip install bertviz circuitsvis        # in an environment of their own, or this one
    python benchmarks/html_size.py [--tokens 64,128,256,512] [--heads 12] [--layers 12]

Each cell is a whole process: it draws q, k and v at random (width 64), computes causal attention,
and times only the building of the page. Memory is the process's peak above what it had before.
A tool that is not installed is named and left out.
"""

import argparse
import importlib.util
import json
import subprocess
import sys

WIDTH = 64

COMMON = """
import json, resource, sys, time
import torch
layers, heads, tokens, width = (int(n) for n in sys.argv[1:5])
generator = torch.Generator().manual_seed(0)
names = [f"t{i}" for i in range(tokens)]
def draw():
    return torch.randn(heads, tokens, width, generator=generator)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
def weights():
    mask = torch.ones(tokens, tokens).triu(1).bool()
    scores = draw() @ draw().transpose(1, 2) / width ** 0.5
    return scores.masked_fill(mask, -torch.inf).softmax(-1)
def report(build):
    before, start = peak(), time.perf_counter()
    size = build()
    print(json.dumps({"bytes": size, "seconds": time.perf_counter() - start,
                      "memory": peak() - before}))
"""
BUILDS = {
    "attnscope": """
from attnscope.attention.call import AttentionCall
from attnscope.attention.masks import CAUSAL
from attnscope.attention.result import attend
from attnscope.run import Axis, Run, Settings
from attnscope.views.html_page import render_html
results = tuple(attend(AttentionCall(draw(), draw(), draw(), mask=CAUSAL)) for _ in range(layers))
settings = Settings("tensors", "causal", heads, heads, width, width, True, None, "neg-inf",
                    results[0].call.scale, "float32", "cpu")
axis = Axis(tuple(names))
run = Run(settings, axis, axis, results)
report(lambda: len(render_html(run).encode()))
""",
    "bertviz": """
from bertviz import model_view
attention = [weights()[None] for _ in range(layers)]
report(lambda: len(model_view(attention, names, html_action="return").data.encode()))
""",
    "circuitsvis": """
from circuitsvis.attention import attention_heads
attention = torch.cat([weights() for _ in range(layers)])
report(lambda: len(str(attention_heads(attention=attention, tokens=names)).encode()))
""",
}


def measured(tool: str, layers: int, heads: int, tokens: int) -> dict[str, float] | str:
    """Return bytes, seconds and memory of one build, or why there are none."""
    sizes = [str(n) for n in (layers, heads, tokens, WIDTH)]
    done = subprocess.run(
        [sys.executable, "-c", COMMON + BUILDS[tool], *sizes], capture_output=True, text=True
    )
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:60]
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", default="64,128,256,512")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--layers", type=int, default=12)
    options = parser.parse_args()
    tools = [name for name in BUILDS if importlib.util.find_spec(name) is not None]
    for name in BUILDS.keys() - set(tools):
        print(f"{name} is not installed: left out")
    print("tokens  tool             MB  bytes/cell  seconds  peak MB")
    for tokens in (int(n) for n in options.tokens.split(",")):
        cells = options.layers * options.heads * tokens**2
        for tool in tools:
            got = measured(tool, options.layers, options.heads, tokens)
            if isinstance(got, str):
                print(f"{tokens:6}  {tool:11}  {got}")
                continue
            print(
                f"{tokens:6}  {tool:11} {got['bytes'] / 1e6:7.1f}  {got['bytes'] / cells:10.2f}  "
                f"{got['seconds']:7.2f}  {got['memory'] / 1e6:7.0f}"
            )


if __name__ == "__main__":
    main()
