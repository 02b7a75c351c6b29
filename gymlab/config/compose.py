"""Composed experiments: config groups drawn together by Hydra, then flattened into the fields of a config."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gymlab.config.dialects import rename
from gymlab.config.environment_files import PACKAGE_CONF, Library
from gymlab.config.reads import SINGLE_GROUPS
from gymlab.config.validation import located
from gymlab.config.wording import hint
from gymlab.config.yaml_reader import COMMAND_LINE, SWEEP, Located, read_yaml
from gymlab.errors import ConfigError

PRIMARY = "gymlab_experiment"
_NOT_GROUPS = ("environments", "hyperparams", "sweeps")


@dataclass(frozen=True)
class Choice:
    """`group=name` on a command line: take this file of a config group."""

    group: str
    name: str

    def path(self, roots: Sequence[Path]) -> Path | None:
        """The file that is taken: the strongest root's."""
        files = [root / self.group.partition("@")[0] / f"{self.name}.yaml" for root in roots]
        return next((file for file in files if file.is_file()), None)


def split_choices(overrides: Sequence[str], roots: Sequence[Path]) -> tuple[list[Choice], list[str]]:
    """Overrides that choose a file of a group, and the others."""
    choices: list[Choice] = []
    values: list[str] = []
    for text in overrides:
        key, equals, value = text.partition("=")
        group = key.strip().lstrip("+").lstrip("/")
        directory = group.partition("@")[0]
        names_no_file = not equals or value.lstrip().startswith("{")
        if names_no_file or "." in directory or directory in _NOT_GROUPS or not _is_group(directory, roots):
            values.append(text)
        elif ".." not in value and Choice(group, value).path(roots) is not None:
            choices.append(Choice(group, value))
        elif directory in ("params", "components"):
            values.append(text)
        else:
            known = group_choices(directory, roots)
            raise ConfigError(
                f"command line: {text!r}: there is no {directory}/{value}.yaml. {hint(value, known)}"
                f"Known: {', '.join(known) or 'none'}."
            )
    return choices, values


def _is_group(directory: str, roots: Sequence[Path]) -> bool:
    if directory == "experiment":
        return True
    inside = bool(directory) and ".." not in Path(directory).parts and not Path(directory).is_absolute()
    return inside and any((root / directory).is_dir() for root in roots)


def group_choices(group: str, roots: Sequence[Path]) -> list[str]:
    """Names that a group offers."""
    return sorted({path.stem for root in roots for path in (root / group).glob("*.yaml")})


def compose(own: Located, choices: Sequence[Choice], library: Library, place: str) -> tuple[Located, set[str]]:
    """A section with a `defaults:` list, and groups chosen on the command line, as one tree; references stay as they are.

    The section's own fields win over what it draws on unless its list puts `_self_` elsewhere, and over a group that was
    put in the place of one in its list. Groups that were chosen beyond its list are named, as they lie on top of it.
    """
    defaults = own.get("defaults") or []
    if not isinstance(defaults, list):
        raise ConfigError(f"{place}: `defaults` is a list such as [/workflow: ppo, _self_], got {defaults!r}.")
    _guard(library)
    _guard_defaults(own, place)
    fields = {key: value for key, value in own.items() if key != "defaults"}
    added = [choice for choice in choices if not _listed(choice, defaults)]
    listed = [_replaced(entry, choices) for entry in defaults]
    if "_self_" not in listed:
        listed.append("_self_")
    position = listed.index("_self_")
    listed[position:position] = [{f"/{choice.group}": choice.name} for choice in added if choice.group == "experiment"]
    groups = [choice for choice in added if choice.group != "experiment"]
    composed, files = _compose_with_hydra({"defaults": listed, **fields}, groups, library.roots, place)
    library.read |= dict.fromkeys(files)
    library.used |= dict.fromkeys(files)
    tree = Located(composed)
    tree.where |= {key: where for key, where in own.where.items() if key in tree}
    return _lift_experiment(tree), {choice.group for choice in groups}


def _listed(choice: Choice, defaults: Sequence[Any]) -> bool:
    return any(
        isinstance(entry, Mapping) and choice.group in (str(key).lstrip("/") for key in entry) for entry in defaults
    )


def _replaced(entry: Any, choices: Sequence[Choice]) -> Any:
    """An entry of a defaults list with the file that the command line chose for its group."""
    if not isinstance(entry, Mapping):
        return entry
    chosen = {choice.group: choice.name for choice in choices}
    return {key: chosen.get(str(key).lstrip("/"), value) for key, value in entry.items()}


def _guard(library: Library) -> None:
    """Hydra reads files without limits: the user's are read by us first, within them."""
    for root in library.roots:
        if root == PACKAGE_CONF:
            continue
        for path in sorted(root.glob("*/**/*.yaml")):
            if path.relative_to(root).parts[0] not in _NOT_GROUPS:
                library.read[path] = None
                _guard_defaults(read_yaml(path), str(path.relative_to(root)))


