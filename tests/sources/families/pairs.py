"""Encoder-decoders: self-attention of both sides, and cross-attention."""

from tests.sources.families.family import MARKS, Family

TWO_SIDES = {
    f"{part}_{name}": n
    for part in ("encoder", "decoder")
    for name, n in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))
} | {"d_model": 32, "vocab_size": 64, "max_position_embeddings": 64}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 64}

PAIRS = {
    "T5": Family(
        "bias by distance, unscaled",
        "T5ForConditionalGeneration",
        T5 | {"decoder_start_token_id": 0},
        0.24,
        calls=6,
        given="pair",
    ),
    "BART": Family("cross", "BartForConditionalGeneration", TWO_SIDES, 0.4, calls=6, given="pair"),
    "Marian": Family(
        "cross, fixed positions",
        "MarianMTModel",
        TWO_SIDES | MARKS | {"decoder_start_token_id": 0},
        0.45,
        calls=6,
        given="pair",
    ),
    "M2M-100": Family(
        "cross, fixed positions",
        "M2M100ForConditionalGeneration",
        TWO_SIDES | MARKS,
        0.35,
        calls=6,
        given="pair",
    ),
    "Whisper": Family(
        "cross to sound",
        "WhisperForConditionalGeneration",
        {k: v for k, v in TWO_SIDES.items() if k != "max_position_embeddings"}
        | MARKS
        | {
            "num_mel_bins": 8,
            "max_source_positions": 12,
            "max_target_positions": 64,
            "decoder_start_token_id": 1,
        },
        0.35,
        calls=6,
        given="sound and text",
    ),
}
