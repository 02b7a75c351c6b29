"""How metrics are shown: `conf/metrics.yaml` of ours, with the user's own on top."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from gymlab.config.schema import Frozen
from gymlab.errors import ConfigError, did_you_mean
from gymlab.metrics.names import ENV_STEPS, PURPOSES

SHIPPED = Path(__file__).resolve().parent.parent / "conf" / "metrics.yaml"


class MetricStyle(Frozen):
    """How one metric is shown."""

    precision: int = Field(default=3, ge=0, le=12)
    """Decimals in the table; 0 shows whole numbers with thousands separators."""
    min: float | None = None
    """Below this the value is marked as out of bounds."""
    max: float | None = None
    """Above this the value is marked as out of bounds."""
    highlight: bool = False
    """Shown first in colour, with its best value; an improvement is marked."""
    bold: bool = False
    """Shown in bold."""
    show_in_table: bool = True
    """False keeps it out of the console (it is still in metrics.csv and the trackers)."""
    description: str = ""
    """What the number means, in one line."""


class GlobalStyle(Frozen):
    """What concerns the whole table."""

    key_priority: tuple[str, ...] = ()
    """Metrics (or patterns with `*`) in the order in which they are shown; the rest follows by name."""
    step_key: str = ENV_STEPS
    """The counter that progress is measured by."""


class MetricStyles:
    """Styles by metric name. An entry may be a full name, a pattern with `*`, or a name without its purpose."""

    def __init__(self, entries: dict[str, MetricStyle], general: GlobalStyle) -> None:
        self.general = general
        self._entries = entries
        self._patterns = [name for name in entries if "*" in name]
        self._found: dict[str, MetricStyle] = {}

    def __getitem__(self, name: str) -> MetricStyle:
        """The style of a metric; a metric without an entry has the defaults."""
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def rank(self, name: str) -> tuple[int, str]:
        """Sort key: place in `key_priority`, then the name."""
        spellings = _spellings(name)
        for place, pattern in enumerate(self.general.key_priority):
            if any(fnmatchcase(spelling, pattern) for spelling in spellings):
                return place, name
        return len(self.general.key_priority), name

    def _find(self, name: str) -> MetricStyle:
        for spelling in _spellings(name):
            if spelling in self._entries:
                return self._entries[spelling]
            for pattern in self._patterns:
                if fnmatchcase(spelling, pattern):
                    return self._entries[pattern]
        return MetricStyle()


def load_styles(paths: Sequence[str | Path] = (SHIPPED,)) -> MetricStyles:
    """Read the files in order, each on top of those before, field by field; a missing file is passed over."""
    entries: dict[str, dict[str, Any]] = {}
    general: dict[str, Any] = {}
    for path in map(Path, paths):
        if not path.is_file():
            continue
        for name, fields in _read(path).items():
            if name == "_global":
                general.update(_checked(GlobalStyle, fields, path, name))
            else:
                entries.setdefault(name, {}).update(_checked(MetricStyle, fields, path, name))
    return MetricStyles({name: MetricStyle(**fields) for name, fields in entries.items()}, GlobalStyle(**general))


def _spellings(name: str) -> tuple[str, ...]:
    first, _, rest = name.partition("/")
    return (name, rest) if rest and first in PURPOSES else (name,)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected metric names with their settings, found {type(content).__name__}.")
    return content


def _checked(model: type[Frozen], fields: Any, path: Path, name: str) -> dict[str, Any]:
    """The fields as written, once they are known to be right."""
    if not isinstance(fields, dict):
        raise ConfigError(f"{path}: {name}: expected settings such as {{precision: 2}}, found {fields!r}.")
    known = list(model.model_fields)
    for key in fields:
        if key not in known:
            raise ConfigError(
                f"{path}: {name}.{key}: unknown. {did_you_mean(str(key), known)} Known: {', '.join(known)}."
            )
    try:
        model(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: {name}.{key}: {first['msg']}, found {first['input']!r}.") from error
    return fields
