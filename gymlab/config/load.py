"""From the name of an experiment to one frozen config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymlab.config.compose import Choice, compose, lift_groups, split_choices
from gymlab.config.derive import check_schedules, derive
from gymlab.config.dialects import canonical_name, merge, refuse_two_spellings, rename, set_dotted, translate
from gymlab.config.effects import check_effects, kept_from_presets
from gymlab.config.environment_files import EnvironmentFile, Library, Section, found_here, search_roots
from gymlab.config.environment_ids import check_known, check_module, current_id
from gymlab.config.interpolation import has_references, resolve_references
from gymlab.config.labels import check_variant, declared_by, follow_overrides, note_task, threshold_task
from gymlab.config.names import Algorithms, SchemaOf, algorithm_name, has_older_names, near_field
from gymlab.config.open_keys import check_open_keys
from gymlab.config.phases import parse_phases
from gymlab.config.reads import ReadsOf, check_reads, refuse_choices, take_rates
from gymlab.config.schema import Config, Phase
from gymlab.config.sense import senseless
from gymlab.config.targets import check_targets
from gymlab.config.validation import located, validate
from gymlab.config.wording import hint
from gymlab.config.yaml_reader import COMMAND_LINE, SWEEP, Located, Where, parse_value
from gymlab.errors import ConfigError, did_you_mean

DEFAULT_EXPERIMENT = "Bandit-v0:ppo"


@dataclass(frozen=True)
class Loaded:
    """A config, and what its user should know about how it came to be."""

    config: Config
    notices: tuple[str, ...]
    """One line each: retired ids, fields without meaning, fields of another algorithm, files passed over."""
    sources: tuple[str, ...]
    """Files that the config came from."""
    read: tuple[str, ...] = ()
    """Files that were read to find those, and gave nothing."""


def load(
    experiment: str | None,
    overrides: Sequence[str] = (),
    *,
    schema_of: SchemaOf,
    algorithms: Sequence[str],
    reads_of: ReadsOf | None = None,
    algo: str | None = None,
    config_dir: Path | None = None,
    env_kwargs: Sequence[str] = (),
    sweep: Mapping[str, Any] | None = None,
    debugger: bool = False,
) -> Loaded:
    """Resolve `env:variant` (or a file, or `experiment=name`); over the YAML lie sweep, debugger and overrides.

    Files are looked for in `config_dir`, `./conf`, `./config` and the package, in this order. A user's environment file
    lies on top of ours of the same name: its variants are added, and a variant of the same name replaces ours. `None`
    is `Bandit-v0:ppo`. With `algo` any environment id will do; the environment's file, if there is one, gives the spec
    and the base. `reads_of` says what each algorithm reads of components, phases and the like: what no one reads is
    refused. Without it nothing is, as for the config of a run from before.
    """
    notices: list[str] = [] if experiment is not None and _is_path(experiment) else found_here()
    known = Algorithms(algorithms, schema_of)
    library = Library(search_roots(config_dir), notices, known)
    if experiment is not None and "=" in experiment and not _is_path(experiment):
        overrides, experiment = [experiment, *overrides], None
    choices, values = split_choices(overrides, library.roots)
    section = _start(experiment, algo, choices, library, algorithms)
    fields, added = section.fields, set[str]()
    if choices or "defaults" in fields:
        fields, added = compose(fields, choices, library, section.place)
    tree = rename(fields, section.place, notices)
    declared = declared_by(section, rename(section.fields, section.place, []), algorithms)
    of_file = threshold_task(tree)
    tree = _lay_on_top(tree, notices, sweep or {}, debugger, values, env_kwargs)
    referred: set[str] = set()
    if has_references(tree):
        tree = resolve_references(tree, section.place, referred)
    tree = lift_groups(tree, section.place, notices, added)
    check_variant(tree, declared, section)
    _name_algorithm(tree, section, algorithms)
    spec_on_top = follow_overrides(tree, declared)
    schema = schema_of(tree["algo_id"])
    base = _name_environment(tree, section, " ".join([experiment or "", *values]), library, notices, spec_on_top)
    note_task(tree, of_file if base is None else threshold_task(base))
    tree = translate(tree, schema, section.place)
    reads = reads_of(tree["algo_id"]) if reads_of is not None else None
    refuse_choices(tree, reads, section.place)
    if reads is not None:
        take_rates(tree, reads, section.place)
    _check_fields(tree, schema, section, library, notices, known)
    given = frozenset(tree)
    phases = _parse_curriculum(tree, section.place)
    filled = derive(tree, schema, section.place, notices, phases, fit_batch=debugger)
    config = _validated(tree, schema, section.place)
    if reads is not None:
        check_reads(config, tree, reads, section.place)
        notices += check_open_keys(tree, _typed(values, sweep or {}), referred, section.place)
    notices[:0] = filled.notices(config)
    # A file for another algorithm, or of an earlier generation, was written for what it does there.
    trusts_files = algo is not None or has_older_names(fields)
    check_effects(config, tree, given, section.place, notices, trusts_files=trusts_files)
    notices += kept_from_presets(config, tree, given, section.place)
    notices += senseless(config, given)
    return Loaded(
        config,
        tuple(dict.fromkeys(notices)),
        tuple(str(path) for path in library.used),
        tuple(str(path) for path in library.read if path not in library.used),
    )


def _start(
    experiment: str | None, algo: str | None, choices: Sequence[Choice], library: Library, algorithms: Sequence[str]
) -> Section:
    """The section that everything is laid on: the experiment's, or an empty one when groups alone make it up."""
    chosen = next((choice.name for choice in choices if choice.group == "experiment"), None)
    if experiment is not None and chosen is not None:
        raise ConfigError(f"Both {experiment!r} and experiment={chosen} are named; an experiment is one or the other.")
    if experiment is None and choices:
        algorithm = {"algo_id": algorithm_name(algo)} if algo else {}
        return Section(Located(algorithm), chosen or "", None)
    return _find(experiment or DEFAULT_EXPERIMENT, algo, library, algorithms)


