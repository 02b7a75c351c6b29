"""Plain values into a frozen model, with errors that say what was expected, what was given and where."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, TypeAdapter, ValidationError

from gymlab.config.schedules import Schedule
from gymlab.config.yaml_reader import Located, Where
from gymlab.errors import ConfigError, did_you_mean

M = TypeVar("M", bound=BaseModel)

_MOST_PROBLEMS = 6
_PLAIN = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
    Schedule: "a schedule",
}
_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def validate(model: type[M], values: Mapping[str, Any], place: str) -> M:
    """A model from plain values, strictly: `"8"` is no integer and `true` is no number; 1e6 is an integer."""
    fitted = {key: fit(value, model_annotation(model, key)) for key, value in values.items()}
    for key, value in fitted.items():
        # Checked apart, so that the message speaks of the schedule and not of a union that nothing fits.
        if isinstance(value, Mapping) and Schedule in alternatives(model_annotation(model, key)):
            validate(Schedule, value, f"{located(values, key, place)}, schedule of {key}")
    try:
        text = json.dumps(fitted)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{place}: holds a value that is no plain data: {error}.") from error
    try:
        return model.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise ConfigError(_explain(error, model, values, place)) from error


def model_annotation(model: type[BaseModel], key: str) -> Any:
    """The type of a field by name or alias, or Any for a key that is no field."""
    field = model.model_fields.get(key)
    return Any if field is None else field.annotation


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, without the bounds around them; a type alone is its only member."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return tuple(member for part in get_args(annotation) for member in alternatives(part))
    if hasattr(annotation, "__metadata__"):
        return alternatives(annotation.__origin__)
    return (annotation,)


def fit(value: Any, annotation: Any) -> Any:
    """A value brought to a field's type where nothing is lost: 1e6 for an integer, `off` (which YAML reads as false)
    for a choice that has it or a number that may be absent, a number in quotes."""
    members = alternatives(annotation)
    choices = [choice for member in members if get_origin(member) is Literal for choice in get_args(member)]
    if value is False and bool not in members:
        if "off" in choices:
            return "off"
        if type(None) in members:
            return None
    if isinstance(value, str) and str not in members and (int in members or float in members):
        value = _number(value)
    if isinstance(value, float) and float not in members and int in members and value.is_integer():
        return int(value)
    return value


def accepts_none(annotation: Any) -> bool:
    """Whether null is a value of a field of this type."""
    members = alternatives(annotation)
    return type(None) in members or Any in members


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
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        words = [describe_type(member, metadata if member is not type(None) else ()) for member in get_args(annotation)]
        return " or ".join(dict.fromkeys(words))
    if origin is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(annotation))
    if origin in (tuple, list):
        members = [member for member in get_args(annotation) if member is not Ellipsis]
        if Ellipsis in get_args(annotation) or origin is list:
            return f"a list, each {describe_type(members[0])}"
        return f"a list of {len(members)}, each {describe_type(members[0])}"
    if origin is dict or annotation is dict or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return _PLAIN.get(annotation, "a mapping")
    if annotation is Any:
        return "anything"
    return _PLAIN.get(annotation, getattr(annotation, "__name__", str(annotation))) + _bounds(metadata)


def _bounds(metadata: Iterable[Any]) -> str:
    signs = {Ge: (">=", "ge"), Gt: (">", "gt"), Le: ("<=", "le"), Lt: ("<", "lt")}
    found: list[str] = []
    for item in metadata:
        for bound in getattr(item, "metadata", [item]):
            if type(bound) in signs:
                sign, name = signs[type(bound)]
                found.append(f"{sign} {getattr(bound, name)}")
    return " " + " and ".join(found) if found else ""


def describe_value(value: Any) -> str:
    """A value with its kind, short enough for a message."""
    kind = {bool: "true or false", str: "text", dict: "a mapping", list: "a list"}.get(type(value), "")
    shown = json.dumps(value, default=str)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return f"{shown} ({kind})" if kind else shown


def check_keys(tree: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """Every key of a mapping must be known."""
    names = list(known)
    for key in tree:
        if key not in names:
            raise ConfigError(f"{located(tree, key, place)}: unknown key `{key}`. {did_you_mean(key, names)}".rstrip())


def located(tree: Mapping[str, Any], key: str, place: str) -> str:
    """Where a key was written, with the place it belongs to."""
    where: Where | None = tree.where.get(key) if isinstance(tree, Located) else None
    if where is None:
        return place
    return f"{where}{place.removeprefix(where.file)}" if place.startswith(where.file) else f"{where} ({place})"


def _explain(error: ValidationError, model: type[BaseModel], values: Mapping[str, Any], place: str) -> str:
    """Pydantic's findings in our words, one line for each field."""
    lines: dict[str, str] = {}
    for problem in error.errors(include_url=False, include_context=True):
        path = [str(step) for step in problem["loc"]]
        key = path[0] if path else ""
        if key in lines:
            continue
        head = located(values, key, place) if key else place
        lines[key] = f"{head}: {_sentence(problem, model, key, values)}"
    shown = list(lines.values())[:_MOST_PROBLEMS]
    if len(lines) > len(shown):
        shown.append(f"... and {len(lines) - len(shown)} more.")
    return "\n".join(shown)


