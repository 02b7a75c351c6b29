"""Tabular Q-learning: the update by hand-computed numbers, ties, masks, endings, encodings, and tiny tasks it must solve."""

import io
from collections import Counter

import numpy as np
import pytest
import torch
from fake_environment import FakeEnvironment, identity
from gymnasium import spaces
from rich.console import Console

import gymlab
from gymlab.components.q_table import QTable
from gymlab.config.schema import Schedule, Spec
from gymlab.engine.hyperparameters import Hyperparameters
from gymlab.engine.seeding import SeedTree
from gymlab.engine.workflow import Counters, PhaseView, WorkflowContext
from gymlab.errors import ConfigError, EnvironmentFailure
from gymlab.workflows.q_learning import QLearning, QLearningConfig, draw


def make(environment, *, seed=0, **settings):
    settings = {"n_steps": 10_000, "n_envs": environment.num_envs, **settings}
    config = QLearningConfig(env_id="test", algo_id="q_learning", seed=seed, **settings)
    workflow = QLearning(
        WorkflowContext(
            config=config,
            hyperparameters=Hyperparameters(config, config.max_env_steps),
            observation_space=environment.observation_space,
            action_space=environment.action_space,
            device=torch.device("cpu"),
            fabric=None,
            seeds=SeedTree(seed),
            counters=Counters(),
            train_environment=environment,
        )
    )
    workflow.initialize()
    return workflow


def collect(workflow, steps):
    """`steps` vector steps in one call: the budget cuts a longer n_steps."""
    most = steps * workflow.context.train_environment.num_envs
    return workflow.collect(PhaseView("q_learning", "online", 0.0, 0, 0, 0, most))


def table(states=4, actions=2, **options):
    return QTable(spaces.Discrete(states), actions, max_states=1000, **options)


def learn(q, state, action, reward, following, terminated, **options):
    rows = [np.array([value]) for value in (state, action, reward, following, terminated)]
    return q.learn(*rows, **{"policy_lr": 0.1, "gamma": 0.9, **options})


def chain(num_envs=1, length=2, **options):
    """State t at step t of an episode of `length`; the last step is rewarded with 1."""
    return FakeEnvironment(
        num_envs,
        spaces.Discrete(2),
        observation_space=spaces.Discrete(length + 1),
        observe=lambda generator, clock: clock.copy(),
        reward=lambda observation, action: observation == length - 1,
        length=length,
        **options,
    )


# The update


@pytest.mark.parametrize(("terminated", "expected"), [(False, 0.28), (True, 0.1)])
def test_one_update(terminated, expected):
    q = table()
    q.q[1] = torch.tensor([2.0, -5.0])
    error = learn(q, 0, 1, 1.0, 1, terminated)
    assert q.q[0, 1] == pytest.approx(expected)
    assert error == pytest.approx(expected / 0.1)
    assert q.visits.sum() == q.visits[0, 1] == 1


def test_rows_that_meet_in_an_entry_learn_one_after_the_other():
    q = table()
    q.learn(
        np.array([0, 0, 1]),
        np.array([1, 1, 0]),
        np.array([1.0, 0.0, 0.0]),
        np.array([3, 3, 0]),
        np.array([True, True, False]),
        policy_lr=0.5,
        gamma=0.5,
    )
    # 0 -> 0.5 -> 0.25; the third row then sees 0.25, not 0.
    assert q.q[0, 1] == 0.25
    assert q.q[1, 0] == 0.5 * 0.5 * 0.25
    assert q.visits[0, 1] == 2


def test_the_maximum_is_over_the_actions_that_the_next_state_allows():
    q = table()
    q.q[1] = torch.tensor([2.0, 9.0])
    q.remember_mask(np.array([1]), np.array([[True, False]]))
    learn(q, 0, 0, 1.0, 1, False, masked=True)
    assert q.q[0, 0] == pytest.approx(0.28)


def test_full_sweeps_with_rate_one_are_value_iteration():
    generator = np.random.default_rng(3)
    states, actions, gamma = 12, 3, 0.9
    following = generator.integers(states, size=(states, actions))
    rewards, terminated = generator.normal(size=(states, actions)), generator.random((states, actions)) < 0.2
    expected = np.zeros((states, actions))
    for _ in range(400):
        expected = rewards + gamma * ~terminated * expected.max(axis=1)[following]
    q = table(states, actions)
    s, a = (grid.ravel() for grid in np.meshgrid(np.arange(states), np.arange(actions), indexing="ij"))
    for _ in range(400):
        q.learn(s, a, rewards[s, a], following[s, a], terminated[s, a], policy_lr=1.0, gamma=gamma)
    assert np.allclose(q.q.numpy(), expected, atol=1e-12)