def _parse_curriculum(tree: Located, place: str) -> tuple[Phase, ...]:
    """The phases that an experiment names, written out in the tree."""
    training = tree.get("training")
    if not isinstance(training, Mapping) or not training.get("phases"):
        return ()
    phases = parse_phases(training["phases"], f"{place}, training.phases")
    plain = [phase.model_dump(mode="json", by_alias=True) for phase in phases]
    tree.put("training", {**training, "phases": plain}, tree.where.get("training"))
    return phases


def _validated(tree: Located, schema: type[Config], place: str) -> Config:
    """A resolved tree as a config: targets, types and schedules checked."""
    check_targets(tree, place)
    config = validate(schema, tree, place)
    check_schedules(config, tree, place)
    return config


def _is_path(name: str) -> bool:
    return Path(name).suffix in (".yaml", ".yml", ".json")


def _find(name: str, algo: str | None, library: Library, algorithms: Sequence[str]) -> Section:
    """The section an experiment's name means."""
    if _is_path(name):
        return _section_of_path(Path(name), algo, library)
    environment, colon, variant = name.rpartition(":")
    if algo is not None:
        if colon and variant != algo and next(library.matching(environment), None) is not None:
            raise ConfigError(f"{name!r} names the variant {variant}, and --algo names {algo}: give one of the two.")
        of_file = environment if colon and variant == algo else name
        return _section_with_algorithm(of_file, algorithm_name(algo), library, algorithms)
    if not colon:
        raise _incomplete(name, library)
    for candidate in _current(environment, library.notices):
        section = library.find(candidate, variant)
        if section is not None:
            return section
    raise _unknown(environment, variant, library, algorithms)


