"""Brax's own PPO (Freeman et al. 2021), on Brax's environments: rollouts, gradient steps and physics in one compiled program.

    collect            one of Brax's training steps: batch_size x num_minibatches pieces of unroll_length steps, then
                       num_updates_per_batch passes of num_minibatches gradient steps over them
    update_controller  tells what those gradient steps made; the program has taken them already

The mathematics are Brax's (`brax.training.agents.ppo`), and it is called as it is. Brax gives its parameters and the statistics of
observations away, but not the state of its optimizer and environments: a resumed run goes on with the former and begins the latter anew.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, field_validator, model_validator

from gymlab.components.brax_training import UNENDING, BraxTraining
from gymlab.components.jax_arrays import ArrayTree
from gymlab.config.effects import ALL_AT_ONCE, NoEffect
from gymlab.config.reads import Reads
from gymlab.config.schema import Config
from gymlab.engine.workflow import CollectResult, PhaseView, UpdateResult, Workflow, register_workflow
from gymlab.envs.families.brax import MAX_EPISODE_STEPS, PREFIX, import_brax, make_environment
from gymlab.envs.families.brax_vector import options_text
from gymlab.errors import ConfigError

logger = logging.getLogger(__name__)

METRICS = {
    "training/total_loss": "loss/total",
    "training/policy_loss": "loss/policy",
    "training/v_loss": "loss/value",
    "training/entropy_loss": "loss/entropy",
    "training/kl_mean": "opt/policy/kl",
    "training/policy_dist_mean_std": "opt/policy/std",
}
"""What Brax calls a number, and what it is called here."""
PARTS = ("normalizer", "policy", "value")
"""Parameters in Brax's order."""
LARGEST_SEED = 2**31 - 1

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]