def test_two_state_chain_converges():
    workflow = make(chain(truncate=False), gamma=0.9, policy_lr=0.5, epsilon=1.0)
    collect(workflow, 400)
    assert workflow.table.q[:2].numpy() == pytest.approx(np.array([[0.9, 0.9], [1.0, 1.0]]))
    assert workflow.table.visits[2].sum() == 0


# Endings


@pytest.mark.parametrize("next_step_reset", [False, True])
def test_a_truncated_episode_is_bootstrapped_from_its_true_last_state(next_step_reset):
    environment = chain(length=2, truncate=True, next_step_reset=next_step_reset)
    workflow = make(environment, gamma=0.9, policy_lr=1.0, epsilon=1.0)
    workflow.table.q[2] = 5.0
    workflow.table.q[0] = -7.0  # Where the next episode begins: must not leak into the last state of this one.
    collect(workflow, 60)
    assert workflow.table.q[1].tolist() == pytest.approx([1 + 0.9 * 5.0] * 2)
    assert workflow.table.q[2].tolist() == [5.0, 5.0]


def test_values_do_not_depend_on_the_time_limit():
    """One state, reward 1 for ever: 1 / (1 - gamma) whatever the limit; with termination, less."""

    def value(**options):
        environment = FakeEnvironment(
            1,
            spaces.Discrete(1),
            observation_space=spaces.Discrete(1),
            observe=lambda generator, clock: clock * 0,
            **options,
        )
        workflow = make(environment, gamma=0.9, policy_lr=0.5)
        collect(workflow, 1000)
        return float(workflow.table.q[0, 0])

    assert value(length=3) == pytest.approx(10)
    assert value(length=17) == pytest.approx(10)
    assert value(length=3, truncate=False) < 9


def test_dead_rows_are_no_data():
    environment = chain(num_envs=2, length=2, truncate=False, next_step_reset=True)
    workflow = make(environment)
    result = collect(workflow, 9)
    assert (result.env_steps, result.vec_steps) == (12, 9)
    assert workflow.table.visits.sum() == 12
    assert workflow.table.visits[2].sum() == 0


# Acting


def test_ties_are_broken_at_random_and_only_ties():
    workflow = make(identity(size=4), epsilon=0.0)
    states = np.zeros(4000, dtype=int)
    counts = Counter(workflow.act(states, deterministic=True)[0].tolist())
    assert all(900 < counts[action] < 1100 for action in range(4))
    workflow.table.q[0] = torch.tensor([0.0, 1.0, 1.0, 0.5])
    counts = Counter(workflow.act(states, deterministic=True)[0].tolist())
    assert set(counts) == {1, 2}
    assert 1850 < counts[1] < 2150


def test_training_breaks_ties_at_random_too():
    environment = FakeEnvironment(
        1,
        spaces.Discrete(4),
        observation_space=spaces.Discrete(1),
        observe=lambda generator, clock: clock * 0,
        reward=lambda observation, action: 0.0,
    )
    collect(make(environment, epsilon=0.0), 2000)
    counts = Counter(np.concatenate(environment.actions).tolist())
    assert all(400 < counts[action] < 600 for action in range(4))


def test_epsilon_is_the_share_of_random_actions_and_evaluation_has_none():
    workflow = make(identity(size=4), epsilon=0.4)
    workflow.table.q[:, 2] = 1.0
    states = np.zeros(20_000, dtype=int)
    actions, _, extras = workflow.act(states)
    assert extras["probabilities"][0].tolist() == pytest.approx([0.1, 0.1, 0.7, 0.1])
    assert np.bincount(actions, minlength=4) / len(states) == pytest.approx([0.1, 0.1, 0.7, 0.1], abs=0.01)
    assert (workflow.act(states, deterministic=True)[0] == 2).all()
    assert (extras["value"] == 1.0).all()


def test_epsilon_follows_its_schedule_to_the_floor():
    epsilon = Schedule(start=1.0, end=0.01, to=800, schedule="exponential")
    workflow = make(identity(), epsilon=epsilon, max_env_steps=1000)
    for steps, expected in [(0, 1.0), (200, 0.01**0.25), (400, 0.1), (800, 0.01), (1000, 0.01), (5000, 0.01)]:
        workflow.hyperparameters.follow_schedules(steps)
        assert workflow.hyperparameters.epsilon == pytest.approx(expected)


def test_masks_are_obeyed_in_training_and_acting():
    mask = np.array([[True, False, True, False]] * 8)
    environment = identity(8, 4, action_mask=mask)
    workflow = make(environment, epsilon=1.0)
    collect(workflow, 50)
    assert set(np.concatenate(environment.actions).tolist()) == {0, 2}
    workflow.table.q[:, 1] = 9.0
    actions, _, extras = workflow.act(np.zeros(8, dtype=int), deterministic=True, action_mask=mask)
    assert set(actions.tolist()) <= {0, 2}
    assert (extras["value"] < 9).all()
    with pytest.raises(EnvironmentFailure, match="allows no action"):
        workflow.act(np.zeros(1, dtype=int), action_mask=np.zeros((1, 4), dtype=bool))


