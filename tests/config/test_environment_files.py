"""Where experiments are found, and what a section inherits."""

import shutil

import pytest
from config_helpers import load_experiment

from gymlab.errors import ConfigError


def test_base_by_underscore_base(conf, write):
    write("environments/CartPole-v1.yaml", "_base: {env_id: CartPole-v1, n_envs: 3, seed: 5}\nppo: {n_envs: 4}\n")
    config = load_experiment("CartPole-v1:ppo", config_dir=conf).config
    assert (config.n_envs, config.seed) == (4, 5)


def test_base_by_a_named_anchor(conf, write):
    write("environments/CartPole-v1.yaml", "_env: &env {env_id: CartPole-v1, n_envs: 3}\nppo: {<<: *env, seed: 1}\n")
    config = load_experiment("CartPole-v1:ppo", config_dir=conf).config
    assert (config.env_id, config.n_envs, config.seed) == ("CartPole-v1", 3, 1)


def test_base_by_fields_at_the_root(conf, write):
    write(
        "environments/CartPole-v1.yaml",
        """
env_id: CartPole-v1
n_envs: 2
policy_lr: {start: 1e-3, end: 1e-4, to: 5000}
env_kwargs: {sutton_barto_reward: true}
policy_kwargs: {channels: [32, 64]}
spec: {returns: {threshold_solved: 400}}
ppo: {}
""",
    )
    config = load_experiment("CartPole-v1:ppo", config_dir=conf).config
    assert (config.n_envs, config.policy_lr.end, config.solved_threshold) == (2, 1e-4, 400)
    assert (config.env_kwargs, config.policy_kwargs) == ({"sutton_barto_reward": True}, {"channels": [32, 64]})


def test_root_fields_that_are_mappings_are_no_variants(conf, write):
    write(
        "environments/Mine-v0.yaml",
        "env_id: CartPole-v1\nspec: {a: 1}\nenv_kwargs: {}\npolicy_kwargs: {}\n"
        "learning_rate: {start: 1}\noptimizers: {}\nppo: {}\nppo_two: {algo_id: ppo}\n_hidden: {}\n",
    )
    with pytest.raises(ConfigError, match=r"It has: ppo, ppo_two\.$"):
        load_experiment("Mine-v0:nothing", config_dir=conf)


def test_a_schedule_at_the_root_is_no_variant_whatever_field_it_is_of(tmp_path):
    """A run's config.json is one whole config: a field that only one algorithm has, with a schedule, stays a field."""
    path = tmp_path / "config.json"
    path.write_text(
        '{"env_id": "Taxi-v4", "algo_id": "q_learning", "max_env_steps": 10, "epsilon": {"start": 1, "end": 0.5, "from": 0}}'
    )
    resolved = load_experiment(str(path))
    assert (resolved.config.epsilon.start, resolved.config.epsilon.end) == (1.0, 0.5)
    assert resolved.config.variant == "q_learning"


@pytest.mark.parametrize("name", ["ALE/Pong-v5", "ALE-Pong-v5", "my_project", "pong_file"])
def test_lookup_by_env_id_project_id_and_stem(conf, write, name):
    write("environments/pong_file.yaml", "env_id: ALE/Pong-v5\nproject_id: my_project\nppo: {seed: 7}\n")
    assert load_experiment(f"{name}:ppo", config_dir=conf).config.seed == 7


def test_a_slash_is_a_dash_in_a_file_name(conf, write):
    write("environments/ALE-Pong-v5.yaml", "env_id: ALE/Pong-v5\nppo: {}\n")
    config = load_experiment("ALE/Pong-v5:ppo", config_dir=conf).config
    assert (config.env_id, config.project_id, config.variant) == ("ALE/Pong-v5", "ALE-Pong-v5", "ppo")


def test_files_in_folders_are_found(conf, write):
    write(
        "environments/classic/cartpole_standard.yaml", "CartPole-v1_ppo: {env_id: CartPole-v1, algo_id: ppo, seed: 9}\n"
    )
    config = load_experiment("cartpole_standard:CartPole-v1_ppo", config_dir=conf).config
    assert (config.seed, config.variant) == (9, "ppo")


