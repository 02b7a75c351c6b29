"""Δ-IRIS (Micheli, Alonso, Fleuret 2024): words for what is new in a frame, a transformer that predicts them, an agent that learns in its dreams.

    collect             the actor acts on real frames; whole episodes are kept
    update_tokenizer    words for x[t] given x[t-1] and a[t-1], and the frame back from them
    update_world_model  the next frame's words, reward and end, from frames, actions and words before
    update_controller   actor and critic, only in dreams:

        real frames  x[0] ... x[5]     warm up the transformer and the LSTM, without gradients
        dream        x[5] -a-> x[6] -a-> ...      words are drawn, the tokenizer draws the frame, the actor looks at it
        R[t] = r[t+1] + gamma (1 - end[t+1]) ((1 - lambda) V[t+1] + lambda R[t+1])      V: the slow copy's
        L = -log pi(a[t]) (R[t] - V[t]) + distance(v[t], R[t]) - eta H[pi]              up to the first end

    record t: frame x[t], action a[t] chosen there, reward and endings on arriving there

Each component learns from segments of episodes, those that it has seen seldom first (buffers/episodes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymlab.buffers.batches import last_records
from gymlab.buffers.episodes import Episodes, SegmentBatch
from gymlab.buffers.sequence_collector import SequenceCollector, record_fields
from gymlab.components.actors import Choices
from gymlab.components.delta_iris_config import COMPONENTS, DeltaIRISConfig
from gymlab.components.delta_tokenizer import DeltaTokenizer
from gymlab.components.dreaming import HORIZONS, HeldOut, ShowsDreams
from gymlab.components.flat import count_parameters
from gymlab.components.frame_actor import FrameActor, LSTMState
from gymlab.components.known_words import KnownWords
from gymlab.components.observation_parts import ObservationParts
from gymlab.components.optimizers import take_step
from gymlab.components.restored import restored_like
from gymlab.components.td_returns import lambda_return
from gymlab.components.token_dreams import TokenDreams
from gymlab.components.token_world_model import TokenDream, TokenWorldModel
from gymlab.config.reads import Reads
from gymlab.config.schema import Config
from gymlab.engine.workflow import (
    CollectResult,
    Dream,
    DreamStep,
    PhaseView,
    Recording,
    UpdateResult,
    Workflow,
    register_workflow,
)
from gymlab.errors import ConfigError, NonFiniteError

FOUND_AT_ONCE = 128
"""Steps whose words are found together: what the encoder makes of them stays small."""
METRICS = (
    "loss/tokenizer/*", "loss/world_model/*", "loss/controller/*", "opt/grads/norm/*", "opt/policy/entropy", "replay/*",
    "world_model/*", "controller/return", "controller/value", "controller/advantage", "controller/reward", "controller/length",
)  # fmt: skip
"""What hooks log."""

Losses = tuple[dict[str, Tensor], dict[str, Tensor]]
"""Losses by name, and metrics."""


class Segment(NamedTuple):
    """Steps of episodes, [B, L, ...]."""

    frames: Tensor
    """Pictures in 0..1."""
    actions: Tensor
    """Numbers of actions."""
    reward: Tensor
    ended: Tensor
    """Whether the episode was over with this frame: terminated or, unless time limits are no ends, cut off."""
    mask: Tensor
    """Whether a step is real."""
    words: Tensor
    """[B, L - 1, K] of the steps to all frames but the first, 0 to and from padding; for the tokenizer, which makes them, [B, 0]."""


@register_workflow("delta_iris")
class DeltaIRIS(ShowsDreams, Workflow):
    """The algorithm, hook by hook."""

    Config: ClassVar[type[Config]] = DeltaIRISConfig
    mixed_precision: ClassVar[bool] = True
    reads: ClassVar[Reads] = Reads(
        buffers=("episodes",),
        phase_options={"actions": ("random", "policy"), "counts": (True, False)},
        metrics=METRICS,
    )
    one_process: ClassVar[bool] = True
    config: DeltaIRISConfig
    hyperparameters: Any

    @property
    def phases(self) -> tuple[dict[str, Any], ...]:  # type: ignore[override]
        """A long first epoch at random, then collecting and learning by turns."""
        return self.config.curriculum()

    def initialize(self) -> None:
        """Networks; with an environment also optimisers, episodes and the collector."""
        context, config = self.context, self.config
        if not isinstance(context.action_space, spaces.Discrete):
            raise ConfigError(f"delta_iris chooses among actions, and {config.env_id} takes {context.action_space}.")
        self.parts = ObservationParts(context.observation_space, context.raw_observation_space)
        self.key, shape = self._picture()
        self.actions = Choices(context.action_space)
        count = int(context.action_space.n)
        self.tokenizer = DeltaTokenizer(config, shape, count)
        self.model = TokenWorldModel(config, shape, count)
        self.actor, self.slow_actor = FrameActor(config, shape, count), FrameActor(config, shape, count)
        self.slow_actor.load_state_dict(self.actor.state_dict())
        self.slow_actor.requires_grad_(False)
        self.modules = {"tokenizer": self.tokenizer, "world_model": self.model, "controller": self.actor}
        self.modules["slow_controller"] = self.slow_actor
        for module in self.modules.values():
            module.to(context.device).eval()
        self.dreams = TokenDreams(self.tokenizer, self.model, self.parts, self.actions, config.burn_in)
        self.known_words = KnownWords(config.tokens)
        self.held_out: HeldOut | None = None
        """What the model made of the epoch's first steps, before anything was learned from them."""
        self.newest: dict[str, np.ndarray] | None = None
        """These steps."""
        self.judged = -1
        names = ("act", "collect", *COMPONENTS)
        self.generators = {name: context.seeds.child("delta_iris", name).generator() for name in names}
        if context.train_environment is not None:
            self._prepare_training()

    def _picture(self) -> tuple[str, tuple[int, ...]]:
        """The one observation there is, and its shape [C, S, S]."""
        (key, shape), *others = self.parts.shapes.items()
        stride = self.config.stages.stride * round(self.config.tokens**0.5)
        if others or len(shape) != 3 or shape[1] != shape[2] or shape[1] % stride:
            seen = ", ".join(f"{name} {size}" for name, size in self.parts.shapes.items())
            raise ConfigError(
                f"delta_iris sees one square picture whose side is a multiple of {stride}, and {self.config.env_id} shows {seen}. "
                "Set obs_type: rgb and resize_obs: [64, 64]."
            )
        places = (shape[1] // self.config.stages.stride) ** 2
        if places * self.config.frame_features != self.config.width:
            raise ConfigError(
                f"width: {self.config.width} is to be {places} places of the encoded frame times frame_features: {self.config.frame_features}."
            )
        return key, shape

    def _prepare_training(self) -> None:
        config, environment = self.config, self.context.train_environment
        decays = {"tokenizer": config.tokenizer_decay, "world_model": config.model_decay, "controller": 0.0}
        self.optimizers = {name: make_optimizer(self.modules[name], decay) for name, decay in decays.items()}
        fields = record_fields(self.parts.shapes, self.actions.size)
        options: dict[str, Any] = {"capacity": config.replay_size, "on_disk": config.replay_on_disk}
        self.episodes = self.context.make_buffer("episodes", Episodes, fields, environment.num_envs, **options)
        sizes = {
            "tokenizer": (config.tokenizer_batch, config.tokenizer_length, True),
            # Of the step after the last only reward, ending and words of its frame are learned.
            "world_model": (config.model_batch, config.blocks + 1, True),
            "controller": (config.actor_batch, config.burn_in + 1, False),
        }
        self.samplers = {
            name: self.episodes.sampler(
                name,
                self.generators[name],
                batch_size=batch * config.accumulate,
                length=length,
                alpha=config.alpha,
                past_end=past_end,
            )
            for name, (batch, length, past_end) in sizes.items()
        }
        self.collector = SequenceCollector(
            environment, self.parts.split, self.actions.to_environment, self.actions.size, {}
        )
        self.memory = self.initial_state(environment.num_envs)

    def default_buffers(self) -> dict[str, Any]:
        """All episodes, and what each component draws from them."""
        return {} if self.context.train_environment is None else {"episodes": self.episodes, **self.samplers}

    # Acting

    def initial_state(self, num_envs: int) -> LSTMState:
        """An empty memory."""
        return self.actor.empty(num_envs)

    def reset_state(self, state: LSTMState, is_first: np.ndarray) -> LSTMState:
        """The memory without what was seen in environments that begin an episode."""
        return state.forget(torch.from_numpy(is_first).to(state.h.device))

    @torch.no_grad()
    def act(
        self,
        observation: np.ndarray,
        state: Any = None,
        *,
        deterministic: bool = False,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Any, dict[str, np.ndarray]]:
        """Actions for a batch of raw observations, with probabilities, value and memory."""
        memory = self.initial_state(len(observation)) if state is None else state
        generator = None if deterministic else self.generators["act"]
        action, logits, memory = self._choose(self.parts.split(observation), memory, generator, action_mask)
        shown = self.actions.shown(logits.cpu())
        value = self.actor.value(memory.h).mul(self.config.reward_unit).cpu().numpy()
        extras = {**shown, "value": value, "latent": memory.h.cpu().numpy()}
        return self.actions.to_environment(action.cpu().numpy()), memory, extras

    @torch.no_grad()
    def _choose(
        self,
        parts: Mapping[str, np.ndarray],
        memory: LSTMState,
        generator: np.random.Generator | None,
        mask: np.ndarray | None,
    ) -> tuple[Tensor, Tensor, LSTMState]:
        """Actions [N, A], the logits that they were drawn by, and the memory after them; the likeliest without a generator."""
        frames = torch.from_numpy(parts[self.key]).to(self.context.device).float().div_(255)
        memory = self.actor.remember(self.actor.see(frames), memory)
        logits = self.actor.actor(memory.h) / self.config.temperature
        chances = self.actions
        if mask is not None:
            chances, logits = chances.masked(logits, mask)
        if generator is None:
            return chances.mode(logits), logits, memory
        noise = chances.noise_from(generator, len(logits)).to(logits.device)
        return chances.sample(logits, noise), logits, memory

    # Collecting

    def collect(self, phase: PhaseView) -> CollectResult:
        """collect_steps in each environment; with `actions: random` in the phase, at random."""
        steps = phase.steps(self.config.collect_steps, self.context.train_environment.num_envs)
        for sampler in self.samplers.values():
            sampler.frozen = phase.options.get("counts") is False
        act = self._act_at_random if phase.options.get("actions") == "random" else self._act_and_remember
        records, episodes, env_steps = self.collector.collect(act, steps)
        metrics: dict[str, Any] = {}
        if self.judged != self.context.counters.epoch:
            # What was just seen has not been learned from yet.
            self.judged = self.context.counters.epoch
            self.newest = last_records(records, self.config.burn_in + 1 + HORIZONS[-1])
            self.held_out = None if self.newest is None else self.dreams.hold_out(self.newest)
            metrics = {} if self.held_out is None else self.held_out.errors()
        return CollectResult(env_steps, steps, records, tuple(episodes), metrics)

    def _act_at_random(
        self, parts: Mapping[str, np.ndarray], is_first: np.ndarray, mask: np.ndarray | None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        generator, chances = self.generators["collect"], self.actions
        if mask is None:
            return chances.random(generator, len(is_first)), {}
        allowed, logits = chances.masked(torch.zeros(len(is_first), chances.size), mask)
        return allowed.sample(logits, allowed.noise_from(generator, len(logits))).numpy(), {}

    def _act_and_remember(
        self, parts: Mapping[str, np.ndarray], is_first: np.ndarray, mask: np.ndarray | None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        generator, memory = self.generators["collect"], self.reset_state(self.memory, is_first)
        action, _, self.memory = self._choose(parts, memory, generator, mask)
        if mask is None:
            action = self.actions.explore(action, self.hyperparameters.epsilon, generator)
        return action.cpu().numpy(), {}

    # Learning

    def update_tokenizer(self, batch: SegmentBatch, phase: PhaseView) -> UpdateResult:
        """One gradient step of the tokenizer."""
        self.known_words.forget()
        return self._train("tokenizer", batch, self._tokenizer_losses, self.hyperparameters.tokenizer_lr)

    def update_world_model(self, batch: SegmentBatch, phase: PhaseView) -> UpdateResult:
        """One gradient step of the world model, on words of the tokenizer as it is."""
        return self._train("world_model", batch, self._model_losses, self.hyperparameters.model_lr)

    def update_controller(self, batch: SegmentBatch, phase: PhaseView) -> UpdateResult:
        """One gradient step of actor and critic in dreams; then their slow copy follows."""
        result = self._train("controller", batch, self._controller_losses, self.hyperparameters.policy_lr)
        slow, fast = ([p.data for p in actor.parameters()] for actor in (self.slow_actor, self.actor))
        torch._foreach_lerp_(slow, fast, self.config.slow_rate)
        return result

    def _train(
        self, name: str, batch: SegmentBatch, losses_of: Callable[[Segment], Losses], rate: float
    ) -> UpdateResult:
        """The one way in which a component learns: losses of its batches, gradients added up, clipped, one step."""
        module, optimizer = self.modules[name], self.optimizers[name]
        parts = self._segments(name, batch)
        if not parts:
            return UpdateResult(updates=0)
        module.train()
        optimizer.zero_grad(set_to_none=True)
        metrics: dict[str, Any] = {}
        for part in parts:
            losses, told = losses_of(part)
            total = torch.stack(list(losses.values())).sum()
            if not torch.isfinite(total):
                broken = next((key for key, loss in losses.items() if not torch.isfinite(loss)), "total")
                raise NonFiniteError(
                    f"loss/{name}/{broken} is not finite after {self.context.counters.updates} updates. A lower learning rate of the {name} "
                    "usually helps.",
                    tensor=f"loss/{name}/{broken}",
                )
            (total / len(parts)).backward()
            told |= {f"loss/{name}/{key}": loss for key, loss in losses.items()}
            for key, value in told.items():
                metrics[key] = metrics.get(key, 0) + value.detach() / len(parts)
        module.eval()
        rates = [rate] * len(optimizer.param_groups)
        metrics[f"opt/grads/norm/{name}"] = take_step(optimizer, rates, max_norm=self.config.max_grad_norm)
        return UpdateResult(updates=1, metrics=metrics | batch.metrics())

    def _segments(self, name: str, batch: SegmentBatch) -> list[Segment]:
        """The batch as tensors, in `accumulate` parts; without those that have no step between two real frames.

        Episodes of a single frame, as after the first vector step of all, have none: a mean over no steps is no loss.
        """
        steps = torch.from_numpy(batch.mask[:, :-1] & batch.mask[:, 1:])
        learned = [bool(part.any()) for part in steps.chunk(self.config.accumulate)]
        if not any(learned):
            return []
        device, values = self.context.device, batch.values
        frames = torch.from_numpy(values[f"observation/{self.key}"]).to(device).float().div_(255)
        actions = torch.from_numpy(values["action"]).to(device).argmax(-1)
        reward = values["reward"] / np.float32(self.config.reward_unit)
        ended = values["is_last"] | values["is_terminal"] if self.config.truncation_is_end else values["is_terminal"]
        others = (torch.from_numpy(value).to(device) for value in (reward, ended, batch.mask))
        words = frames.new_empty(len(frames), 0) if name == "tokenizer" else self._words(batch, frames, actions)
        whole = (frames, actions, *others, words)
        parts = zip(*(value.chunk(self.config.accumulate) for value in whole), strict=True)
        return [Segment(*part) for part, has_steps in zip(parts, learned, strict=True) if has_steps]

    def _words(self, batch: SegmentBatch, frames: Tensor, actions: Tensor) -> Tensor:
        """[B, L - 1, K] of the steps between two real frames, as far as they are not known yet by the tokenizer as it is."""

        @torch.no_grad()
        def find(steps: np.ndarray) -> np.ndarray:
            row, at = (torch.from_numpy(index).to(frames.device) for index in steps.nonzero())
            with self.context.fabric.autocast():
                found = [
                    self.tokenizer.encode(frames[r, t], actions[r, t], frames[r, t + 1]).tokens
                    for r, t in zip(row.split(FOUND_AT_ONCE), at.split(FOUND_AT_ONCE), strict=True)
                ]
            words: np.ndarray = torch.cat(found).cpu().numpy()
            return words

        real = batch.mask[:, :-1] & batch.mask[:, 1:]
        return torch.from_numpy(self.known_words.of(batch.ids, batch.start, real, find)).to(frames.device)

    def _tokenizer_losses(self, data: Segment) -> Losses:
        """On every step between two real frames."""
        real = data.mask[:, :-1] & data.mask[:, 1:]
        before, action, after = data.frames[:, :-1][real], data.actions[:, :-1][real], data.frames[:, 1:][real]
        with self.context.fabric.autocast():
            losses, metrics = self.tokenizer.losses(before, action, after)
        return losses, {f"world_model/{name}": value for name, value in metrics.items()}

    def _model_losses(self, data: Segment) -> Losses:
        """On every step to a real frame; words of frames that are not there are never asked for."""
        config, real = self.config, data.mask[:, :-1] & data.mask[:, 1:]
        with self.context.fabric.autocast():
            losses, metrics = self.model.losses(
                data.frames[:, :-1], data.actions[:, :-1], data.words, data.reward[:, 1:], data.ended[:, 1:], real
            )
        scales = {"words": config.word_scale, "reward": config.reward_scale, "end": config.end_scale}
        assert losses.keys() == scales.keys(), (losses.keys(), scales.keys())
        losses = {name: loss * scales[name] for name, loss in losses.items()}
        return losses, {f"world_model/{name}": value for name, value in metrics.items()}

    def _controller_losses(self, data: Segment) -> Losses:
        """In dreams that begin at the last frame of each segment."""
        hp = self.hyperparameters
        logits, actions, hidden, reward, ended, value = self._dream(data.frames, data.actions[:, :-1], data.words)
        returns, weight = returns_of(reward, ended, value, hp.gamma, hp.lam)  # [H, B]
        # Nothing counts where the dream would begin after an end.
        weight = weight * (data.mask[:, -1] & ~data.ended[:, -1])
        length = weight.sum(0).mean()
        weight = weight / weight.sum().clamp(min=1)
        advantage = returns - value[:-1]
        entropy = self.actions.entropy(logits)
        losses = {
            "policy": -(weight * self.actions.log_prob(logits, actions) * advantage).sum(),
            "value": (weight * self.actor.value_losses(hidden, returns)).sum(),
            "entropy": -hp.ent_coef * (weight * entropy).sum(),
        }
        metrics = {
            "controller/return": (weight * returns).sum(),
            "controller/value": (weight * value[:-1]).sum(),
            "controller/advantage": (weight * advantage.abs()).sum(),
            "controller/reward": (weight * reward).sum(),
            "controller/length": length,
            "opt/policy/entropy": (weight * entropy).sum(),
        }
        return losses, metrics

    def _dream(self, frames: Tensor, actions: Tensor, words: Tensor) -> tuple[Tensor, ...]:
        """From frames [B, burn_in + 1, ...]: logits, actions and LSTM outputs [H, B, ...], rewards and ends [H, B], slow values [H + 1, B]."""
        dream = self.model.begin(frames, actions, words)
        memory = self.actor.warm_up(frames[:, :-1])
        logits, chosen, hidden, rewards, ends, shown = [], [], [], [], [], [frames]
        for _ in range(self.config.horizon):
            memory = self.actor.remember(self.actor.see(dream.frame), memory)
            logits.append(self.actor.actor(memory.h))
            hidden.append(memory.h)
            with torch.no_grad():
                noise = self.actions.noise(len(frames)).to(frames.device)
                chosen.append(self.actions.sample(logits[-1].detach(), noise))
            outcome = self.model.step(dream, chosen[-1].argmax(-1), self.tokenizer, self.dreams.noise(len(frames)))
            dream = outcome.dream
            rewards.append(outcome.reward)
            ends.append(outcome.ended.float())
            shown.append(dream.frame.unsqueeze(1))
        value = self.slow_actor.values(torch.cat(shown, dim=1))[self.config.burn_in :]
        stacked = (torch.stack(part) for part in (logits, chosen, hidden, rewards, ends))
        return (*stacked, value)

    # Looking inside

    def imagine(self, recording: Recording, start: int, horizon: int) -> Dream:
        """Truth, reconstruction and dream of the `horizon` observations after `start`; words are the likeliest."""
        observations, actions, seen = recording.around(start, horizon)
        return Dream(observations[seen:], *self.dreams.beside(observations, actions, seen))

    def dream_start(self, recording: Recording) -> TokenDream:
        """A dream that has seen the last frames of the recording."""
        return self.dreams.start(*recording.last_episode())

    def dream_step(
        self, state: TokenDream, action: np.ndarray, generator: np.random.Generator | None = None
    ) -> tuple[TokenDream, DreamStep]:
        """The next frame's words, reward and end."""
        state, observation, reward, ended = self.dreams.step(state, action, generator)
        return state, DreamStep(observation, reward * self.config.reward_unit, ended)

    def dreams_held_out(self) -> HeldOut | None:
        """Of the epoch's first steps; where epochs have gone by without any, of the newest there are, as they are dreamt of now."""
        if self.newest is None or self.context.counters.epoch <= self.judged + 1:
            return self.held_out
        return self.dreams.hold_out(self.newest)

    # Saving and telling

    def get_state(self) -> dict[str, Any]:
        """Generators, what the collecting agent remembers, and where its environments are."""
        memory = {"h": self.memory.h, "c": self.memory.c}
        return {
            "generators": self.random_states(without=COMPONENTS),
            "memory": memory,
            "collector": self.collector.get_state(),
            "judged": self.judged,
            "known_words": self.known_words.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.set_random_states(state["generators"])
        memory = self.memory
        h, c = (restored_like(getattr(memory, name), state["memory"][name], name) for name in ("h", "c"))
        self.memory = LSTMState(h, c)
        self.collector.set_state(state["collector"])
        self.judged = state["judged"]
        self.known_words.set_state(state["known_words"])

    def describe(self) -> dict[str, Any]:
        """Parameters of each component, batches, memory of the episodes."""
        described: dict[str, Any] = {f"parameters/{name}": count_parameters(self.modules[name]) for name in COMPONENTS}
        remembered, horizon = self.config.blocks - self.config.burn_in, self.config.horizon
        full = f", of which the context holds {remembered}: then it is emptied" if horizon > remembered else ""
        described |= {
            "context": f"{self.config.blocks} steps of {self.model.block} tokens",
            "dream": f"{self.config.burn_in + 1} real frames, then {horizon} steps{full}",
        }
        return described | (self.episodes.describe() if self.context.train_environment is not None else {})


def returns_of(reward: Tensor, ended: Tensor, value: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Lambda-returns [H, B] of rewards and ends [H, B] and values [H + 1, B], and 1 for the steps up to the first end, else 0."""
    begin = torch.zeros_like(reward[:1])
    lives = torch.cat([begin + 1, 1 - ended])  # [H + 1, B]
    return lambda_return(torch.cat([begin, reward]), lives * gamma, value, lam), lives[:-1].cumprod(0)


def make_optimizer(module: nn.Module, decay: float) -> torch.optim.Optimizer:
    """AdamW that decays the weights of linear layers and nothing else."""
    linear = {id(m.weight) for m in module.modules() if isinstance(m, nn.Linear)}
    groups = [
        {"params": [p for p in module.parameters() if id(p) in linear], "weight_decay": decay},
        {"params": [p for p in module.parameters() if id(p) not in linear], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=1e-4)