def _current(environment: str, notices: list[str]) -> Iterator[str]:
    """A name as it was given, then, with a notice, the one that Gymnasium has put in its place."""
    yield environment
    newest, notice = current_id(environment)
    if notice is not None:
        notices.append(notice)
        yield newest


def _section_of_path(path: Path, algo: str | None, library: Library) -> Section:
    """A file given by its path: a whole config, or an environment file with one variant."""
    file = library.open(path)
    variant = file.variant_for(algo) if algo else file.variants[0] if len(file.variants) == 1 else None
    if variant is None:
        raise ConfigError(
            f"{path}: has the variants {', '.join(file.variants) or '(none)'}; choose one with --algo or a config dir."
        )
    return Section(library.section(file, variant), variant, path)


def _section_with_algorithm(name: str, algo: str, library: Library, algorithms: Sequence[str]) -> Section:
    """`Acrobot-v1 --algo ppo`: the variant of that name, else the file's base, else nothing but the id."""
    if algo not in algorithms:
        raise ConfigError(f"Unknown algorithm {algo!r}. {hint(algo, algorithms)}Known: {', '.join(algorithms)}.")
    for candidate in _current(name, library.notices):
        section = library.find(candidate, algo)
        if section is not None:
            return section
        for file in library.matching(candidate):
            return Section(library.start(file).lay({"algo_id": algo}), algo, file.path)
    check_known(current_id(name)[0], _environment_names(library))
    return Section(Located({"env_id": name, "algo_id": algo, "project_id": name}), algo, None)


def _environment_names(library: Library) -> list[str]:
    return sorted({name for file in library.files() for name in file.names})


def _variants(environment: str, library: Library) -> list[str]:
    return list(dict.fromkeys(variant for file in library.matching(environment) for variant in file.variants))


def _incomplete(name: str, library: Library) -> ConfigError:
    """The error for an experiment without a variant."""
    names = _environment_names(library)
    near = {match: _variants(match, library) for match in names if name.lower() in match.lower()}
    matches = {match: variants for match, variants in near.items() if variants}
    example = next((f"{match}:{variants[0]}" for match, variants in matches.items()), DEFAULT_EXPERIMENT)
    lines = [f"{name!r} names no variant: write env:variant, e.g. {example}, or add --algo."]
    for match, variants in list(matches.items())[:8]:
        lines.append(f"  {match}: {', '.join(variants)}")
    if not matches:
        lines.append(did_you_mean(name, names) or "`gymlab list` shows all experiments.")
    return ConfigError("\n".join(lines))


def _unknown(environment: str, variant: str, library: Library, algorithms: Sequence[str]) -> ConfigError:
    """The error for a variant or an environment that no file has."""
    variants = _variants(environment, library)
    if variants:
        text = f"{environment} has no variant {variant!r}. {hint(variant, variants)}It has: {', '.join(variants)}."
        if algorithm_name(variant) in algorithms:
            text += f" `gymlab train {environment} --algo {algorithm_name(variant)}` starts from its base."
        return ConfigError(text)
    names = _environment_names(library)
    advice = did_you_mean(environment, names) or "`gymlab list` shows all experiments."
    if algorithm_name(variant) in algorithms:
        advice += f" For a Gymnasium id without a file: `gymlab train {environment} --algo {algorithm_name(variant)}`."
    return ConfigError(f"No experiment file for the environment {environment!r}. {advice}")


def _name_algorithm(tree: Located, section: Section, algorithms: Sequence[str]) -> None:
    """The algorithm: as written, else the section's name when that is one."""
    name = tree.get("algo_id") or section.variant
    if algorithm_name(str(name)) not in algorithms:
        if tree.get("algo_id"):
            raise ConfigError(
                f"{located(tree, 'algo_id', section.place)}: unknown algorithm {name!r}. "
                f"{hint(str(name), algorithms)}Known: {', '.join(algorithms)}."
            )
        raise ConfigError(
            f"{section.place}: has no algo_id, and its name is no algorithm. Known: {', '.join(algorithms)}."
        )
    tree["algo_id"] = algorithm_name(str(name))
    tree["variant"] = section.variant


