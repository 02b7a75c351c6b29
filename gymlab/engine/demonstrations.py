"""Episodes of an agent as a Minari dataset: the environment's own observations and rewards, and the agent's actions.

A row is one decision of the agent. Where it holds an action for several steps of the environment (`frame_skip`), their
rewards are summed and the last observation is kept; the metadata says so.
"""

from __future__ import annotations

import copy
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from gymlab.engine.evaluation import Limits
from gymlab.engine.playing import UNFINISHED, AgentPolicy, Game
from gymlab.engine.trace import plain_info
from gymlab.envs.families import require
from gymlab.errors import GymlabError
from gymlab.metrics.redact import redact

if TYPE_CHECKING:
    from gymlab.engine.agent import Agent

ROOT = "MINARI_DATASETS_PATH"
"""Where Minari looks for datasets."""
DATASET_ID = re.compile(r"(?:[-\w]+/)*[-\w]+-v\d+", re.ASCII)
CHUNK_BYTES = 2**20
"""Pictures that are compressed together."""
VIEWS = ("own", "agent")
"""Observations that can be kept: the environment's own, or what wrappers made of them for the agent."""


@dataclass(frozen=True)
class Recording:
    """A dataset that was written."""

    dataset_id: str
    root: Path
    """The folder of datasets: what `MINARI_DATASETS_PATH` has to be to load it."""
    episodes: int
    steps: int
    returns: list[float]

    @property
    def path(self) -> Path:
        """The dataset's own folder."""
        return self.root / self.dataset_id


def default_dataset_id(agent: Agent) -> str:
    """`cartpole-v1/ppo-v0`."""
    name = re.sub(r"[^a-z0-9_-]+", "-", agent.config.env_id.lower()).strip("-")
    return f"{name}/{agent.config.algo_id}-v0"


def check_target(dataset_id: str, root: Path, *, overwrite: bool) -> None:
    """An id that Minari takes, and a place that is free."""
    require("minari", "A dataset", "offline")
    require("h5py", "A dataset", "offline")
    if not DATASET_ID.fullmatch(dataset_id):
        raise GymlabError(
            f"--dataset-id {dataset_id!r}: expected letters, digits, '-' and '_' with a version at the end, and "
            "namespaces before it if you like, such as cartpole/expert-v0."
        )
    path = root / dataset_id
    if not path.exists():
        return
    if not (path / "data" / "metadata.json").is_file():
        raise GymlabError(f"{path} exists and is no Minari dataset. Choose another --dataset-id or --out.")
    if not overwrite:
        raise GymlabError(
            f"The dataset {dataset_id} exists already in {root}. --overwrite replaces it; or choose another --dataset-id, "
            "for a newer version the next number at its end."
        )


def record(
    agent: Agent,
    root: Path,
    dataset_id: str,
    *,
    episodes: int,
    seed: int = 0,
    deterministic: bool = False,
    observations: str = "own",
    overwrite: bool = False,
    step_limit: int | None = None,
    after_episode: Callable[[], None] = lambda: None,
) -> Recording:
    """Play and write; the dataset appears under its name when it is whole. An episode that passes the limit of steps is an error."""
    check_target(dataset_id, root, overwrite=overwrite)
    root.mkdir(parents=True, exist_ok=True)
    temporary = root / f".recording-{os.getpid()}"
    try:
        with Game(agent.config, seed=seed, render=False, agent=agent) as game, _datasets_in(temporary):
            game.policy = AgentPolicy(agent, seed=seed, deterministic=deterministic)
            limits = replace(Limits.of(agent.config, steps=step_limit), seconds=None)
            steps = _write(
                game, dataset_id, episodes, observations == "own", after_episode, agent, seed, deterministic, limits
            )
            returns = [episode.env_return for episode in game.finished]
        _put_in_place(temporary, root, dataset_id)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Recording(dataset_id, root, episodes, steps, returns)


def _write(
    game: Game,
    dataset_id: str,
    episodes: int,
    own: bool,
    after_episode: Callable[[], None],
    agent: Agent,
    seed: int,
    deterministic: bool,
    limits: Limits,
) -> int:
    """Write episode after episode, so that one is in memory at a time; how many steps they have."""
    from minari.data_collector import EpisodeBuffer

    space = game.own.observation_space if own else game.env.observation_space
    dataset, steps = _create(game, dataset_id, space, agent), 0
    for number, episode in enumerate(_episodes(game, episodes, own, space, limits)):
        steps += len(episode["rewards"])
        _make_room(dataset, number, episode["observations"])
        dataset.update_dataset_from_buffer([EpisodeBuffer(id=number, **episode)])
        after_episode()
    returns = [episode.env_return for episode in game.finished]
    config, checkpoint = agent.config, agent.checkpoint
    dataset.storage.update_metadata(
        {
            "seed": seed,
            "deterministic": deterministic,
            "checkpoint": None
            if checkpoint is None
            else f"{checkpoint.path.parents[1].name}/{checkpoint.name.removesuffix('.ckpt')}",
            "mean_return": float(np.mean(returns)),
            "environment": {"id": config.env_id, "env_kwargs": redact(dict(config.env_kwargs))},
            "frame_skip": config.frame_skip,
            "observations": "own" if own else "agent",
        }
    )
    return steps


def _create(game: Game, dataset_id: str, space: gym.Space, agent: Agent) -> Any:
    """A dataset without episodes."""
    import minari

    config = agent.config
    with warnings.catch_warnings():
        # Author, contact and link to the code are the user's to add.
        warnings.simplefilter("ignore", UserWarning)
        return minari.create_dataset_from_buffers(
            dataset_id,
            [],
            env=_spec(game, space),
            observation_space=space,
            action_space=game.env.action_space,
            algorithm_name=config.algo_id,
            description=config.spec.description or f"Episodes of {config.env_id}.",
            data_format="hdf5",
            requirements=[f"gymnasium=={version('gymnasium')}"],
            # JPEG is not what the environment said.
            jpeg_encoding=False,
        )


