"""The contract between the engine and an algorithm.

A workflow is pure science: it knows no paths, loggers or checkpoint files. The orchestrator knows no algorithm: it calls the hooks that a
phase names, routes the data, counts, logs and saves what `get_state` and the modules hold.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from gymlab.config.names import Algorithms
from gymlab.config.reads import Reads
from gymlab.config.schema import Config
from gymlab.config.targets import COMPONENTS
from gymlab.errors import ConfigError, Unregistered, did_you_mean
from gymlab.registry import Registry

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from gymnasium import Space
    from torch import Tensor, nn

    from gymlab.engine.hyperparameters import Hyperparameters
    from gymlab.engine.seeding import SeedTree
    from gymlab.envs.step import Episode

WORKFLOWS: Registry[type[Workflow]] = Registry("algorithm")


def register_workflow(name: str) -> Callable[[type[Workflow]], type[Workflow]]:
    """Class decorator: make an algorithm known under `name`, the `algo_id` of experiment files."""
    return WORKFLOWS.register(name)


def workflow_names() -> list[str]:
    """Algorithms that can be named: files in `gymlab/workflows` and what plugins registered."""
    package = importlib.import_module("gymlab.workflows")
    shipped = {module.name for module in pkgutil.iter_modules(package.__path__)}
    return sorted(shipped | set(WORKFLOWS))


def find_workflow(name: str) -> type[Workflow]:
    """The workflow class registered as `name`; a shipped one is imported when first asked for."""
    if name not in WORKFLOWS:
        known = workflow_names()
        if name not in known:
            raise Unregistered(f"Unknown algorithm {name!r}. {did_you_mean(name, known)} Known: {', '.join(known)}.")
        importlib.import_module(f"gymlab.workflows.{name}")
    return WORKFLOWS.get(name)


def known_algorithms() -> Algorithms:
    """All of them, for who reads experiment files: none is imported before its fields are asked for."""
    return Algorithms(workflow_names(), lambda name: find_workflow(name).Config)


@dataclass(slots=True)
class Counters:
    """How far a run is. Never mixed: environment transitions, frames, vector steps, gradient steps, epochs."""

    env_steps: int = 0
    frames: int = 0
    vec_steps: int = 0
    updates: int = 0
    episodes: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class PhaseView:
    """What a hook is told about the phase it runs in."""

    name: str
    type: str
    progress: float
    """0..1 of the phase (of the run, for a phase without a duration)."""
    steps_done: int
    updates_done: int
    cycles_done: int
    remaining_env_steps: int | None
    """Environment steps left in the phase or the budget, whichever is less; None without a limit. `collect` takes no more."""
    options: Mapping[str, Any] = field(default_factory=dict)

    def steps(self, wanted: int, num_envs: int) -> int:
        """How many of the steps wanted in each environment the phase has left; at least one."""
        if self.remaining_env_steps is None:
            return wanted
        return max(1, min(wanted, self.remaining_env_steps // num_envs))


@dataclass(frozen=True, slots=True)
class CollectResult:
    """What `collect` gathered."""

    env_steps: int
    """Valid transitions over all environments."""
    vec_steps: int
    trajectory: Any = None
    """Goes to the phase's buffer; None routes nothing."""
    episodes: tuple[Episode, ...] = ()
    """Episodes that ended meanwhile; the engine keeps the statistics `train/roll/...`."""
    metrics: Mapping[str, float | Tensor] = field(default_factory=dict)
    interrupted: bool = False
    """The run was asked to stop and what was gathered so far is part of the workflow's state: the next call goes on with it."""
    begins_anew: bool = False
    """With `interrupted`: nothing of it was kept, the next call begins it anew."""


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What an update did. `updates` 0 means skipped (buffer not ready): it counts as nothing."""

    updates: int
    metrics: Mapping[str, float | Tensor] = field(default_factory=dict)
    """Scalars, or 0-d tensors that the recorder reads once an epoch."""
    write_back: Any = None
    """Priorities or latents for the buffer's `write_back`."""


