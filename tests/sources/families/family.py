"""What is known of one family of models: how to build a tiny one, and what a capture must find."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Family:
    """A kind of attention, by the model of transformers that has it.

    `calls` is how many attention calls one forward makes. `reference` says which of the weights
    that the eager model returns belongs to each of them, None where it returns none; `reason`
    says why. `differs` says why the eager model computes something else than the default one, and
    `differs_at` with which padding it does.
    """

    attention: str
    model: str
    options: dict = field(default_factory=dict)
    gain: float = 0.35
    calls: int = 2
    given: str = "text"
    sides: tuple = ("left", "right")
    route: str = "interface"
    eager_route: str = ""  # where it is another one
    reference: tuple = ()
    reason: str = ""
    differs: str = ""
    differs_at: tuple = ()
    layers: tuple = ()  # the blocks that make no attention call

    @property
    def expected(self):
        """Which of the returned weights belongs to each call."""
        return self.reference or tuple(range(self.calls))


@dataclass(frozen=True)
class Without:
    """A family whose attention is not recorded, wholly or in part, and what is said instead."""

    attention: str
    model: str
    options: dict
    says: str
    calls: int = 0
    recorded: int = 0
    tokens: int = 12
    gain: float = 0.35
    random: bool = False  # two runs differ without capture, too


SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 64,
    "max_position_embeddings": 64,
}
MARKS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
ROTARY = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
WINDOW = 4
GROUPED = SIZES | MARKS | {"num_key_value_heads": 2, "head_dim": 8}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
TURNS = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