def test_a_directory_without_environments_holds_the_files_itself(tmp_path):
    (tmp_path / "CartPole-v1.yaml").write_text("env_id: CartPole-v1\nppo: {seed: 8}\n")
    assert load_experiment("CartPole-v1:ppo", config_dir=tmp_path).config.seed == 8


def test_algo_id_defaults_to_the_name_of_the_section(conf, write):
    write(
        "environments/FrozenLake-v1.yaml",
        "env_id: FrozenLake-v1\nreinforce: {}\nqlearning: {epsilon: 0.2}\nother: {}\nold: {algo_id: qlearning}\n",
    )
    assert load_experiment("FrozenLake-v1:reinforce", config_dir=conf).config.algo_id == "reinforce"
    for variant in ("qlearning", "q_learning"):
        config = load_experiment(f"FrozenLake-v1:{variant}", config_dir=conf).config
        assert (config.algo_id, config.epsilon) == ("q_learning", 0.2)
    assert load_experiment("FrozenLake-v1:old", config_dir=conf).config.algo_id == "q_learning"
    with pytest.raises(ConfigError, match=r"FrozenLake-v1.yaml, variant other: has no algo_id"):
        load_experiment("FrozenLake-v1:other", config_dir=conf)


def test_an_unknown_algorithm_in_a_file(conf, write):
    write("environments/CartPole-v1.yaml", "env_id: CartPole-v1\nmine: {algo_id: pp0}\n")
    with pytest.raises(
        ConfigError, match=r"CartPole-v1.yaml:2, variant mine: unknown algorithm 'pp0'. Did you mean 'ppo'"
    ):
        load_experiment("CartPole-v1:mine", config_dir=conf)


def test_inherits_a_name_or_a_list(conf, write):
    write(
        "environments/CartPole-v1.yaml",
        """
env_id: CartPole-v1
__one: {seed: 1, n_envs: 1, gamma: 0.9}
__two: {inherits: __one, seed: 2}
ppo: {inherits: __two, gamma: 0.8}
both: {algo_id: ppo, inherits: [__two, __one]}
""",
    )
    ppo = load_experiment("CartPole-v1:ppo", config_dir=conf).config
    assert (ppo.seed, ppo.n_envs, ppo.gamma) == (2, 1, 0.8)
    both = load_experiment("CartPole-v1:both", config_dir=conf).config
    assert (both.seed, both.gamma) == (1, 0.9)


def test_inherits_from_another_file(conf, write):
    write(
        "environments/CartPole-v1.yaml",
        "__CartPole-v1: {env_id: CartPole-v1, seed: 11}\nppo: {inherits: __CartPole-v1}\n",
    )
    write(
        "environments/CartPole-v1_shaped.yaml",
        "CartPole-v1_shaped_ppo: {inherits: __CartPole-v1, algo_id: ppo, n_envs: 2}\n",
    )
    config = load_experiment("CartPole-v1_shaped:ppo", config_dir=conf).config
    assert (config.env_id, config.seed, config.n_envs, config.variant) == ("CartPole-v1", 11, 2, "ppo")


def test_circular_inheritance_shows_the_circle(conf, write):
    write(
        "environments/CartPole-v1.yaml",
        "env_id: CartPole-v1\nppo: {inherits: a}\na: {inherits: b}\nb: {inherits: a}\n",
    )
    circle = r"Circular inheritance: CartPole-v1.yaml:a -> CartPole-v1.yaml:b -> CartPole-v1.yaml:a\."
    with pytest.raises(ConfigError, match=circle):
        load_experiment("CartPole-v1:ppo", config_dir=conf)


