"""A workflow that acts at random and learns nothing but to remember, in one tensor and in latents, every batch that it was shown."""

from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from gymlab.buffers.sequence import Field, Records, SequenceReplay
from gymlab.config.reads import Reads
from gymlab.config.schema import Config
from gymlab.engine.workflow import CollectResult, PhaseView, UpdateResult, Workflow, register_workflow

LATENTS = {"latent/x": Field((3,), np.float16)}


class ReplayingConfig(Config):
    n_steps: int = 32
    """Steps in each environment of one collect."""
    replay_size: int = 600
    """Records of the replay."""
    replay_on_disk: bool = False
    """Whether it is in files."""


class Memory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(8, dtype=torch.float64))


@register_workflow("replaying")
class Replaying(Workflow):
    Config: ClassVar[type[Config]] = ReplayingConfig
    reads: ClassVar[Reads] = Reads(buffers=("replay",))
    phases: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "name": "prefill",
            "type": "online",
            "hooks": ["collect"],
            "buffer": "replay",
            "duration_steps": 128,
        },
        {
            "name": "train",
            "type": "online",
            "hooks": ["collect", {"name": "update_controller", "ratio": 0.1}],
            "buffer": "replay",
        },
    )

    def initialize(self) -> None:
        self.memory = Memory()
        self.modules = {"memory": self.memory}
        self.generators = {name: self.context.seeds.child(name).generator() for name in ("act", "collect")}
        self.first: np.ndarray | None = None

    def default_buffers(self) -> dict[str, Any]:
        fields = {
            "observation/observation": Field(self.context.observation_space.shape, np.float32),
            "action": Field((2,), np.float32),
            "reward": Field((), np.float32),
            **{name: Field((), np.bool_) for name in ("is_first", "is_last", "is_terminal")},
        }
        make = self.context.buffers.get("replay", SequenceReplay)
        replay = make(
            fields,
            self.context.train_environment.num_envs,
            self.context.seeds.child("replay").generator(),
            capacity=self.config.replay_size,
            batch_size=4,
            length=15,
            latents=LATENTS,
            chunk=32,
            held_out=0.1,
            on_disk=self.config.replay_on_disk,
        )
        return {"replay": replay}

    def act(self, observation, state=None, *, deterministic=False, action_mask=None):
        return self.generators["act"].integers(2, size=len(observation)), state, {}

    def collect(self, phase: PhaseView) -> CollectResult:
        environment = self.context.train_environment
        count = environment.num_envs
        if self.first is None:
            environment.reset()
            self.first, self.reward = np.ones(count, bool), np.zeros(count, np.float32)
        length = min(self.config.n_steps, phase.remaining_env_steps // count)
        trajectory, episodes, nobody = [], [], np.zeros(count, bool)
        for _ in range(length):
            actions = self.generators["collect"].integers(2, size=count)
            trajectory.append(
                self._records(
                    np.arange(count),
                    environment.observation.copy(),
                    np.eye(2, dtype=np.float32)[actions],
                    self.reward,
                    self.first,
                    nobody,
                    nobody,
                )
            )
            step = environment.step(actions)
            rows = np.flatnonzero(step.ended)
            if len(rows):
                none = np.zeros(len(rows), bool)
                trajectory.append(
                    self._records(
                        rows,
                        step.final_observation[rows].copy(),
                        np.zeros((len(rows), 2), np.float32),
                        step.reward[rows],
                        none,
                        ~none,
                        step.terminated[rows],
                    )
                )
            episodes += step.episodes
            self.first, self.reward = step.ended.copy(), np.where(step.ended, 0, step.reward).astype(np.float32)
        return CollectResult(count * length, length, trajectory, tuple(episodes))

    def _records(self, env, observation, action, reward, is_first, is_last, is_terminal) -> Records:
        return Records(
            env,
            {
                "observation/observation": observation,
                "action": action,
                "reward": reward.copy(),
                "is_first": is_first.copy(),
                "is_last": is_last.copy(),
                "is_terminal": is_terminal.copy(),
            },
        )

    def update_controller(self, batch, phase: PhaseView) -> UpdateResult:
        shown = [np.abs(batch.values[name]).astype(np.float64).mean() for name in sorted(batch.values)]
        self.memory.sums.mul_(0.9)[: len(shown)] += torch.tensor(shown)
        latents = batch.values["latent/x"][:, 1:] * np.float16(0.5) + batch.values["reward"][:, 1:, None]
        metrics = {**batch.metrics(), "train/loss/shown": float(sum(shown))}
        return UpdateResult(1, metrics, (batch.ids[:, 1:], {"latent/x": latents}))

    def get_state(self):
        generators = {name: generator.bit_generator.state for name, generator in self.generators.items()}
        own = {} if self.first is None else {"first": self.first, "reward": self.reward}
        return {"generators": generators, **own}

    def set_state(self, state):
        for name, saved in state["generators"].items():
            self.generators[name].bit_generator.state = saved
        if "first" in state:
            self.first, self.reward = state["first"], state["reward"]
