"""From a name, with all that lies on top, to a config; and the errors on the way."""

import subprocess
import sys

import pytest
from config_helpers import load_experiment, of_what_is_written

from gymlab.errors import ConfigError


def test_no_name_is_the_bandit():
    config = load_experiment(None).config
    assert (config.env_id, config.variant) == ("Bandit-v0", "ppo")


def test_any_gymnasium_id_with_an_algorithm():
    loaded = load_experiment("MountainCarContinuous-v0", algo="ppo")
    assert (loaded.config.env_id, loaded.config.algo_id, loaded.config.variant) == (
        "MountainCarContinuous-v0",
        "ppo",
        "ppo",
    )
    assert loaded.sources == ()


def test_an_algorithm_without_a_variant_starts_from_the_files_base():
    loaded = load_experiment("Acrobot-v1", algo="reinforce")
    assert (loaded.config.algo_id, loaded.config.solved_threshold, loaded.config.n_steps) == ("reinforce", -100, 2048)


def test_an_algorithm_with_a_variant_of_its_name_takes_it():
    assert load_experiment("CartPole-v1", algo="ppo").config.n_steps == 32


def test_an_algorithm_starts_from_the_anchor_that_names_the_environment(conf, write):
    write(
        "environments/mine.yaml",
        "_spec: {a: 1}\n_env: &env {env_id: CartPole-v1, seed: 4}\nppo: {<<: *env, n_envs: 9}\n",
    )
    config = load_experiment("mine", algo="reinforce", config_dir=conf).config
    assert (config.env_id, config.seed) == ("CartPole-v1", 4)


@pytest.mark.parametrize(
    ("retired", "newest"),
    [("Taxi-v3", "Taxi-v4"), ("CliffWalking-v0", "CliffWalking-v1"), ("LunarLander-v2", "LunarLander-v3")],
)
def test_retired_ids_load_as_their_newest_version(conf, write, retired, newest):
    notice = f"{retired} has been retired by Gymnasium; {newest} is used."
    for loaded in (load_experiment(f"{retired}:ppo"), load_experiment(retired, algo="ppo")):
        assert loaded.config.env_id == newest
        assert notice in loaded.notices
        assert loaded.config.solved_threshold is not None
    write(f"environments/{retired}.yaml", f"env_id: {retired}\nppo: {{seed: 3}}\n")
    loaded = load_experiment(f"{retired}:ppo", config_dir=conf)
    assert (loaded.config.env_id, loaded.config.seed, loaded.config.project_id) == (newest, 3, retired)
    assert notice in loaded.notices


def test_versions_that_still_exist_stay():
    for env_id in ("HalfCheetah-v4", "CartPole-v0"):
        loaded = load_experiment(env_id, algo="ppo")
        assert (loaded.config.env_id, of_what_is_written(loaded)) == (env_id, ())


def test_a_continuous_lander_is_reached_by_its_name():
    config = load_experiment("LunarLanderContinuous-v3:ppo").config
    assert (config.env_id, config.env_kwargs) == ("LunarLander-v3", {"continuous": True})
    assert load_experiment("LunarLander-v3:ppo").config.env_kwargs == {}


def test_a_variant_and_an_algorithm_that_disagree():
    with pytest.raises(ConfigError, match="names the variant ppo, and --algo names reinforce: give one of the two"):
        load_experiment("CartPole-v1:ppo", algo="reinforce")
    assert load_experiment("CartPole-v1:ppo", algo="ppo").config.variant == "ppo"
    with pytest.raises(ConfigError, match=r"`gymlab train Acrobot-v1 --algo reinforce` starts from its base"):
        load_experiment("Acrobot-v1:reinforce")


def test_overrides():
    config = load_experiment(
        "CartPole-v1:ppo",
        "n_timesteps=2e5",
        "+seed=0",
        "++env_kwargs.sutton_barto_reward=true",
        "policy_lr.end=1e-5",
        "gamma=0.9",
        "gamma.end=0.99",
        "~description",
        "env_wrappers=[{id: A, x: 1}]",
        "env_wrappers.0.x=2",
    ).config
    assert (config.max_env_steps, config.seed, config.description) == (200_000, 0, "")
    assert config.env_kwargs == {"sutton_barto_reward": True}
    assert (config.policy_lr.start, config.policy_lr.end) == (1e-3, 1e-5)
    assert (config.gamma.start, config.gamma.end) == (0.9, 0.99)
    assert config.env_wrappers == ({"id": "A", "x": 2},)