def _name_environment(
    tree: Located,
    section: Section,
    named_by_user: str,
    library: Library,
    notices: list[str],
    spec_on_top: Mapping[str, Any],
) -> Located | None:
    """Retired ids, the project's name, and a spec from the environment's file when the variant has none; the base that has it."""
    if not isinstance(tree.get("env_id"), str):
        raise ConfigError(
            f"{section.place}: has no env_id. Add `env_id: CartPole-v1` (or the like) at the root of the file."
        )
    check_module(tree["env_id"], named_by_user, section.place)
    tree["env_id"], notice = current_id(tree["env_id"])
    if notice:
        notices.append(notice)
    if not tree.get("project_id"):
        tree["project_id"] = section.path.stem if section.path else tree["env_id"]
    base = None
    if not tree.get("spec"):
        for file in library.matching(tree["env_id"]):
            if file.base.get("spec"):
                tree.put("spec", deepcopy(file.base["spec"]), file.base.where.get("spec"))
                library.take(file)
                base = file.base
                break
    for name, value in spec_on_top.items():
        set_dotted(tree, f"spec.{name}", value, COMMAND_LINE)
    return base


def _lay_on_top(
    tree: Located,
    notices: list[str],
    sweep: Mapping[str, Any],
    debugger: bool,
    overrides: Sequence[str],
    env_kwargs: Sequence[str],
) -> Located:
    """Sweep, debugger, overrides: in this order."""
    for key, value in sweep.items():
        tree = _set(tree, key, value, Where(SWEEP, 0), notices)
    if debugger:
        tree = merge(tree, Located({"n_envs": 1, "vectorization_mode": "sync"}))
        notices.append("A debugger is attached: one synchronous environment, and a batch that fits it.")
    refuse_two_spellings(
        [_plain_key(text) for text in overrides if not text.startswith("~") and not text.endswith("=null")],
        COMMAND_LINE,
    )
    for text in overrides:
        tree = _override(tree, text, notices)
    for text in env_kwargs:
        key, value = split_override(text, "--env-kwargs")
        tree = _set(tree, f"env_kwargs.{key}", parse_value(value), Where(COMMAND_LINE, 0), notices)
    return tree


def split_override(text: str, place: str = COMMAND_LINE) -> tuple[str, str]:
    """`key=value` in two; Hydra's `+key` and `++key` mean the same here."""
    key, equals, value = text.partition("=")
    key = key.strip().lstrip("+").strip()
    if not equals or not key:
        raise ConfigError(f"{place}: {text!r} is no key=value.")
    return key, value


def _override(tree: Located, text: str, notices: list[str]) -> Located:
    if text.startswith("~"):
        key, equals, value = text[1:].partition("=")
        without, present = _without(tree, key.strip())
        if equals and present != parse_value(value):
            raise ConfigError(f"{COMMAND_LINE}: {text!r}: `{key}` is {present!r}.")
        return without
    key, value = split_override(text)
    return _set(tree, key, parse_value(value), Where(COMMAND_LINE, 0), notices)


def _without(tree: Located, key: str) -> tuple[Located, Any]:
    """A tree without what stands at a dotted key, which must be there; and what that is."""
    first, *rest = key.removeprefix("experiment.").split(".")
    names = [canonical_name(first), *rest]
    result = Located(tree)
    node: dict[str, Any] = result
    for index, name in enumerate(names):
        if name not in node:
            known = [".".join([*names[:index], other]) for other in node]
            raise ConfigError(
                f"{COMMAND_LINE}: '~{key}' takes a key away, and the experiment sets no `{key}`. "
                f"{hint('.'.join(names[: index + 1]), known)}`--cfg job` shows what there is."
            )
        if index < len(names) - 1:
            node[name] = dict(node[name]) if isinstance(node[name], Mapping) else {}
            node = node[name]
    return result, node.pop(names[-1])


