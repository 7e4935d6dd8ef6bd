"""A real model on a real text, every layer and head measured, beside eager where that fits.

    python benchmarks/real_text.py smollm2.gguf TEXT.txt [--tokens 2000,8000] [--threads 2]

Each way is a process of its own: it loads the model, runs a short text, and then takes the time
of one forward over the first tokens of the text, and its peak memory above the loaded model (as
Linux counts it).

- plain: the forward alone, under the model's own kernel;
- measured: every measure of every row, key and head, each layer proven and let go;
- measured, top 10: with the ten strongest keys of every row;
- eager: attn_implementation="eager" and output_attentions=True, which keeps every matrix. It is
  left out where the matrices alone would not fit into the free memory.
"""

import argparse
import json
import subprocess
import sys

SETUP = """
import json, sys, time
import torch
import attnscope
from attnscope.attention.device import free_bytes
from attnscope.attention.head_scores import prove
from attnscope.attention.measured import MeasureOptions
from attnscope.attention.stripes import measure
from attnscope.sources.model.batch import batch, forward
from attnscope.sources.model.cut import cut
from attnscope.sources.model.loaded import load_model
from attnscope.sources.model.place import find_model
from attnscope.sources.model.sides import beginning

way, model, text, tokens, threads = sys.argv[1], *sys.argv[2:4], int(sys.argv[4]), int(sys.argv[5])
torch.set_num_threads(threads)
loaded = load_model(find_model(model, offline=True))
whole = cut(loaded, open(text, encoding="utf-8").read()[: tokens * 5])
assert len(whole) >= tokens, f"the text has {len(whole)} tokens"

def resident(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))

def run(count):
    some = batch(loaded, [beginning(whole, count)])
    if way == "plain":
        forward(loaded, some)
        return None
    if way == "eager":
        with torch.no_grad():
            out = loaded.model.base_model(**some.inputs, use_cache=False, output_attentions=True)
        assert len(out.attentions) and out.attentions[0] is not None
        return None
    errors = []
    options = MeasureOptions(top=10 if "top" in way else 0, grid=None, keep_context=True)
    def take(call):
        errors.append(prove(call, measure(call.call, options)))
    with attnscope.capture(loaded.model, on_call=take):
        forward(loaded, some)
    return len(errors), max(errors)

if way == "eager":
    config = loaded.model.config
    needed = config.num_hidden_layers * config.num_attention_heads * tokens**2 * 4
    if needed > 0.8 * free_bytes():
        print(json.dumps({"needs": needed}))
        raise SystemExit
    loaded.model.set_attn_implementation("eager")
run(16)
with open("/proc/self/clear_refs", "w") as switch:
    switch.write("5")
before, start = resident("VmRSS"), time.perf_counter()
proof = run(tokens)
print(json.dumps({"seconds": time.perf_counter() - start, "bytes": resident("VmHWM") - before,
                  "proof": proof}))
"""
WAYS = ("plain", "measured", "measured, top 10", "eager")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--tokens", default="2000,8000")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    print(f"{'tokens':>6}  {'way':<18}{'seconds':>9}{'ratio':>7}{'MB above the model':>20}  proven")
    for tokens in asked.tokens.split(","):
        plain = None
        for way in WAYS:
            arguments = [way, asked.model, asked.text, tokens, str(asked.threads)]
            done = subprocess.run(
                [sys.executable, "-c", SETUP, *arguments], capture_output=True, text=True
            )
            if done.returncode:
                print(f"{tokens:>6}  {way:<18}{done.stderr.strip().splitlines()[-1][:80]}")
                continue
            got = json.loads(done.stdout.strip().splitlines()[-1])
            if "needs" in got:
                print(f"{tokens:>6}  {way:<18}needs {got['needs'] / 1e9:,.0f} GB for its matrices")
                continue
            plain = plain or got["seconds"]
            proof = "" if got["proof"] is None else "{} calls, error ≤ {:.1e}".format(*got["proof"])
            print(
                f"{tokens:>6}  {way:<18}{got['seconds']:>9.1f}{got['seconds'] / plain:>7.2f}"
                f"{got['bytes'] / 1e6:>20,.0f}  {proof}",
                flush=True,
            )


if __name__ == "__main__":
    main()
