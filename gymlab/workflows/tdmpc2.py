"""TD-MPC2 (Hansen et al. 2024): a model of the latent alone, no pictures decoded, and every action planned in it.

    collect       plan H steps ahead by the model, with the value behind them; take the first action
    update_agent  a batch of H steps, rolled out in the latent from the first observation only

        z[0] = encode(x[0])   z[t+1] = dynamics(z[t], a[t])
        L  = sum_t rho^t (consistency |z[t+1] - sg(encode(x[t+1]))|^2 + reward CE + value CE) / H
        y[t] = r[t] + gamma (1 - end[t]) min of 2 slow Q(encode(x[t+1]), pi)     the value's target
        pi:  -sum_t rho^t (mean of 2 Q(z[t], pi) / scale + eta |A| H[pi])        the model is not taught by it

    x[0] a[0] -> x[1] a[1] -> x[2] ...      r[t], end[t]: of arriving in x[t+1]

H[pi] is the entropy before tanh, |A| the dimensions of an action. With `episodic` terminations are learned: a plan counts nothing behind one that
is more likely than not. Choices are planned as one-hots.

TD-MPC (2022), the workflow `tdmpc`, differs in its networks, in scalars as they are, in targets of the latent by a slow encoder, in the smaller of
two values everywhere, and in a prioritised replay.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gymlab.buffers.prioritised import PrioritisedReplay
from gymlab.buffers.sequence import SequenceBatch, SequenceReplay
from gymlab.buffers.sequence_collector import SequenceCollector, record_fields
from gymlab.components.actors import Choices, action_distribution
from gymlab.components.dreaming import Passing, time_first
from gymlab.components.flat import count_parameters
from gymlab.components.mpc_planner import MPCPlanner, Planned, Value
from gymlab.components.observation_parts import ObservationParts
from gymlab.components.optimizers import take_step
from gymlab.components.tdmpc_config import MULTI_TASK_SIZES, TDMPC2Config, heuristic_discount
from gymlab.components.tdmpc_networks import LatentModel, Predictor, RunningScale, values, values_of_actions
from gymlab.config.reads import Reads
from gymlab.config.schema import Config
from gymlab.engine.workflow import CollectResult, PhaseView, Plans, Recording, UpdateResult, Workflow, register_workflow
from gymlab.errors import ConfigError, NonFiniteError

MANY_ACTIONS = 20
"""Dimensions of action from which on the planner takes two rounds more (v2)."""
LARGEST_LOSS = 1e4
"""Of one step of one sequence (v1), and of what its priority is made of."""
SMALLEST_PRIORITY = 1e-6
FORBIDDEN = -1e8
"""Value of a plan that begins with what is not allowed."""
METRICS = (
    "loss/consistency", "loss/reward", "loss/value", "loss/end", "loss/policy", "controller/target", "controller/value",
    "controller/value_scale", "controller/unusable_values", "world_model/consistency", "opt/policy/entropy",
    "opt/grads/norm/model", "opt/grads/norm/policy", "replay/age", "replay/online",
)  # fmt: skip
"""What an update logs."""


class Begun:
    """Where the next plans of N environments begin, [N, H, A]."""

    def __init__(self, mean: Tensor, fresh: Tensor) -> None:
        self.mean = mean
        self.fresh = fresh
        """[1, H, A] a plan that no other went before."""

    def forget(self, rows: np.ndarray) -> Begun:
        """The same with fresh ones in the rows that are True."""
        if not rows.any():
            return self
        return Begun(
            torch.where(torch.from_numpy(rows).to(self.mean.device)[:, None, None], self.fresh, self.mean), self.fresh
        )


@register_workflow("tdmpc2")
class TDMPC2(Workflow):
    """The algorithm, hook by hook."""

    Config: ClassVar[type[Config]] = TDMPC2Config
    mixed_precision: ClassVar[bool] = True
    reads: ClassVar[Reads] = Reads(
        buffers=("replay",), phase_options={"actions": ("random", "policy")}, metrics=METRICS
    )
    one_process: ClassVar[bool] = True
    config: TDMPC2Config
    hyperparameters: Any

    @property
    def phases(self) -> tuple[dict[str, Any], ...]:  # type: ignore[override]
        """Random steps, as many updates on them, then both together."""
        return self.config.curriculum(self._episode_steps())

    def _episode_steps(self) -> int | None:
        """Actions in an episode of full length, where the training environment has one."""
        environment = self.context.train_environment
        limit = None if environment is None else environment.get_max_episode_steps()
        return None if limit is None else -(-limit // self.config.frame_skip)

    def initialize(self) -> None:
        """Networks and planner; with an environment also optimisers, replay and the collector."""
        context, config = self.context, self.config
        self.parts = ObservationParts(context.observation_space, context.raw_observation_space)
        self.first = config.version == "v1"
        self.actions = action_distribution(
            context.action_space, "noisy_tanh" if self.first else "squashed_normal", unimix=0.0
        )
        gamma = heuristic_discount(self._episode_steps()) if config.gamma is None else config.gamma
        self.model = LatentModel(config, self.parts.shapes, self.actions.size, gamma)
        self.policy = Predictor(config.latent, config.hidden, self.actions.parameter_size, config.version)
        # What targets are made with; in v2 the encoder itself gives those of the latent.
        self.slow = nn.ModuleDict({"qs": self.model.qs, **({"encoder": self.model.encoder} if self.first else {})})
        self.slow = copy.deepcopy(self.slow).requires_grad_(False).eval()
        self.scale = RunningScale(config.tau)
        self.modules = {"model": self.model, "policy": self.policy, "slow": self.slow, "scale": self.scale}
        for module in self.modules.values():
            module.to(context.device)
        self.model.eval()
        self.planner = MPCPlanner(
            self.actions.size,
            config.horizon,
            config.planner,
            samples=config.plan_samples,
            elites=config.plan_elites,
            iterations=config.plan_iterations + 2 * (self.actions.size >= MANY_ACTIONS and not self.first),
            temperature=config.temperature,
            max_std=config.max_std,
            momentum=config.momentum,
            choices=self.actions.sizes if isinstance(self.actions, Choices) else (),
        )
        names = ("act", "collect", "replay")
        self.generators = {name: context.seeds.child("tdmpc", name).generator() for name in names}
        if context.train_environment is not None:
            self._prepare_training()

    def _prepare_training(self) -> None:
        config, environment = self.config, self.context.train_environment
        encoder = list(self.model.encoder.parameters())
        known = {id(parameter) for parameter in encoder}
        others = [parameter for parameter in self.model.parameters() if id(parameter) not in known]
        self.optimizers = {
            "model": torch.optim.Adam([{"params": encoder}, {"params": others}], fused=True),
            "policy": torch.optim.Adam(self.policy.parameters(), eps=1e-8 if self.first else 1e-5, fused=True),
        }
        options: dict[str, Any] = {
            "capacity": config.replay_size,
            "batch_size": config.batch_size,
            "length": config.horizon + 1,
            "context": 0,
            "online": False,
            "least": config.batch_size,
            "on_disk": config.replay_on_disk,
        }
        fields = record_fields(self.parts.shapes, self.actions.size)
        kind: type[SequenceReplay] = SequenceReplay
        if config.prioritised:
            kind, options = PrioritisedReplay, {**options, "alpha": config.priority_alpha, "beta": config.priority_beta}
        given = (fields, environment.num_envs, self.generators["replay"])
        self.replay = self.context.make_buffer("replay", kind, *given, **options)
        to_environment = self.actions.to_environment
        self.collector = SequenceCollector(environment, self.parts.split, to_environment, self.actions.size, {})
        self.memory = self.initial_state(environment.num_envs)
        self.unusable = torch.zeros((), dtype=torch.long, device=self.context.device)
        """Values in plans that were no numbers."""

    def default_buffers(self) -> dict[str, Any]:
        """The replay that `collect` fills and updates draw from."""
        return {"replay": self.replay} if self.context.train_environment is not None else {}

    # Acting

    def initial_state(self, num_envs: int) -> Begun:
        """Plans from nothing."""
        fresh = self.planner.start(1, self.context.device)
        return Begun(fresh.expand(num_envs, -1, -1), fresh)

    def reset_state(self, state: Begun, is_first: np.ndarray) -> Begun:
        """Plans of the last episode are forgotten."""
        return state.forget(is_first)

    def act(
        self,
        observation: np.ndarray,
        state: Any = None,
        *,
        deterministic: bool = False,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Any, dict[str, np.ndarray]]:
        """Actions for a batch of raw observations, planned, with the plan's probabilities (or mean and std), its value and the latent.

        Deterministic means without the noise of training: the sequence whose first action is taken is still drawn among the best by its score.
        """
        memory, generator = self.initial_state(len(observation)) if state is None else state, self.generators["act"]
        latent = self._encoded(self.parts.split(observation), generator)
        planned = self._plan(latent, memory, generator, action_mask, explore=not deterministic)
        value = planned.values[:, 0].mul(self.config.reward_unit).cpu().numpy()
        extras = self._shown(planned) | {"value": value, "latent": latent.cpu().numpy()}
        return self.actions.to_environment(planned.action.cpu().numpy()), self._followed(planned), extras

    def _shown(self, planned: Planned) -> dict[str, np.ndarray]:
        """The first step of the plan, for people to look at, in the units of the environment."""
        mean, std = planned.mean[:, 0].cpu().numpy(), planned.std[:, 0].cpu().numpy()
        if isinstance(self.actions, Choices):
            return {"probabilities": mean}
        space: Any = self.context.action_space
        low, half = space.low.ravel(), (space.high - space.low).ravel() * 0.5
        return {"mean": low + (mean + 1) * half, "std": std * half}

    def _followed(self, planned: Planned) -> Begun:
        begins = torch.zeros(len(planned.mean), dtype=torch.bool, device=planned.mean.device)
        return Begun(self.planner.follow(planned.mean, begins), self.planner.start(1, planned.mean.device))

    @torch.no_grad()
    def _encoded(self, parts: Mapping[str, np.ndarray], generator: np.random.Generator | None = None) -> Tensor:
        """Latents of observations; with a generator those to act on: in v2 pictures are moved about then, too."""
        observed = torch.from_numpy(parts[self.model.key]).to(self.context.device)
        if generator is not None and not self.first:
            observed = self.model.augmented(observed, generator)
        latent: Tensor = self.model.encoder(observed)
        return latent

    @torch.no_grad()
    def _plan(
        self,
        latent: Tensor,
        memory: Begun,
        generator: np.random.Generator,
        mask: np.ndarray | None = None,
        *,
        explore: bool = False,
    ) -> Planned:
        """Plans for N environments from their latents [N, L]."""
        if mask is not None and not isinstance(self.actions, Choices):
            raise ConfigError("The environment gives an action mask, and continuous actions cannot be masked.")
        steps = max(1, int(min(self.hyperparameters.plan_horizon, self.config.horizon)))
        proposals = self._proposals(latent, generator, steps) if self.config.plan_policy_samples else None
        value = self._value_of_plans(latent, generator, mask)
        least, explore = self.hyperparameters.min_std, explore and mask is None
        return self.planner.plan(value, memory.mean[:, :steps], generator, proposals, explore=explore, min_std=least)

    def _policy_action(self, latent: Tensor, generator: np.random.Generator) -> Tensor:
        """One action of the policy for each row."""
        parameters = self.policy(latent)
        noise = self.actions.noise_from(generator, *parameters.shape[:-1]).to(parameters.device)
        return self.actions.sample(parameters, noise)

    def _proposals(self, latent: Tensor, generator: np.random.Generator, steps: int) -> Tensor:
        """[N, P, steps, A] what the policy would do."""
        z, taken = latent.repeat_interleave(self.config.plan_policy_samples, 0), []
        for step in range(steps):
            taken.append(self._policy_action(z, generator))
            if step + 1 < steps:
                z = self.model.next(z, taken[-1])
        return torch.stack(taken, 1).unflatten(0, (len(latent), -1))

    def _value_of_plans(self, latent: Tensor, generator: np.random.Generator, mask: np.ndarray | None) -> Value:
        """Rewards along a plan and the value behind it, by the model."""
        model, gamma = self.model, float(self.model.gamma)
        start = model.bases(latent, self.config.plan_samples)

        def value(sequences: Tensor) -> Tensor:
            first, *later = sequences.flatten(0, 1).unbind(1)
            total, z = model.imagined_from(start, first)
            weight = gamma * model.continues(z)
            for action in later:
                reward, z = model.imagined(z, action)
                total = total + weight * reward
                weight = weight * (gamma * model.continues(z))
            two = self._two_of(model.qs, generator.permutation(len(model.qs)))
            last = self._of_two(values(two, model.scalar, z, self._policy_action(z, generator)))
            total = (total + weight * last).unflatten(0, sequences.shape[:2])
            if mask is not None:
                allowed = torch.from_numpy(mask).to(total.device).unsqueeze(1)  # [N, 1, A]
                total = total.masked_fill((sequences[:, :, 0] * ~allowed).any(-1), FORBIDDEN)
            return total

        return value

    @staticmethod
    def _two_of(qs: Any, order: Any) -> list[Any]:
        """Two networks of an ensemble, drawn anew each time."""
        return [qs[int(index)] for index in order[:2]]

    def _of_two(self, found: Tensor) -> Tensor:
        """[2, ...] -> [...] what two networks say of an action: their mean, in v1 the smaller."""
        return found.amin(0) if self.first else found.mean(0)

    # Collecting

    def collect(self, phase: PhaseView) -> CollectResult:
        """A step in each environment; with `actions: random` in the phase, at random."""
        self.at_random = phase.options.get("actions") == "random"
        records, episodes, env_steps = self.collector.collect(self._act_and_remember, 1)
        return CollectResult(env_steps=env_steps, vec_steps=1, trajectory=records, episodes=tuple(episodes))

    def _act_and_remember(
        self, parts: Mapping[str, np.ndarray], is_first: np.ndarray, mask: np.ndarray | None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Actions to learn from; plans go on where the last ones were."""
        generator = self.generators["collect"]
        if self.at_random and mask is None:
            return self.actions.random(generator, len(is_first)), {}
        latent = self._encoded(parts, generator)
        planned = self._plan(latent, self.memory.forget(is_first), generator, mask, explore=True)
        self.memory = self._followed(planned)
        self.unusable += planned.unusable
        return planned.action.cpu().numpy(), {}

    # Learning

    def update_agent(self, batch: SequenceBatch, phase: PhaseView) -> UpdateResult:
        """One gradient step of the model, one of the policy."""
        data = time_first(batch.values, 0, self.context.device, self.config.reward_unit)
        # A window may cross into the next episode: from there on nothing of it counts.
        alive = (~data["is_first"][1:]).float().cumprod(0)  # [H, B] transitions
        rho = self.config.rho ** torch.arange(self.config.horizon + 1, device=alive.device).unsqueeze(1)
        self.model.train()
        counts = alive if batch.weight is None else alive * torch.from_numpy(batch.weight).to(alive.device)
        with self.context.fabric.autocast():
            losses, metrics, latents, priority = self._model_losses(data, counts, rho)
        metrics |= self._step("model", torch.stack(list(losses.values())).sum())
        with self.context.fabric.autocast():
            policy_loss, more = self._policy_loss(latents, alive, rho)
        metrics |= self._step("policy", policy_loss) | more
        self.model.eval()
        self._follow_slowly()
        metrics |= {f"loss/{name}": loss.detach() for name, loss in losses.items()} | {
            "loss/policy": policy_loss.detach()
        }
        told: dict[str, Any] = {**metrics, **batch.metrics(), "controller/unusable_values": self.unusable.clone()}
        if batch.weight is None:
            return UpdateResult(updates=1, metrics=told)
        return UpdateResult(updates=1, metrics=told, write_back=(batch.ids[:, 0], {"priority": priority.cpu().numpy()}))

    def _follow_slowly(self) -> None:
        """The slow copies take over a share of what was learned."""
        if (self.context.counters.updates + 1) % self.config.slow_every == 0:
            fast = [getattr(self.model, name).parameters() for name in self.slow]
            learned = [parameter.data for parameters in fast for parameter in parameters]
            torch._foreach_lerp_([parameter.data for parameter in self.slow.parameters()], learned, self.config.tau)

    def _model_losses(
        self, data: dict[str, Tensor], counts: Tensor, rho: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor, Tensor]:
        """What the model is trained by, each with its weight; the latents of the rollout [H + 1, B, L], and how far values were off [B]."""
        config, model, horizon = self.config, self.model, self.config.horizon
        observations, actions = model.augmented(data[f"observation/{model.key}"]), data["action"][:-1]
        reward = data["reward"][1:]  # [H, B] of arriving, as all below
        terminal = data["is_terminal"][1:].float()
        with torch.no_grad():
            ahead = model.encoder(observations[1:].flatten(0, 1)).unflatten(0, (horizon, -1))
            target = self._targets(ahead, reward, terminal)
            if self.first:
                ahead = self.slow["encoder"](observations[1:].flatten(0, 1)).unflatten(0, (horizon, -1))
        z = model.encoder(observations[0])
        rollout = [z]
        for action in actions:
            z = model.next(z, action)
            rollout.append(z)
        latents = torch.stack(rollout)
        # A mean over what counts, for each step of the horizon, then over the horizon.
        alive = counts > 0
        weight = rho[:-1] * counts / alive.sum(1, keepdim=True).clamp(min=1) / horizon
        joint, most = torch.cat([latents[:-1], actions], -1), LARGEST_LOSS if self.first else math.inf
        bins = model.scalar
        outputs = [q(joint).float() for q in model.qs]
        found = torch.stack([bins.loss(output, target) for output in outputs]).mean(0)
        consistency = (latents[1:].float() - ahead.float()).square().mean(-1)
        of_reward = bins.loss(model.reward(joint).float(), reward)
        losses = {
            "consistency": config.consistency_coef * (weight * consistency.clamp(max=most)).sum(),
            "reward": config.reward_coef * (weight * of_reward.clamp(max=most)).sum(),
            "value": config.value_coef * (weight * found.clamp(max=most)).sum(),
        }
        if model.end is not None:
            logits = model.end(latents[1:]).squeeze(-1).float()
            error = functional.binary_cross_entropy_with_logits(logits, terminal, reduction="none")
            losses["end"] = config.end_coef * (counts * error).sum() / alive.sum().clamp(min=1)
        with torch.no_grad():
            off = torch.stack([bins.mean(output) - target for output in outputs]).abs().sum(0)
            priority = (rho[:-1] * alive * off).sum(0).clamp(max=LARGEST_LOSS) + SMALLEST_PRIORITY
        metrics = {"controller/target": target.mean(), "world_model/consistency": consistency.mean()}
        return losses, {name: value.detach() for name, value in metrics.items()}, latents.detach(), priority

    def _targets(self, ahead: Tensor, reward: Tensor, terminal: Tensor) -> Tensor:
        """r + gamma (1 - end) times the smaller of two slow values, [H, B]."""
        parameters = self.policy(ahead).float()
        action = self.actions.sample(parameters, self.actions.noise(*parameters.shape[:-1]).to(ahead.device))
        two = self._two_of(self.slow["qs"], torch.randperm(self.config.q_count))
        value = values(two, self.model.scalar, ahead, action).amin(0).float()
        return reward + self.model.gamma * (1 - terminal) * value

    def _policy_loss(self, latents: Tensor, alive: Tensor, rho: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Larger values and more entropy at all states of the rollout; the model is only read."""
        counts = torch.cat([torch.ones_like(alive[:1]), alive])
        # A mean over what counts, for each state; over the states a mean, too, in v1 a sum.
        weight = rho * counts / counts.sum(1, keepdim=True).clamp(min=1) / (1 if self.first else len(counts))
        parameters = self.policy(latents).float()
        action = self.actions.sample(parameters, self.actions.noise(*parameters.shape[:-1]).to(latents.device))
        with Passing(self.model):
            two = self._two_of(self.model.qs, torch.randperm(len(self.model.qs)))
            value = self._of_two(values_of_actions(two, self.model.scalar, latents, action)).float()
        scale = value.new_ones(()) if self.first else self.scale.update(value[0])
        entropy = self.actions.scaled_entropy(parameters)
        loss = -(weight * (value / scale + self.hyperparameters.ent_coef * entropy)).sum()
        metrics = {
            "controller/value": value.mean(),
            "controller/value_scale": scale,
            "opt/policy/entropy": entropy.mean() / self.actions.dimensions,
        }
        return loss, {name: metric.detach() for name, metric in metrics.items()}

    def _step(self, name: str, loss: Tensor) -> dict[str, Tensor]:
        """A backward pass and a step of one optimiser; gives the gradient's norm."""
        if not torch.isfinite(loss):
            raise NonFiniteError(
                f"loss/{name} is not finite after {self.context.counters.updates} updates. A lower {name}_lr usually helps.",
                tensor=f"loss/{name}",
            )
        config, optimizer = self.config, self.optimizers[name]
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        rate = self.hyperparameters.model_lr
        rates = [config.encoder_lr_factor * rate, rate] if name == "model" else [self.hyperparameters.policy_lr]
        return {f"opt/grads/norm/{name}": take_step(optimizer, rates, max_norm=config.max_grad_norm)}

    # Looking inside

    @torch.no_grad()
    def plans(self, recording: Recording, start: int, horizon: int) -> Plans:
        """The best sequences at one observation, rolled out by the model, and how far its latent drifts from what was observed."""
        observed = self._encoded(self.parts.split(recording.observations))
        latent, generator = observed[start : start + 1], np.random.default_rng(0)
        planned = self._plan(latent, self.initial_state(1), generator)
        elites, model = planned.elites[0], self.model
        z, rewards = latent.expand(len(elites), -1), []
        for action in elites.unbind(1):
            reward, z = model.imagined(z, action)
            rewards.append(reward)
        taken = torch.from_numpy(self.actions.from_environment(recording.actions)).to(latent.device)
        z, drift = latent, []
        for step in range(start, start + horizon):
            z = model.next(z, taken[step : step + 1])
            drift.append((z - observed[step + 1]).norm())
        apart = (observed - observed.mean(0)).norm(dim=1).mean() * math.sqrt(2)
        unit = self.config.reward_unit
        sequences = self.actions.to_environment(elites.flatten(0, 1).cpu().numpy())
        return Plans(
            sequences.reshape(*elites.shape[:2], *sequences.shape[1:]),
            (torch.stack(rewards, 1) * unit).cpu().numpy(),
            (planned.values[0] * unit).cpu().numpy(),
            self.planner.weights(planned.values)[0].cpu().numpy(),
            (torch.stack(drift) / apart.clamp(min=1e-8)).cpu().numpy(),
        )

    def get_state(self) -> dict[str, Any]:
        """Generators, plans under way, and where the environments are."""
        return {
            "generators": self.random_states(without=("replay",)),
            "plans": self.memory.mean,
            "unusable": int(self.unusable),
            "collector": self.collector.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.set_random_states(state["generators"])
        self.memory = Begun(torch.as_tensor(state["plans"]).to(self.context.device), self.memory.fresh)
        self.unusable.fill_(state["unusable"])
        self.collector.set_state(state["collector"])

    def describe(self) -> dict[str, Any]:
        """Derived numbers: parameters of each part, the discount, plans, memory of the replay."""
        config = self.config
        parts = {"encoder": self.model.encoder, "dynamics": self.model.dynamics, "reward": self.model.reward}
        parts |= {"values": self.model.qs, "policy": self.policy}
        described: dict[str, Any] = {f"parameters/{name}": count_parameters(part) for name, part in parts.items()}
        if config.size in MULTI_TASK_SIZES:
            described["size"] = f"{config.size}, which the authors train on 30 or 80 tasks at once; here it learns one"
        described |= {
            "batch": f"{config.batch_size} x {config.horizon} steps",
            "gamma": round(float(self.model.gamma), 5),
            "plan": f"{self.planner.samples} sequences of {config.horizon} actions, {self.planner.iterations} rounds",
            "updates_per_env_step": config.updates_per_step,
        }
        return described | (self.replay.describe() if self.context.train_environment is not None else {})
