"""A trace is what `gymlab.load` and the workflow's act give on the same seed, step by step, and nothing else."""

import gymnasium as gym
import numpy as np
import pytest

import gymlab
from gymlab.engine.trace import (
    Player,
    TraceStep,
    discrete_labels,
    entry_names,
    is_greedy,
    outcome,
    plain_info,
    play_episodes,
)
from gymlab.envs.build import make_env


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory):
    runs = tmp_path_factory.mktemp("traced")
    short = {"runs_dir": runs, "quiet": True, "eval_freq_epochs": None, "early_stop_on_eval_threshold": False}
    gymlab.train("CartPole-v1:ppo", run_id="cartpole", n_envs=4, n_steps=64, max_env_steps=1024, **short)
    gymlab.train("FrozenLake-v1:q_learning", run_id="lake", n_envs=4, max_env_steps=8000, **short)
    gymlab.train("Pendulum-v1:ppo", run_id="pendulum", n_envs=4, n_steps=64, max_env_steps=1024, **short)
    return runs


def played_apart(reference, runs_dir, *, seed, deterministic, steps):
    """Rows by the vector environment and the agent alone: the way a user would write it."""
    agent = gymlab.load(reference, runs_dir=runs_dir)
    agent.seed(seed)
    rows = []
    with agent.make_env(1, seed=seed, render_mode="rgb_array") as environment:
        observation = environment.reset()
        for _ in range(steps):
            frame = environment.render()
            action = agent.act(observation, deterministic=deterministic)
            row = {name: np.array(values[0]) for name, values in agent.extras.items()}
            row |= {"observation": observation[0].copy(), "action": np.array(action[0]), "frame": frame}
            step = environment.step(action)
            row |= {"reward": float(step.reward[0]), "ended": bool(step.ended[0])}
            rows.append(row)
            observation = step.observation
            if step.ended[0]:
                agent.reset()
    return rows


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("run", ["cartpole", "lake", "pendulum"])
def test_a_trace_equals_what_the_agent_does_by_itself(runs_dir, run, deterministic):
    expected = played_apart(run, runs_dir, seed=7, deterministic=deterministic, steps=60)
    agent = gymlab.load(run, runs_dir=runs_dir)
    found = list(play_episodes(agent, seed=7, deterministic=deterministic, steps=60))
    assert len(found) == 60
    for step, row in zip(found, expected, strict=True):
        np.testing.assert_array_equal(step.observation, row["observation"])
        np.testing.assert_array_equal(step.frame, row["frame"])
        np.testing.assert_array_equal(step.action, row["action"])
        assert step.value == row["value"]
        assert step.reward == pytest.approx(row["reward"], abs=1e-5)
        assert step.ended == row["ended"]
        for name in ("probabilities", "mean", "std"):
            np.testing.assert_array_equal(getattr(step, name), row.get(name))


def test_the_same_seed_gives_the_same_trace_of_an_agent_that_has_played_before(runs_dir):
    agent = gymlab.load("cartpole", runs_dir=runs_dir)
    first, second, other = (
        [int(step.action) for step in play_episodes(agent, seed=seed, deterministic=False, steps=80, render=False)]
        for seed in (3, 3, 4)
    )
    assert first == second
    assert first != other


def test_rendering_changes_nothing(runs_dir):
    agent = gymlab.load("cartpole", runs_dir=runs_dir)
    drawn, blind = (list(play_episodes(agent, seed=1, steps=40, render=render)) for render in (True, False))
    for one, two in zip(drawn, blind, strict=True):
        np.testing.assert_array_equal(one.observation, two.observation)
        assert one.frame is not None
        assert two.frame is None


def test_whole_episodes_end_with_the_state_they_ended_in(runs_dir):
    agent = gymlab.load("cartpole", runs_dir=runs_dir)
    steps = list(play_episodes(agent, seed=5, deterministic=False, episodes=2))
    ends = [step for step in steps if step.ended]
    assert [step.episode for step in ends] == [0, 1]
    assert steps[-1] is ends[-1]
    assert [step.index for step in steps] == list(range(len(steps)))
    first_of_second = ends[0].index + 1
    assert steps[first_of_second].step == 0
    final = ends[0].final_observation
    assert abs(final[0]) > 2.4 or abs(final[2]) > 0.2095  # the cart left the track, or the pole fell
    assert not np.array_equal(ends[0].final_frame, steps[first_of_second].frame)


def test_labels_are_those_of_the_actions_that_the_agent_chooses_from():
    plain = gymlab.resolve("CartPole-v1:ppo").config
    swapped = gymlab.resolve(
        "CartPole-v1:ppo", env_wrappers=[{"id": "DiscreteActionSpaceRemapperWrapper", "mapping": [1, 0]}]
    ).config
    found = []
    for config in (plain, swapped):
        env = make_env(config)
        found.append(discrete_labels(env, config))
        env.close()
    assert found == [{0: "push left", 1: "push right"}, {0: "push right", 1: "push left"}]


def test_buttons_have_names_too():
    config = gymlab.resolve("CartPole-v1:ppo").config
    spec = config.spec.model_copy(update={"action_space": {"components": ["jump", "run"]}})
    pad = gym.Env()
    pad.action_space = gym.spaces.MultiBinary(2)
    assert discrete_labels(pad, config.model_copy(update={"spec": spec})) == {0: "jump", 1: "run"}


def test_labels_and_greedy_flags(runs_dir):
    agent = gymlab.load("lake", runs_dir=runs_dir)
    names = {0: "left", 1: "down", 2: "right", 3: "up"}
    for step in play_episodes(agent, seed=2, deterministic=False, steps=100, render=False):
        assert step.label == names[step.action]
        assert step.greedy == (step.probabilities[step.action] == step.probabilities.max())
        assert step.processed.shape == ()  # a table looks the number up as it is


