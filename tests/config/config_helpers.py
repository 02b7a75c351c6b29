"""Small algorithm schemas, and `load` with them."""

from typing import Any, Literal

from pydantic import Field

from gymlab.components.delta_iris_config import DeltaIRISConfig
from gymlab.components.dreamer_config import DreamerConfig
from gymlab.components.tdmpc_config import TDMPC2Config, TDMPCConfig
from gymlab.components.world_models_config import WorldModelsConfig
from gymlab.config import Loaded, load
from gymlab.config.schema import Config, Scalar

ALGORITHMS = ["brax_ppo", "delta_iris", "dreamer", "ppo", "q_learning", "reinforce", "tdmpc", "tdmpc2", "world_models"]


class SmallPPO(Config):
    n_steps: int = 2048
    batch_size: int = 64
    n_epochs: int = 10
    policy_lr: Scalar = 3e-4
    gamma: Scalar = 0.99
    gae_lambda: Scalar = 0.95
    clip_range: Scalar = 0.2
    clip_range_vf: Scalar | None = None
    ent_coef: Scalar = 0.0
    vf_coef: Scalar = 0.5
    max_grad_norm: Scalar | None = 0.5
    target_kl: float | None = None
    normalize_advantages: Literal["off", "batch", "rollout"] = "batch"
    optimizer: Literal["adam", "adamw", "sgd"] = "adamw"
    policy: str = "mlp"
    policy_kwargs: dict[str, Any] = Field(default_factory=dict)
    model_id: str | None = None
    hidden_dims: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    returns_type: str = "gae:rtg"
    advantages_type: str = "gae"
    policy_targets: Literal["returns", "advantages"] = "advantages"


class SmallReinforce(Config):
    n_steps: int = 2048
    batch_size: int = 2048
    policy_lr: Scalar = 1e-2
    gamma: Scalar = 0.99
    policy_targets: Literal["returns", "advantages"] = "returns"
    returns_type: str = "mc:rtg"
    normalize_returns: Literal["off", "batch", "rollout", "baseline"] = "off"
    value_lr: Scalar = 1e-2
    ent_coef: Scalar = 0.01
    hidden_dims: tuple[int, ...] = (64, 64)
    activation: str = "tanh"


class SmallQLearning(Config):
    n_steps: int = 1000
    policy_lr: Scalar = 0.1
    gamma: Scalar = 0.99
    epsilon: Scalar = 0.1
    grid: tuple[int, int] | None = None


class SmallBraxPPO(Config):
    unroll_length: int = 5
    batch_size: int = 1024
    num_minibatches: int = 32
    num_updates_per_batch: int = 4
    policy_lr: float = 3e-4
    gamma: float = 0.97
    ent_coef: float = 1e-2
    reward_scaling: float = 1.0
    value_hidden_dims: tuple[int, ...] = (256,)

    @property
    def n_steps(self) -> int:
        return self.batch_size * self.num_minibatches * self.unroll_length // self.n_envs


SCHEMAS = {
    "brax_ppo": SmallBraxPPO,
    "delta_iris": DeltaIRISConfig,
    "dreamer": DreamerConfig,
    "ppo": SmallPPO,
    "q_learning": SmallQLearning,
    "world_models": WorldModelsConfig,
    "reinforce": SmallReinforce,
    "tdmpc": TDMPCConfig,
    "tdmpc2": TDMPC2Config,
}


def schema_of(name: str) -> type[Config]:
    return SCHEMAS[name]


def of_what_is_written(loaded: Loaded) -> tuple[str, ...]:
    """Notices about what a file says, without those about what it leaves open."""
    return tuple(notice for notice in loaded.notices if not notice.startswith(("No budget given", "Evaluation: ")))


def load_experiment(experiment: str | None, *overrides: str, **options: Any) -> Loaded:
    return load(experiment, overrides, schema_of=schema_of, algorithms=ALGORITHMS, **options)