def test_an_unknown_parent(conf, write):
    write("environments/CartPole-v1.yaml", "env_id: CartPole-v1\n_base_env: {}\nppo: {inherits: _bse_env}\n")
    with pytest.raises(
        ConfigError, match=r"CartPole-v1.yaml:3, variant ppo: inherits '_bse_env'.*Did you mean '_base_env'"
    ):
        load_experiment("CartPole-v1:ppo", config_dir=conf)


def test_legacy_hyperparameter_files(conf, write):
    write(
        "hyperparams/ppo.yaml",
        """
_base_simple_env:
  policy: 'MlpPolicy'
  n_timesteps: !!float 1e5
CartPole-v1:
  inherit_from: _base_simple_env
  n_envs: 8
  n_steps: 32
  batch_size: 256
  learning_rate: lin_0.001
CartPole-v1_normalized:
  inherit_from: CartPole-v1
  env_id: CartPole-v1
  normalize: true
ALE/Pong-v5:
  n_envs: 2
a: {inherit_from: b}
b: {inherit_from: a}
""",
    )
    (conf / "environments").rmdir()
    normalized = load_experiment("CartPole-v1_normalized:ppo", config_dir=conf).config
    assert (normalized.env_id, normalized.algo_id, normalized.variant) == ("CartPole-v1", "ppo", "ppo")
    assert (normalized.max_env_steps, normalized.normalize_obs, normalized.policy_lr.start) == (
        100_000,
        "rolling",
        1e-3,
    )
    assert load_experiment("ALE/Pong-v5:ppo", config_dir=conf).config.env_id == "ALE/Pong-v5"
    with pytest.raises(ConfigError, match="Circular inheritance"):
        load_experiment("a:ppo", config_dir=conf)


def test_a_file_with_everything_at_once_loads_unchanged(conf, write):
    write(
        "environments/ALE-Breakout-v5.yaml",
        """
spec: &spec
  source: https://example.org
  action_space: {discrete: 4, labels: {0: NOOP, 1: FIRE}}
  rewards: {range: [-inf, inf]}
  returns: {episodic: score, threshold_solved: 400}

_env: &env
  spec: *spec
  env_id: ALE/Breakout-v5
  accelerator: 'gpu'
  devices: 'auto'

_env_objects: &env_objects
  <<: *env
  obs_type: "objects"
  env_wrappers: &wrappers
    - id: BreakoutV5_FeatureExtractor
      clip: true

_ppo: &ppo
  algo_id: ppo
  n_envs: 16
  n_steps: 128
  batch_size: 0.25
  n_timesteps: !!float 1e7
  learning_rate: lin_2.5e-4
  clip_range: 0.1
  clip_range_schedule: linear
  clip_range_schedule_end_value: 0.05
  normalize_advantages: "rollout"
  eval_warmup_epochs: 0.1
  eval_freq_epochs: 5  # every five
  early_stop_on_eval_threshold: 300

rgb_ppo: {<<: [*ppo, *env], policy: 'CnnPolicy'}

objects_ppo:
  <<: *ppo
  <<: *env_objects
  project_id: "Breakout_objects"
  description: "objects"
  use_baseline: true
  n_epochs: 4
  n_epochs: 6
""",
    )
    rgb = load_experiment("ALE/Breakout-v5:rgb_ppo", config_dir=conf).config
    assert (rgb.batch_size, rgb.max_env_steps, rgb.policy, rgb.frame_stack) == (512, 10_000_000, "cnn", 4)
    loaded = load_experiment("Breakout_objects:objects_ppo", config_dir=conf)
    config = loaded.config
    assert (config.obs_type, config.frame_stack, config.n_epochs, config.policy_targets) == (
        "objects",
        1,
        6,
        "advantages",
    )
    assert (config.clip_range.start, config.clip_range.end, config.policy_lr.start) == (0.1, 0.05, 2.5e-4)
    assert config.eval_warmup_epochs == 488
    assert (config.early_stop_on_eval_threshold, config.solved_threshold) == (300.0, 400.0)
    assert config.env_wrappers == ({"id": "BreakoutV5_FeatureExtractor", "clip": True},)
    assert config.spec.model_dump()["action_space"]["labels"] == {"0": "NOOP", "1": "FIRE"}
    assert loaded.notices == ("ALE-Breakout-v5.yaml:45: `n_epochs` is given twice; the last one counts.",)


