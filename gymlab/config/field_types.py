"""The types of fields: what they accept, in code and in words."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, TypeAdapter

from gymlab.config.schedules import Schedule

_WORDS: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
    Schedule: "a schedule",
    Any: "anything",
}
_SIGNS = {Ge: (">=", "ge"), Gt: (">", "gt"), Le: ("<=", "le"), Lt: ("<", "lt")}


def annotation_of(model: type[BaseModel], key: str) -> Any:
    """The type of a field, or Any for a key that is no field."""
    field = model.model_fields.get(key)
    return Any if field is None else field.annotation


def default_of(model: type[BaseModel], key: str) -> Any:
    """Default of a field as plain data; None when it has none."""
    field = model.model_fields[key]
    if field.is_required():
        return None
    return TypeAdapter(Any).dump_python(field.get_default(call_default_factory=True), mode="json", by_alias=True)


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, without the bounds around them; a type alone is its only member."""
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(member for part in get_args(annotation) for member in alternatives(part))
    if hasattr(annotation, "__metadata__"):
        return alternatives(annotation.__origin__)
    return (annotation,)


def choices(annotation: Any) -> list[str]:
    """The texts that a field accepts, when it accepts only certain ones."""
    literals = [member for member in alternatives(annotation) if get_origin(member) is Literal]
    return [str(choice) for literal in literals for choice in get_args(literal)]


def accepts_none(annotation: Any) -> bool:
    """Whether null is a value of a field of this type."""
    members = alternatives(annotation)
    return type(None) in members or Any in members


def fit(value: Any, annotation: Any) -> Any:
    """A value brought to a field's type where nothing is lost: 1e6 for an integer, a number in quotes, and `off` (which
    YAML reads as false) for a choice that has it or a number that may be absent."""
    members = alternatives(annotation)
    if value is False and bool not in members:
        if "off" in choices(annotation):
            return "off"
        if type(None) in members:
            return None
    if isinstance(value, str) and str not in members and (int in members or float in members):
        value = _number(value)
    if isinstance(value, float) and float not in members and int in members and value.is_integer():
        return int(value)
    return value


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def describe_type(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """A type in words: `an integer >= 1`, `a number or a schedule`, `one of off, batch, rollout`."""
    if hasattr(annotation, "__metadata__"):
        return describe_type(annotation.__origin__, [*annotation.__metadata__, *metadata])
    origin, members = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        words = [describe_type(member, () if member is type(None) else metadata) for member in members]
        return " or ".join(dict.fromkeys(words))
    if origin is Literal:
        return "one of " + ", ".join(str(choice) for choice in members)
    if origin in (tuple, list):
        count = "" if origin is list or Ellipsis in members else f" of {len(members)}"
        return f"a list{count}, each {describe_type(members[0])}"
    if annotation in _WORDS:
        return _WORDS[annotation] + _bounds(metadata)
    if origin is dict or annotation is dict or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return "a mapping"
    return str(getattr(annotation, "__name__", annotation))


def _bounds(metadata: Iterable[Any]) -> str:
    found: list[str] = []
    for item in metadata:
        for bound in getattr(item, "metadata", [item]):
            if type(bound) in _SIGNS:
                sign, name = _SIGNS[type(bound)]
                found.append(f"{sign} {getattr(bound, name)}")
    return " " + " and ".join(found) if found else ""


def describe_value(value: Any) -> str:
    """A value with its kind, short enough for a message."""
    kind = {bool: "true or false", str: "text", dict: "a mapping", list: "a list"}.get(type(value), "")
    shown = json.dumps(value, default=str)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return f"{shown} ({kind})" if kind else shown