class BraxPPOConfig(Config):
    """What an experiment with Brax's PPO may set. Numbers are compiled into the program: none of them can change during a run."""

    no_effect: ClassVar[tuple[NoEffect, ...]] = (
        ALL_AT_ONCE,
        NoEffect(
            ("env_wrappers", "grayscale_obs", "resize_obs", "frame_stack", "obs_type", "normalize_reward"),
            "it trains on Brax's environments as they are; ppo does not",
            satisfied=("vector",),
        ),
        NoEffect(("precision",), "JAX computes, in 32 bit"),
        NoEffect(("env_workers", "env_step_timeout", "env_restarts"), "the environments are compiled into the program"),
    )

    # Rollout and minibatches
    unroll_length: Count = 5
    """Steps in a row that one piece of experience has; advantages are bootstrapped at its end."""
    batch_size: Count = 1024
    """Pieces in a minibatch; times num_minibatches it is a multiple of n_envs."""
    num_minibatches: Count = 32
    """Minibatches that a training step cuts its experience into."""
    num_updates_per_batch: Count = 4
    """Passes over the experience of a training step."""

    # Objective
    gamma: Share = 0.97
    """Discount of future rewards; Brax calls it discounting."""
    gae_lambda: Share = 0.95
    """Weight of long against short horizons in the advantages."""
    clip_range: Annotated[float, Field(gt=0)] = 0.3
    """How far the probability ratio may move from 1 before its gradient stops; Brax's clipping_epsilon."""
    ent_coef: NotNegative = 1e-2
    """Weight of the entropy bonus; Brax's entropy_cost."""
    vf_coef: NotNegative = 0.5
    """Weight of the value loss, half the mean squared error, as in PPO here and in CleanRL."""
    reward_scaling: Annotated[float, Field(gt=0)] = 1.0
    """What rewards are multiplied with in the loss; returns that are logged are not."""

    # Optimiser
    policy_lr: NotNegative = 3e-4
    """Learning rate of policy and value; Brax's optimizer is optax's Adam, eps 1e-8, without weight decay."""
    max_grad_norm: Annotated[float, Field(gt=0)] | None = None
    """The gradient is scaled down to this norm; none: never."""

    # Network
    policy_hidden_dims: tuple[Count, ...] = (32, 32, 32, 32)
    """Widths of the policy's layers, with swish between them."""
    value_hidden_dims: tuple[Count, ...] = (256, 256, 256, 256, 256)
    """Widths of the value function's layers; on a CPU most of an update is spent here."""

    @field_validator("policy_hidden_dims", "value_hidden_dims", mode="before")
    @classmethod
    def _tuples(cls, value: Any) -> Any:
        # Strict validation refuses a list once a validator has had it.
        return (value,) if isinstance(value, int) else tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _fits_together(self) -> BraxPPOConfig:
        if self.max_env_steps is not None:
            whole = self.max_env_steps // self.training_step * self.training_step
            if whole == 0:
                raise ValueError(
                    f"max_env_steps {self.max_env_steps} is less than one of Brax's training steps: batch_size {self.batch_size} x "
                    f"num_minibatches {self.num_minibatches} x unroll_length {self.unroll_length} = {self.training_step} env steps"
                )
            # A program takes whole training steps, and a budget is never exceeded.
            object.__setattr__(self, "max_env_steps", whole)
        pieces = self.batch_size * self.num_minibatches
        if pieces % self.n_envs:
            raise ValueError(
                f"batch_size {self.batch_size} x num_minibatches {self.num_minibatches} = {pieces} pieces cannot be shared "
                f"out evenly to n_envs {self.n_envs}: make it a multiple"
            )
        return self

    @property
    def training_step(self) -> int:
        """Environment steps of one training step; max_env_steps is rounded down to a multiple."""
        return self.batch_size * self.num_minibatches * self.unroll_length

    @property
    def n_steps(self) -> int:
        """Steps in each environment in one training step."""
        return self.training_step // self.n_envs

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of one training step."""
        return self.num_minibatches * self.num_updates_per_batch


@register_workflow("brax_ppo")
class BraxPPO(Workflow):
    """The algorithm, hook by hook."""

    Config: ClassVar[type[Config]] = BraxPPOConfig
    one_process: ClassVar[bool] = True
    reads: ClassVar[Reads] = Reads(metrics=tuple(METRICS.values()))
    phases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"name": "brax_ppo", "type": "online", "hooks": ["collect", "update_controller"]},
    )
    config: BraxPPOConfig

    def initialize(self) -> None:
        """Brax's networks with parameters as `ppo.train` would draw them, and the compiled way to act."""
        context, config = self.context, self.config
        self._check_config()
        import_brax(config.env_id)
        import jax
        from brax.training.acme import running_statistics, specs
        from brax.training.agents.ppo import networks

        assert context.observation_space.shape is not None
        assert context.action_space.shape is not None
        self.network_factory = partial(
            networks.make_ppo_networks,
            policy_hidden_layer_sizes=config.policy_hidden_dims,
            value_hidden_layer_sizes=config.value_hidden_dims,
        )
        normalizes = config.normalize_obs == "rolling"
        shape = context.observation_space.shape
        options = {"preprocess_observations_fn": running_statistics.normalize} if normalizes else {}
        self.networks = self.network_factory(shape, context.action_space.shape[0], **options)

        def draw(seed: int) -> dict[str, Any]:
            keys = jax.random.split(jax.random.split(jax.random.PRNGKey(seed))[0])
            return {
                "normalizer": running_statistics.init_state(specs.Array(shape, np.dtype(np.float32))),
                "policy": self.networks.policy_network.init(keys[0]),
                "value": self.networks.value_network.init(keys[1]),
            }

        # To act, only the shapes are needed: the numbers come from a checkpoint.
        drawn = draw(self._seed) if context.train_environment is not None else jax.eval_shape(draw, 0)
        self.parameters = ArrayTree(drawn)
        self.modules = {"brax": self.parameters}
        self._infer = jax.jit(partial(_infer, self.networks), static_argnames="deterministic")
        self.generators["act"] = context.seeds.child("brax_ppo", "act").generator()
        self.training: BraxTraining | None = None
        self.learned: dict[str, float] = {}

    def _check_config(self) -> None:
        config = self.config
        if not config.env_id.startswith(PREFIX):
            raise ConfigError(
                f"brax_ppo compiles Brax's environments ({PREFIX}...) into itself; {config.env_id} is none. Use ppo."
            )
        if config.normalize_obs == "static":
            raise ConfigError(
                "normalize_obs: static needs bounds, which Brax's observations have none of. Use rolling or off."
            )

    @property
    def _seed(self) -> int:
        """Brax's seed from here on: a resumed run does not repeat the numbers that it began with."""
        seeds = self.context.seeds.child("brax_ppo", "train", self.context.counters.env_steps)
        return seeds.integer() % LARGEST_SEED

    def act(
        self,
        observation: np.ndarray,
        state: Any = None,
        *,
        deterministic: bool = False,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Any, dict[str, np.ndarray]]:
        """Actions from -1 to 1 for a batch of raw observations, with value and, where they are drawn, log_prob."""
        key = self.generators["act"].integers(2**32, size=2, dtype=np.uint32)
        actions, extras = self._infer(
            self.parameters.tree, np.asarray(observation, dtype=np.float32), key, deterministic=deterministic
        )
        return np.array(actions), state, {name: np.array(value) for name, value in extras.items()}

    def collect(self, phase: PhaseView) -> CollectResult:
        """One training step of Brax's."""
        config = self.config
        if phase.remaining_env_steps is not None and phase.remaining_env_steps < config.training_step:
            raise ConfigError(
                f"Phase {phase.name!r} leaves {phase.remaining_env_steps} env steps to a training step of {config.training_step}: "
                "make its duration_steps a multiple."
            )
        if self.training is None:
            self.training = self._begin()
        progress = self.training.advance(self.context.stop_requested)
        if progress is None:
            return CollectResult(env_steps=0, vec_steps=0, interrupted=True, begins_anew=True)
        self.parameters.take(dict(zip(PARTS, progress.parameters, strict=True)))
        self.learned = {name: progress.metrics[key] for key, name in METRICS.items() if key in progress.metrics}
        return CollectResult(env_steps=config.training_step, vec_steps=config.n_steps, episodes=progress.episodes)

    def _begin(self) -> BraxTraining:
        """Brax's training from the parameters of now on."""
        config, start = self.config, self.parameters.tree
        name = config.env_id.removeprefix(PREFIX).replace("-", "_")
        return BraxTraining(
            make_environment(name, options_text(config.env_kwargs)),
            # Brax never evaluates here and sets its evaluation up all the same: this one costs nothing to compile.
            eval_env=make_environment("fast", "{}"),
            num_eval_envs=1,
            num_timesteps=UNENDING * config.training_step * config.frame_skip,
            num_evals=UNENDING + 1,
            num_envs=config.n_envs,
            episode_length=config.max_episode_steps or MAX_EPISODE_STEPS,
            action_repeat=config.frame_skip,
            unroll_length=config.unroll_length,
            batch_size=config.batch_size,
            num_minibatches=config.num_minibatches,
            num_updates_per_batch=config.num_updates_per_batch,
            learning_rate=config.policy_lr,
            entropy_cost=config.ent_coef,
            discounting=config.gamma,
            gae_lambda=config.gae_lambda,
            clipping_epsilon=config.clip_range,
            vf_loss_coefficient=config.vf_coef,
            reward_scaling=config.reward_scaling,
            max_grad_norm=config.max_grad_norm,
            normalize_observations=config.normalize_obs == "rolling",
            network_factory=self.network_factory,
            restore_params=tuple(start[part] for part in PARTS),
            seed=self._seed,
        )

    def update_controller(self, batch: None, phase: PhaseView) -> UpdateResult:
        """Count the gradient steps that the training step has taken, and tell their losses."""
        learned, self.learned = self.learned, {}
        return UpdateResult(updates=self.config.gradient_steps, metrics=learned)

    def get_state(self) -> dict[str, Any]:
        """The generator for acting, and what a training step learned that was not told yet."""
        return {"generator": self.generators["act"].bit_generator.state, "learned": dict(self.learned)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave, and say what Brax cannot."""
        self.generators["act"].bit_generator.state = state["generator"]
        self.learned = dict(state["learned"])
        logger.warning(
            "Brax's PPO goes on from the saved parameters and statistics of observations. Its optimizer and its environments "
            "begin anew, as Brax gives no access to them: the run is not the one that would have been without the stop."
        )

    def describe(self) -> dict[str, Any]:
        """Derived numbers: parameters, size of a training step, horizon of the discount."""
        config = self.config
        return {
            **{f"parameters/{part}": self.parameters.count(part) for part in ("policy", "value")},
            "env_steps_per_training_step": config.training_step,
            "steps_per_env": config.n_steps,
            "minibatch_rows": config.batch_size * config.unroll_length,
            "updates_per_training_step": config.gradient_steps,
            "optimizer": "Adam of optax, eps 1e-08, no weight decay",
            "horizon_steps": round(1 / (1 - config.gamma)) if config.gamma < 1 else "endless",
        }


def _infer(networks: Any, tree: Any, observation: Any, key: Any, *, deterministic: bool) -> tuple[Any, dict[str, Any]]:
    """Actions [N, A] and what is told beside, in one compiled program."""
    from brax.training.agents.ppo.networks import make_inference_fn

    policy = make_inference_fn(networks)(tuple(tree[part] for part in PARTS), deterministic)
    actions, told = policy(observation, key)
    value = networks.value_network.apply(tree["normalizer"], tree["value"], observation)
    return actions, {"value": value, **{name: told[name] for name in ("log_prob",) if name in told}}