def test_draw_never_takes_what_has_no_probability():
    probabilities = np.array([[0.0, 0.3, 0.0, 0.7, 0.0]] * 2)
    assert draw(probabilities, np.array([0.0, np.nextafter(1.0, 0.0)])).tolist() == [1, 3]


def test_actions_count_from_the_start_of_their_space():
    environment = FakeEnvironment(
        4,
        spaces.Discrete(2, start=5),
        observation_space=spaces.Discrete(3, start=-1),
        observe=lambda generator, clock: generator.integers(-1, 2, size=4),
        reward=lambda observation, action: action == 6,
    )
    workflow = make(environment)
    collect(workflow, 50)
    assert (workflow.act(np.array([-1, 0, 1]), deterministic=True)[0] == 6).all()


def test_an_optimistic_table_tries_everything_without_epsilon():
    environment = identity(1, 5, length=50)
    workflow = make(environment, epsilon=0.0, initial_value=10.0, policy_lr=0.5, gamma=0.5)
    collect(workflow, 1000)
    assert (workflow.table.visits > 0).all()
    assert (workflow.act(np.arange(5), deterministic=True)[0] == np.arange(5)).all()


# Observations


def test_taxi_states_round_trip():
    """((row 5 + column) 5 + passenger) 4 + destination, as a MultiDiscrete and as Taxi's own number."""
    index = QTable(spaces.MultiDiscrete([5, 5, 5, 4]), 6, max_states=500).index
    places = np.stack(np.meshgrid(*map(np.arange, (5, 5, 5, 4)), indexing="ij"), axis=-1).reshape(-1, 4)
    expected = ((places[:, 0] * 5 + places[:, 1]) * 5 + places[:, 2]) * 4 + places[:, 3]
    assert index.count == 500
    assert (index.rows(places) == expected).all()
    assert (np.stack(np.unravel_index(index.rows(places), index.sizes), axis=1) == places).all()
    assert (QTable(spaces.Discrete(500), 6, max_states=500).index.rows(expected) == expected).all()


@pytest.mark.parametrize("encoding", ["binary", "onehot"])
def test_an_encoded_number_is_the_same_task(tmp_path, encoding):
    settings = {"seed": 3, "max_env_steps": 4000, "eval_freq_epochs": None, "eval_episodes": 5, "video": False}
    settings |= {"runs_dir": tmp_path, "quiet": True, "vectorization_mode": "sync"}
    plain = gymlab.train("FrozenLake-v1:q_learning", run_id="plain", **settings)
    wrapped = gymlab.train(
        "FrozenLake-v1:q_learning",
        run_id="wrapped",
        env_wrappers=[{"id": "DiscreteEncoder", "encoding": encoding}],
        grid=None,
        **settings,
    )
    assert wrapped.metrics["train/roll/ep_rew/mean"] == plain.metrics["train/roll/ep_rew/mean"]
    assert wrapped.metrics["train/opt/q/td_error"] == plain.metrics["train/opt/q/td_error"]


def test_a_tuple_of_numbers_is_learned_and_loaded_again(tmp_path):
    """Blackjack observes a tuple, which the vector environment flattens."""
    gymlab.train(
        "Blackjack-v1",
        algo="q_learning",
        run_id="one",
        runs_dir=tmp_path,
        seed=0,
        n_envs=4,
        max_env_steps=20_000,
        policy_lr=0.02,
        eval_freq_epochs=None,
        eval_episodes=200,
        video=False,
        quiet=True,
    )
    agent = gymlab.load("one", runs_dir=tmp_path)
    known = agent.workflow.table.index.known
    assert 200 < known < 704
    assert agent.act((20, 10, 0)) == 0
    assert agent.act((6, 10, 0)) == 1
    assert agent.workflow.table.index.known == known


def test_an_unseen_state_has_the_initial_value():
    workflow = make(identity(2, 4))
    q = QTable(spaces.MultiBinary(3), 2, initial_value=4.0, max_states=100)
    assert q.index.rows(np.array([[0, 1, 1]], dtype=np.int8), add=True).tolist() == [0]
    q.q[0] = 1.0
    rows = q.index.rows(np.array([[0, 1, 1], [1, 0, 0]], dtype=np.int8))
    assert q.values(rows).tolist() == [[1.0, 1.0], [4.0, 4.0]]
    assert q.q[-1].tolist() == [4.0, 4.0]
    assert workflow.table.index.known == 4


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (spaces.Box(-1, 1, (3,), np.float32), "one row a state"),
        (spaces.Box(0, 255, (8, 8, 3), np.uint8), "one row a state"),
        (spaces.MultiDiscrete([1000, 1000]), "Raise max_states"),
    ],
)
def test_what_no_table_holds_is_refused_with_advice(space, said):
    with pytest.raises(ConfigError, match=said):
        QTable(space, 2, max_states=1000)


