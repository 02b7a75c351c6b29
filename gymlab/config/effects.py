"""Which settings do nothing where: one declaration, read by the check of a config and by the tables of docs/reference.md.

A config class lists under `no_effect` what nobody would read: with other settings (`when`), or on environments that turn out to be of a kind
(`on`). A setting with a value of its own that would do nothing is refused by name; the default of the algorithm, or of the preset that is named,
never is. What is legal and has an effect that hardly anybody wants, such as a learning rate of 0, is told in a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gymlab.config.field_types import default_of
from gymlab.config.validation import located
from gymlab.config.wording import listing
from gymlab.config.yaml_reader import COMMAND_LINE, SWEEP, Located
from gymlab.errors import ConfigError

if TYPE_CHECKING:
    from gymlab.config.schema import Config

IMAGES = "images"
DISCRETE = "discrete observations"
VECTORS = "observations that are vectors of numbers"
NO_IMAGES = "observations that are no images"
NO_DISCRETE = "observations without discrete parts"
UNBOUNDED = "observations without finite bounds"
CONTINUOUS_ACTIONS = "continuous actions"
DISCRETE_ACTIONS = "discrete actions"
NO_WORKERS = "environments that no worker process steps"
NATIVE = "environments that one array program steps"
ONE_A_PROCESS = "environments of which a process can hold one"
"""Kinds that environments turn out to be of when they are built."""


@dataclass(frozen=True)
class Given:
    """A test of a setting's value, and what passes it in words."""

    words: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class NoEffect:
    """Settings that do nothing where all of `when` and `on` hold; with neither, nowhere with this algorithm."""

    names: tuple[str, ...]
    why: str
    when: Mapping[str, tuple[Any, ...] | Given] = field(default_factory=dict)
    """Other settings, each with the values (or the test of them) with which these do nothing."""
    on: str = ""
    """The kind of environments on which they do nothing."""
    satisfied: tuple[Any, ...] = ()
    """Values that ask for what is so anyway."""
    notice: bool = False
    """Told, and not refused: whether it does something depends on more than is known."""

    def holds(self, config: Config, kinds: Collection[str]) -> bool:
        """Whether these settings do nothing in a config on environments of these kinds."""
        if self.on and self.on not in kinds:
            return False
        return all(_passes(getattr(config, name), test) for name, test in self.when.items())

    def sentence(self, name: str, config: Config) -> str:
        """That a setting does nothing, where, and why."""
        decisive = {other: getattr(config, other) for other in self.when}
        subject = f"{name}: {_shown(decisive.pop(name))}" if name in decisive else name
        others = " and ".join(f"{other}: {self._value(other, value)}" for other, value in decisive.items())
        place = f" with {others}" if others else "" if self.when or self.on else f" with {config.algo_id}"
        return f"{subject} has no effect{place}{f' on {self.on}' if self.on else ''} ({self.why})"

    def _value(self, other: str, value: Any) -> str:
        test = self.when[other]
        return test.words if isinstance(test, Given) and isinstance(value, Mapping) else _shown(value)

    @property
    def words(self) -> str:
        """Where these settings do nothing, for the reference."""
        parts = [
            f"`{name}: {test.words}`" if isinstance(test, Given) else _either(name, test)
            for name, test in self.when.items()
        ]
        place = f"with {' and '.join(parts)}" if parts else ""
        return f"{place} on {self.on}".strip() if self.on else place


RAW = NoEffect(("normalize_obs", "normalize_reward"), "it takes both as they are, or scales them itself")
"""For algorithms that normalise nothing."""
ALL_AT_ONCE = NoEffect(("double_buffer",), "it acts on all environments at once", satisfied=(False,))
"""For algorithms that never act on one half of the environments while the other is stepped."""
SINGLE_PRECISION = NoEffect(("precision",), "it computes in one precision")
"""For algorithms without mixed precision."""


def _passes(value: Any, test: tuple[Any, ...] | Given) -> bool:
    return test.holds(value) if isinstance(test, Given) else value in test


def _either(name: str, values: tuple[Any, ...]) -> str:
    return " or ".join(f"`{name}: {_shown(value)}`" for value in values)


def _shown(value: Any) -> str:
    return (
        {True: "true", False: "false", None: "null"}[value] if value is None or isinstance(value, bool) else str(value)
    )


