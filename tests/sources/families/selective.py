"""Decoders that see some keys only, or keys that are made of several tokens."""

from tests.sources.families.family import GROUPED, MARKS, SIZES, WINDOW, Family

LATENT = {
    "moe_intermediate_size": 16,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "first_k_dense_replace": 1,
}
INDEX = {"index_topk": WINDOW, "index_head_dim": 8, "index_n_heads": 2}
SPARSE = {k: v for k, v in LATENT.items() if k != "first_k_dense_replace"} | INDEX

SELECTIVE = {
    "DeepSeek-V3": Family("latent keys (MLA)", "DeepseekV3ForCausalLM", SIZES | MARKS | LATENT),
    "DeepSeek-V3.2": Family(
        "latent keys, the best 4 only",
        "DeepseekV32ForCausalLM",
        SIZES | MARKS | SPARSE | {"mlp_layer_types": ["dense", "sparse"]},
    ),
    "GLM, sparse": Family(
        "latent keys, the best 4 only",
        "GlmMoeDsaForCausalLM",
        SIZES
        | MARKS
        | SPARSE
        | {"mlp_layer_types": ["dense", "sparse"], "indexer_types": ["full", "full"]},
    ),
    "DeepSeek-V4": Family(
        "window, and keys made of several tokens",
        "DeepseekV4ForCausalLM",
        SIZES
        | MARKS
        | INDEX
        | {
            "num_hidden_layers": 3,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "q_lora_rank": 16,
            "moe_intermediate_size": 16,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "layer_types": [
                "sliding_attention",
                "compressed_sparse_attention",
                "heavily_compressed_attention",
            ],
            "mlp_layer_types": ["moe"] * 3,
            "compress_rates": {
                "compressed_sparse_attention": 2,
                "heavily_compressed_attention": 4,
            },
            "sliding_window": WINDOW,
            "index_topk": 2,
            "hc_mult": 2,
            "hc_sinkhorn_iters": 2,
            "o_groups": 2,
            "o_lora_rank": 8,
            "partial_rotary_factor": 0.5,
        },
        calls=3,
    ),
    "MiniMax-M3": Family(
        "the best blocks of keys only",
        "MiniMaxM3VLTextModel",
        GROUPED
        | {
            "dense_intermediate_size": 64,
            "shared_intermediate_size": 32,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "rotary_dim": 8,
            "mlp_layer_types": ["dense", "sparse"],
            "index_n_heads": 2,
            "index_head_dim": 8,
            "index_block_size": 2,
            "index_topk_blocks": 2,
            "layer_types": ["full_attention", "minimax_m3_sparse"],
        },
        differs="eager gives padded rows a mean and sdpa 0, and so other blocks are the best",
        differs_at=("left",),
    ),
    "Inkling": Family(
        "bias made of the query and the distance",
        "InklingForCausalLM",
        GROUPED
        | {
            "swa_num_attention_heads": 4,
            "swa_num_key_value_heads": 2,
            "swa_head_dim": 8,
            "sliding_window_size": WINDOW,
            "d_rel": 4,
            "rel_extent": 16,
            "layer_types": ["hybrid_sliding", "hybrid"],
            "mlp_layer_types": ["dense", "dense"],
            "moe_intermediate_size": 16,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
        },
    ),
}