def test_a_users_variant_is_added_to_ours_and_one_of_the_same_name_replaces_it(conf, write):
    write("environments/CartPole-v1.yaml", "env_id: CartPole-v1\nppo: {seed: 99}\nppo_mine: {algo_id: ppo, seed: 98}\n")
    assert load_experiment("CartPole-v1:ppo_mine", config_dir=conf).config.seed == 98
    replaced = load_experiment("CartPole-v1:ppo", config_dir=conf).config
    assert (replaced.seed, replaced.max_env_steps) == (99, 500_000)
    assert load_experiment("CartPole-v1:ppo_pixels", config_dir=conf).config.frame_stack == 4


def test_conf_of_the_current_directory_lies_between(conf, write, empty_directory):
    here = empty_directory / "conf" / "environments"
    here.mkdir(parents=True)
    (here / "CartPole-v1.yaml").write_text("env_id: CartPole-v1\nppo: {seed: 50}\nlocal: {algo_id: ppo, seed: 51}\n")
    assert load_experiment("CartPole-v1:ppo").config.seed == 50
    write("environments/CartPole-v1.yaml", "env_id: CartPole-v1\nppo: {seed: 60}\n")
    assert load_experiment("CartPole-v1:ppo", config_dir=conf).config.seed == 60
    assert load_experiment("CartPole-v1:local", config_dir=conf).config.seed == 51


def test_a_variant_without_a_spec_gets_the_one_of_its_environment(conf, write):
    write("environments/mine.yaml", "env_id: CartPole-v1\nppo: {}\n")
    assert load_experiment("mine:ppo", config_dir=conf).config.solved_threshold == 475
    write("environments/mine.yaml", "env_id: CartPole-v1\nspec: {returns: {threshold_solved: 100}}\nppo: {}\n")
    assert load_experiment("mine:ppo", config_dir=conf).config.solved_threshold == 100


def test_an_older_spec_file_beside_it(conf, write):
    write("environments/mine.yaml", "env_id: CartPole-v1\nppo: {}\n")
    write("environments/mine.spec.yaml", "description: old\nreturns: {threshold_solved: 123}\n")
    assert load_experiment("mine:ppo", config_dir=conf).config.solved_threshold == 123


def test_a_broken_file_that_was_not_asked_for_is_passed_over_with_a_notice(conf, write):
    write("environments/broken.yaml", "a: [1\n")
    write("environments/good.yaml", "env_id: CartPole-v1\nproject_id: wanted\nppo: {}\n")
    loaded = load_experiment("wanted:ppo", config_dir=conf)
    assert [notice for notice in loaded.notices if "Passed over" in notice and "broken.yaml" in notice]
    with pytest.raises(ConfigError, match=r"broken.yaml:\d: is not valid YAML"):
        load_experiment("broken:ppo", config_dir=conf)


def test_a_config_dir_that_is_none(tmp_path):
    with pytest.raises(ConfigError, match="no such directory"):
        load_experiment("CartPole-v1:ppo", config_dir=tmp_path / "nowhere")


def test_a_section_without_an_environment(conf, write):
    write("environments/mine.yaml", "ppo: {seed: 1}\n")
    with pytest.raises(ConfigError, match=r"mine.yaml, variant ppo: has no env_id"):
        load_experiment("mine:ppo", config_dir=conf)


ROOT = """
env_id: CartPole-v1
max_env_steps: 1e5
n_steps: 64
hidden_dims: [8]
policy: mlp
learning_rate: lin_0.002
clip_range_schedule: linear
clip_range_schedule_start_value: 0.3
grid: [4, 4]
policy_kwargs: {channels: [8]}
"""


