"""A config back into data, and from it again."""

import json

import pytest
from config_helpers import SmallPPO, load_experiment, schema_of
from hypothesis import given, settings
from hypothesis import strategies as st

from gymlab.config import diff, discover, dump, from_dict, to_yaml
from gymlab.config.schema import Schedule
from gymlab.errors import ConfigError

SHIPPED = [name for entry in discover() for name in entry.experiments]


@pytest.mark.parametrize("name", [*SHIPPED, "experiment=cartpole_ppo"])
def test_every_shipped_experiment_comes_back_equal(name, tmp_path):
    config = load_experiment(name).config
    stored = json.loads(json.dumps(dump(config)))
    assert from_dict(stored, schema_of) == config
    path = tmp_path / "job.yaml"
    path.write_text(to_yaml(config))
    printed = load_experiment(str(path))
    assert diff(printed.config, config) == []
    assert printed.config == config
    assert printed.notices == ()


def test_a_printed_config_is_an_experiment_in_a_config_dir(conf, write):
    config = load_experiment("CartPole-v1:ppo", "seed=3", "n_envs=16").config
    write("environments/mine.yaml", to_yaml(config))
    assert load_experiment("mine:ppo", config_dir=conf).config == config
    changed = load_experiment("mine:ppo", "seed=4", config_dir=conf).config
    assert diff(config, changed) == [("seed", 3, 4)]


@pytest.mark.parametrize("text", ["0E0", "1e6", "-3e-4", ".5e1", "1_0e2", "12", "1.5", "true", "null", "e1"])
def test_texts_that_look_like_numbers_stay_texts(text, tmp_path):
    config = load_experiment("CartPole-v1:ppo").config.model_copy(update={"description": text})
    path = tmp_path / "job.yaml"
    path.write_text(to_yaml(config))
    assert load_experiment(str(path)).config.description == text


positions = st.one_of(st.just(0.0), st.floats(0.01, 1), st.floats(2, 1e6))
schedules = st.builds(
    lambda start, end, to, shape, warmup: Schedule(start=start, end=end, to=to, schedule=shape, warmup=warmup),
    st.floats(1e-6, 1),
    st.floats(1e-6, 1),
    positions.filter(bool),
    st.sampled_from(["linear", "cosine", "exponential"]),
    st.floats(0, 0.9),
)


@settings(deadline=None, max_examples=60)
@given(
    data=st.fixed_dictionaries(
        {},
        optional={
            "seed": st.integers(0, 2**31),
            "gamma": st.floats(0, 1) | schedules,
            "policy_lr": st.floats(1e-9, 1) | schedules,
            "clip_range_vf": st.none() | st.floats(0, 1),
            "description": st.text(max_size=30),
            "env_kwargs": st.dictionaries(
                st.text(min_size=1, max_size=8),
                st.recursive(
                    st.none()
                    | st.booleans()
                    | st.integers(-(10**9), 10**9)
                    | st.floats(-1e9, 1e9)
                    | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
                    max_leaves=5,
                ),
                max_size=3,
            ),
            "early_stop_on_eval_threshold": st.booleans() | st.floats(-1e3, 1e3),
            "model_id": st.sampled_from(["mlp_tiny", "cnn_nature"]),
            "eval_warmup_epochs": st.integers(0, 100),
            "n_steps": st.sampled_from([1, 7, 32]),
            "batch_size": st.sampled_from([1]),
        },
    )
)
def test_any_config_comes_back_equal(data, tmp_path_factory):
    data = {key: value for key, value in data.items() if not (isinstance(value, dict) and _has_reference(value))}
    if "$" in str(data.get("description", "")):
        data.pop("description")
    data.setdefault("batch_size", 1)
    config = SmallPPO(
        env_id="CartPole-v1", algo_id="ppo", variant="ppo", project_id="x", n_envs=4, max_env_steps=10**7, **data
    )
    assert from_dict(json.loads(json.dumps(dump(config))), schema_of) == config
    path = tmp_path_factory.mktemp("job") / "job.yaml"
    path.write_text(to_yaml(config), encoding="utf-8")
    again = load_experiment(str(path)).config
    assert diff(config.model_copy(update={"spec": again.spec}), again) == []


def _has_reference(value) -> bool:
    return "${" in json.dumps(value) or "_target_" in json.dumps(value)


def test_diff_names_dotted_keys():
    one = load_experiment("CartPole-v1:ppo").config
    two = load_experiment("CartPole-v1:ppo", "policy_lr.end=1e-5", "env_kwargs.x=1", "gamma=0.9").config
    assert diff(one, two) == [
        ("env_kwargs", {}, None),
        ("policy_lr.end", 0.0, 1e-5),
        ("gamma", 0.98, 0.9),
        ("env_kwargs.x", None, 1),
    ]
    assert diff(one, one) == []


def test_a_stored_config_of_an_older_release_comes_back():
    config = load_experiment("CartPole-v1:ppo").config
    stored = dump(config)
    stored["max_timesteps"] = stored.pop("max_env_steps")
    stored["eval_async"] = True
    assert from_dict(stored, schema_of) == config


def test_a_variant_that_begins_like_its_file_keeps_its_name(conf, write):
    config = load_experiment("experiment=cartpole_ppo").config
    write("environments/cartpole.yaml", to_yaml(config))
    assert load_experiment("cartpole:cartpole_ppo", config_dir=conf).config == config


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gama": 1}, "unknown key `gama`. Did you mean 'gamma'"),
        ({"env_id": None}, "is no config"),
        ({"optimizers": {"a": {"_target_": "os.system"}}}, r"optimizers.a._target_ names 'os.system'"),
        ({"env_id": "evil_module:Env-v0"}, "would import the module 'evil_module'"),
        ({"gamma": "x"}, "`gamma` expects a number"),
    ],
)
def test_somebody_elses_config_is_checked(change, words):
    stored = {**dump(load_experiment("CartPole-v1:ppo").config), **change}
    with pytest.raises(ConfigError, match=words):
        from_dict(stored, schema_of, "runs/x/config.json")


@pytest.mark.parametrize("name", ["Pendulum-v1:tdmpc", "Pendulum-v1:tdmpc2", "CartPole-v1:tdmpc2"])
def test_a_stored_config_opens_with_a_field_that_its_algorithm_no_longer_has(name):
    config = load_experiment(name).config
    assert from_dict({**dump(config), "held_out": 0.02}, schema_of) == config
    with pytest.raises(ConfigError, match="unknown key `held_oot`"):
        from_dict({**dump(config), "held_oot": 0.02}, schema_of)
