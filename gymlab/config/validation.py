"""Plain values into a frozen model, with errors that say what was expected, what was given and where."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gymlab.config.field_types import alternatives, annotation_of, choices, describe_type, describe_value, fit
from gymlab.config.schedules import Schedule
from gymlab.config.yaml_reader import Located, Where
from gymlab.errors import ConfigError, did_you_mean

M = TypeVar("M", bound=BaseModel)

_MOST_PROBLEMS = 6
_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def validate(model: type[M], values: Mapping[str, Any], place: str) -> M:
    """A model from plain values, strictly: `true` is no number, and 2.5 is no integer; 1e6 is one."""
    fill_in = getattr(model, "fill_in", dict)
    fitted = {key: fit(value, annotation_of(model, key)) for key, value in fill_in(values).items()}
    for key, value in fitted.items():
        # Checked apart, so that the message speaks of the schedule and not of a union that nothing fits.
        if isinstance(value, Mapping) and Schedule in alternatives(annotation_of(model, key)):
            validate(Schedule, value, f"{located(values, key, place)}, schedule of {key}")
    try:
        text = json.dumps(fitted)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{place}: holds a value that is no plain data: {error}.") from error
    try:
        return model.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise ConfigError(_explain(error, model, values, place)) from error


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
    for problem in error.errors(include_url=False):
        key = str(problem["loc"][0]) if problem["loc"] else ""
        if key not in lines:
            head = located(values, key, place) if key else place
            lines[key] = f"{head}: {_sentence(problem, model, values)}"
    shown = list(lines.values())[:_MOST_PROBLEMS]
    if len(lines) > len(shown):
        shown.append(f"... and {len(lines) - len(shown)} more.")
    return "\n".join(shown)


def _sentence(problem: Any, model: type[BaseModel], values: Mapping[str, Any]) -> str:
    """One finding: what is wrong with which key, and what would be right."""
    kind, given, context = problem["type"], problem["input"], problem.get("ctx", {})
    path = _path(problem["loc"], values, missing=kind == "missing")
    name = ".".join(path)
    if kind == "value_error":
        message = str(context.get("error", problem["msg"])).rstrip(".")
        return f"`{name}`: {message}." if name else f"{message}."
    if kind == "missing":
        return f"`{name}` is missing."
    if not path:
        # Of the whole: nested deeper than anything that a setting can be.
        return f"{problem['msg'][:200]}."
    owner = _owner(model, path)
    if kind == "extra_forbidden":
        known = [field.alias or other for other, field in owner.model_fields.items()] if owner else []
        return f"unknown key `{name}`. {did_you_mean(path[-1], known)}".rstrip()
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        return f"`{name}` must be {words} {context[bound]:g}, got {describe_value(given)}."
    field = owner.model_fields.get(path[-1]) if owner else None
    if field is None:
        expected = problem["msg"].removeprefix("Input should be ").lower()
        return f"`{name}` expects {expected}, got {describe_value(given)}."
    near = did_you_mean(given, choices(field.annotation)) if isinstance(given, str) else ""
    expected = describe_type(field.annotation, field.metadata)
    return f"`{name}` expects {expected}, got {describe_value(given)}. {near}".rstrip()


def _path(location: tuple[Any, ...], values: Any, *, missing: bool) -> list[str]:
    """Key path of an error: pydantic puts the members of unions in between, which the values know nothing of."""
    steps: list[str] = []
    node = values
    for position, step in enumerate(location):
        if (isinstance(node, Mapping) and step in node) or (
            isinstance(node, list | tuple) and isinstance(step, int) and step < len(node)
        ):
            node = node[step]
        elif not (missing and position == len(location) - 1):
            continue
        steps.append(str(step))
    return steps


def _owner(model: type[BaseModel], path: list[str]) -> type[BaseModel] | None:
    """The model that the last key of a path belongs to; None when the path leaves the models."""
    current: type[BaseModel] | None = model
    for step in path[:-1]:
        members = alternatives(annotation_of(current, step)) if current else ()
        current = next(
            (member for member in members if isinstance(member, type) and issubclass(member, BaseModel)), None
        )
    return current