def test_fields_of_an_algorithm_count_at_the_root(conf, write):
    write("environments/CartPole-v1.yaml", ROOT + "ppo: {}\nlong: {algo_id: ppo, n_steps: 128}\nq_learning: {}\n")
    loaded = load_experiment("CartPole-v1:ppo", config_dir=conf)
    config = loaded.config
    assert (config.n_steps, config.hidden_dims, config.policy, config.policy_lr.start) == (64, (8,), "mlp", 0.002)
    assert (config.clip_range.start, config.policy_kwargs) == (0.3, {"channels": [8]})
    # `grid` is there for the other variant: nothing to say about it.
    assert not [notice for notice in loaded.notices if "grid" in notice]
    assert load_experiment("CartPole-v1:long", config_dir=conf).config.n_steps == 128
    other = load_experiment("CartPole-v1:q_learning", config_dir=conf)
    assert (other.config.n_steps, other.config.grid) == (64, (4, 4))
    assert not [notice for notice in other.notices if "does not use" in notice]


def test_a_field_at_the_root_that_no_variant_has_is_told(conf, write):
    write("environments/CartPole-v1.yaml", "env_id: CartPole-v1\ngrid: [4, 4]\nppo: {}\n")
    told = "CartPole-v1.yaml:2, variant ppo: `grid` is a field of q_learning; ppo does not use it."
    assert told in load_experiment("CartPole-v1:ppo", config_dir=conf).notices


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("totally_unknown: 3", "unknown key `totally_unknown`."),
        ("n_step: 64", "unknown key `n_step`. Did you mean 'n_steps'"),
        ("clip_rnge: 0.1", "unknown key `clip_rnge`. Did you mean 'clip_range'"),
        ("policy_lrr_schedule: linear", "unknown key `policy_lrr`. Did you mean 'policy_lr'"),
        ("mistake: {start: 1, end: 0}", "unknown key `mistake`."),
        ("env_kwarg: {sutton_barto_reward: true}", "unknown key `env_kwarg`.* Did you mean 'env_kwargs'"),
        ("policy_kwarg: {channels: [8]}", "unknown key `policy_kwarg`.* Did you mean 'policy_kwargs'"),
    ],
)
def test_an_unknown_key_at_the_root_names_file_line_and_the_nearest(conf, write, line, words):
    write("environments/mine.yaml", f"env_id: CartPole-v1\nppo: {{}}\n{line}\n")
    with pytest.raises(ConfigError, match=rf"mine.yaml:3.*{words}"):
        load_experiment("mine:ppo", config_dir=conf)
    with pytest.raises(ConfigError, match=rf"mine.yaml:3.*{words}"):
        load_experiment("mine", algo="reinforce", config_dir=conf)


def test_anchors_at_the_root_are_no_fields(conf, write):
    text = "env_id: CartPole-v1\n_wrappers: &w [{id: A}]\n_number: &n 3\nppo: {env_wrappers: *w, seed: *n}\n"
    write("environments/CartPole-v1.yaml", text)
    config = load_experiment("CartPole-v1:ppo", config_dir=conf).config
    assert (config.seed, config.env_wrappers) == (3, ({"id": "A"},))


def test_a_variant_whose_only_field_is_of_an_algorithm_is_a_variant(conf, write):
    write("environments/CartPole-v1.yaml", "env_id: CartPole-v1\nalgo_id: ppo\nshort: {n_steps: 16}\n")
    config = load_experiment("CartPole-v1:short", config_dir=conf).config
    assert (config.n_steps, config.algo_id, config.variant) == (16, "ppo", "short")


def test_inheritance_is_written_into_the_variants(conf, write):
    write("environments/CartPole-v1.yaml", "env_id: CartPole-v1\ninherits: _x\n_x: {seed: 3}\nppo: {}\n")
    with pytest.raises(ConfigError, match=r"CartPole-v1.yaml:2: `inherits` at the root"):
        load_experiment("CartPole-v1:ppo", config_dir=conf)


