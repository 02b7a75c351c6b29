"""From words on the command line to what the API is called with."""

import argparse

import pytest

from gymlab.cli.arguments import Parser, add_experiment, named_modules, resolve_keywords, split_words, take_files
from gymlab.errors import GymlabError


def keywords(*words):
    parser = Parser(prog="gymlab train", allow_abbrev=False)
    add_experiment(parser)
    return resolve_keywords(parser.parse(words))


def test_nothing_given_asks_for_the_default():
    given = keywords()
    assert given["experiment"] is None
    assert given["overrides"] == []
    assert "seed" not in given
    assert "max_env_steps" not in given


def test_options_and_settings_may_be_mixed():
    given = keywords("CartPole-v1:ppo", "n_envs=4", "--seed", "0", "policy_lr=lin_1e-3", "--override", "gamma=0.9")
    assert given["experiment"] == "CartPole-v1:ppo"
    assert given["overrides"] == ["n_envs=4", "policy_lr=lin_1e-3", "gamma=0.9"]
    assert given["seed"] == 0


def test_repeated_options_add_up():
    given = keywords("X-v0", "--env-kwargs", "a=1", "--env-kwargs", "b=2", "--plugin", "p", "--plugin", "q")
    assert given["env_kwargs"] == ["a=1", "b=2"]
    assert given["plugins"] == ["p", "q"]


@pytest.mark.parametrize("first", ["experiment=world_models", "+experiment=world_models"])
def test_a_composed_experiment_is_an_override(first):
    given = keywords(first, "experiment.seed=123")
    assert given["experiment"] is None
    assert given["overrides"] == [first, "experiment.seed=123"]


@pytest.mark.parametrize("text", ["50000", "5e4", "50_000"])
@pytest.mark.parametrize("option", ["--max-env-steps", "--max-timesteps"])
def test_a_budget_is_a_whole_number(option, text):
    assert keywords("X-v0", option, text)["max_env_steps"] == 50_000


@pytest.mark.parametrize("text", ["0", "-5", "1.5", "many"])
def test_a_budget_that_is_none(text):
    with pytest.raises(GymlabError, match="max-env-steps"):
        keywords("X-v0", f"--max-env-steps={text}")


def test_the_variant_may_come_apart():
    assert split_words(["CartPole-v1"], "ppo") == ("CartPole-v1:ppo", [])
    assert split_words([], "CartPole-v1:ppo") == ("CartPole-v1:ppo", [])
    with pytest.raises(GymlabError, match="Two experiments"):
        split_words(["CartPole-v1:ppo"], "Acrobot-v1:ppo")


def test_two_experiments_are_refused_with_the_likely_cause():
    with pytest.raises(GymlabError, match="key=value"):
        split_words(["CartPole-v1:ppo", "n_envs"])


@pytest.mark.parametrize(
    ("experiment", "overrides", "algo", "modules"),
    [
        ("my.envs:Maze-v0", [], "ppo", ["my.envs"]),
        ("my.envs:Maze-v0:ppo", [], None, ["my.envs"]),
        ("Maze:ppo", ["env_id=my.envs:Maze-v0"], None, ["my.envs"]),
        ("CartPole-v1:ppo", [], None, []),
        ("CartPole-v1:ppo", [], "ppo", []),
        ("CartPole-v1", [], "ppo", []),
        ("bandit:ppo", [], None, []),
        (None, ["experiment=x"], None, []),
    ],
)
def test_modules_that_the_user_names(experiment, overrides, algo, modules):
    assert named_modules(experiment, overrides, algo) == modules


@pytest.mark.parametrize(
    ("words", "plain", "files"),
    [
        (["maze.py:Maze-v0", "seed=1"], ["Maze-v0", "seed=1"], ["maze.py"]),
        (["my/maze.py:Maze-v0:ppo"], ["Maze-v0:ppo"], ["my/maze.py"]),
        ([None, "env_id=maze.py:Maze-v0"], [None, "env_id=Maze-v0"], ["maze.py"]),
        (["maze:Maze-v0", "env_kwargs.file=maze.py:3"], ["maze:Maze-v0", "env_kwargs.file=maze.py:3"], []),
    ],
)
def test_an_environment_in_a_file_is_its_id_and_a_plugin(words, plain, files):
    assert take_files(words) == (plain, files)


def test_a_parser_error_is_ours_to_show():
    with pytest.raises(GymlabError):
        Parser(prog="x").parse(["--nonsense"])
    assert issubclass(Parser, argparse.ArgumentParser)
