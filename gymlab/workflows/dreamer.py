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
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gymlab.buffers.episode_ends import EndsReplay
from gymlab.buffers.offline import open_dataset
from gymlab.buffers.sequence import Field, SequenceBatch, SequenceReplay
from gymlab.buffers.sequence_collector import SequenceCollector, record_fields
from gymlab.components.actors import Choices, action_distribution
from gymlab.components.dreamer_config import READS, DreamerConfig
from gymlab.components.dreamer_networks import ScalarHead, SideBySide, WorldModel, make_actor, make_optimizers
from gymlab.components.dreaming import (
    HELD_OUT_ROWS,
    READ_AT_ONCE,
    Dreamt,
    HeldOut,
    Passing,
    ShowsDreams,
    calibration,
    hold_out,
    time_first,
)
from gymlab.components.flat import count_parameters
from gymlab.components.latent_actor import LatentActor, Memory
from gymlab.components.latent_dreams import LatentDreams
from gymlab.components.observation_parts import ObservationParts
from gymlab.components.optimizers import take_step
from gymlab.components.rssm import State
from gymlab.components.td_returns import ReturnScale, differentiable_lambda_return, lambda_return
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


@register_workflow("dreamer")
class Dreamer(ShowsDreams, Workflow):
    """The algorithm, hook by hook."""

    Config: ClassVar[type[Config]] = DreamerConfig
    mixed_precision: ClassVar[bool] = True
    reads = READS
    one_process: ClassVar[bool] = True
    config: DreamerConfig
    hyperparameters: Any

    @property
    def phases(self) -> tuple[dict[str, Any], ...]:  # type: ignore[override]
        """First steps, perhaps updates on them, then both together at the train ratio."""
        return self.config.curriculum()

    def initialize(self) -> None:
        """Networks; with an environment also optimisers, replay and the collector."""
        context, config = self.context, self.config
        self.parts = ObservationParts(context.observation_space, context.raw_observation_space)
        self.actions = action_distribution(context.action_space, config.continuous_actor, config.actor_unimix)
        self.through_model = config.actor_gradient == "dynamics" or (
            config.actor_gradient == "auto" and not isinstance(self.actions, Choices)
        )
        self.model = WorldModel(config, self.parts.shapes, self.actions.size, self.parts.discrete).to(context.device)
        self.latent = self.model.rssm.latent
        features = self.model.features
        continuous = not isinstance(self.actions, Choices)
        self.actor = make_actor(config, features, self.actions.parameter_size, continuous=continuous)
        self.critic = ScalarHead(config, features, config.critic_layers)
        self.slow_critic = ScalarHead(config, features, config.critic_layers).requires_grad_(False)
        self.slow_critic.load_state_dict(self.critic.state_dict())
        self.return_scale = ReturnScale()
        self.agent = LatentActor(self.model, self.actor, self.actions)
        self.dreams = LatentDreams(self.model, self.parts, self.actions)
        self.modules = {"model": self.model, "actor": self.actor, "critic": self.critic}
        self.modules |= {"slow_critic": self.slow_critic, "return_scale": self.return_scale}
        for module in self.modules.values():
            module.to(context.device)
        names = ("act", "collect", "replay")
        self.generators = {name: context.seeds.child("dreamer", name).generator() for name in names}
        self.updates = 0
        self.judged = -1
        if context.train_environment is not None:
            self._prepare_training()

    def _prepare_training(self) -> None:
        context, config = self.context, self.config
        environment = context.train_environment
        self.optimizers = make_optimizers(config, self.model, self.critic, self.actor, context.optimizers)
        self.returns = getattr(context.components, "returns", self._lambda_return)
        latents: dict[str, Field] = {}
        if config.replay_context:
            packed = self.latent.pack(torch.zeros(1, self.latent.size))[0].numpy()
            latents["latent/deter"] = Field((config.deter,), np.dtype(np.float16))
            latents["latent/stoch"] = Field(packed.shape, packed.dtype)
        fields = record_fields(self.parts.shapes, self.actions.size)
        given = (fields, environment.num_envs, self.generators["replay"])
        kind = EndsReplay if config.prioritize_ends else SequenceReplay
        self.replay = context.make_buffer("replay", kind, *given, latents=latents, **config.replay_options())
        if config.prioritize_ends and not isinstance(self.replay, EndsReplay):
            raise ConfigError(
                "prioritize_ends: buffers.replay draws by a rule of its own. Name ends_replay there, or set prioritize_ends: false."
            )
        if config.dataset is not None:
            open_dataset(config.dataset).fill(self.replay, self.actions.from_environment, self.parts.split)
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
        return self.agent.empty(num_envs)

    def reset_state(self, state: Memory, is_first: np.ndarray) -> Memory:
        """The memory without what was seen in environments that begin an episode."""
        return state.forget(is_first)

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
        generator = None if deterministic else self.generators["act"]
        belief = self.agent.observe(self.parts.split(observation), memory, generator)
        action, parameters = self.agent.choose(belief, action_mask, generator)
        with torch.no_grad():
            value = self.critic.mean(belief.features).mul(self.config.reward_unit).cpu().numpy()
        extras = {**self.actions.shown(parameters.cpu()), "value": value, "latent": belief.stoch.cpu().numpy()}
        return self.actions.to_environment(action.cpu().numpy()), Memory(belief, action), extras

    # Collecting

    def collect(self, phase: PhaseView) -> CollectResult:
        """collect_steps in each environment; with `actions: random` in the phase, at random."""
        steps = phase.steps(self.config.collect_steps, self.context.train_environment.num_envs)
        self.at_random = phase.options.get("actions") == "random"
        records, episodes, env_steps = self.collector.collect(self._act_and_remember, steps)
        return CollectResult(env_steps=env_steps, vec_steps=steps, trajectory=records, episodes=tuple(episodes))

    def _act_and_remember(
        self, parts: Mapping[str, np.ndarray], is_first: np.ndarray, mask: np.ndarray | None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Actions of the training policy, and the latents that replay keeps with them."""
        generator, memory = self.generators["collect"], self.memory.forget(is_first)
        belief = self.agent.observe(parts, memory, generator)
        if self.at_random and mask is None:
            action = torch.from_numpy(self.actions.random(generator, len(is_first))).to(belief.deter.device)
        else:
            action, _ = self.agent.choose(belief, mask, generator)
            action = self.actions.explore(action, self.config.exploration_noise, generator)
        self.memory = Memory(belief, action)
        return action.cpu().numpy(), self._packed(belief) if self.config.replay_context else {}

    def _packed(self, states: State) -> dict[str, np.ndarray]:
        """States as replay keeps them."""
        deter, stoch = states.deter.detach().half(), self.latent.pack(states.stoch.detach())
        return {"latent/deter": deter.cpu().numpy(), "latent/stoch": stoch.cpu().numpy()}

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
        told: dict[str, Any] = {
            **metrics,
            **batch.metrics(),
            **self._judge(),
            **self.collector.time_shares(self.seconds_updating),
        }
        return UpdateResult(updates=1, metrics=told, write_back=self._fresh_latents(batch, states))

    def _scales(self) -> dict[str, float]:
        """The weight of each loss."""
        config = self.config
        scales = {f"reconstruction/{key}": config.reconstruction_scale for key in self.parts.shapes}
        scales |= {"reward": config.reward_scale, "continue": config.continue_scale}
        scales |= {"dyn": config.dyn_scale, "rep": config.rep_scale, "policy": 1.0, "value": 1.0}
        return {**scales, "replay_value": config.replay_value_scale}

    def _sequence(self, batch: SequenceBatch) -> dict[str, Tensor]:
        """The batch time first, [T, B, ...], with the state and action that its first trained step comes from."""
        data = time_first(batch.values, self.config.replay_context, self.context.device, self.config.reward_unit)
        if self.config.reward_transform == "tanh":
            data["reward"] = data["reward"].tanh()
        if self.config.replay_context:
            data["deter"], data["stoch"] = data["deter"].float(), self.latent.unpack(data["stoch"])
        return data

    def _start(self, data: dict[str, Tensor], count: int) -> State:
        """The state before the first step of `count` sequences."""
        if self.config.replay_context:
            return State(data["deter"], data["stoch"])
        return self.model.rssm.initial(count, self.context.device)

    def _model_losses(self, data: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor], State]:
        """What the model is trained by, and its states along the sequence."""
        model, rssm = self.model, self.model.rssm
        length, count = data["reward"].shape
        observations = {key: data[f"observation/{key}"].flatten(0, 1) for key in self.parts.shapes}
        embedding = model.encoder(observations).unflatten(0, (length, count))
        start = self._start(data, count)
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
        continues = None
        if model.going_on is not None:
            # The discount is part of what this head learns: a time limit is no end, and nothing goes on for certain.
            lives = (~data["is_terminal"]).float() * self.hyperparameters.gamma
            going_on = model.going_on(features).squeeze(-1).float()
            losses["continue"] = functional.binary_cross_entropy_with_logits(going_on, lives)
            continues = going_on.detach().sigmoid() / self.hyperparameters.gamma
        kl = self.latent.kl(posterior.detach(), prior)  # [T, B]
        losses["dyn"] = self._free(kl)
        losses["rep"] = self._free(self.latent.kl(posterior, prior.detach()))
        metrics = {
            "world_model/kl": kl.mean(),
            "world_model/posterior_entropy": self.latent.entropy(posterior).mean(),
            "world_model/prior_entropy": self.latent.entropy(prior).mean(),
        }
        with torch.no_grad():
            metrics |= calibration(model.reward.value(reward), continues, data)
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
            # Whether the first state is an end is known, not predicted; a model without a continue head does not ask.
            first = (~data["is_terminal"][last]).float().reshape(1, -1)
            if self.model.going_on is None:
                first = torch.ones_like(first)
            discount = torch.cat([first, discount[1:]])
        with torch.no_grad():
            slow = dream.slow_value
            value = slow if config.slow_critic == "target" else self.critic.value(dream.hidden)
            weight = discount.cumprod(0)[:-1]
            returns = self.returns(reward.detach(), discount.detach(), value)
            scale = self.return_scale.update(returns) if config.scale_returns else torch.ones(())
            advantage = (returns - value[:-1]) / scale
        entropy = self.actions.entropy(dream.parameters)
        if dream.value is not None:
            # Actions, states, rewards and values are one chain, and the actor learns along all of it.
            gain = differentiable_lambda_return(reward, discount, dream.value, hp.lam) / scale
        else:
            gain = self.actions.log_prob(dream.parameters, dream.actions) * advantage
        losses = {"policy": -(weight * (gain + hp.ent_coef * entropy)).mean()}
        targets = [returns, slow[:-1]] if config.slow_critic == "regularizer" else [returns]
        losses["value"] = self.critic.loss(dream.hidden[:-1], targets, weight)
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
        """H steps from N states with the actor's own actions.

        Actor and critic learn from each state by itself; gradients go from state to state only where the actor learns through the
        model. What the action does not depend on is read off many states at once, after the loop.
        """
        model, count, device = self.model, len(state.deter), state.deter.device
        has_slow, slow_target = self.config.slow_critic != "none", self.config.slow_critic == "target"
        passing = Passing(model, self.critic) if self.through_model else torch.no_grad()
        advance = model.rssm.dream if self.through_model else model.rssm.dreamer()
        features, chosen = [state.features], []
        for _ in range(self.config.horizon):
            parameters = self.actor(features[-1].detach()).float()
            with passing:
                action = self.actions.sample(parameters, self.actions.noise(count).to(device))
                state = advance(state, action, self.latent.noise(count, device=device))
            features.append(state.features)
            chosen.append((parameters, action.detach()))
        with passing:
            heads = {"reward": model.reward.trunk, "continue": model.going_on, "slow": self.slow_critic.trunk}
            absent = () if has_slow else ("slow",)
            heads_of = SideBySide(
                {name: head for name, head in heads.items() if head is not None and name not in absent}
            )
        seen: list[tuple[Tensor, ...]] = []
        at_once = max(1, READ_AT_ONCE // count)
        for first in range(0, len(features), at_once):
            states = torch.cat(features[first : first + at_once])  # [some steps * N, F]
            hidden = self.critic.trunk(states.detach()).float()
            with passing:
                read = heads_of(states)
                reward = model.reward.read(read["reward"]).float()
                if model.going_on is None:
                    discount = torch.full_like(reward, self.hyperparameters.gamma)
                else:
                    discount = torch.sigmoid(read["continue"]).float().squeeze(-1)
                slow = self.slow_critic.read(read["slow"]).float() if has_slow else torch.zeros_like(reward)
                value = self.critic.mean(states).float() if self.through_model and not slow_target else slow
            seen.append((hidden, reward, discount, slow.detach(), value))
        hidden, reward, discount, slow, value = (
            torch.cat(x).unflatten(0, (-1, count)) for x in zip(*seen, strict=True)
        )
        parameters, actions = (torch.stack(part) for part in zip(*chosen, strict=True))
        return Dreamt(hidden, parameters, actions, reward, discount, slow, value if self.through_model else None)

    def _lambda_return(self, reward: Tensor, discount: Tensor, value: Tensor) -> Tensor:
        """Of the dreams, unless `components.returns` names another: [H + 1, N] each -> [H, N]."""
        return lambda_return(reward, discount, value, self.hyperparameters.lam)

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
        most = config.max_grad_norm or None if config.optimizer == "adam" else None
        norms = {}
        for name, optimizer in self.optimizers.items():
            norms[f"opt/grads/norm/{name}"] = take_step(optimizer, [rates[name]], max_norm=most)
        return norms

    def _follow(self) -> None:
        """Move the slow critic, where something reads it: after the first update, and every `slow_every` after that."""
        if self.config.slow_critic != "none" and self.updates % self.config.slow_every == 0:
            slow, fast = ([p.data for p in critic.parameters()] for critic in (self.slow_critic, self.critic))
            torch._foreach_lerp_(slow, fast, self.config.slow_rate)
        self.updates += 1

    def _fresh_latents(self, batch: SequenceBatch, states: State) -> Any:
        """The states that were just computed, for the records that they belong to."""
        if not self.config.replay_context:
            return None
        rows = State(states.deter.transpose(0, 1), states.stoch.transpose(0, 1))
        return batch.ids[:, 1:], self._packed(rows)

    # Looking inside

    def imagine(self, recording: Recording, start: int, horizon: int) -> Dream:
        """Truth, reconstruction and dream of the `horizon` observations after `start`; latents are the most likely ones."""
        observations, actions, seen = recording.around(start, horizon)
        return Dream(observations[seen:], *self.dreams.beside(observations, actions, seen))

    def dream_start(self, recording: Recording) -> State:
        """The model's state after the recording."""
        return self.dreams.start(*recording.last_episode())

    def dream_step(
        self, state: State, action: np.ndarray, generator: np.random.Generator | None = None
    ) -> tuple[State, DreamStep]:
        """One step of the prior; an episode is over where the continue head gives less than an even chance, and never without one."""
        state, observation, reward, lives = self.dreams.step(state, action, generator)
        ended = lives < 0.5 * self.hyperparameters.gamma
        return state, DreamStep(observation, reward * self.config.reward_unit, ended)

    def dreams_held_out(self) -> HeldOut | None:
        """Sequences that were never trained on, seen up to a point and dreamt from there; None as long as there are none."""
        batch = self.replay.held_out_batch(HELD_OUT_ROWS)
        if batch is None:
            return None
        data = self._sequence(batch)
        return hold_out(self.model, data, self._start(data, len(batch.ids)))

    def _judge(self) -> dict[str, float]:
        """Errors of dreams on sequences held out, once an epoch."""
        if self.judged == self.context.counters.epoch:
            return {}
        self.judged = self.context.counters.epoch
        held_out = self.dreams_held_out()
        return {} if held_out is None else held_out.errors()

    def get_state(self) -> dict[str, Any]:
        """Generators, what the collecting agent remembers, and where its environments are."""
        return {
            "generators": self.random_states(without=("replay",)),
            "memory": self.memory.get_state(),
            "collector": self.collector.get_state(),
            "updates": self.updates,
            "judged": self.judged,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.set_random_states(state["generators"])
        self.memory = self.memory.restored(state["memory"])
        self.collector.set_state(state["collector"])
        self.updates, self.judged = int(state["updates"]), int(state["judged"])

    def describe(self) -> dict[str, Any]:
        """Derived numbers: parameters of each part, updates per step, starts of dreams, memory of the replay."""
        config = self.config
        parts = {"encoder": self.model.encoder, "rssm": self.model.rssm, "decoder": self.model.decoder}
        parts |= {"reward": self.model.reward}
        parts |= {} if self.model.going_on is None else {"continue": self.model.going_on}
        parts |= {"actor": self.actor, "critic": self.critic}
        described: dict[str, Any] = {f"parameters/{name}": count_parameters(part) for name, part in parts.items()}
        rows = config.batch_size * config.batch_length
        described |= {
            "batch": f"{config.batch_size} x {config.batch_length} steps",
            "updates_per_env_step": round(config.train_ratio / rows, 5),
            "dreams_per_update": config.batch_size * min(config.imag_last or config.batch_length, config.batch_length),
            "horizon_steps": config.horizon,
        }
        return described | (self.replay.describe() if self.context.train_environment is not None else {})
