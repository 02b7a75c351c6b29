"""`gymlab describe`: what a training would do, by numbers that follow from the settings."""

import pytest


def test_the_numbers_of_a_training(cli, tmp_path):
    shown = cli(
        "describe",
        "CartPole-v1:ppo",
        "n_envs=4",
        "n_steps=32",
        "batch_size=64",
        "n_epochs=2",
        "--max-env-steps",
        "1280",
        "--json",
    )
    assert shown.code == 0, shown.err
    described = shown.json()
    assert described["environment"]["n_envs"] == 4
    assert described["environment"]["threshold"] == 475
    assert "Box" in described["environment"]["observation_space"]
    assert described["environment"]["action_space"] == "Discrete(2)"
    assert described["derived"]["rollout_rows"] == 128
    assert described["derived"]["updates_per_env_step"] == pytest.approx(2 * 2 / 128)
    assert described["budget"] == {"env_steps": 1280, "epochs": 10, "updates": 40}
    assert list(tmp_path.iterdir()) == []


def test_parameters_are_counted(cli):
    described = cli("describe", "CartPole-v1:ppo", "--json").json()
    policy = described["modules"]["policy"]
    assert policy["parameters"] == sum(policy["parts"].values())
    memory = described["memory"]
    assert memory["gradients"] == 4 * policy["parameters"]
    assert memory["optimizers"] == 2 * memory["gradients"]
    assert memory["total"] == sum(count for name, count in memory.items() if name != "total")


def test_settings_that_differ_are_marked(cli):
    settings = cli("describe", "CartPole-v1:ppo", "gamma=0.5", "--json").json()["settings"]
    assert settings["gamma"] == {"value": 0.5, "default": 0.99, "changed": True}
    assert settings["keep_checkpoints"]["changed"] is False


@pytest.mark.parametrize(
    ("experiment", "settings", "optimizers"),
    [
        ("CartPole-v1:ppo", [], {"optimizer": "AdamW, eps 1e-05, weight decay 0 (so it is Adam)"}),
        ("CartPole-v1:ppo", ["weight_decay=0.1"], {"optimizer": "AdamW, eps 1e-05, weight decay 0.1"}),
        (
            "CartPole-v1:reinforce",
            ["optimizer=adam"],
            {f"{part}_optimizer": "Adam, eps 1e-05, weight decay 0" for part in ("policy", "value")},
        ),
    ],
)
def test_the_optimizer_with_its_epsilon_and_decay(cli, experiment, settings, optimizers):
    described = cli("describe", experiment, *settings, "--json").json()
    assert described["derived"].items() >= optimizers.items()
    shown = " ".join(cli("describe", experiment, *settings).out.split())
    for name, text in optimizers.items():
        assert name.replace("_", " ") in shown
        assert text in shown


def test_a_decay_that_an_algorithm_has_no_use_for_is_refused(cli):
    shown = cli("describe", "FrozenLake-v1:q_learning", "weight_decay=0.1")
    assert shown.code != 0
    assert "`weight_decay` is a field of" in shown.err
    assert "q_learning has none" in shown.err


def test_schedules_are_drawn(cli):
    described = cli("describe", "CartPole-v1:ppo", "policy_lr=lin_0.001", "--json").json()
    schedule = described["schedules"]["policy_lr"]
    assert schedule["values"][0] == 0.001
    assert schedule["values"][-1] == 0.0
    assert schedule["values"][12] == pytest.approx(0.0005)
    assert schedule["line"][0] == "█"
    assert schedule["line"][-1] == "▁"


@pytest.mark.parametrize(("every", "warmup", "first"), [(15, 50, 60), (5, 0, 5), (5, 5, 10), ("null", 0, None)])
def test_the_evaluation_plan(cli, every, warmup, first):
    described = cli(
        "describe", "CartPole-v1:ppo", f"eval_freq_epochs={every}", f"eval_warmup_epochs={warmup}", "--json"
    ).json()
    assert described["evaluation"]["first_epoch"] == first


def test_people_get_tables(cli):
    shown = cli("describe", "CartPole-v1:ppo", "gamma=0.5")
    assert shown.code == 0, shown.err
    for word in ("CartPole-v1:ppo", "475", "budget", "memory", "phase", "policy_lr", "gamma", "as by default"):
        assert word in shown.out


def test_every_setting_of_an_algorithm_is_explained(cli):
    fields = cli("describe", "--fields", "ppo", "--json").json()
    named = {field["name"]: field for field in fields}
    assert named["gamma"]["default"] == 0.99
    assert named["n_envs"]["type"].startswith("an integer")
    assert [field["name"] for field in fields if not field["description"]] == []
    assert "gae_lambda" in cli("describe", "--fields", "ppo").out


def test_fields_of_what_is_no_algorithm(cli):
    shown = cli("describe", "--fields", "pppo")
    assert shown.code == 2
    assert "'ppo'" in shown.err
    assert cli("describe", "CartPole-v1:ppo", "--fields", "ppo").code == 2
