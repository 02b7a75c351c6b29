"""The YAML that ships."""

from math import prod

import pytest
from config_helpers import load_experiment

from gymlab.config import discover
from gymlab.config.environment_files import PACKAGE_CONF
from gymlab.config.environment_ids import family_of
from gymlab.config.yaml_reader import read_yaml

SHIPPED = [name for entry in discover() for name in entry.experiments]
THRESHOLDS = {
    "CartPole-v1": 475,
    "Acrobot-v1": -100,
    "MountainCar-v0": -110,
    "FrozenLake-v1": 0.70,
    "Taxi-v4": 7.5,
    "CliffWalking-v1": -13,
    "LunarLander-v3": 200,
    "LunarLanderContinuous-v3": 200,
    "Bandit-v0": 9,
    "Pendulum-v1": -200,
    "BipedalWalker-v3": 300,
    "CarRacing-v3": 900,
    "Blackjack-v1": None,
    "VizDoom-Basic-v0": 80,
    "VizDoom-DeadlyCorridor-v0": None,
    "VizDoom-Deathmatch-v0": 10,
    "VizDoom-DefendTheCenter-v0": 15,
    "VizDoom-DefendTheLine-v0": None,
    "VizDoom-E1M1-v0": None,
    "VizDoom-HealthGathering-v0": None,
    "VizDoom-MyWayHome-v0": 0.5,
    "VizDoom-PredictPosition-v0": 0.5,
    "VizDoom-TakeCover-v0": 750,
    "Retro-Airstriker-Genesis-v0": None,
    "HalfCheetah-v5": 4800,
    "Hopper-v5": 3800,
    "Walker2d-v5": None,
    "InvertedPendulum-v5": 950,
    "dmc-cartpole-swingup": 800,
    "brax-inverted_pendulum": 950,
    "brax-reacher": None,
    "MiniGrid-Empty-6x6-v0": 0.9,
    "MiniGrid-Empty-8x8-v0": 0.9,
    "MiniGrid-DoorKey-5x5-v0": 0.9,
    "Crafter-v1": None,
    "ALE-Pong-v5": 18,
    "ALE-Breakout-v5": 400,
    "ALE-Qbert-v5": None,
}


@pytest.mark.parametrize(("name", "threshold"), THRESHOLDS.items())
def test_thresholds(name, threshold):
    assert load_experiment(f"{name}:ppo").config.solved_threshold == threshold


@pytest.mark.parametrize("name", SHIPPED)
def test_each_loads_without_a_notice_and_evaluates_ten_to_thirty_times(name):
    loaded = load_experiment(name)
    config = loaded.config
    assert loaded.notices == ()
    assert not config.spec.task, "the threshold of a file holds for what the file sets"
    if config.algo_id in ("delta_iris", "world_models"):
        return  # Their epochs are not measured in steps in the environment.
    epoch = config.epoch_env_steps or config.n_envs * config.n_steps
    assert 10 <= config.max_env_steps / epoch / config.eval_freq_epochs <= 30


@pytest.mark.parametrize("name", SHIPPED)
def test_each_is_written_under_canonical_names(name):
    from gymlab.config.names import ALIASES, RETIRED, TRANSLATED

    document = read_yaml(PACKAGE_CONF / "environments" / f"{name.partition(':')[0]}.yaml")
    for mapping in (document, document[name.partition(":")[2]]):
        assert not set(mapping) & {*ALIASES, *RETIRED, *TRANSLATED}


@pytest.mark.parametrize("name", SHIPPED)
def test_each_environment_is_of_gymnasium_or_a_family(name):
    from gymnasium import registry

    config = load_experiment(name).config
    assert config.env_id in registry or family_of(config.env_id) != "gymnasium"
    for key in ("description", "action_space", "observation_space", "rewards", "returns"):
        assert config.spec.model_dump()[key], key


def test_cartpole_is_the_rl_zoo_row():
    config = load_experiment("CartPole-v1:ppo").config
    assert (config.n_envs, config.n_steps, config.batch_size, config.n_epochs) == (8, 32, 256, 20)
    assert (config.gamma, config.gae_lambda, config.ent_coef, config.max_env_steps) == (0.98, 0.8, 0.0, 100_000)
    assert (config.policy_lr.start, config.policy_lr.end, config.clip_range.start) == (1e-3, 0.0, 0.2)
    assert config.vf_coef == 1.0, "Stable-Baselines3's 0.5, whose squared error is not halved"


@pytest.mark.parametrize("name", [name for name in SHIPPED if ":ppo" in name])
def test_a_setting_of_rl_zoo_weighs_the_value_loss_as_stable_baselines3_does(name):
    """Its squared error is not halved: 0.5 of its vf_coef, the default, are 1.0 of ours."""
    config = load_experiment(name).config
    if config.algo_id != "ppo":
        return  # Brax's own has Brax's settings.
    # Two say that they are the Zoo's variant above them with a change.
    is_of_zoo = "RL-Zoo" in config.description or name.endswith((":ppo_100k", ":ppo_count_bonus"))
    zoo = 2 * 0.58096 if name == "HalfCheetah-v5:ppo" else 1.0
    assert config.vf_coef == (zoo if is_of_zoo else 0.5)


@pytest.mark.parametrize("name", [name for name in SHIPPED if name.startswith("ALE-")])
def test_a_setting_of_rl_zoo_for_atari_plays_by_its_protocol(name):
    config = load_experiment(name).config
    protocol = config.env_kwargs.get("protocol", "v5")
    assert ("RL-Zoo" in config.description) == (protocol == "classic")


def test_half_cheetah_is_the_rl_zoo_row():
    config = load_experiment("HalfCheetah-v5:ppo").config
    assert (config.n_envs, config.n_steps, config.batch_size, config.n_epochs) == (1, 512, 64, 20)
    assert (config.gamma, config.gae_lambda, config.ent_coef, config.clip_range) == (0.98, 0.92, 0.000401762, 0.1)
    assert (config.policy_lr, config.max_grad_norm, config.max_env_steps) == (2.0633e-05, 0.8, 1_000_000)
    assert (config.hidden_dims, config.activation) == ((256, 256), "relu")
    assert config.policy_kwargs == {"log_std_init": -2.0, "ortho_init": False}
    assert (config.normalize_obs, config.normalize_reward) == ("rolling", True)


@pytest.mark.parametrize("name", sorted(path.stem for path in (PACKAGE_CONF / "environments").glob("*.yaml")))
def test_each_entry_that_is_named_has_one_name(name):
    """Names are shown beside numbers, one by one."""
    spec = read_yaml(PACKAGE_CONF / "environments" / f"{name}.yaml").get("spec", {})
    for space, size in (("action_space", "box"), ("observation_space", "shape")):
        told = spec.get(space, {})
        if "components" in told:
            assert len(told["components"]) == prod(told[size]), space
