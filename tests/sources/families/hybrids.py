"""Hybrids: some layers have attention, the others have none."""

from tests.sources.families.family import GROUPED, MARKS, SIZES, Family

MAMBA = {"mamba_d_state": 4, "mamba_dt_rank": 4}

HYBRIDS = {
    "Jamba": Family(
        "hybrid: state space and attention",
        "JambaForCausalLM",
        GROUPED
        | MAMBA
        | {
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "num_experts": 2,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
        },
        calls=1,
        layers=("model.layers.0",),
    ),
    "Qwen3-Next": Family(
        "hybrid: linear and gated attention",
        "Qwen3NextForCausalLM",
        GROUPED
        | {
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "layer_types": ["linear_attention", "full_attention"],
        },
        calls=1,
        layers=("model.layers.0",),
    ),
    "LFM2": Family(
        "hybrid: convolution and attention",
        "Lfm2ForCausalLM",
        GROUPED | {"layer_types": ["conv", "full_attention"], "block_multiple_of": 16},
        calls=1,
        layers=("model.layers.0",),
    ),
    "Zamba2": Family(
        "hybrid: state space, and one block that layers share",
        "Zamba2ForCausalLM",
        SIZES
        | MARKS
        | {
            "num_key_value_heads": 4,
            "attention_hidden_size": 64,
            "attention_head_dim": 16,
            "mamba_d_state": 4,
            "mamba_headdim": 8,
            "n_mamba_heads": 8,
            "mamba_ngroups": 1,
            "num_mem_blocks": 1,
            "num_hidden_layers": 3,
            "layers_block_type": ["mamba", "hybrid", "hybrid"],
            "chunk_size": 4,
        },
        calls=2,
        layers=("model.layers.0",),
    ),
    "Kimi-Linear": Family(
        "hybrid: linear attention and latent keys",
        "KimiLinearForCausalLM",
        {k: v for k, v in SIZES.items() if k != "max_position_embeddings"}
        | MARKS
        | {
            "moe_intermediate_size": 16,
            "num_key_value_heads": 4,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "num_experts": 4,
            "num_experts_per_token": 2,
            "mlp_layer_types": ["dense", "sparse"],
            "layer_types": ["linear_attention", "full_attention"],
            "linear_head_dim": 8,
            "linear_num_heads": 2,
        },
        calls=1,
        layers=("model.layers.0",),
    ),
}
