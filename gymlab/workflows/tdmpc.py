"""TD-MPC2 (Hansen et al. 2024): a model of the latent alone, no pictures decoded, and every action planned in it.

    collect       plan H steps ahead by the model, with the value behind them; take the first action
    update_agent  a batch of H steps, rolled out in the latent from the first observation only

        z[0] = encode(x[0])   z[t+1] = dynamics(z[t], a[t])
        L  = sum_t rho^t (consistency |z[t+1] - sg(encode(x[t+1]))|^2 + reward CE + value CE) / H
        y[t] = r[t] + gamma (1 - end[t]) min of 2 slow Q(encode(x[t+1]), pi)     the value's target
        pi:  -sum_t rho^t (mean of 2 Q(z[t], pi) / scale + eta H[pi])            the model is not taught by it

    x[0] a[0] -> x[1] a[1] -> x[2] ...      r[t], end[t]: of arriving in x[t+1]

Choices are planned as one-hots, and ends are learned and planned with (`episodic`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gymlab.buffers.sequence import SequenceBatch, SequenceReplay
from gymlab.buffers.sequence_collector import SequenceCollector, record_fields
from gymlab.components.actors import Choices, action_distribution
from gymlab.components.dreaming import Passing, time_first
from gymlab.components.flat import count_parameters
from gymlab.components.mpc_planner import MPCPlanner, Planned, Value
from gymlab.components.observation_parts import ObservationParts
from gymlab.components.tdmpc_config import TDMPCConfig, heuristic_discount
from gymlab.components.tdmpc_networks import LatentModel, RunningScale, predictor, values
from gymlab.config.schema import Config
from gymlab.engine.workflow import CollectResult, PhaseView, UpdateResult, Workflow, register_workflow
from gymlab.errors import ConfigError, NonFiniteError

MANY_ACTIONS = 20
"""Dimensions of action from which on the planner takes two rounds more."""
FORBIDDEN = -1e8
"""Value of a plan that begins with what is not allowed."""


class Plans:
    """Where the next plans of N environments begin, [N, H, A]."""

    def __init__(self, mean: Tensor, fresh: Tensor) -> None:
        self.mean = mean
        self.fresh = fresh
        """[1, H, A] a plan that no other went before."""

    def forget(self, rows: np.ndarray) -> Plans:
        """The same with fresh ones in the rows that are True."""
        if not rows.any():
            return self
        return Plans(
            torch.where(torch.from_numpy(rows).to(self.mean.device)[:, None, None], self.fresh, self.mean), self.fresh
        )


@register_workflow("tdmpc")
class TDMPC(Workflow):
    """The algorithm, hook by hook."""

    Config: ClassVar[type[Config]] = TDMPCConfig
    config: TDMPCConfig
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
        if context.fabric is not None and context.fabric.world_size > 1:
            raise ConfigError("devices: tdmpc trains in one process. Set devices: 1.")
        self.parts = ObservationParts(context.observation_space, context.raw_observation_space)
        self.actions = action_distribution(context.action_space, "squashed_normal", unimix=0.0)
        gamma = heuristic_discount(self._episode_steps()) if config.gamma is None else config.gamma
        self.model = LatentModel(config, self.parts.shapes, self.actions.size, gamma)
        self.policy = predictor(config.latent, config.hidden, self.actions.parameter_size)
        self.slow_qs = copy.deepcopy(self.model.qs).requires_grad_(False).eval()
        self.scale = RunningScale()
        self.modules = {"model": self.model, "policy": self.policy, "slow_qs": self.slow_qs, "scale": self.scale}
        for module in self.modules.values():
            module.to(context.device)
        self.model.eval()
        self.planner = MPCPlanner(
            self.actions.size,
            config.horizon,
            config.planner,
            samples=config.plan_samples,
            elites=config.plan_elites,
            iterations=config.plan_iterations + 2 * (self.actions.size >= MANY_ACTIONS),
            temperature=config.temperature,
            min_std=config.min_std,
            max_std=config.max_std,
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
            "policy": torch.optim.Adam(self.policy.parameters(), eps=1e-5, fused=True),
        }
        self.replay = SequenceReplay(
            record_fields(self.parts.shapes, self.actions.size),
            environment.num_envs,
            self.generators["replay"],
            capacity=config.replay_size,
            batch_size=config.batch_size,
            length=config.horizon + 1,
            context=0,
            online=False,
            least=config.batch_size,
            held_out=config.held_out,
            on_disk=config.replay_on_disk,
        )
        to_environment = self.actions.to_environment
        self.collector = SequenceCollector(environment, self.parts.split, to_environment, self.actions.size, {})
        self.memory = self.initial_state(environment.num_envs)
        self.unusable = torch.zeros((), dtype=torch.long, device=self.context.device)
        """Values in plans that were no numbers."""

    def default_buffers(self) -> dict[str, Any]:
        """The replay that `collect` fills and updates draw from."""
        return {"replay": self.replay} if self.context.train_environment is not None else {}

    # Acting

    def initial_state(self, num_envs: int) -> Plans:
        """Plans from nothing."""
        fresh = self.planner.start(1, self.context.device)
        return Plans(fresh.expand(num_envs, -1, -1), fresh)

    def reset_state(self, state: Plans, is_first: np.ndarray) -> Plans:
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
        """Actions for a batch of raw observations, planned, with the plan's probabilities (or mean and std), its value and the latent."""
        memory = self.initial_state(len(observation)) if state is None else state
        latent = self._encoded(self.parts.split(observation))
        planned = self._plan(latent, memory, self.generators["act"], action_mask)
        action = planned.elites[:, 0, 0] if deterministic else planned.action
        extras = self._shown(planned) | {"value": planned.value.cpu().numpy(), "latent": latent.cpu().numpy()}
        return self.actions.to_environment(action.cpu().numpy()), self._followed(planned), extras

    def _shown(self, planned: Planned) -> dict[str, np.ndarray]:
        """The first step of the plan, for people to look at, in the units of the environment."""
        mean, std = planned.mean[:, 0].cpu().numpy(), planned.std[:, 0].cpu().numpy()
        if isinstance(self.actions, Choices):
            return {"probabilities": mean}
        space: Any = self.context.action_space
        low, half = space.low.ravel(), (space.high - space.low).ravel() * 0.5
        return {"mean": low + (mean + 1) * half, "std": std * half}

    def _followed(self, planned: Planned) -> Plans:
        begins = torch.zeros(len(planned.mean), dtype=torch.bool, device=planned.mean.device)
        return Plans(self.planner.follow(planned.mean, begins), self.planner.start(1, planned.mean.device))

    @torch.no_grad()
    def _encoded(self, parts: Mapping[str, np.ndarray]) -> Tensor:
        latent: Tensor = self.model.encoder(torch.from_numpy(parts[self.model.key]).to(self.context.device))
        return latent

    @torch.no_grad()
    def _plan(
        self,
        latent: Tensor,
        memory: Plans,
        generator: np.random.Generator,
        mask: np.ndarray | None = None,
        *,
        explore: bool = False,
    ) -> Planned:
        """Plans for N environments from their latents [N, L]."""
        if mask is not None and not isinstance(self.actions, Choices):
            raise ConfigError("The environment gives an action mask, and continuous actions cannot be masked.")
        proposals = self._proposals(latent, generator) if self.config.plan_policy_samples else None
        value = self._value_of_plans(latent, generator, mask)
        return self.planner.plan(value, memory.mean, generator, proposals, explore=explore and mask is None)

    def _policy_action(self, latent: Tensor, generator: np.random.Generator) -> Tensor:
        """One action of the policy for each row."""
        parameters = self.policy(latent)
        noise = self.actions.noise_from(generator, *parameters.shape[:-1]).to(parameters.device)
        return self.actions.sample(parameters, noise)

    def _proposals(self, latent: Tensor, generator: np.random.Generator) -> Tensor:
        """[N, P, H, A] what the policy would do."""
        z, taken = latent.repeat_interleave(self.config.plan_policy_samples, 0), []
        for step in range(self.config.horizon):
            taken.append(self._policy_action(z, generator))
            if step + 1 < self.config.horizon:
                z = self.model.next(z, taken[-1])
        return torch.stack(taken, 1).unflatten(0, (len(latent), -1))

    def _value_of_plans(self, latent: Tensor, generator: np.random.Generator, mask: np.ndarray | None) -> Value:
        """Rewards along a plan and the value behind it, by the model."""
        model, gamma = self.model, float(self.model.gamma)
        start = latent.repeat_interleave(self.config.plan_samples, 0)

        def value(sequences: Tensor) -> Tensor:
            steps = sequences.flatten(0, 1).unbind(1)
            z, total, weight = start, start.new_zeros(len(start)), start.new_ones(len(start))
            for action in steps:
                reward, z = model.imagined(z, action)
                total = total + weight * reward
                weight = weight * (gamma * model.going_on(z))
            two = self._two_of(model.qs, generator.permutation(len(model.qs)))
            last = values(two, model.scalar, z, self._policy_action(z, generator)).mean(0)
            total = (total + weight * last).unflatten(0, sequences.shape[:2])
            if mask is not None:
                allowed = torch.from_numpy(mask).to(total.device).unsqueeze(1)  # [N, 1, A]
                total = total.masked_fill((sequences[:, :, 0] * ~allowed).any(-1), FORBIDDEN)
            return total

        return value

    @staticmethod
    def _two_of(qs: Any, order: Any) -> list[nn.Module]:
        """Two networks of an ensemble, drawn anew each time."""
        return [qs[int(index)] for index in order[:2]]

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
        latent = self._encoded(parts)
        planned = self._plan(latent, self.memory.forget(is_first), generator, mask, explore=True)
        self.memory = self._followed(planned)
        self.unusable += planned.unusable
        return planned.action.cpu().numpy(), {}

    # Learning

    def update_agent(self, batch: SequenceBatch, phase: PhaseView) -> UpdateResult:
        """One gradient step of the model, one of the policy."""
        data = time_first(batch.values, 0, self.context.device)
        # A window may cross into the next episode: from there on nothing of it counts.
        alive = (~data["is_first"][1:]).float().cumprod(0)  # [H, B] transitions
        rho = self.config.rho ** torch.arange(self.config.horizon + 1, device=alive.device).unsqueeze(1)
        self.model.train()
        with self.context.fabric.autocast():
            losses, metrics, latents = self._model_losses(data, alive, rho)
        metrics |= self._step("model", torch.stack(list(losses.values())).sum(), self.model)
        with self.context.fabric.autocast():
            policy_loss, more = self._policy_loss(latents, alive, rho)
        metrics |= self._step("policy", policy_loss, self.policy) | more
        self.model.eval()
        torch._foreach_lerp_(
            [p.data for p in self.slow_qs.parameters()], [p.data for p in self.model.qs.parameters()], self.config.tau
        )
        metrics |= {f"loss/{name}": loss.detach() for name, loss in losses.items()} | {
            "loss/policy": policy_loss.detach()
        }
        told: dict[str, Any] = {**metrics, **batch.metrics(), "controller/unusable_values": self.unusable.clone()}
        return UpdateResult(updates=1, metrics=told)

    def _model_losses(
        self, data: dict[str, Tensor], alive: Tensor, rho: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
        """What the model is trained by, each with its weight, and the latents of the rollout [H + 1, B, L]."""
        config, model, horizon = self.config, self.model, self.config.horizon
        observations, actions = data[f"observation/{model.key}"], data["action"][:-1]
        reward, terminal = data["reward"][1:], data["is_terminal"][1:].float()  # [H, B] of arriving
        with torch.no_grad():
            ahead = model.encoder(observations[1:].flatten(0, 1)).unflatten(0, (horizon, -1))
            target = self._targets(ahead, reward, terminal)
        z = model.encoder(observations[0])
        rollout = [z]
        for action in actions:
            z = model.next(z, action)
            rollout.append(z)
        latents = torch.stack(rollout)
        # A mean over what counts, for each step of the horizon, then over the horizon.
        weight = rho[:-1] * alive / alive.sum(1, keepdim=True).clamp(min=1) / horizon
        joint = torch.cat([latents[:-1], actions], -1)
        bins = model.scalar
        found = torch.stack([bins.loss(q(joint).float(), target) for q in model.qs]).mean(0)
        consistency = (latents[1:] - ahead).square().mean(-1)
        losses = {
            "consistency": config.consistency_coef * (weight * consistency).sum(),
            "reward": config.reward_coef * (weight * bins.loss(model.reward(joint).float(), reward)).sum(),
            "value": config.value_coef * (weight * found).sum(),
        }
        if model.end is not None:
            logits = model.end(latents[1:]).squeeze(-1).float()
            error = functional.binary_cross_entropy_with_logits(logits, terminal, reduction="none")
            losses["end"] = config.end_coef * (alive * error).sum() / alive.sum().clamp(min=1)
        metrics = {"controller/target": target.mean(), "world_model/consistency": consistency.mean()}
        return losses, {name: value.detach() for name, value in metrics.items()}, latents.detach()

    def _targets(self, ahead: Tensor, reward: Tensor, terminal: Tensor) -> Tensor:
        """r + gamma (1 - end) times the smaller of two slow values, [H, B]."""
        parameters = self.policy(ahead)
        action = self.actions.sample(parameters, self.actions.noise(*parameters.shape[:-1]).to(ahead.device))
        two = self._two_of(self.slow_qs, torch.randperm(len(self.slow_qs)))
        value = values(two, self.model.scalar, ahead, action).amin(0).float()
        return reward + self.model.gamma * (1 - terminal) * value

    def _policy_loss(self, latents: Tensor, alive: Tensor, rho: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Larger values and more entropy at all states of the rollout; the model is only read."""
        counts = torch.cat([torch.ones_like(alive[:1]), alive])
        weight = rho * counts / counts.sum(1, keepdim=True).clamp(min=1) / len(counts)
        parameters = self.policy(latents).float()
        action = self.actions.sample(parameters, self.actions.noise(*parameters.shape[:-1]).to(latents.device))
        with Passing(self.model):
            two = self._two_of(self.model.qs, torch.randperm(len(self.model.qs)))
            value = values(two, self.model.scalar, latents, action).mean(0).float()
        scale = self.scale.update(value[0])
        entropy = self.actions.entropy(parameters)
        loss = -(weight * (value / scale + self.hyperparameters.ent_coef * entropy)).sum()
        metrics = {
            "controller/value": value.mean(),
            "controller/value_scale": scale,
            "opt/policy/entropy": entropy.mean(),
        }
        return loss, {name: metric.detach() for name, metric in metrics.items()}

    def _step(self, name: str, loss: Tensor, module: nn.Module) -> dict[str, Tensor]:
        """A backward pass and a step of one optimiser; gives the gradient's norm."""
        if not torch.isfinite(loss):
            raise NonFiniteError(
                f"loss/{name} is not finite after {self.context.counters.updates} updates. A lower {name}_lr usually helps.",
                tensor=f"loss/{name}",
            )
        config, optimizer = self.config, self.optimizers[name]
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        parameters = [parameter for parameter in module.parameters() if parameter.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if config.max_grad_norm is not None:
            nn.utils.clip_grads_with_norm_(parameters, config.max_grad_norm, norm)
        rate = self.hyperparameters.model_lr if name == "model" else self.hyperparameters.policy_lr
        for number, group in enumerate(optimizer.param_groups):
            group["lr"] = rate * (config.encoder_lr_factor if name == "model" and number == 0 else 1.0)
        optimizer.step()
        return {f"opt/grads/norm/{name}": norm}

    def get_state(self) -> dict[str, Any]:
        """Generators, plans under way, and where the environments are."""
        return {
            "generators": {name: g.bit_generator.state for name, g in self.generators.items() if name != "replay"},
            "plans": self.memory.mean,
            "unusable": int(self.unusable),
            "collector": self.collector.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        for name, generator_state in state["generators"].items():
            self.generators[name].bit_generator.state = generator_state
        self.memory = Plans(torch.as_tensor(state["plans"]).to(self.context.device), self.memory.fresh)
        self.unusable.fill_(state["unusable"])
        self.collector.set_state(state["collector"])

    def describe(self) -> dict[str, Any]:
        """Derived numbers: parameters of each part, the discount, plans, memory of the replay."""
        config = self.config
        parts = {"encoder": self.model.encoder, "dynamics": self.model.dynamics, "reward": self.model.reward}
        parts |= {"values": self.model.qs, "policy": self.policy}
        described: dict[str, Any] = {f"parameters/{name}": count_parameters(part) for name, part in parts.items()}
        described |= {
            "batch": f"{config.batch_size} x {config.horizon} steps",
            "gamma": round(float(self.model.gamma), 5),
            "plan": f"{self.planner.samples} sequences of {config.horizon} actions, {self.planner.iterations} rounds",
            "updates_per_env_step": config.updates_per_step,
        }
        return described | (self.replay.describe() if self.context.train_environment is not None else {})
