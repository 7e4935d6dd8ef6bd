"""Decoders: every kind of causal attention that current language models have."""

from tests.sources.families.family import (
    EXPERTS,
    GROUPED,
    MARKS,
    ROTARY,
    SIZES,
    TURNS,
    WINDOW,
    Family,
)

SHORT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64, "n_positions": 64} | MARKS
FALCON = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 64,
    "ffn_hidden_size": 64,
    "max_position_embeddings": 64,
} | MARKS

DECODERS = {
    "GPT": Family("learned positions", "OpenAIGPTLMHeadModel", SHORT, 0.5, route="softmax"),
    "GPT-2": Family("learned positions", "GPT2LMHeadModel", SHORT, 0.5),
    "GPT-Neo": Family(
        "full and window by turns, unscaled",
        "GPTNeoForCausalLM",
        {
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": WINDOW,
            "vocab_size": 64,
            "max_position_embeddings": 64,
        }
        | MARKS,
        0.3,
        route="softmax",
    ),
    "GPT-NeoX": Family("rotary on a quarter of the width", "GPTNeoXForCausalLM", SIZES | MARKS),
    "GPT-J": Family("rotary, parallel block", "GPTJForCausalLM", SHORT | {"rotary_dim": 4}, 0.5),
    "GPT-BigCode": Family("one key head", "GPTBigCodeForCausalLM", SHORT, 0.5),
    "OPT": Family(
        "learned positions, two behind",
        "OPTForCausalLM",
        {
            "hidden_size": 32,
            "ffn_dim": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "vocab_size": 64,
            "max_position_embeddings": 64,
            "word_embed_proj_dim": 32,
        }
        | MARKS,
    ),
    "XGLM": Family(
        "fixed positions",
        "XGLMForCausalLM",
        {
            "d_model": 32,
            "ffn_dim": 64,
            "num_layers": 2,
            "attention_heads": 4,
            "vocab_size": 64,
            "max_position_embeddings": 64,
        }
        | MARKS,
        route="softmax",
    ),
    "BLOOM": Family(
        "ALiBi",
        "BloomForCausalLM",
        {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64} | MARKS,
        route="softmax",
    ),
    "MPT": Family(
        "ALiBi",
        "MptForCausalLM",
        {"d_model": 32, "n_heads": 4, "n_layers": 2, "vocab_size": 64, "max_seq_len": 64} | MARKS,
        route="softmax",
    ),
    "Falcon, rotary": Family(
        "rotary, one key head",
        "FalconForCausalLM",
        FALCON,
        route="sdpa",
        eager_route="softmax",
    ),
    "Falcon, ALiBi": Family(
        "ALiBi",
        "FalconForCausalLM",
        FALCON | {"alibi": True, "multi_query": False, "parallel_attn": False},
        route="sdpa",
        eager_route="softmax",
        differs="the eager code adds ALiBi twice",
        differs_at=(None, "left", "right"),
    ),
    "Llama": Family("rotary, grouped keys", "LlamaForCausalLM", GROUPED),
    "Llama 4, text": Family(
        "chunks and full by turns",
        "Llama4ForCausalLM",
        GROUPED
        | EXPERTS
        | {
            "intermediate_size_mlp": 64,
            "attention_chunk_size": 8,
            "no_rope_layers": [1, 0],
            "floor_scale": 4,
        },
    ),
    "Mistral": Family("window", "MistralForCausalLM", GROUPED | {"sliding_window": WINDOW}),
    "Mixtral": Family("rotary, experts", "MixtralForCausalLM", GROUPED | EXPERTS),
    "Qwen2": Family("biased queries and keys", "Qwen2ForCausalLM", GROUPED),
    "Qwen3": Family("normed queries and keys", "Qwen3ForCausalLM", GROUPED, 0.5),
    "Gemma 2": Family(
        "softcap, window and full by turns",
        "Gemma2ForCausalLM",
        GROUPED
        | {
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 8,
            "attn_logit_softcapping": 5.0,
        },
    ),
    "Gemma 3": Family(
        "window and full by turns",
        "Gemma3ForCausalLM",
        GROUPED
        | {
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 8,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "Gemma 4": Family(
        "window and full by turns, heads of two widths",
        "Gemma4ForCausalLM",
        GROUPED
        | TURNS
        | {
            "vocab_size_per_layer_input": 64,
            "hidden_size_per_layer_input": 8,
            "per_layer_config": {"01": {"head_dim": 16}},
        },
    ),
    "gpt-oss": Family(
        "learned sinks, window and full by turns",
        "GptOssForCausalLM",
        GROUPED | EXPERTS | ROTARY | {"sliding_window": WINDOW},
    ),
    "Granite": Family(
        "scale of its own", "GraniteForCausalLM", GROUPED | {"attention_multiplier": 0.2}
    ),
    "Granite-SWA": Family(
        "window and full by turns, a gate that is a sink",
        "GraniteSWAForCausalLM",
        GROUPED | TURNS | {"attention_multiplier": 0.3, "layer_rope_theta": [10000.0, 10000.0]},
        reference=(None, None),
        reason="the weights before the gate are returned",
    ),
    "MiMo-V2": Family(
        "sinks, values narrower than keys",
        "MiMoV2FlashForCausalLM",
        GROUPED
        | TURNS
        | {
            "v_head_dim": 4,
            "mlp_layer_types": ["dense", "dense"],
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "rope_parameters": {
                kind: ROTARY["rope_parameters"] | {"partial_rotary_factor": 0.5}
                for kind in ("full_attention", "sliding_attention")
            },
        },
    ),
    "Phi-3": Family("fused projections", "Phi3ForCausalLM", GROUPED),
    "OLMo 2": Family("norm after the block", "Olmo2ForCausalLM", GROUPED, 0.5),
    "Cohere": Family("parallel block", "CohereForCausalLM", GROUPED),
    "OLMo 3": Family("window and full by turns", "Olmo3ForCausalLM", GROUPED | TURNS, 0.5),
    "Cohere 2": Family("rotary in windows only", "Cohere2ForCausalLM", GROUPED | TURNS),
    "Doge": Family("mask made of the values", "DogeForCausalLM", GROUPED),
    "StableLM": Family("rotary on a quarter of the width", "StableLmForCausalLM", GROUPED),
    "SmolLM3": Family(
        "rotary and none by turns", "SmolLM3ForCausalLM", GROUPED | {"no_rope_layers": [1, 0]}
    ),
    "DiffLlama": Family(
        "two halves of the values by one map",
        "DiffLlamaForCausalLM",
        GROUPED,
        calls=4,
        reference=(0, 0, 1, 1),
    ),
}
