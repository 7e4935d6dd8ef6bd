"""Encoders of text."""

from tests.sources.families.family import MARKS, SIZES, WINDOW, Family

ENCODER = SIZES | MARKS

ENCODERS = {
    "BERT": Family("learned positions", "BertModel", ENCODER),
    "RoBERTa": Family("positions that skip padding", "RobertaModel", ENCODER),
    "DistilBERT": Family(
        "learned positions",
        "DistilBertModel",
        {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4, "vocab_size": 64},
    ),
    "ALBERT": Family("layers that share weights", "AlbertModel", ENCODER | {"embedding_size": 16}),
    "ELECTRA": Family("learned positions", "ElectraModel", ENCODER | {"embedding_size": 16}),
    "ModernBERT": Family(
        "full and window by turns",
        "ModernBertModel",
        ENCODER
        | {
            "local_attention": WINDOW,
            "layer_types": ["full_attention", "sliding_attention"],
            "cls_token_id": 1,
            "sep_token_id": 2,
        },
        0.3,
    ),
    "MPNet": Family("bias by distance", "MPNetModel", ENCODER, route="softmax"),
    "DeBERTa-v2": Family(
        "content and position apart",
        "DebertaV2Model",
        ENCODER
        | {
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_biased_input": False,
            "position_buckets": 8,
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
        },
        route="softmax",
    ),
    "ESM": Family("rotary, no scale", "EsmModel", ENCODER | {"position_embedding_type": "rotary"}),
    "RoFormer": Family(
        "rotary", "RoFormerModel", ENCODER | {"embedding_size": 32}, 0.45, route="softmax"
    ),
    "XLNet": Family(
        "relative positions by a shift",
        "XLNetModel",
        {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "vocab_size": 64} | MARKS,
        route="softmax",
    ),
}