def _sentence(problem: Any, model: type[BaseModel], key: str, values: Mapping[str, Any]) -> str:
    kind, given, context = problem["type"], problem["input"], problem.get("ctx", {})
    if kind == "value_error":
        message = str(context.get("error", problem["msg"])).rstrip(".")
        return f"`{key}`: {message}." if key else f"{message}."
    name = ".".join(_path_names(problem["loc"])) or key
    if kind == "missing":
        return f"`{name}` is missing."
    if kind == "extra_forbidden":
        known = [name for name in _nested_fields(model, problem["loc"])]
        return f"unknown key `{name}`. {did_you_mean(name.rsplit('.', 1)[-1], known)}".rstrip()
    if kind in _BOUNDS:
        argument, words = _BOUNDS[kind]
        return f"`{name}` must be {words} {context[argument]:g}, got {describe_value(given)}."
    if kind == "finite_number":
        return f"`{name}` must be a finite number, got {given}."
    field = model.model_fields.get(key)
    expected = (
        problem["msg"].removeprefix("Input should be ").lower()
        if field is None or len(_path_names(problem["loc"])) > 1
        else None
    )
    if expected is None and field is not None:
        expected = describe_type(field.annotation, field.metadata)
    hint = ""
    if kind == "literal_error" and isinstance(given, str) and field is not None:
        hint = " " + did_you_mean(
            given, [str(choice) for part in alternatives(field.annotation) for choice in get_args(part)]
        )
    shown = values.get(key) if len(_path_names(problem["loc"])) == 1 else given
    return f"`{name}` expects {expected}, got {describe_value(shown)}.{hint}".rstrip()


def _path_names(location: Iterable[Any]) -> list[str]:
    """Key path of an error without the union members that pydantic puts in between."""
    skipped = {
        "float",
        "int",
        "str",
        "bool",
        "Schedule",
        "constrained-int",
        "constrained-float",
        "constrained-str",
        "none",
    }
    return [
        str(step) for index, step in enumerate(location) if index == 0 or not (str(step) in skipped or "[" in str(step))
    ]


def _nested_fields(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    current: Any = model
    for step in location[:-1]:
        if not (isinstance(current, type) and issubclass(current, BaseModel)):
            break
        field = current.model_fields.get(str(step))
        if field is None:
            continue
        models = [
            member
            for member in alternatives(field.annotation)
            if isinstance(member, type) and issubclass(member, BaseModel)
        ]
        current = models[0] if models else current
    return [field.alias or name for name, field in current.model_fields.items()]


def default_of(model: type[BaseModel], key: str) -> Any:
    """Default of a field as plain data; None when it has none."""
    field = model.model_fields[key]
    if field.is_required():
        return None
    return TypeAdapter(Any).dump_python(field.get_default(call_default_factory=True), mode="json", by_alias=True)
