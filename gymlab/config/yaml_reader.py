"""YAML into plain values, safely: safe tags only, bounded size, depth and aliases, and the line of every key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gymlab.errors import ConfigError

COMMAND_LINE = "command line"
SWEEP = "sweep"
MAX_BYTES = 512 * 1024
MAX_DEPTH = 40
MAX_VALUES = 100_000

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TAG = "tag:yaml.org,2002:"
# YAML 1.1 wants a dot and a signed exponent in a float; people write 1e6 and 3e-4 and mean numbers.
EXPONENT = re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+")


class Where(NamedTuple):
    """Where a key was written."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Located(dict[str, Any]):
    """A mapping that knows where each of its keys was written; the key written last stands last."""

    def __init__(self, items: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.where: dict[str, Where] = {}
        self.repeated: dict[str, None] = {}
        """Notices about keys that were given twice in it or below it."""
        self.own: tuple[str, ...] = ()
        """Keys that were written in it, and not merged into it by `<<`."""
        self.lay(items or {})

    def put(self, key: str, value: Any, where: Where | None = None) -> None:
        """Set a key, as the newest one."""
        self.pop(key, None)
        self.where.pop(key, None)
        self[key] = value
        if where is not None:
            self.where[key] = where

    def lay(self, items: Mapping[str, Any]) -> Located:
        """Lay another mapping on top, its positions with it."""
        where = items.where if isinstance(items, Located) else {}
        self.repeated |= items.repeated if isinstance(items, Located) else {}
        for key, value in items.items():
            self.put(key, value, where.get(key))
        return self


def read_yaml(path: Path) -> Located:
    """The mapping in a file; an empty file is an empty mapping."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ConfigError(f"{path}: {size:,} bytes is more than a config file may have ({MAX_BYTES:,}).")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not a UTF-8 text file.") from error
    document = parse_yaml(text, path.name)
    if document is None:
        return Located()
    if not isinstance(document, Located):
        raise ConfigError(
            f"{path}: a config file holds `key: value` lines; this one holds a {type(document).__name__}."
        )
    return document


def parse_yaml(text: str, name: str) -> Any:
    """The value of a YAML text; mappings come as `Located`. `name` stands in error messages and positions."""
    if len(text.encode()) > MAX_BYTES:
        raise ConfigError(f"{name}: is larger than a config may be ({MAX_BYTES:,} bytes).")
    try:
        _check_depth(text, name)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(f"{_place(error, name)}: is not valid YAML: {_problem(error)}.") from error
    return None if node is None else _Builder(name).build(node, 0)


def parse_value(text: str, name: str = COMMAND_LINE) -> Any:
    """The value of `key=value` on a command line: `1e-3`, `true`, `[64, 64]`, `{start: 1, end: 0}` or text."""
    if not text.strip():
        return ""
    try:
        return parse_yaml(text, name)
    except ConfigError:
        if any(sign in text for sign in "{}[]&*!"):
            raise
        return text


def _check_depth(text: str, name: str) -> None:
    """Refuse deep nesting before the composer, which recurses, sees it."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                line = f":{event.start_mark.line + 1}" if event.start_mark else ""
                raise ConfigError(f"{name}{line}: is nested more than {MAX_DEPTH} levels deep.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _place(error: yaml.YAMLError, name: str) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"{name}:{mark.line + 1}" if mark else name


def _problem(error: yaml.YAMLError) -> str:
    return str(getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable").rstrip(".")


class _Builder:
    """Turns the node graph into values. Aliases are expanded, and what they expand to is counted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values = 0
        self.scalars = yaml.constructor.SafeConstructor()

    def build(self, node: yaml.Node, depth: int) -> Any:
        """The value of a node."""
        self.values += 1
        if self.values > MAX_VALUES or depth > MAX_DEPTH:
            limit = f"{MAX_VALUES:,} values" if self.values > MAX_VALUES else f"{MAX_DEPTH} levels"
            raise ConfigError(f"{self.where(node)}: its aliases (*name) expand to more than {limit}.")
        if isinstance(node, yaml.MappingNode) and node.tag == TAG + "map":
            return self.mapping(node, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == TAG + "seq":
            return [self.build(item, depth + 1) for item in node.value]
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        raise self.refusal(node)

    def mapping(self, node: yaml.MappingNode, depth: int) -> Located:
        """Own keys over merged ones. Of two `<<` keys the last wins; of a list under one `<<` the first."""
        merged, own = Located(), Located()
        for key_node, value_node in node.value:
            if key_node.tag == TAG + "merge":
                for source in self.merge_sources(value_node, depth):
                    merged.lay(source)
                continue
            key = self.key(key_node)
            if key in own:
                own.repeated[f"{self.where(key_node)}: `{key}` is given twice; the last one counts."] = None
            value = self.build(value_node, depth + 1)
            own.repeated |= value.repeated if isinstance(value, Located) else {}
            own.put(key, value, self.where(key_node))
        merged.lay(own)
        merged.own = tuple(own)
        return merged

    def merge_sources(self, node: yaml.Node, depth: int) -> Iterable[Located]:
        """What stands behind a `<<`, weakest first."""
        value = self.build(node, depth + 1)
        sources = list(reversed(value)) if isinstance(value, list) else [value]
        for source in sources:
            if not isinstance(source, Located):
                raise ConfigError(
                    f"{self.where(node)}: `<<` merges mappings (`<<: *name` or `<<: [*a, *b]`), not {source!r}."
                )
        return sources

    def key(self, node: yaml.Node) -> str:
        """A key as text, whatever it looks like: `0:` and `"0":` are one key, as in JSON."""
        if not isinstance(node, yaml.ScalarNode):
            raise ConfigError(f"{self.where(node)}: a key must be a plain name.")
        return str(node.value)

    def scalar(self, node: yaml.ScalarNode) -> Any:
        """A number, truth value, null or text."""
        kind = node.tag.removeprefix(TAG)
        try:
            if kind == "float":
                return float(node.value) if EXPONENT.fullmatch(node.value) else self.scalars.construct_yaml_float(node)
            if kind == "int":
                return self.scalars.construct_yaml_int(node)
            if kind == "bool":
                return self.scalars.construct_yaml_bool(node)
        except (ValueError, KeyError) as error:
            raise ConfigError(f"{self.where(node)}: {node.value[:40]!r} is not a {kind}.") from error
        if kind == "null":
            return None
        if kind not in ("str", "timestamp", "value"):
            raise self.refusal(node)
        if kind == "str" and not node.style and EXPONENT.fullmatch(node.value):
            return float(node.value.replace("_", ""))
        return node.value

    def refusal(self, node: yaml.Node) -> ConfigError:
        """The error for a tag that is no plain data."""
        tag = node.tag.replace(TAG, "!!")
        return ConfigError(f"{self.where(node)}: the YAML tag {tag} is refused; a config holds plain data only.")

    def where(self, node: yaml.Node) -> Where:
        """Position of a node; a command line has no lines."""
        return Where(self.name, 0 if self.name == COMMAND_LINE else node.start_mark.line + 1)
