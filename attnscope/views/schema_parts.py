"""The building blocks of the JSON Schema."""

from typing import Any

STRING = {"type": "string"}
OPTIONAL_STRING = {"type": ["string", "null"]}
COUNT = {"type": "integer", "minimum": 0}
NUMBER = {"type": ["number", "null"], "description": "null: not finite, or hidden by the mask"}
VECTOR = {"type": "array", "items": NUMBER}
MATRIX = {"type": "array", "items": VECTOR}
STRINGS = {"type": "array", "items": STRING}


def fields(
    properties: dict[str, Any], optional: tuple[str, ...] = (), about: str = ""
) -> dict[str, Any]:
    """Return the schema of an object that has exactly these fields."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }
    return {**schema, "description": about} if about else schema


def list_of(items: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": items}


def optional(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of something that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}
