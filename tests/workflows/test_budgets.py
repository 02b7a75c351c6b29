"""A budget is never exceeded, whatever the algorithm: fewer steps than environments, awkward remainders, phases of any type."""

import pytest
from small_experiments import EXPERIMENTS, ON_POLICY, train_small

import gymlab
from gymlab.engine.setup import episode_capped, prepare
from gymlab.errors import ConfigError


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize(("n_envs", "budget", "taken"), [(8, 5, 5), (6, 77, 72), (5, 11, 10)])
def test_no_workflow_takes_more_steps_than_it_has(tmp_path, name, n_envs, budget, taken):
    run = train_small(name, tmp_path, n_envs=n_envs, max_env_steps=budget)
    assert run.status == "finished"
    assert run.record["counters"]["env_steps"] == taken


@pytest.mark.parametrize("name", ["ppo", "dreamer_v3"])
@pytest.mark.parametrize("times", [1, 4])
def test_a_phase_that_is_called_offline_and_collects_keeps_to_it(tmp_path, name, times):
    update, buffer = ("update_controller", "rollout") if name == "ppo" else ("update_agent", "replay")
    hooks = [{"name": "collect", "times": times}, update]
    phases = [{"name": "all", "type": "offline", "hooks": hooks, "buffer": buffer}]
    run = train_small(name, tmp_path, n_envs=6, max_env_steps=77, training={"phases": phases})
    assert run.record["counters"]["env_steps"] == 72


def test_what_follows_a_phase_that_the_budget_cut_by_less_than_a_step_takes_place(tmp_path):
    """40 steps in 6 environments: the phase of 40 ends at 36, and codes and M follow."""
    run = train_small("world_models", tmp_path, n_envs=6, max_env_steps=40, evolve_in="dream", generations=1)
    assert run.record["counters"]["env_steps"] == 36
    assert run.record["counters"]["updates"] == 4 + 1


def test_more_environments_than_steps_are_fewer_with_a_notice(tmp_path):
    run = gymlab.train(
        "Brief-v0", algo="ppo", runs_dir=tmp_path, n_envs=100_000, max_env_steps=512, quiet=True, video=False
    )
    assert run.record["counters"]["env_steps"] == 512
    assert run.config_data["n_envs"] == 512
    notice = "n_envs is 512: 512 env steps are fewer than one step of 100,000 environments."
    assert notice in run.record["notices"]


def test_a_config_whose_budget_is_less_than_one_step_is_refused_by_name():
    config = gymlab.resolve(
        "Brief-v0", algo="ppo", n_envs=4, max_env_steps=40, **{**ON_POLICY, "batch_size": 32}
    ).config
    with pytest.raises(
        ConfigError, match=r"max_env_steps: 3 env steps are fewer than one step of 4 environments. Set n_envs: 3"
    ):
        prepare(config.model_copy(update={"max_env_steps": 3}))


def test_a_longer_budget_on_resume_is_kept_too(tmp_path):
    train_small("ppo", tmp_path, n_envs=6, max_env_steps=40)
    with pytest.raises(
        ConfigError, match=r"max_env_steps: 4 env steps are fewer than one step of the run's 6 environments"
    ):
        gymlab.resume("ppo", runs_dir=tmp_path, max_env_steps=4)
    run = gymlab.resume("ppo", runs_dir=tmp_path, max_env_steps=100)
    assert run.record["counters"]["env_steps"] == 96


def test_a_video_may_have_another_cap_than_evaluation():
    config = gymlab.resolve("Brief-v0", algo="ppo", eval_max_episode_steps=3, video_max_episode_steps=4).config
    assert episode_capped(config).max_episode_steps == 3
    assert episode_capped(config, video=True).max_episode_steps == 4
    alike = config.model_copy(update={"video_max_episode_steps": None})
    assert episode_capped(alike, video=True).max_episode_steps == 3