def _typed(overrides: Sequence[str], sweep: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Dotted keys of a command line and of a sweep, with their values, by the names of fields."""
    pairs = [(_plain_key(text), parse_value(split_override(text)[1])) for text in overrides if not text.startswith("~")]
    for key, value in [*sweep.items(), *pairs]:
        first, dot, rest = key.partition(".")
        yield canonical_name(first) + dot + rest, value


_GROUP_NAMES = {"workflow": "algo_id", "environment": "env_id", "env": "env_id"}


def _set(tree: Located, key: str, value: Any, where: Where, notices: list[str]) -> Located:
    """A tree with one key set, by any of its names; `experiment.seed` is `seed`, `environment.num_envs` is `n_envs`."""
    key = _plain_key(key)
    group, dot, below = key.partition(".")
    if group in _GROUP_NAMES:
        below = below.removeprefix("train").removeprefix(".")
        if isinstance(value, Mapping) and below == "":
            for name, inner in value.items():
                tree = _set(tree, f"{group}.{name}", inner, where, notices)
            return tree
        if dot and isinstance(tree.get(group), Mapping):
            # References to the group are to see it as well.
            set_dotted(tree, key, value, f"{where}, {key!r}")
        key = _GROUP_NAMES[group] if below in ("", "id", "name") else below
    if "." in key:
        set_dotted(tree, key, value, f"{where}, {key!r}")
        tree.where[canonical_name(key.partition(".")[0])] = where
        return tree
    layer = Located()
    layer.put(key, value, where)
    return merge(tree, rename(layer, str(where), notices))


def _plain_key(text: str) -> str:
    """The key of an override as a field's name where it is one: `experiment.seed` is `seed`."""
    key = text.partition("=")[0].strip().lstrip("+").strip().removeprefix("experiment.")
    return "max_env_steps" if key == "training.total_timesteps" else key


def _check_fields(
    tree: Located, schema: type[Config], section: Section, library: Library, notices: list[str], known: Algorithms
) -> None:
    """Unknown keys are errors; a file's fields of another algorithm, or of an earlier release, are left out with a notice."""
    place, algo = section.place, tree.get("algo_id")
    file = library.open(section.path) if section.path is not None else None
    for key in [key for key in tree if key not in schema.model_fields]:
        where, typed = located(tree, key, place), tree.where.get(key) == (COMMAND_LINE, 0)
        at_root = file is not None and tree.where.get(key) in file.base.where.values()
        if key in schema.retired:
            told = f"{where}: `{key}` no longer means anything for {algo}: {schema.retired[key]}."
            if typed:
                raise ConfigError(f"{told} Leave it out.")
            notices.append(told)
        elif key not in known.fields:
            near = near_field(key, schema.model_fields) or (near_field(key, sorted(known.fields)) if at_root else "")
            raise ConfigError(f"{where}: unknown key `{key}`. {near}{_of_a_plugin(file, known)}".rstrip())
        else:
            owners = known.owners(key)
            if typed:
                raise ConfigError(
                    f"{where}: `{key}` is a field of {', '.join(owners)}; {algo} has none. See `gymlab describe`."
                )
            # At the root of a file stands what its other variants use.
            if not (at_root and file is not None and file.algorithms_besides(section.variant) & set(owners)):
                notices.append(f"{where}: `{key}` is a field of {', '.join(owners)}; {algo} does not use it.")
        del tree[key]


def _of_a_plugin(file: EnvironmentFile | None, known: Algorithms) -> str:
    """What to do about a key that may be a field of an algorithm which is not loaded."""
    missing = sorted(file.algorithms_besides("") - set(known.names)) if file is not None else []
    if not missing:
        return ""
    return f" If it is a field of {', '.join(missing)}, name the module that registers it: --plugin MODULE."
