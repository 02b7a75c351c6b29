"""Dreamer (Hafner et al. 2020, 2021, 2025): learn a model of the world, and learn to act inside it.

    collect       the actor acts on the model's state; every observation becomes a record of sequence replay
    update_agent  a batch of replayed sequences, then

        world model   posterior states along the sequence; observations, rewards and endings are read off them
                      L = rec + rew + con + dyn max(free, KL(sg(post) || prior)) + rep max(free, KL(post || sg(prior)))
        imagination   from every state H steps with the actor's own actions; lambda-returns of predicted rewards
        actor         v3: -weight (log pi(a) sg(R - v) / scale + eta H[pi]);  v1, v2 on continuous actions: -R through the model
        critic        weight * distance(v, sg(R)), on dreams and (v3) on replayed steps

    x[0] a[0] -> x[1] a[1] -> x[2] ...      record t: observation x[t], action a[t] chosen there, reward and endings on arriving there
    s[0]         s[1]         s[2]          state t has seen x[0..t] and a[0..t-1]; rewards and endings are predicted from s[t]
    dream: s[0] -a-> s[1] -a-> ... s[H]     R[t] = r[t+1] + c[t+1] ((1 - lambda) v[t+1] + lambda R[t+1])

The versions are presets of one program (components/dreamer_config.py); docs/algorithms/dreamer.md lays them side by side.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gymlab.buffers.sequence import Field, SequenceBatch, SequenceReplay
from gymlab.buffers.sequence_collector import SequenceCollector
from gymlab.components.actors import Choices, action_distribution
from gymlab.components.dreamer_config import DreamerConfig
from gymlab.components.dreamer_networks import MLP, ScalarHead, WorldModel
from gymlab.components.flat import count_parameters
from gymlab.components.laprop import LaProp
from gymlab.components.observation_parts import ObservationParts
from gymlab.components.rssm import State
from gymlab.components.td_returns import ReturnScale, differentiable_lambda_return, lambda_return
from gymlab.config.schema import Config
from gymlab.engine.workflow import (
    CollectResult,
    Dream,
    PhaseView,
    Recording,
    UpdateResult,
    Workflow,
    register_workflow,
)
from gymlab.errors import ConfigError, NonFiniteError


class Memory:
    """What the agent remembers of N environments while it acts: the model's state and the newest actions."""

    def __init__(self, state: State, action: Tensor) -> None:
        self.state = state
        self.action = action

    def forget(self, rows: np.ndarray) -> Memory:
        """The same with the rows that are True zeroed."""
        if not rows.any():
            return self
        keep = torch.from_numpy(~rows).to(self.action.device).unsqueeze(-1)
        return Memory(State(self.state.deter * keep, self.state.stoch * keep), self.action * keep)


@dataclass(frozen=True, slots=True)
class Dreamt:
    """H steps of N dreams; state 0 is where they began."""

    features: Tensor
    """[H + 1, N, F]."""
    reward: Tensor
    """[H + 1, N] predicted for arriving in each state."""
    discount: Tensor
    """[H + 1, N] probability of going on from each state, gamma included."""
    slow_value: Tensor
    """[H + 1, N] by the slow critic; zeros without one."""
    actions: Tensor
    """[H, N, A] taken in all states but the last."""


