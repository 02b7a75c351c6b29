"""Proximal policy optimisation (Schulman et al. 2017), with the details that make it work (Huang et al. 2022).

    collect            T steps in N environments with the current policy: observations, raw actions, rewards, endings
    update_controller  advantages by GAE; n_epochs times: shuffle all rows, cut into minibatches, and for each minimise

        L = -E[min(r A, clip(r, 1 - eps, 1 + eps) A)] + vf_coef 1/2 E[(V - R)^2] - ent_coef E[H]
        r = pi(a|s) / pi_old(a|s)

The 1/2 is that of OpenAI's baselines and CleanRL. Stable-Baselines3 has none: its vf_coef 0.5 is 1.0 here.

With `replay_ratio` > 0 older rollouts are learned from as well: ratio against the policy before the pass, weighted by that
policy over the one that acted (decoupled PPO, Hilton et al. 2022), with advantages made anew from the current values.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from gymlab.buffers.collector import RolloutCollector
from gymlab.buffers.rollout import Rollout, RolloutBuffer
from gymlab.components.analytic import AnalyticGradient
from gymlab.components.autograd import AutogradGradient
from gymlab.components.dead_units import DeadUnits
from gymlab.components.distributions import Distribution, distribution_for
from gymlab.components.flat import FlatParameters, count_parameters
from gymlab.components.minibatch import APPROX_KL, STATISTICS, Coefficients, Gatherer, Minibatch, UpdateLog, cut
from gymlab.components.observation import ObservationEncoder, RewardNormalizer
from gymlab.components.on_policy import (
    Normalization,
    OnPolicyConfig,
    acting_policy,
    check_decay,
    choose_actions,
    make_optimizers,
    not_negative,
    policy_network,
    share,
    yaml_switch,
)
from gymlab.components.optimizers import FlatOptimizer, optimizer_text
from gymlab.components.returns import episode_return, explained_variance, gae, reward_to_go, standardize
from gymlab.config.effects import NoEffect
from gymlab.config.reads import Reads
from gymlab.config.schedules import not_always_zero
from gymlab.config.schema import Config, Scalar
from gymlab.engine.workflow import CollectResult, PhaseView, UpdateResult, Workflow, register_workflow
from gymlab.errors import ConfigError

ROWS_AT_ONCE = 4096
"""Rows of a stored rollout that go through the network in one piece."""
LEAST_EFFECTIVE_SHARE = 0.5
"""A stored rollout whose effective sample size is a smaller share of its rows is too far from the policy."""
MONTE_CARLO = ("mc:rtg", "mc:episode")
METRICS = (
    *STATISTICS, "loss/entropy", "loss/total", "opt/value/explained_variance", "opt/advantages/mean", "opt/advantages/std",
    "opt/dead_units", "opt/grads/norm/*", "opt/ppo/stopped_early", "opt/replay/passes", "opt/replay/effective_sample_share",
)  # fmt: skip
"""What an update logs."""


class PPOConfig(OnPolicyConfig):
    """What a PPO experiment may set."""

    no_effect: ClassVar[tuple[NoEffect, ...]] = (
        NoEffect(("replay_buffer_size", "replay_is_clip"), "no stored rollout is learned from", {"replay_ratio": (0,)}),
        NoEffect(
            ("advantages_type", "normalize_advantages"),
            "returns are what the ratio is multiplied with",
            {"policy_targets": ("returns",)},
        ),
        NoEffect(
            ("normalize_returns",),
            "advantages are what the ratio is multiplied with",
            {"policy_targets": ("advantages",)},
        ),
        NoEffect(
            ("gae_lambda",),
            "nothing is a lambda-return",
            {"returns_type": MONTE_CARLO, "advantages_type": ("baseline",)},
        ),
        NoEffect(
            ("gae_lambda",), "nothing is a lambda-return", {"returns_type": MONTE_CARLO, "policy_targets": ("returns",)}
        ),
        NoEffect(("clip_range_vf",), "no value is learned", {"vf_coef": (0.0,)}),
    )

    # Rollout and minibatches
    batch_size: Annotated[int, Field(ge=1)] = 64
    """Rows of a minibatch; in a file, a number up to 1 is a fraction of the rollout. It divides n_envs x n_steps."""
    n_epochs: Annotated[int, Field(ge=1)] = 10
    """Passes over each rollout."""

    # Objective
    gae_lambda: Scalar = 0.95
    """Weight of long against short horizons in the advantages: 0 is the TD error, 1 Monte Carlo."""
    clip_range: Scalar = 0.2
    """How far the probability ratio may move from 1 before its gradient stops."""
    clip_range_vf: Scalar | None = None
    """How far a value may move from the one at collection; none: no clipping."""
    ent_coef: Scalar = 0.0
    """Weight of the entropy bonus."""
    vf_coef: Scalar = 0.5
    """Weight of the value loss, half the mean squared error, as in OpenAI's baselines and CleanRL. Stable-Baselines3 leaves the half out: take twice its vf_coef."""
    target_kl: Scalar | None = None
    """An update stops when the approximate KL of a minibatch passes 1.5 times this; none: never."""
    normalize_advantages: Normalization = "batch"
    """Give advantages mean 0 and deviation 1: within each minibatch, over the rollout, or not at all."""
    returns_type: Literal["gae:rtg", "mc:rtg", "mc:episode"] = "gae:rtg"
    """Targets of the value function: lambda-returns, discounted reward to go, or the return of the whole episode."""
    advantages_type: Literal["gae", "baseline"] = "gae"
    """Generalised advantage estimates, or returns minus values."""
    policy_targets: Literal["advantages", "returns"] = "advantages"
    """What the probability ratio is multiplied with."""
    normalize_returns: Normalization = "off"
    """As normalize_advantages, where policy_targets is returns."""

    # Optimiser
    policy_lr: Scalar = 3e-4
    """Learning rate of policy and value."""
    update_backend: Literal["auto", "eager", "compile", "analytic"] = "auto"
    """Gradients written out in numpy (analytic: MLPs on the CPU), by autograd, or of a compiled loss; auto: analytic if possible."""

    # Reuse of older rollouts
    replay_ratio: Annotated[int, Field(ge=0)] = 0
    """Passes over stored rollouts after each update; 0: plain PPO."""
    replay_buffer_size: Annotated[int, Field(ge=1)] = 16_384
    """Environment steps kept for reuse."""
    replay_is_clip: Annotated[float, Field(gt=0)] = 10.0
    """Largest importance weight of a stored row."""

    _switches = field_validator("normalize_advantages", "normalize_returns", mode="before")(yaml_switch)
    _shares = field_validator("gae_lambda")(share)
    _clips = field_validator("clip_range")(not_always_zero)
    _not_negative = field_validator("clip_range", "clip_range_vf", "vf_coef", "policy_lr", "target_kl")(not_negative)