def test_a_field_of_an_algorithm_that_is_not_loaded_names_the_plugin(conf, write):
    write("environments/CartPole-v1.yaml", "env_id: CartPole-v1\nelite_share: 0.1\nppo: {}\nmine: {algo_id: cem}\n")
    with pytest.raises(ConfigError, match=r"`elite_share`.*field of cem.*--plugin MODULE"):
        load_experiment("CartPole-v1:ppo", config_dir=conf)


def test_directories_of_the_user_are_searched_where_they_hold_experiments(empty_directory):
    """`./config` may be anybody's: files of another program in it are neither read nor told."""
    other = empty_directory / "config"
    (other / "env").mkdir(parents=True)
    (other / "CartPole-v1.yaml").write_text("env_id: CartPole-v1\nppo: {seed: 50}\n")
    (other / "env" / "atari.yaml").write_text("broken: [\n")
    loaded = load_experiment("CartPole-v1:ppo")
    assert (loaded.config.seed, loaded.notices) == (42, ())
    for folder in ("environments", "environments/classic"):
        (other / folder).mkdir()
        (other / folder / f"{folder[-7:]}-v1.yaml").write_text("env_id: CartPole-v1\nmine: {algo_id: ppo, seed: 51}\n")
    loaded = load_experiment("CartPole-v1:mine")
    assert loaded.config.seed == 51
    assert (
        "./config is searched: environments/ holds the files classic/classic-v1.yaml, onments-v1.yaml."
        in loaded.notices
    )


def test_of_many_files_that_are_searched_the_first_are_named(empty_directory):
    for folder, names in (("environments", "abcdefg"), ("experiment", "x")):
        (empty_directory / "conf" / folder).mkdir(parents=True)
        for name in names:
            (empty_directory / "conf" / folder / f"{name}.yaml").write_text("env_id: CartPole-v1\n")
    assert load_experiment("CartPole-v1:ppo").notices[0] == (
        "./conf is searched: environments/ holds the files a.yaml, b.yaml, c.yaml, d.yaml, e.yaml and 2 more; "
        "experiment/ holds the file x.yaml."
    )


def test_every_file_that_was_read_is_known(conf, write):
    write("environments/base.yaml", "_common: {env_id: CartPole-v1, seed: 3}\n")
    write("environments/mine.yaml", "ppo: {inherits: _common}\n")
    write("environments/mine.spec.yaml", "returns: {threshold_solved: 99}\n")
    write("environments/other.yaml", "env_id: Acrobot-v1\nppo: {}\n")
    loaded = load_experiment("mine:ppo", config_dir=conf)
    names = [[path.rpartition("/")[2] for path in paths] for paths in (loaded.sources, loaded.read)]
    assert names[0] == ["mine.yaml", "mine.spec.yaml", "base.yaml"]
    assert "other.yaml" in names[1]


def test_a_named_directory_must_hold_something(tmp_path):
    (tmp_path / "elsewhere" / "environments").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"--config-dir .*elsewhere: there is nothing to find in it"):
        load_experiment("CartPole-v1:ppo", config_dir=tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "environments" / "a.yaml").write_text("env_id: CartPole-v1\nppo: {seed: 1}\n")
    with pytest.raises(ConfigError, match=r"Did you mean --config-dir .*elsewhere"):
        load_experiment("CartPole-v1:ppo", config_dir=tmp_path)
    shutil.copytree(tmp_path / "elsewhere", tmp_path / "above" / "p3" / "conf")
    with pytest.raises(ConfigError, match=r"Did you mean --config-dir .*above/p3/conf\?"):
        load_experiment("CartPole-v1:ppo", config_dir=tmp_path / "above")
    assert load_experiment("a:ppo", config_dir=tmp_path / "elsewhere").config.seed == 1


def test_a_named_directory_may_hold_files_by_their_other_ending(conf, write):
    write("environments/a.yml", "env_id: CartPole-v1\nppo: {seed: 1}\n")
    assert load_experiment("a:ppo", config_dir=conf).config.seed == 1