def test_continuous_numbers_and_too_many_states_are_refused_when_seen():
    index = QTable(spaces.Box(0, 1, (4,), np.float32), 2, max_states=2).index
    with pytest.raises(ConfigError, match="other than 0 and 1"):
        index.rows(np.array([[0.5, 0, 1, 0]], dtype=np.float32))
    with pytest.raises(ConfigError, match="more than 2 different states"):
        index.rows(np.eye(4, dtype=np.float32), add=True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"normalize_reward": True}, "normalize_reward"),
        ({"grid": (2, 3)}, "2 x 3"),
        ({"normalize_obs": "static"}, "off"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        make(identity(), **settings)


def test_continuous_actions_are_refused():
    environment = FakeEnvironment(1, spaces.Box(-1, 1, (1,), np.float32), observation_space=spaces.Discrete(2))
    with pytest.raises(ConfigError, match="Discrete actions"):
        make(environment)


@pytest.mark.parametrize("name", ["epsilon", "policy_lr", "gamma"])
def test_shares_lie_between_0_and_1(name):
    with pytest.raises(ValueError, match="between 0 and 1"):
        QLearningConfig(env_id="test", algo_id="q_learning", **{name: 1.5})


# Whole runs


def frozen_lake(tmp_path, run_id, **settings):
    settings = {"seed": 5, "max_env_steps": 20_000, "eval_freq_epochs": None, "eval_episodes": 5, **settings}
    gymlab.train("FrozenLake-v1:q_learning", runs_dir=tmp_path, run_id=run_id, quiet=True, video=False, **settings)
    return gymlab.load(run_id, runs_dir=tmp_path).workflow.table


def test_the_same_seed_gives_the_same_table(tmp_path):
    first, second = frozen_lake(tmp_path, "first"), frozen_lake(tmp_path, "second", eval_freq_epochs=2)
    assert torch.equal(first.q, second.q)
    assert torch.equal(first.visits, second.visits)
    assert not torch.equal(first.q, frozen_lake(tmp_path, "third", seed=6).q)


def test_values_stay_within_what_can_be_earned(tmp_path):
    q = frozen_lake(tmp_path, "one").q
    assert q.min() >= 0
    assert 0 < q.max() <= 1
    assert (q[[5, 7, 11, 12, 15]] == 0).all()  # Holes and goal: nothing is ever done there.


@pytest.mark.learns
def test_the_cliff_is_walked_in_thirteen_steps(tmp_path):
    run = gymlab.train("CliffWalking-v1:q_learning", runs_dir=tmp_path, run_id="cliff", seed=0, quiet=True, video=False)
    assert run.result["mean"] == -13


@pytest.mark.learns
def test_frozen_lake_without_ice_is_always_crossed(tmp_path):
    run = gymlab.train(
        "FrozenLake-v1:q_learning",
        runs_dir=tmp_path,
        run_id="dry",
        seed=0,
        env_kwargs=["is_slippery=false"],
        max_env_steps=40_000,
        policy_lr=0.8,
        gamma=0.95,
        eval_episodes=20,
        quiet=True,
        video=False,
    )
    assert run.result["mean"] == 1.0


# Print and picture


def test_the_table_is_printed_and_drawn(tmp_path):
    labels = {"0": "left", "1": "right"}
    workflow = make(chain(length=3, truncate=False), grid=(2, 2), spec=Spec(action_space={"labels": labels}), gamma=0.9)
    workflow.table.q[1, 1] = 0.5
    collect(workflow, 3)
    console = Console(width=80, file=io.StringIO())
    console.print(workflow.print_table(most=2))
    text = console.file.getvalue()
    assert "right" in text
    assert "3 visited of 4 states" in text
    assert "and 1 more states" in text
    grid = workflow.draw_table(tmp_path / "grid.png").read_bytes()
    plain = make(chain(length=3)).draw_table(tmp_path / "plain.png").read_bytes()
    assert grid.startswith(b"\x89PNG")
    assert plain.startswith(b"\x89PNG")
    assert workflow.describe()["table_states"] == 4


def test_the_table_stands_in_the_report(tmp_path):
    settings = {"max_env_steps": 512, "eval_episodes": 2, "video": False, "quiet": True, "eval_freq_epochs": None}
    run = gymlab.train("FrozenLake-v1:q_learning", runs_dir=tmp_path, **settings)
    assert "![Q table](pictures/q-table.png)" in (run.dir / "report.md").read_text()
    assert (run.dir / "pictures" / "q-table.png").stat().st_size > 10_000