def test_loading_leaves_the_files_values_alone(load_variant):
    first = load_variant("env_kwargs: {a: {b: 1}}", "env_kwargs.a.b=2")
    assert first.env_kwargs == {"a": {"b": 2}}
    assert load_variant("env_kwargs: {a: {b: 1}}").env_kwargs == {"a": {"b": 1}}


def test_env_kwargs_from_the_command_line():
    config = load_experiment("Bandit-v0:ppo", env_kwargs=["n_arms=3", "stds=0.5", "means=[1, 2, 3]"]).config
    assert config.env_kwargs == {"n_arms": 3, "episode_length": 1, "stds": 0.5, "means": [1, 2, 3]}


def test_order_is_yaml_sweep_debugger_overrides():
    sweep = {
        "n_envs": 4,
        "gamma": 0.5,
        "policy_lr": {"start": 0.1, "end": 0.01},
        "clip_range.end": 0.05,
        "n_timesteps": 1e4,
    }
    swept = load_experiment("CartPole-v1:ppo", "batch_size=0.5", sweep=sweep).config
    assert (swept.n_envs, swept.gamma, swept.max_env_steps, swept.clip_range.end) == (4, 0.5, 10_000, 0.05)
    debugged = load_experiment("CartPole-v1:ppo", sweep=sweep, debugger=True)
    assert (debugged.config.n_envs, debugged.config.gamma, debugged.config.batch_size) == (1, 0.5, 32)
    assert any("debugger" in notice for notice in debugged.notices)
    overridden = load_experiment("CartPole-v1:ppo", "n_envs=2", "gamma=0.7", sweep=sweep, debugger=True).config
    assert (overridden.n_envs, overridden.gamma, overridden.vectorization_mode) == (2, 0.7, "sync")


def test_an_override_may_change_the_algorithm():
    loaded = load_experiment("CartPole-v1:ppo", "algo_id=reinforce")
    assert loaded.config.algo_id == "reinforce"
    assert any("`clip_range` is a field of ppo; reinforce does not use it" in notice for notice in loaded.notices)


def test_fields_of_another_algorithm_are_left_out_with_a_notice(conf, write):
    write("environments/CartPole-v1.yaml", "env_id: CartPole-v1\nclip_range: 0.1\nreinforce: {}\n")
    loaded = load_experiment("CartPole-v1:reinforce", config_dir=conf)
    assert of_what_is_written(loaded) == (
        "CartPole-v1.yaml:2, variant reinforce: `clip_range` is a field of ppo; reinforce does not use it.",
    )
    with pytest.raises(ConfigError, match=r"command line.*`clip_range` is a field of ppo; reinforce has none"):
        load_experiment("CartPole-v1:reinforce", "clip_range=0.2", config_dir=conf)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("CartPole-v1", [r"'CartPole-v1' names no variant", "CartPole-v1: ppo, ppo_pixels"]),
        ("cartpole", ["names no variant", "CartPole-v1: ppo, ppo_pixels"]),
        ("Lunar", ["LunarLander-v3: ppo", "LunarLanderContinuous-v3: ppo"]),
        ("CartPol-v1", ["names no variant", "Did you mean 'CartPole-v1'"]),
        ("CartPole-v1:pp", [r"CartPole-v1 has no variant 'pp'. Did you mean 'ppo'\? It has: ppo, ppo_pixels, "]),
        ("CartPol-v1:ppo", ["No experiment file for the environment 'CartPol-v1'. Did you mean 'CartPole-v1'"]),
        ("MountainCarContinuous-v0:ppo", ["gymlab train MountainCarContinuous-v0 --algo ppo"]),
    ],
)
def test_names_that_lead_nowhere(name, words):
    for word in words:
        with pytest.raises(ConfigError, match=word):
            load_experiment(name)


def test_unknown_environment_and_algorithm_with_algo():
    with pytest.raises(ConfigError, match=r"Unknown environment 'Acrobat-v1'. Did you mean 'Acrobot-v1'"):
        load_experiment("Acrobat-v1", algo="ppo")
    with pytest.raises(
        ConfigError,
        match=r"Unknown algorithm 'pppo'. Did you mean 'ppo'\? Known: brax_ppo, delta_iris, dreamer, ppo, q_learning, reinforce",
    ):
        load_experiment("Acrobot-v1", algo="pppo")


def test_an_unknown_key_names_file_line_variant_and_the_nearest(conf, write):
    write("environments/CartPole-v1.yaml", "env_id: CartPole-v1\nppo:\n  gama: 0.9\n")
    with pytest.raises(ConfigError) as error:
        load_experiment("CartPole-v1:ppo", config_dir=conf)
    assert str(error.value) == "CartPole-v1.yaml:3, variant ppo: unknown key `gama`. Did you mean 'gamma'?"


