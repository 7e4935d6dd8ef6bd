"""Exact measures of long texts, as ratios to one fused causal forward that gives the context only.

    python benchmarks/long.py [--tokens 2048,8192,32768,131072] [--heads 4] [--width 64] [--runs 5]
                              [--threads 2]

Each length is one process: q, k and v at random, float32, causal, all rows of the table in turn,
`runs` times over, fewer where a text is long; the ratio is the median of those within one round.
Heads are fewer where a text is long, down to one. Dense rows are left out where their matrices
would not fit, and compiled ones of the longest text, which takes a minute a row as it is. Memory
is the peak above q, k and v and the context, sampled 500 times a second, of a process of its own
per row. Targets from 8,192 tokens on: measures at most 2.3, with the ten strongest keys at most
2.8, compiled 1.8, and under 300 MB above q, k, v and context at 131,072 tokens. Time is to grow as
T², memory as T: the exponents are those between one length and the next, per head.

Rows: fused, torch's scaled_dot_product_attention; measures, context and all measures and a map of
256 × 256; top 10, the same with the ten strongest keys of every row; both of them compiled, if
numba is installed; dense, the matrix of weights by softmax and its product with v; eager, one
layer of a Llama in transformers with output_attentions, the whole layer.
"""

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
from itertools import pairwise

NAMES = ("fused", "measures", "top 10", "compiled", "compiled top 10", "dense", "eager")
TARGETS = {"measures": 2.3, "top 10": 2.8, "compiled": 1.8}
NEEDS = {"eager": "transformers", "compiled": "numba", "compiled top 10": "numba"}
# Rounds are so many at most where there are more tokens than that.
FEWER = {8192: 3, 65536: 1}
# Numbers in a matrix of weights: above this the dense rows are left out.
MATRIX = 1 << 29

PROGRAM = """
import json, sys, threading, time
from pathlib import Path
import torch
from torch.nn.functional import scaled_dot_product_attention
heads, tokens, width, runs, threads = (int(n) for n in sys.argv[1:6])
names = sys.argv[6].split(",")
torch.set_num_threads(threads)
generator = torch.Generator().manual_seed(0)
query, key, value = (torch.randn(heads, tokens, width, generator=generator) for _ in range(3))
def fused():
    return scaled_dot_product_attention(query[None], key[None], value[None], is_causal=True)
def measured(top, compiled=False):
    from attnscope.attention.call import AttentionCall
    from attnscope.attention.masks import CAUSAL
    from attnscope.attention.measured import MeasureOptions
    from attnscope.attention.stripes import measure
    call = AttentionCall(query, key, value, mask=CAUSAL)
    return measure(call, MeasureOptions(top=top, keep_context=True, compiled=compiled))
def dense():
    hidden = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    scores = query @ key.transpose(1, 2) / width ** 0.5
    weights = scores.masked_fill_(hidden, -torch.inf).softmax(-1)
    return weights, weights @ value
model = None
def eager():
    global model
    if model is None:
        from transformers import LlamaConfig, LlamaModel
        config = LlamaConfig(hidden_size=heads * width, intermediate_size=8, num_hidden_layers=1,
                             num_attention_heads=heads, vocab_size=8, attn_implementation="eager",
                             max_position_embeddings=tokens)
        model = LlamaModel(config).eval()
    return model(torch.zeros(1, tokens, dtype=torch.long), output_attentions=True, use_cache=False)
kinds = {"fused": fused, "measures": lambda: measured(0), "top 10": lambda: measured(10),
         "compiled": lambda: measured(0, True), "compiled top 10": lambda: measured(10, True),
         "dense": dense, "eager": eager}
def load():
    # what is loaded and compiled once is no time and no memory of a row
    global query, key, value, tokens, model
    full = query, key, value, tokens
    query, key, value, tokens = *(tensor[:, :64] for tensor in full[:3]), 64
    for name in names:
        kinds[name]()
    (query, key, value, tokens), model = full, None
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
def peak(work):
    # what the sampled peak is above, once all is loaded
    most, done, before = 0, threading.Event(), resident()
    def sample():
        nonlocal most
        while not done.is_set():
            most = max(most, resident())
            time.sleep(0.002)
    thread = threading.Thread(target=sample)
    thread.start()
    work()
    done.set()
    thread.join()
    return most - before
"""
TIMES = (
    PROGRAM
    + """
seconds = {name: [] for name in names}
with torch.no_grad():
    load()
    if tokens <= 8192:  # longer ones need no warming
        for name in names:
            kinds[name]()
    for _ in range(runs):
        for name in names:
            start = time.perf_counter()
            kinds[name]()
            seconds[name].append(time.perf_counter() - start)
print(json.dumps(seconds))
"""
)
MEMORY = (
    PROGRAM
    + """
with torch.no_grad():
    load()
    start = time.perf_counter()
    most = peak(kinds[names[0]]) - heads * tokens * width * 4
    print(json.dumps([most, time.perf_counter() - start]))
"""
)


