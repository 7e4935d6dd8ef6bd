"""Models of images and of sound."""

from tests.sources.families.family import MARKS, SIZES, Family

PATCHES = {k: v for k, v in SIZES.items() if k not in ("vocab_size", "max_position_embeddings")} | {
    "image_size": 12,
    "patch_size": 4,
}
SWIN = {
    "image_size": 16,
    "patch_size": 2,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}
SOUND = {k: v for k, v in SIZES.items() if k != "max_position_embeddings"} | {
    "conv_dim": [16, 16],
    "conv_stride": [2, 2],
    "conv_kernel": [4, 4],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}

SENSES = {
    "ViT": Family("patches", "ViTModel", PATCHES, given="image", sides=()),
    "DeiT": Family("patches, two marks", "DeiTModel", PATCHES, given="image", sides=()),
    "BEiT": Family(
        "patches, bias by distance",
        "BeitModel",
        PATCHES | {"use_relative_position_bias": True},
        given="image",
        sides=(),
    ),
    "DINOv2": Family("patches", "Dinov2Model", PATCHES, given="image", sides=()),
    "SigLIP": Family(
        "patches, pooled by attention",
        "SiglipVisionModel",
        PATCHES,
        given="image",
        sides=(),
        calls=3,
        reference=(0, 1, None),
        reason="the weights of the pooling head are not returned",
    ),
    "CLIP": Family(
        "text and patches",
        "CLIPModel",
        {
            "text_config": SIZES | MARKS,
            "vision_config": PATCHES,
            "projection_dim": 16,
        },
        given="image and text",
        calls=4,
    ),
    "Swin": Family(
        "windows of patches, shifted by turns",
        "SwinModel",
        SWIN,
        given="image",
        sides=(),
        calls=4,
        reference=(None, 0, None, 1),
        reason="of each stage only the last block's weights are returned",
    ),
    "Swin v2": Family(
        "windows of patches, by cosines",
        "Swinv2Model",
        SWIN,
        0.8,
        given="image",
        sides=(),
        calls=4,
        route="softmax",
        reference=(None, 0, None, 1),
        reason="of each stage only the last block's weights are returned",
    ),
    "Wav2Vec2": Family(
        "sound",
        "Wav2Vec2Model",
        SOUND,
        given="sound",
        sides=("right",),
    ),
    "WavLM": Family(
        "sound, bias by distance and gated",
        "WavLMModel",
        SOUND,
        given="sound",
        sides=("right",),
        route="multi_head_attention",
        reference=(None, None),
        reason="the mean of the heads is returned for each",
    ),
}
