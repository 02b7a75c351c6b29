"""Errors in our words: what was expected, what was given, where."""

import pytest
from config_helpers import SmallPPO, load_experiment

from gymlab.config import describe_fields, from_dict
from gymlab.errors import ConfigError


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("n_envs=many", '`n_envs` expects an integer >= 1, got "many" (text).'),
        ("n_envs=2.5", "`n_envs` expects an integer >= 1, got 2.5."),
        ("n_envs=0", "`n_envs` must be at least 1, got 0."),
        ("seed=-1", "`seed` must be at least 0, got -1."),
        ("seed=true", "`seed` expects an integer >= 0, got true (true or false)."),
        ("gamma=high", '`gamma` expects a number or a schedule, got "high" (text).'),
        ("gamma=true", "`gamma` expects a number or a schedule, got true (true or false)."),
        ("gamma=[1]", "`gamma` expects a number or a schedule, got [1] (a list)."),
        ("quiet=3", "`quiet` expects true or false, got 3."),
        (
            "optimizer=adm",
            "`optimizer` expects one of adam, adamw, sgd, got \"adm\" (text). Did you mean 'adam' or 'adamw'?",
        ),
        ("description=3", "`description` expects text, got 3."),
        ("env_kwargs=3", "`env_kwargs` expects a mapping, got 3."),
        ("hidden_dims=[64, x]", '`hidden_dims.1` expects a valid integer, got "x" (text).'),
        ("hidden_dims=64", "`hidden_dims` expects a list, each an integer, got 64."),
        ("eval_time_limit=0", "`eval_time_limit` must be more than 0, got 0."),
        ("gamma=.nan", "`gamma`"),
        ("plateau_interventions=[{metric: a, st: {}}]", "`plateau_interventions.0.set` is missing."),
        ("plateau_interventions=[{metric: a, set: {}}]", "`plateau_interventions.0.set`: is empty; name what changes"),
        (
            "plateau_interventions=[{metric: a, set: {gamma: x2}}]",
            "`plateau_interventions.0.set`: gamma: 'x2' is no change",
        ),
        (
            'plateau_interventions=[{metric: a, set: {gamma: "/0"}}]',
            "`plateau_interventions.0.set`: gamma: '/0' is no change",
        ),
        (
            "plateau_interventions=[{metric: a, set: {gama: 1}}]",
            "`plateau_interventions`: 'gama' cannot change during a run. Did you mean 'gamma'? What can: ",
        ),
        (
            "plateau_interventions=[{metric: a, set: {n_envs: 1}}]",
            "`plateau_interventions`: 'n_envs' cannot change during a run. What can: ",
        ),
        (
            "plateau_interventions=[{metric: a, set: {gamma: null}}]",
            "`plateau_interventions`: gamma cannot become null: it should be a valid number.",
        ),
        ("training.phase=[]", "unknown key `training.phase`. Did you mean 'phases'?"),
    ],
)
def test_wrong_types(override, message):
    with pytest.raises(ConfigError) as error:
        load_experiment("CartPole-v1:ppo", override)
    assert str(error.value).startswith(f"command line (CartPole-v1.yaml, variant ppo): {message}")
    assert "pydantic" not in str(error.value)


def test_many_problems_fit_on_a_screen():
    wrong = [
        f"{field}=[]"
        for field in ("gamma", "seed", "quiet", "policy", "n_epochs", "gae_lambda", "ent_coef", "target_kl")
    ]
    with pytest.raises(ConfigError) as error:
        load_experiment("CartPole-v1:ppo", *wrong)
    lines = str(error.value).splitlines()
    assert len(lines) == 7
    assert lines[-1] == "... and 2 more."


def test_fields_describe_themselves():
    fields = {field.name: field for field in describe_fields(SmallPPO)}
    assert list(fields)[:2] == ["env_id", "algo_id"]
    assert fields["env_id"].required
    assert (fields["n_envs"].type, fields["n_envs"].default) == ("an integer >= 1", 1)
    assert (fields["gamma"].type, fields["gamma"].default) == ("a number or a schedule", 0.99)
    assert fields["max_env_steps"].type == "an integer >= 1 or null"
    assert fields["normalize_obs"].type == "one of off, rolling, static"
    assert fields["resize_obs"].type == "a list of 2, each an integer >= 1 or null"
    assert fields["clip_range_vf"].type == "a number or a schedule or null"


def test_every_field_of_every_config_has_a_docstring():
    from gymlab.config import schema

    for model in (
        schema.Config,
        schema.Phase,
        schema.HookSpec,
        schema.Until,
        schema.Schedule,
        schema.PlateauIntervention,
    ):
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"


def test_values_that_are_nested_beyond_measure_are_an_error_in_words():
    deep = []
    for _ in range(900):
        deep = [deep]
    with pytest.raises(ConfigError, match=r"^config: .*recursion"):
        from_dict({"env_id": "CartPole-v1", "algo_id": "ppo", "params": {"deep": deep}}, lambda algo: SmallPPO)
