"""Capture beside the plain forward and other ways to get attention weights, in one run.

    pip install transformer-lens         # to see it beside; left out where it is not installed
    python benchmarks/capture.py [--tokens 256,512,1024,2048] [--rounds 7] [--threads 1]

A random Llama of 8 layers, 8 heads of width 64, float32, one text, forward only. Times are medians
of ratios to the plain forward under the fused kernel, taken in the same round of one process, the
ways in turn. Memory is the peak of a process of its own above what it had with the model loaded
and warm (counted by Linux).

- capture: attnscope.capture(model), every call kept;
- proven: each call computed again by attnscope's own equation, rows at a time, and compared with
  the model's output, then dropped;
- measured: every measure of every row, key and head, without the matrix, proven, then dropped;
  also with the ten strongest keys of every row; compiled, the same with numba, of which what is
  loaded once (its compiler, about 150 MB) is not counted;
- eager: the same weights with attn_implementation="eager" and output_attentions=True;
- TransformerLens: run_with_cache of the same model, its attention patterns alone or everything.
"""

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time

SETUP = """
import json, sys
import torch
from transformers import LlamaConfig, LlamaModel
SIZES = dict(hidden_size=512, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=8,
             vocab_size=1000, max_position_embeddings=16384)
def llama(attention=None):
    torch.manual_seed(0)
    config = LlamaConfig(**SIZES)
    if attention:
        config._attn_implementation = attention
    return LlamaModel(config).eval()
def ids(tokens):
    return torch.randint(3, 1000, (1, tokens), generator=torch.Generator().manual_seed(1))
"""
MEASURED = """
import attnscope
from attnscope.attention.head_scores import prove
from attnscope.attention.call import AttentionCall
from attnscope.attention.measured import MeasureOptions
from attnscope.attention.stripes import measure
model = llama()
OPTIONS = MeasureOptions(top={top}, grid=None, keep_context=True, compiled={compiled})
zeros = torch.zeros(1, 9, 4)
measure(AttentionCall(zeros, zeros, zeros), OPTIONS)  # loads what is loaded once
def way(x):
    errors = []
    def take(call):
        errors.append(prove(call, measure(call.call, OPTIONS)))
    with attnscope.capture(model, on_call=take):
        model(x, use_cache=False)
    assert len(errors) == 8 and max(errors) < 1e-5
"""
WAYS = {
    "plain": """
model = llama()
def way(x):
    model(x, use_cache=False)
""",
    "capture": """
import attnscope
model = llama()
def way(x):
    with attnscope.capture(model) as cap:
        model(x, use_cache=False)
    assert len(cap.calls) == 8
""",
    "proven": """
import attnscope
from attnscope.attention.verify import verify
model = llama()
def way(x):
    errors = []
    with attnscope.capture(model, on_call=lambda call: errors.append(verify(call))):
        model(x, use_cache=False)
    assert len(errors) == 8 and max(errors) < 1e-5
""",
    "measured": MEASURED.format(top=0, compiled=False),
    "measured top 10": MEASURED.format(top=10, compiled=False),
    "compiled": MEASURED.format(top=0, compiled=True),
    "compiled top 10": MEASURED.format(top=10, compiled=True),
    "eager": """
model = llama("eager")
def way(x):
    assert len(model(x, use_cache=False, output_attentions=True).attentions) == 8
""",
}
LENS = """
import tempfile
from tokenizers import Tokenizer, models
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from transformer_lens import TransformerBridge
torch.manual_seed(0)
words = Tokenizer(models.WordLevel({{"[UNK]": 0, "a": 1}}, unk_token="[UNK]"))
words = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="[UNK]", eos_token="[UNK]")
with tempfile.TemporaryDirectory() as folder:
    LlamaForCausalLM(LlamaConfig(**SIZES)).eval().save_pretrained(folder)
    words.save_pretrained(folder)
    model = TransformerBridge.boot_transformers(folder)
def way(x):
    _, kept = model.run_with_cache(x{more})
    assert sum(name.endswith("hook_pattern") for name in kept) == 8
"""
LENS_WAYS = {
    "TransformerLens patterns": LENS.format(
        more=', names_filter=lambda name: name.endswith("hook_pattern")'
    ),
    "TransformerLens everything": LENS.format(more=""),
}
MEMORY = """
def resident(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))
torch.set_num_threads(int(sys.argv[2]))
with torch.no_grad():
    way(ids(16))
    with open("/proc/self/clear_refs", "w") as switch:
        switch.write("5")  # the peak counts from here
    before = resident("VmRSS")
    way(ids(int(sys.argv[1])))
print(json.dumps(resident("VmHWM") - before))
"""


def memory(code: str, tokens: int, threads: int) -> float | str:
    """Return the bytes that one way needs above the loaded model, or why they are not known."""
    done = subprocess.run(
        [sys.executable, "-c", SETUP + code + MEMORY, str(tokens), str(threads)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:60]
    return float(json.loads(done.stdout.strip().splitlines()[-1]))


def ratios(ways: dict[str, str], tokens: int, rounds: int) -> dict[str, float]:
    """Return the median ratio of each way's time to the plain forward's of the same round."""
    import torch

    made = {}
    for name, code in ways.items():
        space: dict = {}
        exec(SETUP + code, space)
        made[name] = space["way"]
        text = space["ids"](tokens)
    times: dict[str, list[float]] = {name: [] for name in made}
    with torch.no_grad():
        for way in made.values():
            way(text)
        for turn in range(rounds):
            names = list(made) if turn % 2 == 0 else list(made)[::-1]
            took = {}
            for name in names:
                start = time.perf_counter()
                made[name](text)
                took[name] = time.perf_counter() - start
            for name, seconds in took.items():
                times[name].append(seconds / took["plain"])
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", default="256,512,1024,2048")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ways", default="", help="only these, separated by commas, and plain")
    asked = parser.parse_args()
    import torch

    torch.set_num_threads(asked.threads)
    ways = dict(WAYS)
    if importlib.util.find_spec("transformer_lens"):
        ways |= LENS_WAYS
    else:
        print("transformer-lens is not installed: left out")
    if not importlib.util.find_spec("numba"):
        print("numba is not installed: the compiled ways are left out")
        ways = {name: code for name, code in ways.items() if not name.startswith("compiled")}
    if asked.ways:
        ways = {name: ways[name] for name in ("plain", *asked.ways.split(","))}
    print(f"{'tokens':>6}  {'way':<28}{'ratio':>7}{'MB above the model':>20}")
    for tokens in (int(n) for n in asked.tokens.split(",")):
        for name, ratio in ratios(ways, tokens, asked.rounds).items():
            used = memory(ways[name], tokens, asked.threads)
            shown = used if isinstance(used, str) else f"{used / 1e6:,.0f}"
            print(f"{tokens:>6}  {name:<28}{ratio:>7.2f}{shown:>20}", flush=True)


if __name__ == "__main__":
    main()