def _make_room(dataset: Any, number: int, observations: Any) -> None:
    """Places for the pictures of an episode that is about to be written, compressed: Minari by itself would write them plainly.

    It adds to what it finds under an episode's number, and HDF5 gives back exactly what was put in.
    """
    import h5py

    with h5py.File(dataset.storage.data_path / "main_data.hdf5", "a", track_order=True) as file:
        _make_places(file.require_group(f"episode_{number}"), "observations", observations)


def _make_places(group: Any, name: str, values: Any) -> None:
    if isinstance(values, tuple):
        values = {f"_index_{place}": part for place, part in enumerate(values)}
    if isinstance(values, dict):
        for key, part in values.items():
            _make_places(group.require_group(name), key, part)
    elif values.dtype == np.uint8 and values.ndim >= 3:
        shape = values.shape[1:]
        at_once = max(1, CHUNK_BYTES // max(1, values[0].nbytes))
        group.create_dataset(
            name,
            shape=(0, *shape),
            maxshape=(None, *shape),
            dtype=values.dtype,
            chunks=(at_once, *shape),
            compression="gzip",
            compression_opts=1,
        )


def _spec(game: Game, space: gym.Space) -> gym.envs.registration.EnvSpec | None:
    """The registered environment with its time limit, where it gives these observations and takes these actions."""
    base = game.env.unwrapped
    same = base.observation_space == space and base.action_space == game.env.action_space
    if base.spec is None or not same or game.config.frame_skip > 1:
        return None
    if redact(base.spec.kwargs) != base.spec.kwargs:
        return None  # A dataset says how its environment is made: with a secret, which it must not tell.
    spec = copy.deepcopy(base.spec)
    spec.max_episode_steps = game.env.get_max_episode_steps()
    spec.order_enforce, spec.disable_env_checker = True, False
    try:
        spec.to_json()
    except (TypeError, ValueError):
        return None  # Registered by its class, which no file can hold: the metadata has its id.
    return spec


def _episodes(game: Game, episodes: int, own: bool, space: gym.Space, limits: Limits) -> Iterator[dict[str, Any]]:
    """The fields of each episode as Minari names them: one observation and one info more than actions."""
    seen: list[Any] = []
    infos: list[dict[str, Any]] = []
    actions: list[Any] = []
    rewards: list[float] = []
    for _ in game.play(episodes, limits):
        if not game.steps:
            seen, infos, actions, rewards = [], [], [], []
        else:
            actions.append(game.action)
            assert game.reward is not None
            rewards.append(game.reward)
        seen.append(_copy(game.own.observation if own else game.observation))
        infos.append(plain_info(game.info))
        if game.ending == UNFINISHED:
            raise GymlabError(
                f"Episode {game.episode} did not end within {limits.steps:,} steps, and a dataset holds whole ones. "
                "Try --stochastic, raise --step-limit, or give the environment a limit of its own: max_episode_steps."
            )
        if game.ending is not None:
            flags = np.zeros((2, len(rewards)), dtype=bool)
            flags[0 if game.ending == "terminated" else 1, -1] = True
            yield {
                "seed": game.own.seed,
                "observations": _columns(seen, space),
                "actions": np.asarray(actions, dtype=game.env.action_space.dtype),
                "rewards": np.asarray(rewards, dtype=np.float64),
                "terminations": flags[0],
                "truncations": flags[1],
                "infos": _info_columns(infos),
            }


def _copy(observation: Any) -> Any:
    """An observation that the environment can no longer change."""
    if isinstance(observation, dict):
        return {key: _copy(part) for key, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_copy(part) for part in observation)
    return np.array(observation)


def _columns(rows: list[Any], space: gym.Space) -> Any:
    """A list of observations as arrays over time at the leaves of the space."""
    if isinstance(space, gym.spaces.Dict):
        return {key: _columns([row[key] for row in rows], part) for key, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(_columns([row[index] for row in rows], part) for index, part in enumerate(space.spaces))
    return np.asarray(rows, dtype=space.dtype)


def _info_columns(infos: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Numbers and texts of the infos by name; a number that some steps do not tell is NaN there, a text is left out."""
    names = dict.fromkeys(name for info in infos for name in info)
    columns: dict[str, Any] = {}
    for name in names:
        values = [info.get(name) for info in infos]
        if any(isinstance(value, str) for value in values):
            if all(isinstance(value, str) for value in values):
                columns[name] = values
        elif None in values:
            columns[name] = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        else:
            columns[name] = np.asarray(values)
    return columns or None


@contextmanager
def _datasets_in(root: Path) -> Iterator[None]:
    """Minari writes below this folder, and nowhere else, for as long as it is asked to."""
    root.mkdir()
    before = os.environ.get(ROOT)
    os.environ[ROOT] = str(root.resolve())
    try:
        yield
    finally:
        if before is None:
            del os.environ[ROOT]
        else:
            os.environ[ROOT] = before


def _put_in_place(temporary: Path, root: Path, dataset_id: str) -> None:
    final = root / dataset_id
    final.parent.mkdir(parents=True, exist_ok=True)
    # The description of a namespace lies in its folder.
    for found in sorted(temporary.rglob("namespace_metadata.json")):
        place = root / found.relative_to(temporary)
        if not place.exists():
            found.replace(place)
    if final.exists():
        final.rename(temporary / "replaced")
    (temporary / dataset_id).rename(final)