def test_an_unknown_key_on_the_command_line():
    with pytest.raises(
        ConfigError, match=r"command line \(CartPole-v1.yaml, variant ppo\): unknown key `n_env`. Did you mean 'n_envs'"
    ):
        load_experiment("CartPole-v1:ppo", "n_env=8")


@pytest.mark.parametrize("text", ["seed", "=3", "seed:3"])
def test_what_is_no_override(text):
    with pytest.raises(ConfigError, match="is no key=value"):
        load_experiment("CartPole-v1:ppo", text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("~descripton", r"the experiment sets no `descripton`. Did you mean 'description'"),
        ("~normalize_obs", r"the experiment sets no `normalize_obs`"),
        ("~policy_lr.nothing", r"the experiment sets no `policy_lr.nothing`"),
        ("~n_steps.x", r"the experiment sets no `n_steps.x`"),
        ("~n_steps=3", r"`n_steps` is 32"),
    ],
)
def test_what_is_taken_away_must_be_there(text, words):
    with pytest.raises(ConfigError, match=words):
        load_experiment("CartPole-v1:ppo", text)


def test_a_key_is_taken_away_at_any_depth_and_by_any_name(load_variant):
    fields = "env_kwargs: {a: {b: 1, c: 2}}\nn_timesteps: 100"
    config = load_variant(fields, "~env_kwargs.a.b", "~max_timesteps", "~n_envs=8")
    assert (config.env_kwargs, config.variant) == ({"a": {"c": 2}}, "ppo")
    assert config.max_env_steps != 100


@pytest.mark.parametrize("text", ["seed.x=1", "description.a.b=1", "env_wrappers.3.x=1"])
def test_an_override_below_what_has_nothing_below(text):
    with pytest.raises(ConfigError, match="command line"):
        load_experiment("CartPole-v1:ppo", text)


def test_a_file_by_its_path(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("env_id: CartPole-v1\nppo: {seed: 6}\n")
    loaded = load_experiment(str(path), "n_envs=2")
    assert (loaded.config.seed, loaded.config.n_envs, loaded.sources[0]) == (6, 2, str(path))
    path.write_text("env_id: CartPole-v1\none: {algo_id: ppo}\ntwo: {algo_id: ppo, seed: 2}\n")
    with pytest.raises(ConfigError, match="one, two"):
        load_experiment(str(path))
    assert load_experiment(str(path), algo="two").config.seed == 2


def test_a_module_is_imported_only_when_the_user_names_it(conf, write, monkeypatch):
    config = load_experiment("my_envs:Mine-v0", algo="ppo").config
    assert config.env_id == "my_envs:Mine-v0"
    assert load_experiment("CartPole-v1:ppo", "env_id=my_envs:Mine-v0").config.env_id == "my_envs:Mine-v0"
    write("environments/mine.yaml", "env_id: my_envs:Mine-v0\nppo: {}\n")
    with pytest.raises(ConfigError, match=r"would import the module 'my_envs'.*--plugin my_envs"):
        load_experiment("mine:ppo", config_dir=conf)
    assert load_experiment("my_envs:Mine-v0:ppo", config_dir=conf).config.env_id == "my_envs:Mine-v0"
    monkeypatch.setitem(sys.modules, "my_envs", sys)
    assert load_experiment("mine:ppo", config_dir=conf).config.env_id == "my_envs:Mine-v0"


def test_loading_a_plain_experiment_imports_nothing_heavy():
    code = (
        "import sys\nimport gymlab.config as c\nfrom gymlab.config.schema import Config\n"
        "class S(Config):\n    model_config = {'extra': 'ignore'}\n"
        "c.discover()\n"
        "assert not {'torch', 'hydra', 'omegaconf', 'gymnasium'} & set(sys.modules), 'discover'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("algo", ["tdmpc", "tdmpc2"])
def test_a_field_that_an_algorithm_no_longer_has_is_refused_and_passed_over_in_a_file(conf, write, algo):
    with pytest.raises(
        ConfigError, match=f"`held_out` no longer means anything for {algo}: the model is not evaluated"
    ):
        load_experiment(f"Pendulum-v1:{algo}", "held_out=0.1")
    write("environments/mine.yaml", f"env_id: Pendulum-v1\n{algo}: {{held_out: 0.02, seed: 3}}\n")
    loaded = load_experiment(f"mine:{algo}", config_dir=conf)
    assert loaded.config.seed == 3
    (notice,) = of_what_is_written(loaded)
    assert "mine.yaml:2" in notice
    assert "`held_out` no longer means anything" in notice
    assert load_experiment("CartPole-v1:dreamer_v3", "held_out=0.1").config.held_out == 0.1