def test_what_a_schedule_had_come_to_is_what_the_agent_plays_with(runs_dir):
    agent = gymlab.load("lake", runs_dir=runs_dir)
    step = next(play_episodes(agent, seed=2, deterministic=False, steps=1, render=False))
    epsilon = agent.workflow.hyperparameters.epsilon
    assert epsilon < 0.5  # the schedule starts at 1
    assert step.probabilities.min() == pytest.approx(epsilon / 4)


class FakeWorkflow:
    class hyperparameters:
        gamma = 0.5


def made_up(rewards, values, ends, next_values):
    steps = []
    for index, (reward, value, end, following) in enumerate(zip(rewards, values, ends, next_values, strict=True)):
        empty = np.zeros(1)
        steps.append(
            TraceStep(
                index, 0, index, empty, empty, None, 0, None, None, None, None, value, None,
                reward, reward, end == "terminated", end == "truncated", next_value=following,
            )
        )  # fmt: skip
    return steps


class FakeAgent:
    workflow = FakeWorkflow()
    workflow_state = None


def test_returns_and_advantages_by_hand():
    steps = made_up([1, 2, 4, 8], [10, 10, 10, 10], ["", "terminated", "", ""], [None, None, None, 6.0])
    found = outcome(FakeAgent(), steps)
    assert found.cumulative_reward.tolist() == [1, 3, 4, 12]
    assert found.mc_return.tolist() == [1 + 0.5 * 2, 2, 4 + 0.5 * 8, 8]
    # No lambda: return - value; what was cut off goes on with the value of the state after it.
    assert found.advantage_kind == "return - value"
    assert found.advantage.tolist() == [2 - 10, 2 - 10, 4 + 0.5 * (8 + 0.5 * 6) - 10, 8 + 0.5 * 6 - 10]


def test_advantages_are_gae_where_lambda_is_known():
    class Agent(FakeAgent):
        class workflow:
            class hyperparameters:
                gamma = 0.5
                gae_lambda = 0.5

    steps = made_up([1, 2, 4], [10, 20, 40], ["", "truncated", ""], [None, 8.0, 0.0])
    found = outcome(Agent(), steps)
    last = 4 - 40
    second = 2 + 0.5 * 8 - 20
    first = 1 + 0.5 * 20 - 10 + 0.25 * second
    assert found.advantage_kind == "gae"
    assert found.advantage.tolist() == [first, second, last]


def test_no_values_no_advantage():
    assert outcome(FakeAgent(), made_up([1], [None], [""], [None])).advantage is None
    assert outcome(FakeAgent(), []).cumulative_reward.tolist() == []


def test_normalised_rewards_are_put_in_the_units_of_the_values(tmp_path):
    gymlab.train(
        "MountainCar-v0:ppo", run_id="car", runs_dir=tmp_path, quiet=True, max_env_steps=1024, eval_freq_epochs=None,
        early_stop_on_eval_threshold=False,
    )  # fmt: skip
    agent = gymlab.load("car", runs_dir=tmp_path)
    steps = list(play_episodes(agent, seed=0, steps=3, render=False))
    deviation = agent.checkpoint.read_part("workflow")["collector"]["reward_normalizer"]["variance"] ** 0.5
    found = outcome(agent, steps)
    assert found.mc_return[-1] == pytest.approx(-1 / deviation, rel=1e-5)
    assert found.cumulative_reward.tolist() == [-1, -2, -3]
    assert all(np.abs(step.processed).max() <= 10 for step in steps)


def test_greedy_of_every_kind_of_choice():
    offset = gym.spaces.Discrete(3, start=5)
    assert is_greedy(offset, 6, np.array([0.1, 0.8, 0.1]))
    assert not is_greedy(offset, 5, np.array([0.1, 0.8, 0.1]))
    several = gym.spaces.MultiDiscrete([2, 3])
    assert is_greedy(several, np.array([1, 0]), np.array([0.2, 0.8, 0.6, 0.2, 0.2]))
    assert not is_greedy(several, np.array([1, 2]), np.array([0.2, 0.8, 0.6, 0.2, 0.2]))
    switches = gym.spaces.MultiBinary(2)
    assert is_greedy(switches, np.array([1, 0]), np.array([0.9, 0.2]))
    assert not is_greedy(switches, np.array([1, 1]), np.array([0.9, 0.2]))


def test_an_info_keeps_numbers_and_texts():
    info = {
        "lives": np.int64(3),
        "x": np.float32(0.5),
        "name": "a" * 500,
        "grid": np.zeros((3, 3)),
        "bad": float("nan"),
    }
    assert plain_info(info | {"flag": np.True_, "object": object()}) == {
        "lives": 3, "x": 0.5, "name": "a" * 200, "flag": True,
    }  # fmt: skip


def test_a_player_closes_its_environment(runs_dir):
    with Player(gymlab.load("lake", runs_dir=runs_dir), seed=0) as player:
        assert player.fps > 0
        env = player.env
        closed = []
        env.close = lambda: closed.append(True)
    assert closed == [True]


def test_entries_of_an_observation_have_names_where_each_has_one():
    config = gymlab.resolve("MountainCar-v0:ppo").config
    assert entry_names(config, 2) == ["position", "velocity"]
    assert entry_names(config, 3) == []
    stacked = config.model_copy(update={"frame_stack": 2})
    assert entry_names(stacked, 4) == ["position, 1 before", "velocity, 1 before", "position", "velocity"]