def asked(program: str, *arguments: object) -> object:
    """Return what a program prints in a process of its own, or None if it failed."""
    words = [str(argument) for argument in arguments]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    if done.returncode:
        print((done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:90])
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def names_for(heads: int, tokens: int) -> list[str]:
    """Return the rows that fit into memory and whose packages are installed."""
    names = NAMES if heads * tokens**2 <= MATRIX else NAMES[:5] if tokens <= 65536 else NAMES[:3]
    return [name for name in names if importlib.util.find_spec(NEEDS.get(name, "torch"))]


def exponent(shorter: tuple[int, float], longer: tuple[int, float]) -> str:
    """Return the power of the length that a number grows with between two lengths."""
    if min(shorter[1], longer[1]) <= 0:
        return "–"
    return f"{math.log(longer[1] / shorter[1]) / math.log(longer[0] / shorter[0]):.2f}"


def measured(
    heads: int, tokens: int, width: int, runs: int, threads: int
) -> dict[str, tuple[float, float]]:
    """Print one length, and return seconds and bytes per head of each row."""
    names = names_for(heads, tokens)
    common = heads, tokens, width, runs, threads
    peaks = {name: asked(MEMORY, *common, name) for name in names}
    # a single round is not done twice
    seconds = asked(TIMES, *common, ",".join(names)) if runs > 1 else None
    found, base = {}, []
    for name in names:
        peak = peaks[name]
        memory, once = peak if isinstance(peak, list) else (math.nan, math.nan)
        times = seconds[name] if isinstance(seconds, dict) else [once]
        base = base or times  # the first row is the fused forward
        ratio = statistics.median(mine / theirs for mine, theirs in zip(times, base, strict=True))
        median = statistics.median(times)
        goal = f"≤ {TARGETS[name]}" if name in TARGETS and tokens >= 8192 else "–"
        print(
            f"{tokens:7} {heads:5}  {name:15} {median:8.3f} {ratio:7.2f} "
            f"{min(times) / min(base):6.2f}  {goal:6} {memory / 1e6:8.0f}",
            flush=True,
        )
        found[name] = median / heads, memory / heads
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", default="2048,8192,32768,131072")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, {options.threads} threads, width {options.width}, medians")
    print(" tokens heads  row              seconds   ratio   best  target  peak MB")
    found = {}
    for tokens in (int(n) for n in options.tokens.split(",")):
        heads = max(1, min(options.heads, options.heads * 8192 // tokens))
        runs = min([options.runs, *(most for above, most in FEWER.items() if tokens > above)])
        found[tokens] = measured(heads, tokens, options.width, runs, options.threads)
    for first, second in pairwise(found):
        for name in (name for name in NAMES if name in found[first] and name in found[second]):
            time, memory = (
                exponent((first, found[first][name][i]), (second, found[second][name][i]))
                for i in (0, 1)
            )
            print(f"{first} to {second} tokens, {name}: time T^{time}, memory T^{memory}")


if __name__ == "__main__":
    main()
