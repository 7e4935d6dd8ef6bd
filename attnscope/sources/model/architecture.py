"""Which class of transformers opens a model, and which way the model reads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any

from attnscope.sources.model.error import ModelError
from attnscope.text.display import visible


class Kind(StrEnum):
    """Which way a model reads."""

    DECODER = "decoder"  # every token sees those before it
    ENCODER = "encoder"  # every token sees every other
    ENCODER_DECODER = "encoder-decoder"  # a decoder that also reads what an encoder made


@dataclass(frozen=True, slots=True)
class Architecture:
    """The Auto class that opens a model, and its kind."""

    auto_class: Any
    kind: Kind


def check_known(config: Mapping[str, Any], name: str) -> None:
    """Raise ModelError if transformers has no class for a config.json.

    Code in the model folder would be the only other way, and is never run.
    """
    transformers = import_module("transformers")
    model_type = str(config["model_type"])
    if model_type in transformers.CONFIG_MAPPING:
        return
    if config.get("auto_map"):
        raise ModelError(
            f'the architecture "{visible(model_type)}" of {name} is code in the model folder',
            "attnscope never runs code from a model folder; load it in a program of yours and "
            "use attnscope.capture",
        )
    raise ModelError(
        f'transformers {transformers.__version__} does not know the architecture "'
        f'{visible(model_type)}" of {name}',
        "Upgrade transformers, or load it in a program of yours and use attnscope.capture",
    )


def choose(config: Any, name: str) -> Architecture:
    """Return how a model with this configuration is opened.

    The class that was saved decides: with its head if it writes text, else without. Where none
    is named, the first task that the model type is known for.
    Raises: ModelError for a model whose input is not text.
    """
    transformers, tables = import_module("transformers"), _tables()
    model_type = config.model_type
    saved = set(config.architectures or ()) or _usual(model_type)
    half = {
        kind: found
        for kind, found in tables.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES.items()
        if found.endswith("EncoderModel")  # the encoder of an encoder-decoder, saved alone
    }
    for table, auto_class, kind in (
        (tables.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, "AutoModelForCausalLM", Kind.DECODER),
        (
            tables.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
            "AutoModelForSeq2SeqLM",
            Kind.ENCODER_DECODER,
        ),
        (half, "AutoModelForTextEncoding", Kind.ENCODER),
    ):
        if saved & set(_names(table, model_type)):
            _check_reads_text(_class_of(table, model_type), name)
            return Architecture(getattr(transformers, auto_class), kind)
    _check_reads_text(_class_of(tables.MODEL_MAPPING_NAMES, model_type), name, only=True)
    return Architecture(transformers.AutoModel, _kind_without_head(config))


def _tables() -> Any:
    return import_module("transformers.models.auto.modeling_auto")


def _is_writer(model_type: str) -> bool:
    """Return whether a model type is for writing, and not (as BERT's) only made to serve for it."""
    tables = _tables()
    return (
        model_type in tables.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        and model_type not in tables.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    )


def _kind_without_head(config: Any) -> Kind:
    if getattr(config, "is_encoder_decoder", False):
        return Kind.ENCODER_DECODER
    if getattr(config, "is_decoder", False) or _is_writer(config.model_type):
        return Kind.DECODER
    return Kind.ENCODER


def _usual(model_type: str) -> set[str]:
    """Return the classes that a model is taken for if its configuration names none."""
    tables = _tables()
    if names := set(_names(tables.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, model_type)):
        return names
    if _is_writer(model_type):
        return set(_names(tables.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, model_type))
    return set()


def _names(table: Mapping[str, Any], model_type: str) -> Iterable[str]:
    found = table.get(model_type, ())
    return (found,) if isinstance(found, str) else tuple(found)


def _class_of(table: Mapping[str, Any], model_type: str) -> Any:
    names = list(_names(table, model_type))
    return getattr(import_module("transformers"), names[0], None) if names else None


def _check_reads_text(opened: Any, name: str, *, only: bool = False) -> None:
    """Raise ModelError for a class whose main input is not text, or (`only`) not text alone."""
    if opened is None:
        raise ModelError(
            f"transformers opens {name} for none of its text tasks",
            "Load it in a program of yours and use attnscope.capture",
        )
    main = getattr(opened, "main_input_name", "input_ids")
    inputs = getattr(opened, "input_modalities", "text")
    kinds = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    if main != "input_ids" or "text" not in kinds or (only and len(kinds) > 1):
        given = main if main != "input_ids" else " and ".join(kinds)
        raise ModelError(
            f"the input of {name} ({opened.__name__}) is not text: it takes {given}",
            "Load it in a program of yours and use attnscope.capture",
        )
