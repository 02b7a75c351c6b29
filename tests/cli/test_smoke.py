"""`gymlab smoke`: PASS, FAIL and SKIP; and one experiment of each family, in this process."""

import json
import sys

import pytest

from gymlab.cli import smoke
from gymlab.cli.briefly import train_briefly
from gymlab.config import discover
from gymlab.envs.extras import needs_of
from gymlab.errors import NotInstalled


def cheapest_of_each_family():
    """One PPO experiment for each family of the zoo, and for each package that environments of it need."""
    found = {}
    for entry in discover():
        for variant in entry.variants:
            needs = needs_of(entry.env_id, variant.obs_type)
            key = entry.family if needs is None or needs.name == entry.family else f"{entry.family}-{needs.name}"
            if variant.algo_id == "ppo":
                found.setdefault(key, (f"{entry.name}:{variant.name}", needs))
    return found


FAMILIES = cheapest_of_each_family()


@pytest.mark.parametrize(("experiment", "needs"), FAMILIES.values(), ids=FAMILIES)
def test_one_experiment_of_each_family(experiment, needs, tmp_path):
    if needs is not None and needs.missing:
        pytest.skip(" && ".join(needs.pip_lines))
    try:
        assert train_briefly(experiment, 40, tmp_path) == 40
    except NotInstalled as error:
        pytest.skip(str(error))


def test_the_zoo_is_known_by_family():
    assert {"bandit", "gymnasium", "gymnasium-box2d"} <= set(FAMILIES)


@pytest.fixture
def zoo(tmp_path):
    """Three experiments of the user's own: one that works, one that cannot, one without its package."""
    directory = tmp_path / "mine" / "environments"
    directory.mkdir(parents=True)
    (directory / "Zoo-good.yaml").write_text("env_id: Bandit-v0\nppo: {n_envs: 4, max_env_steps: 1e5}\n")
    (directory / "Zoo-bad.yaml").write_text("env_id: Bandit-v0\nppo: {env_kwargs: {n_arms: 1}}\n")
    (directory / "Zoo-lacks.yaml").write_text("env_id: LunarLander-v3\nppo: {n_envs: 4}\n")
    return tmp_path / "mine"


def test_pass_fail_and_skip(cli, zoo, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    shown = cli("smoke", "--filter", "zoo-", "--config-dir", zoo, "--timesteps", "20", "--logs", "logs", "--json")
    assert shown.code == 1
    found = shown.json()
    assert (found["passed"], found["failed"], found["skipped"]) == (1, 1, 1)
    results = {result["name"]: result for result in found["results"]}
    assert results["Zoo-good:ppo"]["state"] == "PASS"
    assert results["Zoo-bad:ppo"]["message"] == "ConfigError: A bandit needs n_arms >= 2, not 1."
    assert "n_arms >= 2" in (tmp_path / results["Zoo-bad:ppo"]["log"]).read_text()
    assert results["Zoo-lacks:ppo"]["message"] == "pip install 'gymlab[box2d]'"
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["Zoo-bad-ppo.log"]


def test_people_get_lines_and_random_steps_are_enough(cli, zoo, tmp_path):
    shown = cli(
        "smoke", "--filter", "Zoo-good", "--config-dir", zoo, "--random", "--limit", "1", "--out", "made/it.json"
    )
    assert shown.code == 0, shown.out
    written = json.loads((tmp_path / "made" / "it.json").read_text())
    assert (written["passed"], written["random"], written["results"][0]["name"]) == (1, True, "Zoo-good:ppo")
    assert shown.out.startswith("PASS Zoo-good:ppo")
    assert "1 passed, 0 failed, 0 skipped" in shown.out


def test_nothing_of_that_name(cli):
    shown = cli("smoke", "--filter", "nowhere")
    assert shown.code == 2
    assert "`gymlab list`" in shown.err


def test_every_variant_and_composed_experiment_is_there():
    names = [name for name, _ in smoke.experiments()]
    assert {"CartPole-v1:ppo_pixels", "Taxi-v4:q_learning", "experiment=cartpole_ppo"} <= set(names)
    assert [name for name, _ in smoke.experiments(word="bandit")] == ["Bandit-v0:ppo", "Bandit-v0:reinforce"]
