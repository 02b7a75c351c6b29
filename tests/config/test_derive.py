"""Values that follow from others."""

import pytest
from config_helpers import SmallPPO, load_experiment, of_what_is_written

from gymlab.config import budget_of
from gymlab.config.derive import cores, divisors_of
from gymlab.errors import ConfigError


@pytest.mark.parametrize(
    ("batch", "resolved"),
    [("0.25", 64), ("1", 256), ("1.0", 256), ("0.5", 128), ("0.001", 1), ("0.3333334", 85), ("64", 64)],
)
def test_batch_as_a_fraction_of_the_rollout(load_variant, batch, resolved):
    lines = f"n_steps: 32\nbatch_size: {batch}"
    if 256 % resolved:
        with pytest.raises(ConfigError, match=f"batch_size {resolved} does not divide"):
            load_variant(lines)
    else:
        config = load_variant(lines)
        assert config.batch_size == resolved
        assert type(config.batch_size) is int


def test_a_batch_that_does_not_divide_names_the_nearest_that_do(load_variant):
    with pytest.raises(ConfigError) as error:
        load_variant("n_steps: 30\nbatch_size: 100")
    assert str(error.value) == (
        "CartPole-v1.yaml:5, variant ppo: batch_size 100 does not divide the rollout of 8 envs x 30 steps = 240. "
        "Nearest that do: 80 or 120 (or a fraction such as 0.25)."
    )


def test_a_default_batch_is_made_to_fit_with_a_notice():
    loaded = load_experiment("MountainCarContinuous-v0", "n_envs=1", "n_steps=100", algo="ppo")
    assert loaded.config.batch_size == 50
    assert of_what_is_written(loaded) == ("batch_size is 50, so that it divides the rollout of 100.",)


def test_divisors():
    assert divisors_of(12) == [1, 2, 3, 4, 6, 12]
    assert divisors_of(1) == [1]
    assert divisors_of(49) == [1, 7, 49]
    assert divisors_of(10**18)[-1] == 10**18


def test_n_envs_auto_is_the_number_of_cores(load_variant):
    assert load_variant("", "n_envs=auto").n_envs == cores()
    assert load_variant("n_envs: auto").n_envs == cores()
    assert load_experiment("MountainCarContinuous-v0", algo="ppo").config.n_envs == cores()


@pytest.mark.parametrize(
    ("budget", "fitted", "n_envs"),
    [(1000, 1000, 8), (1003, 1000, 8), (1007, 1000, 8), (8, 8, 8), (3, 3, 3), (1, 1, 1)],
)
def test_the_budget_is_as_many_whole_steps_of_all_environments_as_it_holds(load_variant, budget, fitted, n_envs):
    config = load_variant(f"max_env_steps: {budget}")
    assert (config.max_env_steps, config.n_envs) == (fitted, n_envs)


@pytest.mark.parametrize(
    ("lines", "epochs"),
    [
        ("eval_warmup_epochs: 50", 50),
        ("eval_warmup_epochs: 0", 0),
        ("eval_warmup_epochs: 1", 1),
        ("eval_warmup_epochs: 0.1\nmax_env_steps: 102400", 10),
        ("eval_warmup_epochs: 0.25\nmax_epochs: 10", 2),
        ("eval_warmup_epochs: 0.5\nmax_epochs: 1000\nmax_env_steps: 10240", 5),
        ("eval_warmup_epochs: 0.5\nepoch_env_steps: 1000\nmax_env_steps: 8000", 4),
    ],
)
def test_warmup_as_a_fraction_of_the_epochs(load_variant, lines, epochs):
    config = load_variant(f"n_steps: 128\nbatch_size: 64\n{lines}")
    assert config.eval_warmup_epochs == epochs
    assert type(config.eval_warmup_epochs) is int


def test_a_fraction_of_unknown_epochs_is_an_error(load_variant):
    with pytest.raises(
        ConfigError, match=r"eval_warmup_epochs 0.1 is a fraction of the epochs.*set max_env_steps or max_epochs"
    ):
        load_variant("max_env_steps: null\neval_warmup_epochs: 0.1")


def test_the_budget_of_a_run():
    def config(**fields):
        return SmallPPO(env_id="CartPole-v1", algo_id="ppo", n_envs=4, n_steps=8, batch_size=8, **fields)

    assert budget_of(config()) is None
    assert budget_of(config(max_env_steps=1000)) == 1000
    assert budget_of(config(max_epochs=10)) == 320
    assert budget_of(config(max_epochs=10, max_env_steps=100)) == 100
    assert budget_of(config(max_epochs=2, epoch_env_steps=50)) == 100


@pytest.mark.parametrize(
    ("env_id", "mode"), [("ALE/Tennis-v5", "auto"), ("VizDoom-Own-v0", "async"), ("Retro/Airstriker-Genesis", "async")]
)
def test_families_of_images_have_their_defaults(env_id, mode):
    config = load_experiment(env_id, algo="ppo").config
    assert (config.grayscale_obs, config.resize_obs, config.frame_stack, config.frame_skip) == (True, (84, 84), 4, 4)
    assert (config.obs_type, config.vectorization_mode, config.model_id) == ("rgb", mode, "cnn_nature")


def test_what_a_file_says_wins_over_the_family(conf, write):
    write(
        "environments/ALE-Pong-v5.yaml",
        """
env_id: ALE/Pong-v5
rgb: {algo_id: ppo, frame_stack: 2, grayscale_obs: false, policy: cnn}
objects: {algo_id: ppo, obs_type: objects}
ram: {algo_id: ppo, obs_type: ram, frame_stack: 1}
""",
    )
    rgb = load_experiment("ALE/Pong-v5:rgb", config_dir=conf).config
    assert (rgb.frame_stack, rgb.grayscale_obs, rgb.resize_obs, rgb.model_id) == (2, False, (84, 84), None)
    for variant in ("objects", "ram"):
        config = load_experiment(f"ALE-Pong-v5:{variant}", config_dir=conf).config
        assert (config.frame_stack, config.frame_skip, config.grayscale_obs, config.resize_obs) == (1, 4, False, None)


def test_a_debugger_gets_one_synchronous_env_and_a_batch_that_fits(load_variant):
    lines = "n_steps: 30\nbatch_size: 240\nvectorization_mode: async"
    config = load_variant(lines, debugger=True)
    assert (config.n_envs, config.vectorization_mode, config.batch_size) == (1, "sync", 30)
    smaller = load_variant("n_steps: 30\nbatch_size: 16", debugger=True)
    assert smaller.batch_size == 15
    assert load_variant(lines, "n_envs=2", debugger=True).n_envs == 2