def declared(schema: type[Config]) -> list[NoEffect]:
    """What a config class declares, and what those that it is made of do."""
    return [rule for part in reversed(schema.__mro__) for rule in vars(part).get("no_effect", ())]


def idle_settings(config: Config, kinds: Collection[str] | None = None) -> Iterator[tuple[str, NoEffect]]:
    """Settings that differ from their default and do nothing: as far as the config tells, or on environments of these kinds."""
    data = config.model_dump(mode="json", by_alias=True)
    for rule in declared(type(config)):
        if bool(rule.on) is (kinds is None) or not rule.holds(config, kinds or ()):
            continue
        for name in rule.names:
            if getattr(config, name) not in rule.satisfied and data[name] != usual_value(type(config), data, name):
                yield name, rule


def usual_value(schema: type[Config], data: Mapping[str, Any], name: str) -> Any:
    """What a setting is where nobody sets it: the preset's value, else the default."""
    filled = schema.fill_in({key: value for key, value in data.items() if key != name})
    return json.loads(json.dumps(filled[name] if name in filled else default_of(schema, name), default=str))


def check_effects(
    config: Config, tree: Located, given: Collection[str], place: str, notices: list[str], *, trusts_files: bool
) -> None:
    """Refuse settings that were given and do nothing, as far as the config tells; those that the user could not help are told.

    Such are the ones of a file where what makes them idle was chosen on the command line, of a sweep, and of a run that was trained so;
    with `trusts_files` all that files hold.
    """
    for name, rule in idle_settings(config):
        if name not in given:
            continue
        sentence = f"{located(tree, name, place)}: {rule.sentence(name, config)}."
        if rule.notice or not _is_chosen(tree, name, rule, trusts_files):
            notices.append(sentence)
        else:
            raise ConfigError(f"{sentence} Leave it out.")


def _is_chosen(tree: Located, name: str, rule: NoEffect, trusts_files: bool) -> bool:
    """Whether somebody wrote the setting for the place where it does nothing."""
    written = tree.where.get(name)
    if written is not None and written.file == COMMAND_LINE:
        return True
    if trusts_files or (written is not None and (written.file == SWEEP or written.file.endswith(".json"))):
        return False
    return not any(other in tree.where and tree.where[other].file == COMMAND_LINE for other in rule.when)


def kept_from_presets(config: Config, tree: Located, given: Collection[str], place: str) -> Iterator[str]:
    """A line for each preset of the command line, such as a size, that leaves settings as a file has them."""
    schema = type(config)
    chosen = {name: getattr(config, name) for name in schema.presets}
    for preset in (name for name in schema.presets if _is_typed(tree, name)):
        filled = schema.fill_in(chosen)
        without = schema.fill_in({name: value for name, value in chosen.items() if name != preset})
        usual = schema.model_validate({"env_id": config.env_id, "algo_id": config.algo_id, **filled})
        kept = [
            name
            for name in sorted(given)
            if name in filled.keys() - chosen.keys()
            and filled[name] != without.get(name)
            and not _is_typed(tree, name)
            and getattr(config, name) != getattr(usual, name)
        ]
        if kept:
            them = "it" if len(kept) == 1 else "them"
            yield f"{preset}={_shown(chosen[preset])} leaves {listing(kept)} as {place} has {them}."


def _is_typed(tree: Located, name: str) -> bool:
    """Whether a setting comes from the command line."""
    return name in tree.where and tree.where[name].file == COMMAND_LINE


def check_on_environments(config: Config, kinds: Collection[str], *, resumed: bool = False) -> list[str]:
    """Refuse settings that do nothing on environments of these kinds; what is told instead is returned."""
    notices = []
    for name, rule in idle_settings(config, kinds):
        sentence = f"{rule.sentence(name, config)}."
        if not rule.notice and not resumed:
            default = usual_value(type(config), config.model_dump(mode="json", by_alias=True), name)
            raise ConfigError(f"{sentence} Leave it out, or set {name}={_shown(default)}.")
        notices.append(sentence)
    return notices


def idle_places(schema: type[Config], name: str) -> list[str] | None:
    """Where a setting of an algorithm does nothing, in words; None: everywhere."""
    rules = [rule for rule in declared(schema) if name in rule.names]
    if any(not rule.when and not rule.on for rule in rules):
        return None
    return list(dict.fromkeys(rule.words for rule in rules))
