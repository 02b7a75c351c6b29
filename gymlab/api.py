"""The Python API: what the command line does, as functions."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gymlab.config import Loaded
from gymlab.config import load as load_config
from gymlab.config.load import split_override
from gymlab.config.python_values import as_json, plain
from gymlab.config.schema import Config
from gymlab.config.yaml_reader import parse_value
from gymlab.engine.agent import Agent, load
from gymlab.engine.changes import BY_COMMAND, Change, Tunable, ask, field_of, tunables
from gymlab.engine.logged import check_metrics
from gymlab.engine.origin import EnvKwargs, as_texts, dotted_name, named_again, refuse_dataset
from gymlab.engine.plugins import load_plugins
from gymlab.engine.repeat import Repetition
from gymlab.engine.repeat import repeat as repeat_run
from gymlab.engine.run import Run, find_run, is_run_file, runs_directory
from gymlab.engine.train import resume as resume_run
from gymlab.engine.train import stored_config
from gymlab.engine.train import train as train_config
from gymlab.engine.workflow import find_workflow, workflow_names
from gymlab.errors import ConfigError

__all__ = [
    "Agent",
    "Repetition",
    "Run",
    "get_hyperparameters",
    "load",
    "repeat",
    "resolve",
    "resume",
    "set_hyperparameters",
    "train",
]


def resolve(
    experiment: str | None = None,
    *,
    algo: str | None = None,
    overrides: Sequence[str] = (),
    config_dir: str | Path | None = None,
    env_kwargs: EnvKwargs = (),
    plugins: Sequence[str] = (),
    **fields: Any,
) -> Loaded:
    """The frozen config of an experiment, with notices about what was translated; fields and overrides lie on top of its YAML.

    A run's config.json is taken for somebody else's: files that it names are refused unless they are named here again.
    """
    load_plugins(plugins)
    given = [*overrides, *(f"{name}={as_json(name, value)}" for name, value in fields.items())]
    of_run = experiment is not None and is_run_file(Path(experiment))
    loaded = load_config(
        experiment,
        given,
        schema_of=lambda name: find_workflow(name).Config,
        algorithms=workflow_names(),
        reads_of=None if of_run else lambda name: find_workflow(name).reads,
        algo=algo,
        config_dir=Path(config_dir) if config_dir else None,
        env_kwargs=[] if of_run else as_texts(env_kwargs),
        debugger=_debugger_attached(),
    )
    if not of_run:
        check_metrics(loaded.config, find_workflow(loaded.config.algo_id))
        return loaded
    named = [dotted_name(override) for override in given]
    refuse_dataset(loaded.config, named, str(experiment))
    return replace(loaded, config=named_again(loaded.config, env_kwargs, named=named, place=str(experiment)))


def train(
    experiment: str | None = None,
    *,
    algo: str | None = None,
    runs_dir: str | Path | None = None,
    run_id: str | None = None,
    overrides: Sequence[str] = (),
    config_dir: str | Path | None = None,
    env_kwargs: EnvKwargs = (),
    plugins: Sequence[str] = (),
    command: str | None = None,
    **fields: Any,
) -> Run:
    """Train an experiment and return its run: `train("CartPole-v1:ppo", n_envs=16)`."""
    loaded = resolve(
        experiment,
        algo=algo,
        overrides=overrides,
        config_dir=config_dir,
        env_kwargs=env_kwargs,
        plugins=plugins,
        **fields,
    )
    return train_config(
        loaded.config,
        runs_dir=runs_directory(runs_dir),
        run_id=run_id,
        command=command,
        notices=[*loaded.notices, *([] if command else _processes_told(loaded.config))],
        plugins=plugins,
    )


def _processes_told(config: Config) -> list[str]:
    """What a script has to know that trains in several processes: each of them begins at its first line."""
    if config.devices in (1, "1", "auto"):
        return []
    return [
        f"devices={config.devices} starts this script once more for each further process. What only one may do stands under: "
        'if os.environ.get("LOCAL_RANK", "0") == "0":'
    ]


def resume(
    reference: str = "@last",
    *,
    epoch: str | int | None = None,
    runs_dir: str | Path | None = None,
    overrides: Sequence[str] = (),
    env_kwargs: EnvKwargs = (),
    plugins: Sequence[str] = (),
    **fields: Any,
) -> Run:
    """Go on with a run, bit for bit from its last checkpoint (or `epoch`): `resume("@last", max_env_steps=200_000)`.

    A hyperparameter that is given changes at the start of the first epoch. `env_kwargs` name the files again that the run's config names.
    """
    load_plugins(plugins)
    run, which = find_run(reference, runs_directory(runs_dir))
    before = stored_config(run)
    unwritten = type(before).unwritten(run.config_data)
    settings = [f"{name}={as_json(name, value)}" for name, value in unwritten.items()]
    loaded = resolve(str(run.config_path), overrides=[*settings, *overrides], env_kwargs=env_kwargs, **fields)
    named = _fields_named(overrides, fields)
    if loaded.config.n_envs != before.n_envs and "n_envs" not in named:
        raise ConfigError(
            f"max_env_steps: {loaded.config.max_env_steps:,} env steps are fewer than one step of the run's {before.n_envs:,} environments."
        )
    notices = [
        *loaded.notices,
        *(f"{name} is {value}, as in the release that the run was begun with." for name, value in unwritten.items()),
    ]
    chosen = which if epoch is None else str(epoch)
    return resume_run(run, chosen, loaded.config, tuned=named, notices=notices)


def repeat(
    run: str | Run = "@last",
    *,
    runs_dir: str | Path | None = None,
    run_id: str | None = None,
    env_kwargs: EnvKwargs = (),
    plugins: Sequence[str] = (),
    quiet: bool = False,
    command: str | None = None,
) -> Repetition:
    """Train a run anew from its own settings and changes, and compare: `repeat("@last").equal`.

    The new run lies beside the old one as `ID-repeat`. What the run names outside of its directory has to be named again: `env_kwargs`
    with files, and `plugins`; an environment that a script registers is registered before the call.
    """
    load_plugins(plugins)
    directory = runs_directory(runs_dir)
    found = run if isinstance(run, Run) else find_run(run, directory)[0]
    return repeat_run(
        found,
        runs_dir=directory,
        run_id=run_id,
        command=command,
        env_kwargs=env_kwargs,
        plugins=plugins,
        quiet=quiet,
    )


def set_hyperparameters(
    reference: str = "@last",
    *,
    runs_dir: str | Path | None = None,
    overrides: Sequence[str] = (),
    plugins: Sequence[str] = (),
    **values: Any,
) -> list[Change]:
    """Change hyperparameters of a run that trains: `set_hyperparameters("@last", policy_lr=1e-4, ent_coef="lin_0.01")`.

    The run takes them at the start of its next epoch; one that does not train, when it is resumed. Returns what will change; all values are
    judged first, and one that the run could not take is an error.
    """
    load_plugins(plugins)
    run, _ = find_run(reference, runs_directory(runs_dir))
    given = [(key, parse_value(text)) for key, text in map(split_override, overrides)]
    return ask(
        run.dir,
        stored_config(run),
        [*given, *((name, plain(name, value)) for name, value in values.items())],
        BY_COMMAND,
    )


def get_hyperparameters(
    reference: str = "@last", *, runs_dir: str | Path | None = None, plugins: Sequence[str] = ()
) -> list[Tunable]:
    """What `set_hyperparameters` can change, with the values of now and those that a run has been asked for."""
    load_plugins(plugins)
    run, _ = find_run(reference, runs_directory(runs_dir))
    return tunables(run.dir, stored_config(run))


def _fields_named(overrides: Sequence[str], fields: Iterable[str]) -> set[str]:
    """The fields that overrides set, by whatever name."""
    keys = [override.lstrip("+~").partition("=")[0].strip() for override in overrides]
    return {field_of(key) for key in [*keys, *fields]}


def _debugger_attached() -> bool:
    """Whether somebody is stepping through the code: then one synchronous environment is what they want."""
    return "debugpy" in sys.modules or (sys.gettrace() is not None and "coverage" not in sys.modules)