@register_workflow("ppo")
class PPO(Workflow):
    """The algorithm, hook by hook."""

    Config: ClassVar[type[Config]] = PPOConfig
    mixed_precision: ClassVar[bool] = True
    reads: ClassVar[Reads] = Reads(optimizers={"policy": "policy_lr"}, metrics=METRICS)
    phases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"name": "ppo", "type": "online", "hooks": ["collect", "update_controller"], "buffer": "rollout"},
    )
    config: PPOConfig
    hyperparameters: Any

    def initialize(self) -> None:
        """Encoder, network, the way it acts and the way it learns."""
        context, config = self.context, self.config
        self.encoder = ObservationEncoder(context.observation_space, config.normalize_obs)
        self.distribution = distribution_for(context.action_space)
        seed = context.seeds.child("ppo", "network").integer()
        network = policy_network(config, self.encoder, self.distribution, seed).to(context.device)
        self.modules = {"policy": network, "encoder": self.encoder}
        self.flat = FlatParameters(network)
        self.generators = {name: context.seeds.child("ppo", name).generator() for name in ("act", "collect", "shuffle")}
        self._choose_backend(network)
        if context.train_environment is not None:
            self._prepare_training(network)

    def _choose_backend(self, network: Any) -> None:
        fabric, config = self.context.fabric, self.config
        self.policy, obstacle = acting_policy(
            network, self.flat, config, is_image=self.encoder.is_image, device=self.context.device, fabric=fabric
        )
        if not obstacle and fabric is not None and fabric.world_size > 1:
            obstacle = f"gradients of {fabric.world_size} processes are averaged by autograd"
        if config.update_backend == "analytic" and obstacle:
            raise ConfigError(f"update_backend: analytic cannot be used here: {obstacle}. Set update_backend: auto.")
        self.update_backend: str = config.update_backend
        if config.update_backend == "auto":
            self.update_backend = "eager" if obstacle else "analytic"

    def _prepare_training(self, network: Any) -> None:
        context, config = self.context, self.config
        rates = {"policy": self.hyperparameters.policy_lr}
        self.optimizers = make_optimizers(config, {"policy": [self.flat.parameter]}, rates, context.optimizers)
        self.stepper = FlatOptimizer(self.flat, self.optimizers["policy"])
        self.gradient: AnalyticGradient | AutogradGradient
        if self.update_backend == "analytic":
            self.gradient = AnalyticGradient(network, self.flat, self.distribution)
        else:
            fabric = context.fabric
            if fabric is not None and (fabric.world_size > 1 or config.precision != "32-true"):
                network = fabric.setup_module(network)
            compiled = self.update_backend == "compile"
            loss = partial(surrogate_loss, distribution=self.distribution)
            self.gradient = AutogradGradient(network, self.flat, loss, fabric=fabric, compiled=compiled)
        environment = context.train_environment
        self.collector = RolloutCollector(
            environment,
            self.encoder,
            self.distribution,
            self.policy,
            self.generators["collect"],
            steps=config.n_steps,
            reward_normalizer=(
                RewardNormalizer(self.hyperparameters.gamma, environment.num_envs) if config.normalize_reward else None
            ),
            double_buffer=config.double_buffer,
            stop_requested=context.stop_requested,
        )
        self.gatherer = Gatherer()
        self.dead_units = DeadUnits(self.policy, self.modules["policy"])

    def default_buffers(self) -> dict[str, Any]:
        """The rollout's buffer; it keeps older rollouts when they are learned from again."""
        return {"rollout": RolloutBuffer(self.config.replay_buffer_size if self.config.replay_ratio else 0)}

    def act(
        self,
        observation: np.ndarray,
        state: Any = None,
        *,
        deterministic: bool = False,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Any, dict[str, np.ndarray]]:
        """Actions for a batch of raw observations, with probabilities (where there are any), log_prob and value."""
        parameters, values = self.policy(self.encoder.encode(observation, update=False))
        actions, extras = choose_actions(
            self.distribution,
            parameters,
            self.generators["act"],
            deterministic=deterministic,
            action_mask=action_mask,
        )
        return actions, state, extras | {"value": values}

    def collect(self, phase: PhaseView) -> CollectResult:
        """One rollout with the current policy: n_steps in each environment, fewer where the budget ends before."""
        length = phase.steps(self.config.n_steps, self.context.train_environment.num_envs)
        if self.collector.reward_normalizer is not None:
            self.collector.reward_normalizer.gamma = self.hyperparameters.gamma
        collected = self.collector.collect(length)
        if collected is None:
            return CollectResult(env_steps=0, vec_steps=0, interrupted=True)
        rollout, episodes = collected
        return CollectResult(
            env_steps=self.collector.transitions, vec_steps=length, trajectory=rollout, episodes=tuple(episodes)
        )

    def update_controller(self, batch: list[Rollout], phase: PhaseView) -> UpdateResult:
        """n_epochs over the newest rollout, then replay_ratio passes over stored ones."""
        fresh, *stored = batch
        config, hp = self.config, self.hyperparameters
        self.stepper.set_lr(hp.policy_lr)
        self.coefficients = Coefficients(hp.clip_range, hp.clip_range_vf, hp.vf_coef, hp.ent_coef)
        self.log = UpdateLog(self.stepper.part_names)
        rows = fresh.valid_rows()
        if not len(rows):
            return UpdateResult(updates=0)
        columns = self._columns(fresh, fresh.values, fresh.bootstrap_values, fresh.log_probs)
        advantages = columns.advantages[rows]
        metrics = {
            "opt/value/explained_variance": explained_variance(columns.values[rows], columns.returns[rows]),
            "opt/advantages/mean": float(advantages.mean()),
            "opt/advantages/std": float(advantages.std()),
        }
        on_advantages = config.policy_targets == "advantages"
        normalization = config.normalize_advantages if on_advantages else config.normalize_returns
        if normalization == "rollout":
            columns.advantages[rows] = standardize(advantages)
        stopped = self._fit(columns, rows, fresh.size, config.n_epochs, standardize_each=normalization == "batch")
        if stored and not stopped:
            metrics |= self._replay(stored)
        counters = self.context.counters
        metrics |= self.log.means(f"the update after {counters.env_steps} env steps ({counters.updates} updates)")
        metrics["loss/entropy"] = -metrics["opt/policy/entropy"]
        metrics["loss/total"] = (
            metrics["loss/policy"] + hp.vf_coef * metrics["loss/value"] + hp.ent_coef * metrics["loss/entropy"]
        )
        metrics |= self.dead_units.metrics(columns.observations, rows, counters.epoch)
        if hp.target_kl is not None:
            metrics["opt/ppo/stopped_early"] = float(stopped)
        if isinstance(self.gradient, AutogradGradient) and self.gradient.compile_seconds is not None:
            metrics["sys/compile_seconds"] = self.gradient.compile_seconds
        return UpdateResult(updates=len(self.log.norms), metrics=metrics)

    def _columns(
        self, rollout: Rollout, values: np.ndarray, bootstrap_values: np.ndarray, log_probs: np.ndarray
    ) -> Minibatch:
        """Targets for the policy and the value function, all rows flattened to [T * N]."""
        config, hp = self.config, self.hyperparameters
        next_values = rollout.next_values(values, bootstrap_values)
        endings = (rollout.terminated, rollout.truncated)
        advantages = gae(rollout.rewards, values, next_values, *endings, hp.gamma, hp.gae_lambda)
        if config.returns_type == "gae:rtg":
            returns = advantages + values
        else:
            returns = reward_to_go(rollout.rewards, next_values, *endings, hp.gamma)
            if config.returns_type == "mc:episode":
                returns = episode_return(returns, rollout.terminated | rollout.truncated)
        if config.advantages_type == "baseline":
            advantages = returns - values
        if config.policy_targets == "returns":
            advantages = returns.copy()
        masks = rollout.action_masks
        return Minibatch(
            observations=rollout.flat(rollout.observations),
            actions=rollout.flat(rollout.actions),
            log_probs=log_probs.reshape(-1),
            advantages=advantages.reshape(-1),
            returns=returns.reshape(-1),
            values=values.reshape(-1),
            action_masks=None if masks is None else rollout.flat(masks),
        )

    def _fit(self, columns: Minibatch, rows: np.ndarray, total: int, epochs: int, *, standardize_each: bool) -> bool:
        """Minibatch steps over `rows` of the columns; True when target_kl ended them early."""
        hp, log = self.hyperparameters, self.log
        bounds = cut(len(rows), self.config.batch_size, total)
        for _ in range(epochs):
            order = self.generators["shuffle"].permutation(rows)
            for batch in self.gatherer.minibatches(columns, order, bounds, standardize_each=standardize_each):
                statistics = self.gradient(batch, self.coefficients)
                log.statistics.append(statistics)
                if hp.target_kl is not None and self._over_processes(statistics[APPROX_KL]) > 1.5 * hp.target_kl:
                    return True
                log.norms.append(self.stepper.clip(hp.max_grad_norm))
                self.stepper.step()
        return False

    def _over_processes(self, value: Any) -> float:
        """The mean over all processes: they must agree when to stop, or they would wait for each other forever."""
        fabric = self.context.fabric
        distributed = fabric is not None and fabric.world_size > 1
        return float(fabric.all_reduce(torch.as_tensor(value, device=fabric.device)) if distributed else value)

    def _replay(self, stored: list[Rollout]) -> dict[str, float]:
        """One pass over a stored rollout at a time, as long as it is near enough to the policy."""
        shares = []
        passes = 0
        for _ in range(self.config.replay_ratio):
            rollout = stored[self.generators["shuffle"].integers(len(stored))]
            rows = rollout.valid_rows()
            parameters, values = self._evaluate(rollout.flat(rollout.observations))
            if rollout.action_masks is not None:
                parameters = self.distribution.mask(parameters, rollout.flat(rollout.action_masks))
            log_probs = self.distribution.log_prob(parameters, rollout.flat(rollout.actions))
            weights = np.exp(np.clip(log_probs - rollout.log_probs.reshape(-1), -10, 10))
            shares.append(self._over_processes(effective_share(weights[rows])))
            if shares[-1] < LEAST_EFFECTIVE_SHARE:
                continue
            bootstrap_values = self._evaluate(rollout.bootstrap_observations)[1]
            columns = self._columns(rollout, values.reshape(rollout.rewards.shape), bootstrap_values, log_probs)
            columns.advantages[rows] = standardize(columns.advantages[rows])
            columns.advantages *= np.minimum(weights, np.float32(self.config.replay_is_clip))
            passes += 1
            if self._fit(columns, rows, rollout.size, 1, standardize_each=False):
                break
        return {"opt/replay/effective_sample_share": float(np.mean(shares)), "opt/replay/passes": float(passes)}

    def _evaluate(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distribution parameters and values of many rows, a piece at a time."""
        pieces = [
            self.policy(observations[start : start + ROWS_AT_ONCE])
            for start in range(0, len(observations), ROWS_AT_ONCE)
        ]
        return np.concatenate([piece[0] for piece in pieces]), np.concatenate([piece[1] for piece in pieces])

    def get_state(self) -> dict[str, Any]:
        """Random generators and what the collector knows."""
        generators = self.random_states()
        training = self.context.train_environment is not None
        return {"generators": generators, "collector": self.collector.get_state() if training else None}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave; the optimizers have theirs already."""
        check_decay(self.config, self.optimizers)
        self.set_random_states(state["generators"])
        if self.context.train_environment is not None and state["collector"] is not None:
            self.collector.set_state(state["collector"])

    def describe(self) -> dict[str, Any]:
        """Derived numbers: parameters, rollout, minibatches, updates per step, memory."""
        config = self.config
        minibatches = len(cut(config.rollout_size, config.batch_size, config.rollout_size)) - 1
        updates = minibatches * config.n_epochs
        numbers: dict[str, Any] = {
            f"parameters/{name}": count_parameters(module) for name, module in self.modules.items()
        }
        numbers |= {f"parameters/policy/{part}": place.stop - place.start for part, place in self.flat.parts().items()}
        numbers |= {
            "rollout_rows": config.rollout_size,
            "minibatch_rows": config.batch_size,
            "minibatches_per_epoch": minibatches,
            "updates_per_rollout": updates,
            "updates_per_env_step": updates / config.rollout_size,
            "update_backend": self.update_backend,
        }
        if self.context.train_environment is not None:
            numbers["optimizer"] = optimizer_text(self.optimizers["policy"])
            numbers |= {"double_buffer": "on"} if self.collector.halves else {}
            memory = self.collector.storage.nbytes
            numbers["rollout_memory_bytes"] = memory
            if config.replay_ratio:
                numbers["replay_memory_bytes"] = memory * max(1, config.replay_buffer_size // config.rollout_size)
        return numbers


def surrogate_loss(
    parameters: Tensor, values: Tensor, batch: Minibatch, coefficients: Coefficients, distribution: Distribution
) -> tuple[Tensor, Tensor]:
    """L as at the head of this file, and STATISTICS. `components/analytic.py` is the same, differentiated by hand."""
    epsilon = coefficients.clip_range
    parameters = distribution.mask(parameters, batch.action_masks)
    log_prob, entropy = distribution.log_prob_and_entropy(parameters, batch.actions)  # [B], [B]
    assert log_prob.shape == values.shape == batch.advantages.shape == batch.returns.shape
    log_ratio = log_prob - batch.log_probs
    ratio = log_ratio.exp()
    objective = torch.minimum(ratio * batch.advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * batch.advantages)
    squared_error = (values - batch.returns).square()
    if coefficients.clip_range_vf is not None:
        move = (values - batch.values).clamp(-coefficients.clip_range_vf, coefficients.clip_range_vf)
        squared_error = torch.maximum(squared_error, (batch.values + move - batch.returns).square())
    losses = {"policy": -objective.mean(), "value": 0.5 * squared_error.mean(), "entropy": -entropy.mean()}
    weights = {"policy": 1.0, "value": coefficients.vf_coef, "entropy": coefficients.ent_coef}
    assert losses.keys() == weights.keys()
    loss = sum((weights[name] * losses[name] for name in losses), torch.zeros((), device=values.device))
    with torch.no_grad():
        # k3 of Schulman's "Approximating KL divergence": never negative, unbiased, and of low variance.
        approx_kl = (ratio - 1 - log_ratio).mean()
        clip_fraction = ((ratio - 1).abs() > epsilon).float().mean()
        statistics = torch.stack([losses["policy"], losses["value"], -losses["entropy"], approx_kl, clip_fraction])
    return loss, statistics


def effective_share(weights: np.ndarray) -> float:
    """Effective sample size (sum w)^2 / sum w^2 as a share of the number of weights: 1 when all are equal."""
    if not len(weights):
        return 0.0
    weights = weights.astype(np.float64)
    return float(weights.sum() ** 2 / (weights @ weights) / len(weights))