def _guard_defaults(document: Mapping[str, Any], place: str) -> None:
    """Hydra resolves references in a defaults list with all of OmegaConf's functions, and what lands under `hydra`
    configures Hydra itself (its callbacks are code): neither is let through."""
    for entry in document.get("defaults") or []:
        if "${" in str(entry):
            raise ConfigError(f"{place}: the defaults list holds the reference {entry!r}; write the name out.")
        if "hydra" in str(entry) or ".." in str(entry):
            raise ConfigError(f"{place}: the entry {entry!r} of the defaults list leads outside the config groups.")
    if "hydra" in document:
        raise ConfigError(
            f"{located(document, 'hydra', place)}: `hydra` is refused: an experiment does not set up Hydra."
        )


def _compose_with_hydra(
    primary: Mapping[str, Any], groups: Sequence[Choice], roots: Sequence[Path], place: str
) -> tuple[dict[str, Any], list[Path]]:
    """The composed tree, and the files of groups that it is made of."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    search = [f"file://{root}" for root in roots]
    with tempfile.TemporaryDirectory(prefix="gymlab-") as folder:
        document = {**primary, "hydra": {"searchpath": search}}
        Path(folder, f"{PRIMARY}.yaml").write_text(yaml.safe_dump(_plain(document), sort_keys=False), encoding="utf-8")
        try:
            with initialize_config_dir(folder, version_base="1.3", job_name="gymlab"):
                for overrides in _spellings(groups):
                    try:
                        config = hydra_compose(PRIMARY, overrides)
                        loader = GlobalHydra.instance().config_loader()
                        listed = loader.compute_defaults_list(PRIMARY, overrides, RunMode.RUN).defaults
                        break
                    except HydraException as error:
                        failure = error
                else:
                    raise failure
            composed = OmegaConf.to_container(config, resolve=False)
        except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
            raise ConfigError(f"{place}: cannot be composed: {_first_lines(error)}") from error
    candidates = [[root / f"{entry.config_path}.yaml" for root in roots] for entry in listed]
    files = [path for paths in candidates if (path := next(filter(Path.is_file, paths), None)) is not None]
    return {str(key): value for key, value in composed.items() if key != "hydra"}, files  # type: ignore[union-attr]


def _spellings(groups: Sequence[Choice]) -> list[list[str]]:
    """A group may stand in a defaults list at the root, inside the experiment, or not at all: Hydra names each differently."""
    plain = [f"{choice.group}={choice.name}" for choice in groups]
    inside = [f"{choice.group}@experiment.{choice.group}={choice.name}" for choice in groups]
    return [plain, inside, [f"+{text}" for text in plain]] if groups else [[]]


def _plain(value: Any) -> Any:
    """A tree without our mapping class, for the YAML writer."""
    if isinstance(value, Mapping):
        return {key: _plain(child) for key, child in value.items()}
    return [_plain(child) for child in value] if isinstance(value, list) else value


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]).rstrip(".") + "."


def _lift_experiment(tree: Located) -> Located:
    """The content of an experiment file, which Hydra puts under `experiment`, belongs at the root, over all else."""
    inner = tree.pop("experiment", None)
    if isinstance(inner, Mapping):
        for key, value in inner.items():
            tree.put(key, _deep(tree.get(key), value))
    return tree


def _deep(lower: Any, upper: Any) -> Any:
    if not isinstance(lower, Mapping) or not isinstance(upper, Mapping):
        return upper
    return {**lower, **{key: _deep(lower.get(key), value) for key, value in upper.items()}}


def lift_groups(tree: Located, place: str, notices: list[str], chosen: Collection[str] = ()) -> Located:
    """Groups that hold fields (`workflow`, `environment`, `env`) under the fields at the root; single ones into the plural.

    A group that was `chosen` on top of the experiment lies over what its files say, and under what was typed beside it.
    """
    result, above = Located(), Located()
    for group, name in (("workflow", "algo_id"), ("environment", "env_id"), ("env", "env_id")):
        content = tree.pop(group, None)
        if isinstance(content, str):
            content = {name: content}
        if content is None:
            continue
        if not isinstance(content, Mapping):
            raise ConfigError(f"{place}: `{group}` expects a mapping of fields, got {content!r}.")
        lifted = rename(_fields_of_group(content, name), f"{place}, {group}", notices)
        result.lay(lifted)
        above.lay(lifted if group in chosen else {})
    for single, plural in SINGLE_GROUPS.items():
        content = tree.get(single)
        if content is None or isinstance(content, Mapping):
            tree.pop(single, None)
        if isinstance(content, Mapping):
            named = {single: content} if "_target_" in content else dict(content)
            tree.put(plural, {**named, **(tree.get(plural) or {})}, tree.where.get(plural))
    typed = {key for key, where in tree.where.items() if where.file in (COMMAND_LINE, SWEEP)}
    result.lay(tree)
    for key, value in above.items():
        if key not in typed:
            result.put(key, value)
    return result


def _fields_of_group(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """`{id: X, ...}` or `{train: {id: X}}` with the name as `env_id` or `algo_id`."""
    fields = dict(content)
    inner = fields.pop("train", None)
    if isinstance(inner, Mapping):
        fields |= inner
    for key in ("id", "name"):
        if key in fields:
            fields.setdefault(name, fields[key])
            del fields[key]
    return fields
