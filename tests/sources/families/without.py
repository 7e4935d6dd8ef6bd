"""Families whose attention is not recorded, wholly or in part, and what is said of them."""

from tests.sources.families.family import MARKS, SIZES, Without
from tests.sources.families.pairs import T5, TWO_SIDES

NOTHING = "no softmax attention ran"
BANDED = "a softmax over 5 keys met no values"

WITHOUT = {
    "Longformer": Without(
        "a band of keys for each query",
        "LongformerModel",
        SIZES | MARKS | {"attention_window": [4, 4]},
        says=BANDED,
        calls=2,
    ),
    "LED": Without(
        "encoder: a band of keys for each query",
        "LEDModel",
        {k: v for k, v in TWO_SIDES.items() if k != "max_position_embeddings"}
        | MARKS
        | {
            "max_encoder_position_embeddings": 64,
            "max_decoder_position_embeddings": 64,
            "attention_window": [4, 4],
        },
        says=BANDED,
        calls=6,
        recorded=4,
    ),
    "LongT5": Without(
        "encoder: blocks of tokens",
        "LongT5ForConditionalGeneration",
        T5 | {"local_radius": 3},
        says="weights of 5 axes have 4 queries of 12 tokens",
        calls=6,
        recorded=4,
    ),
    "ProphetNet": Without(
        "decoder: a second stream, which guesses further ahead",
        "ProphetNetForConditionalGeneration",
        {
            "hidden_size": 32,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "num_encoder_attention_heads": 4,
            "num_decoder_attention_heads": 4,
            "vocab_size": 64,
            "max_position_embeddings": 64,
            "ngram": 2,
        }
        | MARKS,
        says="weights of 5 axes have 7 queries of 21 tokens",
        calls=8,
        recorded=6,
    ),
    "BigBird": Without(
        "blocks of keys",
        "BigBirdModel",
        SIZES | MARKS | {"block_size": 2, "num_random_blocks": 1},
        says="a softmax over 12 keys met the values of 6",
        calls=2,
        tokens=16,
    ),
    "Reformer": Without(
        "keys found by hashing, softmax written as exp",
        "ReformerModel",
        {
            "hidden_size": 32,
            "attention_head_size": 8,
            "num_attention_heads": 4,
            "attn_layers": ["local", "lsh"],
            "local_attn_chunk_length": 4,
            "lsh_attn_chunk_length": 4,
            "feed_forward_size": 64,
            "axial_pos_shape": [4, 4],
            "axial_pos_embds_dim": [16, 16],
            "vocab_size": 64,
            "max_position_embeddings": 16,
            "num_buckets": 2,
        }
        | MARKS,
        says=NOTHING,
        calls=2,
        random=True,
    ),
    "Mamba": Without(
        "none: state space",
        "MambaForCausalLM",
        {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64} | MARKS,
        says=NOTHING,
    ),
    "Mamba 2": Without(
        "none: state space",
        "Mamba2ForCausalLM",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "vocab_size": 64,
            "num_heads": 8,
            "head_dim": 8,
            "n_groups": 1,
            "chunk_size": 4,
        }
        | MARKS,
        says=NOTHING,
    ),
    "RWKV": Without(
        "none: recurrence",
        "RwkvForCausalLM",
        {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64, "context_length": 64} | MARKS,
        says=NOTHING,
    ),
    "FNet": Without("none: Fourier transform", "FNetModel", SIZES | MARKS, says=NOTHING),
}
