"""attnscope shows what attention does, number by number.

import attnscope
run = attnscope.run_sentence("Life is short, eat dessert first", causal=True)
run.layers[0].weights        # torch tensors: (heads, queries, keys)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from attnscope.attention.call import AttentionCall as AttentionCall
    from attnscope.attention.result import AttentionResult as AttentionResult
    from attnscope.attention.result import attend as attend
    from attnscope.attention.stripes import measure as measure
    from attnscope.errors import AttnscopeError as AttnscopeError
    from attnscope.library import run_model as run_model
    from attnscope.library import run_qkv as run_qkv
    from attnscope.library import run_sentence as run_sentence
    from attnscope.library import to_json as to_json
    from attnscope.modules import CausalAttention as CausalAttention
    from attnscope.modules import CrossAttention as CrossAttention
    from attnscope.modules import MultiHeadAttention as MultiHeadAttention
    from attnscope.modules import SelfAttention as SelfAttention
    from attnscope.recordfile import load_record as load_record
    from attnscope.recordfile import save_record as save_record
    from attnscope.run import Run as Run
    from attnscope.runfile import load_run as load_run
    from attnscope.runfile import save_run as save_run
    from attnscope.sources.capture import capture as capture
    from attnscope.views.notebook import to_numpy as to_numpy
    from attnscope.views.notebook import to_pandas as to_pandas

# Each public name and the module it is loaded from on first use, so that `import attnscope`
# does not load torch.
_HOMES = {
    "AttentionCall": "attnscope.attention.call",
    "AttentionResult": "attnscope.attention.result",
    "AttnscopeError": "attnscope.errors",
    "CausalAttention": "attnscope.modules",
    "CrossAttention": "attnscope.modules",
    "MultiHeadAttention": "attnscope.modules",
    "Run": "attnscope.run",
    "SelfAttention": "attnscope.modules",
    "attend": "attnscope.attention.result",
    "capture": "attnscope.sources.capture",
    "load_record": "attnscope.recordfile",
    "load_run": "attnscope.runfile",
    "measure": "attnscope.attention.stripes",
    "run_model": "attnscope.library",
    "run_qkv": "attnscope.library",
    "run_sentence": "attnscope.library",
    "save_record": "attnscope.recordfile",
    "save_run": "attnscope.runfile",
    "to_json": "attnscope.library",
    "to_numpy": "attnscope.views.notebook",
    "to_pandas": "attnscope.views.notebook",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'attnscope' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
