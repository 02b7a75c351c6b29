"""References between values: `${params.x}`, `${_dims.latent}` and a little arithmetic, `${add:${_dims.observation},10}`.

Resolved here rather than by OmegaConf, whose resolvers read the environment (`oc.env`) and may be extended to run code: a
config that came with somebody's run knows the functions below and no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gymlab.config.names import ALIASES
from gymlab.config.wording import hint
from gymlab.config.yaml_reader import MAX_VALUES, Located, parse_value
from gymlab.errors import ConfigError, did_you_mean

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda *numbers: sum(numbers),
    "sub": lambda first, second: first - second,
    "mul": lambda first, second: first * second,
    "div": lambda first, second: first / second,
    "floordiv": lambda first, second: first // second,
    "min": lambda *numbers: min(numbers),
    "max": lambda *numbers: max(numbers),
}
ENVIRONMENT_DIMENSIONS = ("observation", "action")
"""Dimensions that need not be written: a reference to one that is not stays until the environment is known."""

_MAX_DEPTH = 30
_MAX_TEXT = 10_000
_MAX_NUMBER = 10**15
_CALL = re.compile(r"\s*([^\s:${}]+)\s*:")
_PENDING = re.compile(r"\$\{_?dims\.")


def has_references(value: Any) -> bool:
    """Whether a `${` stands anywhere in a tree."""
    if isinstance(value, str):
        return "${" in value
    if isinstance(value, Mapping):
        return any(has_references(child) for child in value.values())
    return isinstance(value, list) and any(has_references(child) for child in value)


def resolve_references(tree: Located, place: str, referred: set[str] | None = None) -> Located:
    """A tree with every reference replaced by what it refers to; the paths that references lead to are added to `referred`."""
    resolver = _Resolver(tree, place, set() if referred is None else referred)
    result = Located()
    for key, value in tree.items():
        result.put(key, resolver.value(value, (key,), 0), tree.where.get(key))
    return result


class _Resolver:
    """Replaces references within one tree, within bounds of depth, count and length."""

    def __init__(self, tree: Mapping[str, Any], place: str, referred: set[str]) -> None:
        self.tree = tree
        self.place = place
        self.referred = referred
        self.values = 0

    def value(self, node: Any, path: tuple[str, ...], depth: int) -> Any:
        """A node with its references resolved; `path` is where it stands."""
        self.values += 1
        if self.values > MAX_VALUES or depth > _MAX_DEPTH:
            raise self.error(path, "refers to itself, or to more than a config may hold")
        if isinstance(node, Mapping):
            return {key: self.value(child, (*path, str(key)), depth) for key, child in node.items()}
        if isinstance(node, list):
            return [self.value(child, (*path, str(index)), depth) for index, child in enumerate(node)]
        return self.text(node, path, depth) if isinstance(node, str) and "${" in node else node

    def text(self, text: str, path: tuple[str, ...], depth: int) -> Any:
        """A text with references: the value itself when it is a single one, else the parts joined."""
        parts: list[Any] = []
        position = 0
        while (start := text.find("${", position)) >= 0:
            end = self.closing(text, start, path)
            parts += [text[position:start], self.reference(text[start + 2 : end], path, depth + 1)]
            position = end + 1
        parts.append(text[position:])
        filled = [part for part in parts if part != ""]
        if len(filled) == 1:
            return filled[0]
        joined = "".join(str(part) for part in filled)
        if len(joined) > _MAX_TEXT:
            raise self.error(path, f"becomes longer than {_MAX_TEXT} characters")
        return joined

    def closing(self, text: str, start: int, path: tuple[str, ...]) -> int:
        """Position of the brace that closes the reference at `start`."""
        level = 0
        for position in range(start, len(text)):
            if text.startswith("${", position):
                level += 1
            elif text[position] == "}":
                level -= 1
                if level == 0:
                    return position
        raise self.error(path, f"has a reference without an end: {text!r}")

    def reference(self, inner: str, path: tuple[str, ...], depth: int) -> Any:
        """What stands between `${` and `}`: a function with arguments, or the path of a key."""
        call = _CALL.match(inner)
        if call is not None:
            return self.call(call[1], inner[call.end() :], path, depth)
        if "${" in inner or ":" in inner:
            raise self.error(path, f"has the reference ${{{inner}}}; the name in one must be written out")
        return self.lookup(inner.strip(), path, depth)

    def call(self, name: str, arguments: str, path: tuple[str, ...], depth: int) -> Any:
        """The value of `${name:arguments}`."""
        if name not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            raise self.error(path, f"calls ${{{name}:...}}, which is refused. {hint(name, FUNCTIONS)}Known: {known}")
        values = [self.argument(argument.strip(), path, depth) for argument in _split(arguments)]
        if any(isinstance(value, str) and _PENDING.search(value) for value in values):
            return f"${{{name}:{','.join(str(value) for value in values)}}}"
        if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            raise self.error(path, f"calls ${{{name}:{arguments}}}, which takes numbers, with {values}")
        try:
            result = FUNCTIONS[name](*values)
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise self.error(path, f"calls ${{{name}:{arguments}}}: {error}") from error
        if abs(result) > _MAX_NUMBER:
            raise self.error(path, f"calls ${{{name}:{arguments}}}, whose result is too large")
        return result

    def argument(self, text: str, path: tuple[str, ...], depth: int) -> Any:
        return self.text(text, path, depth) if "${" in text else parse_value(text, self.place)

    def lookup(self, name: str, path: tuple[str, ...], depth: int) -> Any:
        """The value at a dotted path from the root, or from the parent of `path` when it begins with a dot."""
        names = _absolute(name, path).replace("[", ".").replace("]", "").split(".")
        if names[0] == "experiment" and "experiment" not in self.tree:
            names = names[1:]
        if names and names[0] not in self.tree:
            names[0] = ALIASES.get(names[0], names[0])
        self.referred.add(".".join(names))
        node: Any = self.tree
        for index, step in enumerate(names):
            if isinstance(node, Mapping) and step in node:
                node = node[step]
            elif isinstance(node, list) and step.isdecimal() and int(step) < len(node):
                node = node[int(step)]
            elif names[0] == "dims" and names[1:] and names[1] in ENVIRONMENT_DIMENSIONS:
                return f"${{_dims.{names[1]}}}"
            else:
                known = list(node) if isinstance(node, Mapping) else []
                missing = ".".join(names[: index + 1])
                raise self.error(
                    path, f"refers to ${{{name}}}, but there is no {missing}. {did_you_mean(step, known)}".strip()
                )
        return self.value(node, tuple(names), depth)

    def error(self, path: tuple[str, ...], problem: str) -> ConfigError:
        """An error about the value at a path."""
        return ConfigError(
            f"{self.place}: `{'.'.join(path)}` {problem.rstrip('.?')}{'?' if problem.endswith('?') else '.'}"
        )


def _absolute(name: str, path: tuple[str, ...]) -> str:
    """`.lr` is a sibling, `..lr` a sibling of the parent."""
    dots = len(name) - len(name.lstrip("."))
    return name if dots == 0 else ".".join([*path[: len(path) - dots], name[dots:]])


def _split(arguments: str) -> list[str]:
    """Arguments at the commas that are not inside a nested reference."""
    parts, level, start = [], 0, 0
    for position, sign in enumerate(arguments):
        level += (arguments.startswith("${", position)) - (sign == "}")
        if sign == "," and level == 0:
            parts.append(arguments[start:position])
            start = position + 1
    return [*parts, arguments[start:]]