@dataclass(frozen=True)
class WorkflowContext:
    """Everything a workflow is given. `train_environment` is None when an agent is only loaded to act."""

    config: Any
    """The workflow's own Config class, frozen."""
    hyperparameters: Hyperparameters
    """Current values of every `Scalar` field: read these, not the config, in `collect` and updates."""
    observation_space: Space
    action_space: Space
    device: torch.device
    fabric: Any
    seeds: SeedTree
    """Purpose-named streams for the workflow's own sampling."""
    counters: Counters
    raw_observation_space: Space | None = None
    """The observation space before dicts and tuples were flattened; None where it is the same."""
    train_environment: Any = None
    eval_environment: Any = None
    components: SimpleNamespace = field(default_factory=SimpleNamespace)
    controller_manager: Any = None
    buffers: Mapping[str, Any] = field(default_factory=dict)
    optimizers: Mapping[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = field(default_factory=dict)
    """Optimizer factories of a composed experiment, by name."""
    stop_requested: Callable[[], bool] = lambda: False
    """Whether the run was asked to stop: a `collect` that takes long may return early, with `interrupted`."""

    def make_buffer(self, name: str, default: Callable[..., Any], *given: Any, **options: Any) -> Any:
        """A buffer of what only the workflow knows; the kind and the options that an experiment sets under `buffers` win."""
        named = self.buffers.get(name, partial(default))
        options |= named.keywords
        try:
            inspect.signature(named.func).bind(*given, **options)
        except TypeError as error:
            kind = next((known for known in COMPONENTS if COMPONENTS.get(known) is default), default.__name__)
            raise ConfigError(
                f"buffers.{name}: {self.config.algo_id} keeps there what a `_target_: {kind}` is made for, and not a {named.func.__name__} ({error})."
            ) from error
        return named.func(*given, **options)


@dataclass(frozen=True, slots=True)
class Recording:
    """What an agent saw and did, in the order in which it happened; episodes follow one another.

    observations[t] --actions[t]--> observations[t + 1], unless is_first[t + 1]
    """

    observations: np.ndarray
    """[T, ...] as the environment gave them, after all wrappers."""
    actions: np.ndarray
    """[T, ...] as the environment took them."""
    is_first: np.ndarray
    """[T] bool; the observation is an episode's first."""

    def around(self, start: int, horizon: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Observations and actions from the first of the episode to `horizon` steps after `start`, and how many are not after it."""
        first = start - int(np.argmax(self.is_first[start::-1]))
        rows = slice(first, start + horizon + 1)
        return self.observations[rows], self.actions[rows], start - first + 1

    def last_episode(self) -> tuple[np.ndarray, np.ndarray]:
        """Observations and actions of the last episode, or of as much of it as there is."""
        first = int(np.flatnonzero(self.is_first)[-1]) if self.is_first.any() else 0
        return self.observations[first:], self.actions[first:]


@dataclass(frozen=True, slots=True)
class Dream:
    """A world model beside the world: row k belongs to the observation k + 1 steps after the last one that the dream has seen.

    All of them are in the units of the recorded observations (images: 0..255), of any float or integer type.
    """

    truth: np.ndarray
    """[H, ...] what was observed."""
    reconstruction: np.ndarray
    """[H, ...] what the model makes of each observation when it has seen it."""
    dream: np.ndarray
    """[H, ...] what the model expects from the actions alone (open loop)."""
    others: Mapping[str, np.ndarray] = field(default_factory=dict)
    """[H, ...] further dreams from the same start by what they are called, such as those of other temperatures."""

    @property
    def reconstruction_error(self) -> np.ndarray:
        """[H] root of the mean squared difference from the truth."""
        return _root_mean_square(self.reconstruction, self.truth)

    @property
    def dream_error(self) -> np.ndarray:
        """[H] root of the mean squared difference from the truth."""
        return _root_mean_square(self.dream, self.truth)


def _root_mean_square(guess: np.ndarray, truth: np.ndarray) -> np.ndarray:
    difference = guess.astype(np.float64) - truth
    errors: np.ndarray = np.sqrt(np.square(difference).reshape(len(truth), -1).mean(axis=1))
    return errors


@dataclass(frozen=True, slots=True)
class DreamStep:
    """What a world model expects of one action, for a batch of dreams."""

    observation: np.ndarray
    """[B, ...] as the environment could have given it: in its units, shape and type (images: bytes), within its space."""
    reward: np.ndarray
    """[B] in the environment's own unit."""
    ended: np.ndarray
    """[B] bool; the model takes the episode to be over."""


@runtime_checkable
class WorldModel(Protocol):
    """What a workflow that has learned a model of its world offers beside `act`.

    The inspector's World model tab shows `imagine`. People and agents play inside the model through the other two
    (`envs/world_model_env.py`). A state of a dream never changes, a step gives a new one: going back and branching are free.
    """

    def imagine(self, recording: Recording, start: int, horizon: int) -> Dream:
        """Dream the `horizon` observations after `start`, given the recorded actions.

        The dream may use observations up to and including `start`, from the beginning of its episode on, and of those after it only the
        actions: actions[start] leads to its first row. The caller sees to it that no episode ends before start + horizon.
        """

    def dream_start(self, recording: Recording) -> Any:
        """The state of one dream (B = 1) that has seen the recording's last episode up to its last observation.

        What was done there, the last row's action, is not used: the first `dream_step` says what is.
        """

    def dream_step(
        self, state: Any, action: np.ndarray, generator: np.random.Generator | None = None
    ) -> tuple[Any, DreamStep]:
        """The state after actions [B, ...], as the environment takes them, and what is expected there; drawn, or without a generator the likeliest."""


@dataclass(frozen=True, slots=True)
class Plans:
    """What a planning agent considered at one observation, the best first."""

    actions: np.ndarray
    """[N, H, ...] sequences of actions, as the environment takes them."""
    rewards: np.ndarray
    """[N, H] what the model expects on the way."""
    values: np.ndarray
    """[N] of each whole sequence, with what lies behind it."""
    weights: np.ndarray
    """[N] probability that its first action is taken; they add up to 1."""
    drift: np.ndarray
    """[K] how far the model's latent is from that of what was observed, after 1 to K steps of the recorded actions, as a share of how far
    observations lie apart on average."""


@runtime_checkable
class PlanningAgent(Protocol):
    """What a workflow that plans in a model offers beside `act`; the inspector's World model tab shows it."""

    def plans(self, recording: Recording, start: int, horizon: int) -> Plans:
        """Plan anew at the observation `start`, and follow the recorded actions for up to `horizon` steps in the model."""


class Workflow(ABC):
    """One algorithm. Methods in call order; hooks a workflow does not have are simply absent from its phases."""

    Config: ClassVar[type[Config]] = Config
    phases: ClassVar[tuple[dict[str, Any], ...]] = ({"name": "train", "type": "online"},)
    """Curriculum of an experiment that names none."""
    reads: ClassVar[Reads] = Reads()
    """What it reads in the open parts of a config (components, optimizers, phases and the like), and what it logs: anything else is refused by name."""
    one_process: ClassVar[bool] = False
    """Whether it trains in one process only."""
    mixed_precision: ClassVar[bool] = False
    """Whether its updates honour `precision: bf16-mixed`: networks under the fabric's autocast, losses and distributions in float32."""
    stepless_hooks: ClassVar[tuple[str, ...]] = ()
    """Hooks named collect... that step no environment; a budget that is spent does not hold them back."""

    def __init__(self, context: WorkflowContext) -> None:
        self.context = context
        self.config = context.config
        self.hyperparameters = context.hyperparameters
        self.modules: dict[str, nn.Module] = {}
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        self.generators: dict[str, np.random.Generator] = {}
        """Random streams by name. `act` draws from the one called `act` and from no other, so that an episode can be repeated."""

    def random_states(self, without: Collection[str] = ()) -> dict[str, Any]:
        """Where the random streams are, for `get_state`; but for those that somebody else saves."""
        return {name: g.bit_generator.state for name, g in self.generators.items() if name not in without}

    def set_random_states(self, states: Mapping[str, Any]) -> None:
        """Take back what `random_states` gave."""
        for name, state in states.items():
            self.generators[name].bit_generator.state = state

    def seed_acting(self, seeds: SeedTree) -> None:
        """Let `act` draw from the beginning of a stream: the same one, the same actions."""
        generator = self.generators.get("act")
        if generator is not None:
            generator.bit_generator.state = seeds.child("act").generator().bit_generator.state

    @abstractmethod
    def initialize(self) -> None:
        """Build `modules` (and, with a train environment, `optimizers` and buffers) from the spaces in the context."""

    def initial_state(self, num_envs: int) -> Any:
        """Recurrent state for `act` at the start of episodes; None for a memoryless agent."""
        return None

    def reset_state(self, state: Any, is_first: np.ndarray) -> Any:
        """Recurrent state with the rows of environments that begin an episode cleared."""
        return state

    @abstractmethod
    def act(
        self,
        observation: np.ndarray,
        state: Any = None,
        *,
        deterministic: bool = False,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Any, dict[str, np.ndarray]]:
        """Actions for a batch of raw observations; extras may hold `probabilities` (or `mean`, `std`), `value`, `log_prob`, `latent`."""

    def default_buffers(self) -> dict[str, Any]:
        """Buffers that the phases name and the config does not define, or defines with `_partial_: true`.

        Of the latter `context.buffers` holds a function that takes what only the workflow knows, such as the fields of its records.
        """
        return {}

    def get_state(self) -> dict[str, Any]:
        """State beyond modules and optimizers that resume needs: nested dicts and lists of numbers, strings, arrays and tensors."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Take back what `get_state` gave."""

    def describe(self) -> dict[str, Any]:
        """Derived numbers to print before training: batch, updates per step, memory of buffers."""
        return {}

    def pictures(self) -> dict[str, Callable[[Path], Any]]:
        """What was learned, to look at, by title: each function draws one picture to the path it is given."""
        return {}

    def films(self) -> dict[str, Iterator[np.ndarray]]:
        """The same as moving pictures, by name: frames [H, W, 3] in bytes."""
        return {}
