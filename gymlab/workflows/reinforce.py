"""REINFORCE (Williams 1992; Sutton & Barto 2018, chapter 13): the policy gradient in its plain form.

    collect            whole episodes with the current policy
    update_controller  Psi for each step, then a step of the optimizer on

        L = -E[log pi(a|s) Psi] - ent_coef E[H]          E: the mean over all valid steps, not over episodes

With policy_targets returns Psi is the return itself; with advantages a learned baseline is taken off it:

    returns_type   returns      advantages                        G_t = r_t + gamma r_t+1 + gamma^2 r_t+2 + ...
    mc:rtg         G_t          G_t - V(s_t)                      what came before an action cannot be its merit
    mc:episode     G_0          G_0 - V(s_0)                      the whole episode, at each of its steps

V learns G_t by its own optimizer, L_V = 1/2 E[(V - G_t)^2], after Psi was made with the values at collection.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from gymlab.buffers.collector import RolloutCollector
from gymlab.buffers.rollout import Rollout, RolloutBuffer
from gymlab.components.autograd import AutogradGradient
from gymlab.components.dead_units import DeadUnits
from gymlab.components.distributions import Distribution, distribution_for
from gymlab.components.flat import FlatParameters
from gymlab.components.minibatch import Coefficients, Gatherer, Minibatch, UpdateLog, cut
from gymlab.components.networks import POLICIES
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
    yaml_switch,
)
from gymlab.components.optimizers import optimizer_text
from gymlab.components.returns import episode_return, episode_steps, explained_variance, reward_to_go, standardize
from gymlab.config.effects import NoEffect
from gymlab.config.reads import Reads
from gymlab.config.schema import Config, Scalar
from gymlab.engine.workflow import CollectResult, PhaseView, UpdateResult, Workflow, register_workflow
from gymlab.errors import ConfigError

STATISTICS = ("loss/policy", "loss/value", "opt/policy/entropy")
"""What the loss reports about its minibatch, in this order."""
METRICS = (
    *STATISTICS, "loss/entropy", "loss/total", "opt/value/explained_variance", "opt/psi/mean", "opt/psi/std",
    "opt/dead_units", "opt/grads/norm/*",
)  # fmt: skip
"""What an update logs."""
ROLLOUTS_OF_RUNNING_MEAN = 20
"""Rollouts before the present one whose mean return is the baseline of `normalize_returns: baseline`."""


class ReinforceConfig(OnPolicyConfig):
    """What a REINFORCE experiment may set."""

    no_effect: ClassVar[tuple[NoEffect, ...]] = (
        NoEffect(
            ("value_lr", "normalize_advantages"), "there is no learned baseline", {"policy_targets": ("returns",)}
        ),
        NoEffect(
            ("normalize_returns",), "advantages are what log pi is multiplied with", {"policy_targets": ("advantages",)}
        ),
        NoEffect(
            ("double_buffer",),
            "whole episodes are collected from all environments at once",
            {"unfinished": ("finish",)},
            satisfied=(False,),
        ),
    )

    # Episodes and minibatches
    unfinished: Literal["finish", "bootstrap"] = "finish"
    """Episodes still running after n_steps: played to their end (what begins later is given up), or cut and worth V there."""
    batch_size: Annotated[int, Field(ge=1)] = 2048
    """Rows of a minibatch of n_envs x n_steps, which it divides; longer rollouts give as many, larger ones. 1 in a file: all rows."""
    n_epochs: Annotated[int, Field(ge=1)] = 1
    """Passes over each rollout; the estimate is exact in the first step only."""

    # Objective
    returns_type: Literal["mc:rtg", "mc:episode"] = "mc:rtg"
    """Return of a step: the discounted reward to go, or that of its whole episode."""
    policy_targets: Literal["returns", "advantages"] = "returns"
    """What log pi is multiplied with: returns, or returns minus a learned baseline."""
    normalize_returns: Literal["off", "batch", "rollout", "baseline"] = "off"
    """Where policy_targets is returns: mean 0 and deviation 1 within a minibatch or the rollout, or less the mean of 20 earlier rollouts."""
    normalize_advantages: Normalization = "off"
    """Where policy_targets is advantages: mean 0 and deviation 1 within each minibatch, over the rollout, or not at all."""
    discount_states: bool = False
    """Multiply step t by gamma^t, as the textbook does and hardly any code; needs whole episodes."""
    ent_coef: Scalar = 0.01
    """Weight of the entropy bonus."""

    # Optimisers
    policy_lr: Scalar = 1e-2
    """Learning rate of the policy."""
    value_lr: Scalar = 1e-2
    """Learning rate of the baseline, where policy_targets is advantages."""

    _switches = field_validator("normalize_returns", "normalize_advantages", mode="before")(yaml_switch)
    _not_negative = field_validator("policy_lr", "value_lr")(not_negative)

    @model_validator(mode="after")
    def _cut_episodes_need_values(self) -> ReinforceConfig:
        if self.unfinished == "bootstrap" and self.policy_targets == "returns":
            raise ValueError(
                "unfinished: bootstrap needs the learned baseline to value a cut episode: set policy_targets: advantages"
            )
        if self.unfinished == "bootstrap" and self.discount_states:
            raise ValueError("discount_states counts steps from an episode's start: set unfinished: finish")
        return self

    @property
    def has_baseline(self) -> bool:
        """Whether a value function is learned."""
        return self.policy_targets == "advantages"


@register_workflow("reinforce")
class Reinforce(Workflow):
    """The algorithm, hook by hook."""

    Config: ClassVar[type[Config]] = ReinforceConfig
    mixed_precision: ClassVar[bool] = True
    reads: ClassVar[Reads] = Reads(optimizers={"policy": "policy_lr", "value": "value_lr"}, metrics=METRICS)
    phases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"name": "reinforce", "type": "online", "hooks": ["collect", "update_controller"], "buffer": "rollout"},
    )
    config: ReinforceConfig
    hyperparameters: Any

    def initialize(self) -> None:
        """Encoder, network, the way it acts and the way it learns."""
        context, config = self.context, self.config
        self.encoder = ObservationEncoder(context.observation_space, config.normalize_obs)
        self.distribution = distribution_for(context.action_space)
        seed = context.seeds.child("reinforce", "network").integer()
        # A baseline with its own optimizer has its own network too, unless policy_kwargs say otherwise.
        apart = {"shared_trunk": False} if config.policy is None or config.policy in POLICIES else {}
        network = policy_network(config, self.encoder, self.distribution, seed, **apart).to(context.device)
        self.modules = {"policy": network, "encoder": self.encoder}
        self.flat = FlatParameters(network)
        self.parts = self._parts(network)
        self.policy, _ = acting_policy(
            network,
            self.flat,
            config,
            is_image=self.encoder.is_image,
            device=context.device,
            fabric=context.fabric,
        )
        self.generators = {
            name: context.seeds.child("reinforce", name).generator() for name in ("act", "collect", "shuffle")
        }
        self.earlier_means: deque[float] = deque(maxlen=ROLLOUTS_OF_RUNNING_MEAN)
        if context.train_environment is not None:
            self._prepare_training(network)

    def _parts(self, network: nn.Module) -> dict[str, list[nn.Parameter]]:
        """The parameters of each optimizer: the policy's, and the baseline's where there is one."""
        parts: dict[str, list[nn.Parameter]] = {"policy": [], "value": []}
        for name, parameter in network.named_parameters():
            parts["value" if name.startswith("critic_") else "policy"].append(parameter)
        if not self.config.has_baseline:
            del parts["value"]
        elif not parts["value"]:
            raise ConfigError(
                f"policy: {self.config.policy} has no parameters named critic_...: the baseline's own optimizer "
                f"finds them by that name. Rename them, or set policy_targets: returns."
            )
        return parts

    def _prepare_training(self, network: nn.Module) -> None:
        context, config, hp = self.context, self.config, self.hyperparameters
        rates = {"policy": hp.policy_lr, "value": hp.value_lr}
        self.optimizers = make_optimizers(config, self.parts, rates, context.optimizers)
        fabric = context.fabric
        if fabric is not None and (fabric.world_size > 1 or config.precision != "32-true"):
            network = fabric.setup_module(network)
        loss = partial(policy_gradient_loss, distribution=self.distribution)
        self.gradient = AutogradGradient(network, self.flat, loss, fabric=fabric)
        environment = context.train_environment
        self.collector = RolloutCollector(
            environment,
            self.encoder,
            self.distribution,
            self.policy,
            self.generators["collect"],
            steps=config.n_steps,
            reward_normalizer=RewardNormalizer(hp.gamma, environment.num_envs) if config.normalize_reward else None,
            double_buffer=config.double_buffer,
            stop_requested=context.stop_requested,
        )
        self.gatherer = Gatherer()
        self.dead_units = DeadUnits(self.policy, self.modules["policy"], critic=config.has_baseline)

    def default_buffers(self) -> dict[str, Any]:
        """The rollout's buffer: it is learned from once."""
        return {"rollout": RolloutBuffer()}

    def act(
        self,
        observation: np.ndarray,
        state: Any = None,
        *,
        deterministic: bool = False,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Any, dict[str, np.ndarray]]:
        """Actions for a batch of raw observations, with probabilities (where there are any), log_prob and any baseline's value."""
        x = self.encoder.encode(observation, update=False)
        actions, extras = choose_actions(
            self.distribution,
            self.policy.actor(x),
            self.generators["act"],
            deterministic=deterministic,
            action_mask=action_mask,
        )
        if self.config.has_baseline:
            extras["value"] = self.policy.critic(x)
        return actions, state, extras

    def collect(self, phase: PhaseView) -> CollectResult:
        """n_steps in each environment and on to the end of episodes; where the budget ends before, what has no end is given up."""
        length, limit = self.config.n_steps, None
        if phase.remaining_env_steps is not None:
            limit = max(1, phase.remaining_env_steps // self.context.train_environment.num_envs)
            length = min(length, limit)
        if self.collector.reward_normalizer is not None:
            self.collector.reward_normalizer.gamma = self.hyperparameters.gamma
        collected = self.collector.collect(length, finish=self.config.unfinished == "finish", limit=limit)
        if collected is None:
            return CollectResult(env_steps=0, vec_steps=0, interrupted=True)
        rollout, episodes = collected
        return CollectResult(
            env_steps=self.collector.transitions,
            vec_steps=len(rollout.rewards),
            trajectory=rollout,
            episodes=tuple(episodes),
        )

    def update_controller(self, batch: list[Rollout], phase: PhaseView) -> UpdateResult:
        """Psi of every step, then n_epochs over the rollout."""
        (rollout,) = batch
        config, hp = self.config, self.hyperparameters
        rows = rollout.valid_rows()
        if not len(rows):
            return UpdateResult(updates=0)
        columns = self._columns(rollout)
        psi = columns.advantages[rows]
        metrics = {"opt/psi/mean": float(psi.mean()), "opt/psi/std": float(psi.std())}
        if config.has_baseline:
            metrics["opt/value/explained_variance"] = explained_variance(columns.values[rows], columns.returns[rows])
        normalization = config.normalize_advantages if config.has_baseline else config.normalize_returns
        if normalization == "rollout":
            columns.advantages[rows] = standardize(psi)
        elif normalization == "baseline":
            columns.advantages -= self._running_mean(metrics["opt/psi/mean"])
        self.log = UpdateLog(list(self.parts), STATISTICS)
        self._fit(columns, rows, standardize_each=normalization == "batch")
        counters = self.context.counters
        metrics |= self.log.means(f"the update after {counters.env_steps} env steps ({counters.updates} updates)")
        metrics |= self.dead_units.metrics(columns.observations, rows, counters.epoch)
        metrics["loss/entropy"] = -metrics["opt/policy/entropy"]
        metrics["loss/total"] = metrics["loss/policy"] + hp.ent_coef * metrics["loss/entropy"]
        if not config.has_baseline:
            del metrics["loss/value"]
        return UpdateResult(updates=len(self.log.norms), metrics=metrics)

    def _columns(self, rollout: Rollout) -> Minibatch:
        """Psi (as advantages) and the baseline's targets (as returns), all rows flattened to [T * N]."""
        config, gamma = self.config, self.hyperparameters.gamma
        endings = (rollout.terminated, rollout.truncated)
        ended = rollout.terminated | rollout.truncated
        # An episode that a time limit or the rollout's end cut goes on in the baseline's eyes; without one it is over.
        next_values = rollout.next_values(rollout.values, rollout.bootstrap_values)
        next_values *= config.has_baseline
        returns = reward_to_go(rollout.rewards, next_values, *endings, gamma)  # [T, N]
        psi = returns - rollout.values if config.has_baseline else returns.copy()
        if config.returns_type == "mc:episode":
            psi = episode_return(psi, ended)
        if config.discount_states:
            psi *= np.float32(gamma) ** episode_steps(ended)
        masks = rollout.action_masks
        return Minibatch(
            observations=rollout.flat(rollout.observations),
            actions=rollout.flat(rollout.actions),
            log_probs=rollout.log_probs.reshape(-1),
            advantages=psi.reshape(-1),
            returns=returns.reshape(-1),
            values=rollout.values.reshape(-1),
            action_masks=None if masks is None else rollout.flat(masks),
        )

    def _running_mean(self, present: float) -> np.float32:
        """Mean of earlier rollouts, which no action of this one had a part in: the gradient stays unbiased.

        The first rollout has none before it and is measured against itself.
        """
        earlier = float(np.mean(self.earlier_means)) if self.earlier_means else present
        self.earlier_means.append(present)
        return np.float32(earlier)

    def _fit(self, columns: Minibatch, rows: np.ndarray, *, standardize_each: bool) -> None:
        """Minibatch steps of both optimizers over the valid rows."""
        config, hp = self.config, self.hyperparameters
        coefficients = Coefficients(None, None, vf_coef=float(config.has_baseline), ent_coef=hp.ent_coef)
        rates = {"policy": hp.policy_lr, "value": hp.value_lr}
        for part, optimizer in self.optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = rates[part]
        bounds = cut(len(rows), config.batch_size, config.rollout_size)
        max_norm = float("inf") if hp.max_grad_norm is None else hp.max_grad_norm
        for _ in range(config.n_epochs):
            order = self.generators["shuffle"].permutation(rows)
            for batch in self.gatherer.minibatches(columns, order, bounds, standardize_each=standardize_each):
                self.log.statistics.append(self.gradient(batch, coefficients))
                norms = [nn.utils.clip_grad_norm_(parameters, max_norm) for parameters in self.parts.values()]
                self.log.norms.append(torch.stack(norms))
                for optimizer in self.optimizers.values():
                    optimizer.step()

    def get_state(self) -> dict[str, Any]:
        """Random generators, earlier means, and what the collector knows."""
        training = self.context.train_environment is not None
        return {
            "generators": self.random_states(),
            "earlier_means": list(self.earlier_means),
            "collector": self.collector.get_state() if training else None,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave; the optimizers have theirs already."""
        check_decay(self.config, self.optimizers)
        self.set_random_states(state["generators"])
        self.earlier_means = deque(state["earlier_means"], maxlen=ROLLOUTS_OF_RUNNING_MEAN)
        if self.context.train_environment is not None and state["collector"] is not None:
            self.collector.set_state(state["collector"])

    def describe(self) -> dict[str, Any]:
        """Derived numbers: parameters, rollout, minibatches, memory."""
        config = self.config
        minibatches = len(cut(config.rollout_size, config.batch_size, config.rollout_size)) - 1
        numbers: dict[str, Any] = {
            f"parameters/{part}": sum(parameter.numel() for parameter in parameters)
            for part, parameters in self.parts.items()
        }
        numbers |= {
            "rollout_rows_at_least" if config.unfinished == "finish" else "rollout_rows": config.rollout_size,
            "minibatches_per_epoch": minibatches,
            "updates_per_rollout": minibatches * config.n_epochs,
        }
        numbers |= {f"{part}_optimizer": optimizer_text(optimizer) for part, optimizer in self.optimizers.items()}
        if self.context.train_environment is not None:
            if self.collector.halves and config.unfinished != "finish":
                numbers["double_buffer"] = "on"
            numbers["rollout_memory_bytes"] = self.collector.storage.nbytes
        return numbers


def policy_gradient_loss(
    parameters: Tensor, values: Tensor, batch: Minibatch, coefficients: Coefficients, distribution: Distribution
) -> tuple[Tensor, Tensor]:
    """L + L_V as at the head of this file, and STATISTICS. Psi is data: no gradient reaches the baseline through it."""
    parameters = distribution.mask(parameters, batch.action_masks)
    log_prob, entropy = distribution.log_prob_and_entropy(parameters, batch.actions)  # [B], [B]
    assert log_prob.shape == values.shape == batch.advantages.shape == batch.returns.shape
    losses = {
        "policy": -(log_prob * batch.advantages).mean(),
        "value": 0.5 * (values - batch.returns).square().mean(),
        "entropy": -entropy.mean(),
    }
    weights = {"policy": 1.0, "value": coefficients.vf_coef, "entropy": coefficients.ent_coef}
    assert losses.keys() == weights.keys()
    loss = sum((weights[name] * losses[name] for name in losses), torch.zeros((), device=values.device))
    return loss, torch.stack([losses["policy"], losses["value"], -losses["entropy"]]).detach()