@register_workflow("dreamer")
class Dreamer(Workflow):
    """The algorithm, hook by hook."""

    Config: ClassVar[type[Config]] = DreamerConfig
    config: DreamerConfig
    hyperparameters: Any

    @property
    def phases(self) -> tuple[dict[str, Any], ...]:  # type: ignore[override]
        """Random steps, perhaps the model alone, then everything together at the train ratio."""
        config = self.config
        ratio = config.train_ratio / (config.batch_size * config.batch_length)
        hooks: list[Any] = ["collect", {"name": "update_agent", "ratio": ratio}]
        phases = [{"name": "train", "type": "online", "hooks": hooks, "buffer": "replay"}]
        if config.pretrain_updates:
            pretrain = {"name": "pretrain", "type": "offline", "hooks": ["update_world_model"], "buffer": "replay"}
            phases.insert(0, {**pretrain, "duration_updates": config.pretrain_updates})
        if config.prefill_steps:
            prefill = {"name": "prefill", "type": "online", "hooks": ["collect"], "buffer": "replay"}
            phases.insert(0, {**prefill, "duration_steps": config.prefill_steps, "actions": "random"})
        return tuple(phases)

    def initialize(self) -> None:
        """Networks; with an environment also optimisers, replay and the collector."""
        context, config = self.context, self.config
        if context.fabric is not None and context.fabric.world_size > 1:
            raise ConfigError("devices: dreamer trains in one process. Set devices: 1.")
        self.parts = ObservationParts(context.observation_space, context.raw_observation_space)
        self.actions = action_distribution(context.action_space, config.continuous_actor, config.actor_unimix)
        self.through_model = config.actor_gradient == "dynamics" or (
            config.actor_gradient == "auto" and not isinstance(self.actions, Choices)
        )
        self.model = WorldModel(config, self.parts.shapes, self.actions.size).to(context.device)
        self.latent = self.model.rssm.latent
        normed = config.version == "v3"
        features, units, outputs = self.model.features, config.units, self.actions.parameter_size
        scale = 0.01 if normed else 1.0
        self.actor = MLP(features, units, config.actor_layers, outputs, normed=normed, output_scale=scale)
        self.critic = ScalarHead(config, features, config.critic_layers)
        self.slow_critic = ScalarHead(config, features, config.critic_layers).requires_grad_(False)
        self.slow_critic.load_state_dict(self.critic.state_dict())
        self.return_scale = ReturnScale()
        self.modules = {"model": self.model, "actor": self.actor, "critic": self.critic}
        self.modules |= {"slow_critic": self.slow_critic, "return_scale": self.return_scale}
        for module in self.modules.values():
            module.to(context.device)
        names = ("act", "collect", "replay")
        self.generators = {name: context.seeds.child("dreamer", name).generator() for name in names}
        self.updates = 0
        if context.train_environment is not None:
            self._prepare_training()

    def _prepare_training(self) -> None:
        context, config = self.context, self.config
        environment = context.train_environment
        model, critic, actor = (list(m.parameters()) for m in (self.model, self.critic, self.actor))
        self.optimizers: dict[str, torch.optim.Optimizer]
        if config.optimizer == "laprop":
            everything = [*model, *critic, *actor]
            self.optimizers = {"all": LaProp(everything, agc=config.agc, warmup=config.warmup_updates)}
        else:
            options: dict[str, Any] = {"eps": 1e-5, "weight_decay": config.weight_decay, "fused": True}
            self.optimizers = {
                name: torch.optim.AdamW(parameters, lr=1e-4, **options)
                for name, parameters in (("model", model), ("critic", critic), ("actor", actor))
            }
        latents: dict[str, Field] = {}
        if config.replay_context:
            packed = self.latent.pack(torch.zeros(1, self.latent.size))[0].numpy()
            latents = {
                "latent/deter": Field((config.deter,), np.dtype(np.float16)),
                "latent/stoch": Field(packed.shape, packed.dtype),
            }
        fields = {
            f"observation/{key}": Field(shape, np.dtype(np.float32 if key == "vector" else np.uint8))
            for key, shape in self.parts.shapes.items()
        }
        fields |= {
            "action": Field((self.actions.size,), np.dtype(np.float32)),
            "reward": Field((), np.dtype(np.float32)),
        }
        fields |= {name: Field((), np.dtype(np.bool_)) for name in ("is_first", "is_last", "is_terminal")}
        self.replay = SequenceReplay(
            fields,
            environment.num_envs,
            self.generators["replay"],
            capacity=config.replay_size,
            batch_size=config.batch_size,
            length=config.batch_length,
            context=config.replay_context,
            latents=latents,
            online=config.online_queue,
        )
        self.collector = SequenceCollector(
            environment,
            self.parts.split,
            self.actions.to_environment,
            self.actions.size,
            {name: (field.shape, field.dtype) for name, field in latents.items()},
        )
        self.memory = self.initial_state(environment.num_envs)
        self.seconds_updating = 0.0

    def default_buffers(self) -> dict[str, Any]:
        """The replay that `collect` fills and updates draw from."""
        return {"replay": self.replay} if self.context.train_environment is not None else {}

    # Acting

    def initial_state(self, num_envs: int) -> Memory:
        """An empty memory."""
        device = self.context.device
        return Memory(
            self.model.rssm.initial(num_envs, device), torch.zeros(num_envs, self.actions.size, device=device)
        )

    def reset_state(self, state: Memory, is_first: np.ndarray) -> Memory:
        """The memory without what was seen in environments that begin an episode."""
        return state.forget(is_first)

    @torch.no_grad()
    def _observe(self, parts: Mapping[str, np.ndarray], memory: Memory, noise: Tensor | None) -> State:
        """The posterior state after one more observation."""
        observations = {key: torch.from_numpy(part).to(self.context.device) for key, part in parts.items()}
        embedding = self.model.encoder(observations)
        nothing = torch.zeros(1, len(embedding), dtype=torch.bool, device=embedding.device)
        noise = None if noise is None else noise.to(embedding.device).unsqueeze(0)
        states, _ = self.model.rssm.observe(embedding[None], memory.action[None], nothing, memory.state, noise)
        return State(states.deter[0], states.stoch[0])

    def act(
        self,
        observation: np.ndarray,
        state: Any = None,
        *,
        deterministic: bool = False,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Any, dict[str, np.ndarray]]:
        """Actions for a batch of raw observations, with probabilities (or mean and std), value and latent."""
        memory = self.initial_state(len(observation)) if state is None else state
        parts, generator = self.parts.split(observation), self.generators["act"]
        noise = None if deterministic else self.latent.noise_from(generator, len(observation))
        belief = self._observe(parts, memory, noise)
        action, parameters = self._choose(belief, generator, action_mask, deterministic=deterministic)
        extras = self.actions.shown(parameters.cpu())
        with torch.no_grad():
            extras |= {"value": self.critic.mean(belief.features).cpu().numpy()}
        extras["latent"] = belief.stoch.cpu().numpy()
        return self.actions.to_environment(action.cpu().numpy()), Memory(belief, action), extras

    @torch.no_grad()
    def _choose(
        self, belief: State, generator: np.random.Generator, mask: np.ndarray | None, *, deterministic: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Action vectors and the parameters they were drawn with."""
        parameters, actions = self.actor(belief.features), self.actions
        if mask is not None:
            if not isinstance(actions, Choices):
                raise ConfigError("The environment gives an action mask, and continuous actions cannot be masked.")
            actions, parameters = actions.masked(parameters.cpu(), mask)
        if deterministic:
            return actions.mode(parameters), parameters
        noise = actions.noise_from(generator, len(parameters)).to(parameters.device)
        return actions.sample(parameters, noise), parameters

    # Collecting

    def collect(self, phase: PhaseView) -> CollectResult:
        """collect_steps in each environment; with `actions: random` in the phase, at random."""
        environment = self.context.train_environment
        steps = self.config.collect_steps
        if phase.remaining_env_steps is not None:
            steps = max(1, min(steps, phase.remaining_env_steps // environment.num_envs))
        self.at_random = phase.options.get("actions") == "random"
        records, episodes, env_steps = self.collector.collect(self._act_and_remember, steps)
        return CollectResult(env_steps=env_steps, vec_steps=steps, trajectory=records, episodes=tuple(episodes))

    def _act_and_remember(
        self, parts: Mapping[str, np.ndarray], is_first: np.ndarray, mask: np.ndarray | None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Actions of the training policy, and the latents that replay keeps with them."""
        generator, memory = self.generators["collect"], self.memory.forget(is_first)
        count = len(is_first)
        belief = self._observe(parts, memory, self.latent.noise_from(generator, count))
        if self.at_random and mask is None:
            action = torch.from_numpy(self.actions.random(generator, count)).to(belief.deter.device)
        else:
            action, _ = self._choose(belief, generator, mask)
            action = self._explore(action, generator)
        self.memory = Memory(belief, action)
        latents = {}
        if self.config.replay_context:
            latents = {"latent/deter": belief.deter.half(), "latent/stoch": self.latent.pack(belief.stoch)}
        return action.cpu().numpy(), {name: value.cpu().numpy() for name, value in latents.items()}

    def _explore(self, action: Tensor, generator: np.random.Generator) -> Tensor:
        """Noise on continuous actions, a share of random ones among choices (v1)."""
        amount, count = self.config.exploration_noise, len(action)
        if not amount:
            return action
        if isinstance(self.actions, Choices):
            random = torch.from_numpy(self.actions.random(generator, count)).to(action.device)
            swap = torch.from_numpy(generator.random(count) < amount).to(action.device)
            return torch.where(swap.unsqueeze(-1), random, action)
        noise = torch.from_numpy(generator.standard_normal(action.shape, dtype=np.float32)).to(action.device)
        return (action + amount * noise).clamp(-1, 1)

    # Learning

    def update_agent(self, batch: SequenceBatch, phase: PhaseView) -> UpdateResult:
        """One gradient step of model, actor and critic on a batch of sequences."""
        return self._update(batch, learns_model=True, learns_behaviour=True)

    def update_world_model(self, batch: SequenceBatch, phase: PhaseView) -> UpdateResult:
        """One gradient step of the model alone."""
        return self._update(batch, learns_model=True, learns_behaviour=False)

    def update_controller(self, batch: SequenceBatch, phase: PhaseView) -> UpdateResult:
        """One gradient step of actor and critic alone, in dreams of the model as it is."""
        return self._update(batch, learns_model=False, learns_behaviour=True)

    def _update(self, batch: SequenceBatch, *, learns_model: bool, learns_behaviour: bool) -> UpdateResult:
        began = time.perf_counter()
        data = self._sequence(batch)
        with self.context.fabric.autocast(), torch.set_grad_enabled(learns_model):
            losses, metrics, states = self._model_losses(data)
        if not learns_model:
            losses = {}
        if learns_behaviour:
            with self.context.fabric.autocast():
                dreamt, more = self._behaviour_losses(data, states)
            losses |= dreamt
            metrics |= more
        scales = {name: scale for name, scale in self._scales().items() if name in losses}
        assert losses.keys() == scales.keys(), (losses.keys(), scales.keys())
        total = torch.stack([losses[name] * scale for name, scale in scales.items()]).sum()
        if not torch.isfinite(total):
            broken = next((name for name, loss in losses.items() if not torch.isfinite(loss)), "total")
            raise NonFiniteError(
                f"loss/{broken} is not finite after {self.context.counters.updates} updates. A lower model_lr usually helps.",
                tensor=f"loss/{broken}",
            )
        metrics |= self._step(total)
        metrics |= {f"loss/{name}": loss.detach() for name, loss in losses.items()}
        metrics["loss/total"] = total.detach()
        self._follow()
        self.seconds_updating += time.perf_counter() - began
        metrics |= {**batch.metrics(), **self._time_shares()}
        return UpdateResult(updates=1, metrics=metrics, write_back=self._fresh_latents(batch, states))

    def _scales(self) -> dict[str, float]:
        """The weight of each loss."""
        config = self.config
        scales = {f"reconstruction/{key}": config.reconstruction_scale for key in self.parts.shapes}
        scales |= {"reward": config.reward_scale, "continue": config.continue_scale}
        scales |= {"dyn": config.dyn_scale, "rep": config.rep_scale, "policy": 1.0, "value": 1.0}
        return {**scales, "replay_value": config.replay_value_scale}

    def _sequence(self, batch: SequenceBatch) -> dict[str, Tensor]:
        """The batch time first, [T, B, ...], with the state and action that its first trained step comes from."""
        device, context = self.context.device, self.config.replay_context
        values = {name: torch.from_numpy(array).to(device).transpose(0, 1) for name, array in batch.values.items()}
        actions = values.pop("action")
        data = {name: value[context:] for name, value in values.items() if not name.startswith("latent/")}
        if context:
            data["previous_action"] = actions[:-1]
            data["deter"] = values["latent/deter"][0].float()
            data["stoch"] = self.latent.unpack(values["latent/stoch"][0])
        else:
            data["previous_action"] = torch.cat([torch.zeros_like(actions[:1]), actions[:-1]])
        return data

    def _model_losses(self, data: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor], State]:
        """What the model is trained by, and its states along the sequence."""
        config, model, rssm = self.config, self.model, self.model.rssm
        length, count = data["reward"].shape
        observations = {key: data[f"observation/{key}"].flatten(0, 1) for key in self.parts.shapes}
        embedding = model.encoder(observations).unflatten(0, (length, count))
        start = State(data["deter"], data["stoch"]) if config.replay_context else rssm.initial(count, embedding.device)
        noise = self.latent.noise(length, count, device=embedding.device)
        states, posterior = rssm.observe(embedding, data["previous_action"], data["is_first"], start, noise)
        prior, posterior = rssm.prior(states.deter).float(), posterior.float()
        features = states.features
        losses = {
            f"reconstruction/{key}": loss.mean()
            for key, loss in model.decoder.losses(states.flatten(), observations).items()
        }
        reward = model.reward.trunk(features)
        losses["reward"] = model.reward.loss(reward, [data["reward"]], torch.ones_like(data["reward"]))
        # The discount is part of what this head learns: a time limit is no end, and nothing goes on for certain.
        lives = (~data["is_terminal"]).float() * self.hyperparameters.gamma
        going_on = model.going_on(features).squeeze(-1).float()
        losses["continue"] = functional.binary_cross_entropy_with_logits(going_on, lives)
        kl = self.latent.kl(posterior.detach(), prior)  # [T, B]
        losses["dyn"] = self._free(kl)
        losses["rep"] = self._free(self.latent.kl(posterior, prior.detach()))
        metrics = {
            "world_model/kl": kl.mean(),
            "world_model/posterior_entropy": self.latent.entropy(posterior).mean(),
            "world_model/prior_entropy": self.latent.entropy(prior).mean(),
        }
        with torch.no_grad():
            metrics |= calibration(model.reward.value(reward), going_on.sigmoid() / self.hyperparameters.gamma, data)
        return losses, {name: value.detach() for name, value in metrics.items()}, states

    def _free(self, kl: Tensor) -> Tensor:
        """The mean of the KL, where there is more of it than is free."""
        if self.config.free_nats_of == "step":
            return kl.clamp(min=self.config.free_nats).mean()
        return kl.mean().clamp(min=self.config.free_nats)

    def _behaviour_losses(self, data: dict[str, Tensor], states: State) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What actor and critic are trained by: dreams that begin in the states of the sequence."""
        config, hp = self.config, self.hyperparameters
        last = slice(-config.imag_last, None) if config.imag_last else slice(None)
        replayed = State(states.deter[last], states.stoch[last])
        dream = self._dream(replayed.flatten().detach())
        reward, discount = dream.reward, dream.discount  # [H + 1, N]
        if config.version != "v3":
            # Whether the first state is an end is known, not predicted.
            first = (~data["is_terminal"][last]).float().reshape(1, -1)
            discount = torch.cat([first, discount[1:]])
        fixed = dream.features.detach()
        hidden = self.critic.trunk(fixed).float()
        with torch.no_grad():
            slow = dream.slow_value
            value = slow if config.slow_critic == "target" else self.critic.value(hidden)
            weight = discount.cumprod(0)[:-1]
            returns = lambda_return(reward.detach(), discount.detach(), value, hp.lam)
            scale = self.return_scale.update(returns) if config.scale_returns else torch.ones(())
            advantage = (returns - value[:-1]) / scale
        parameters = self.actor(fixed[:-1]).float()
        entropy = self.actions.entropy(parameters)
        if self.through_model:
            gain = self._return_through_model(dream.features, reward, discount) / scale
        else:
            gain = self.actions.log_prob(parameters, dream.actions) * advantage
        losses = {"policy": -(weight * (gain + hp.ent_coef * entropy)).mean()}
        targets = [returns, slow[:-1]] if config.slow_critic == "regularizer" else [returns]
        losses["value"] = self.critic.loss(hidden[:-1], targets, weight)
        if config.replay_value_scale and len(replayed.deter) > 1:
            losses["replay_value"] = self._replay_value_loss(data, replayed, returns[0], last)
        metrics = {
            "controller/return": returns.mean(),
            "controller/return_scale": scale,
            "controller/value": value.mean(),
            "controller/advantage": advantage.abs().mean(),
            "controller/reward": reward[1:].mean(),
            "controller/length": weight.sum(0).mean(),
            "opt/policy/entropy": entropy.mean(),
        }
        return losses, {name: metric.detach() for name, metric in metrics.items()}

    def _dream(self, state: State) -> Dreamt:
        """H steps with the actor's own actions; with gradients only where the actor learns through them.

        What is read off a state is read while it is fresh in the processor's cache.
        """
        model, horizon, count = self.model, self.config.horizon, len(state.deter)
        device = state.deter.device
        seen: list[tuple[Tensor, ...]] = []
        actions = []
        with torch.set_grad_enabled(self.through_model), frozen(model):
            for t in range(horizon + 1):
                features = state.features
                reward, discount = model.reward.mean(features).float(), model.continues(features).float()
                with torch.no_grad():
                    slow = (
                        self.slow_critic.mean(features)
                        if self.config.slow_critic != "none"
                        else torch.zeros_like(reward)
                    )
                seen.append((features, reward, discount, slow.float()))
                if t < horizon:
                    parameters = self.actor(features.detach()).float()
                    action = self.actions.sample(parameters, self.actions.noise(count).to(device))
                    state = model.rssm.dream(state, action, self.latent.noise(count, device=device))
                    actions.append(action)
        return Dreamt(*(torch.stack(parts) for parts in zip(*seen, strict=True)), torch.stack(actions).detach())

    def _return_through_model(self, features: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        """Returns [H, N] that know how they came about: actions, states, rewards and values are one chain."""
        critic = self.slow_critic if self.config.slow_critic == "target" else self.critic
        with frozen(critic):
            value = critic.mean(features).float()
        return differentiable_lambda_return(reward, discount, value, self.hyperparameters.lam)

    def _replay_value_loss(self, data: dict[str, Tensor], states: State, dreamt: Tensor, last: slice) -> Tensor:
        """The critic on real steps, [K, B]: lambda-returns of real rewards, with the dreams' own returns where they are cut."""
        reward, is_last, is_terminal = (data[name][last] for name in ("reward", "is_last", "is_terminal"))
        bootstrap = dreamt.reshape(reward.shape)
        discount = (~is_terminal).float() * self.hyperparameters.gamma
        lam = (~is_last[1:]).float() * self.hyperparameters.lam
        returns = lambda_return(reward, discount, bootstrap, lam)  # [K - 1, B]
        features = states.features[:-1]
        hidden, weight = self.critic.trunk(features).float(), (~is_last[:-1]).float()
        targets = [returns]
        if self.config.slow_critic == "regularizer":
            with torch.no_grad():
                targets.append(self.slow_critic.mean(features).float())
        return self.critic.loss(hidden, targets, weight)

    def _step(self, total: Tensor) -> dict[str, Tensor]:
        """One backward pass for everything, then a step of each optimiser; gives the gradient norms."""
        config, hp = self.config, self.hyperparameters
        for optimizer in self.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        total.backward()
        rates = {"all": hp.model_lr, "model": hp.model_lr, "critic": hp.critic_lr, "actor": hp.actor_lr}
        norms = {}
        for name, optimizer in self.optimizers.items():
            parameters = [p for p in optimizer.param_groups[0]["params"] if p.grad is not None]
            limit = config.max_grad_norm if config.max_grad_norm and config.optimizer == "adam" else float("inf")
            norms[f"opt/grads/norm/{name}"] = (
                nn.utils.clip_grad_norm_(parameters, limit) if parameters else total.new_zeros(())
            )
            optimizer.param_groups[0]["lr"] = rates[name]
            optimizer.step()
        return norms

    def _follow(self) -> None:
        """Move the slow critic."""
        self.updates += 1
        if self.updates % self.config.slow_every == 0:
            slow, fast = list(self.slow_critic.parameters()), list(self.critic.parameters())
            with torch.no_grad():
                torch._foreach_lerp_(slow, fast, self.config.slow_rate)

    def _fresh_latents(self, batch: SequenceBatch, states: State) -> Any:
        """The states that were just computed, for the records that they belong to."""
        if not self.config.replay_context:
            return None
        latents = {
            "latent/deter": states.deter.detach().half(),
            "latent/stoch": self.latent.pack(states.stoch.detach()),
        }
        return batch.ids[:, 1:], {name: value.transpose(0, 1).cpu().numpy() for name, value in latents.items()}

    def _time_shares(self) -> dict[str, float]:
        spent = {**self.collector.seconds, "update": self.seconds_updating}
        whole = sum(spent.values())
        return {f"sys/time_share/{name}": seconds / whole for name, seconds in spent.items()}

    # Looking inside

    @torch.no_grad()
    def imagine(self, recording: Recording, start: int, horizon: int) -> Dream:
        """Truth, reconstruction and dream of the `horizon` observations after `start`; latents are the most likely ones."""
        first = start - int(np.argmax(recording.is_first[start::-1]))
        rows = slice(first, start + horizon + 1)
        device, rssm = self.context.device, self.model.rssm
        parts = self.parts.split(recording.observations[rows])
        actions = torch.from_numpy(self.actions.from_environment(recording.actions[rows])).to(device)
        embedding = self.model.encoder({key: torch.from_numpy(part).to(device) for key, part in parts.items()})
        previous = torch.cat([torch.zeros_like(actions[:1]), actions[:-1]]).unsqueeze(1)
        begins = torch.zeros(len(actions), 1, dtype=torch.bool, device=device)
        states, _ = rssm.observe(embedding.unsqueeze(1), previous, begins, rssm.initial(1, device), None)
        seen = start - first
        state, dreamt = State(states.deter[seen], states.stoch[seen]), []
        for action in actions[seen : seen + horizon]:
            state = rssm.dream(state, action[None], None)
            dreamt.append(state)
        after = State(states.deter[seen + 1 :, 0], states.stoch[seen + 1 :, 0])
        dream = State(*(torch.cat([getattr(state, name) for state in dreamt]) for name in ("deter", "stoch")))
        shown = [
            self.parts.join({k: v.cpu().numpy() for k, v in self.model.decoder(s).items()}) for s in (after, dream)
        ]
        return Dream(recording.observations[start + 1 : start + 1 + horizon], *shown)

    def get_state(self) -> dict[str, Any]:
        """Generators, what the collecting agent remembers, and where its environments are."""
        memory = self.memory
        return {
            "generators": {name: g.bit_generator.state for name, g in self.generators.items() if name != "replay"},
            "memory": {"deter": memory.state.deter, "stoch": memory.state.stoch, "action": memory.action},
            "collector": self.collector.get_state(),
            "updates": self.updates,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        for name, generator_state in state["generators"].items():
            self.generators[name].bit_generator.state = generator_state
        saved = {name: torch.as_tensor(value).to(self.context.device) for name, value in state["memory"].items()}
        self.memory = Memory(State(saved["deter"], saved["stoch"]), saved["action"])
        self.collector.set_state(state["collector"])
        self.updates = state["updates"]

    def describe(self) -> dict[str, Any]:
        """Derived numbers: parameters of each part, updates per step, starts of dreams, memory of the replay."""
        config = self.config
        parts = {"encoder": self.model.encoder, "rssm": self.model.rssm, "decoder": self.model.decoder}
        parts |= {
            "reward": self.model.reward,
            "continue": self.model.going_on,
            "actor": self.actor,
            "critic": self.critic,
        }
        counts = {name: count_parameters(module) for name, module in parts.items()}
        described: dict[str, Any] = {"parameters": sum(counts.values())}
        described |= {f"parameters_{name}": count for name, count in counts.items()}
        rows = config.batch_size * config.batch_length
        described |= {
            "batch": f"{config.batch_size} x {config.batch_length} steps",
            "updates_per_env_step": round(config.train_ratio / rows, 5),
            "dreams_per_update": config.batch_size * min(config.imag_last or config.batch_length, config.batch_length),
            "horizon_steps": config.horizon,
        }
        return described | (self.replay.describe() if self.context.train_environment is not None else {})


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Gradients go through the module and not into it."""
    module.requires_grad_(False)
    try:
        yield
    finally:
        module.requires_grad_(True)


def calibration(reward: Tensor, going_on: Tensor, data: dict[str, Tensor]) -> dict[str, Tensor]:
    """How far predicted rewards and endings are from the true ones, on average: 0 is right."""
    ends = data["is_terminal"].float()
    # Where the batch has no ending there is nothing to be wrong about.
    predicted_end = ((1 - going_on) * ends).sum() / ends.sum().clamp(min=1)
    return {
        "world_model/reward_bias": (reward - data["reward"]).mean(),
        "world_model/reward_error": (reward - data["reward"]).abs().mean(),
        "world_model/end_bias": (1 - going_on).mean() - ends.mean(),
        "world_model/end_seen": torch.where(ends.any(), predicted_end, torch.ones_like(predicted_end)),
    }
