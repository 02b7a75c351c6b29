"""The Agent tab's parameters, observation path and maps against the agent itself."""

import gymnasium as gym
import numpy as np
import pytest
from asking import ask, played, told

import gymlab
from gymlab.inspector import maps
from gymlab.inspector.routes import HttpError, Inspector


@pytest.fixture(scope="module")
def inspector(trained):
    return Inspector(trained)


def numbers(module):
    return sum(tensor["count"] for tensor in module["tensors"]) + sum(numbers(part) for part in module["parts"])


def test_parameters_are_those_of_the_modules(inspector, trained):
    agent = gymlab.load("cartpole-s1/@best", runs_dir=trained)
    found = told(inspector, "/api/runs/cartpole-s1/agent")
    assert [module["name"] for module in found["modules"]] == list(agent.workflow.modules)
    policy = found["modules"][0]
    parameters = list(agent.workflow.modules["policy"].parameters())
    assert policy["count"] == numbers(policy) == sum(parameter.numel() for parameter in parameters)
    assert policy["bytes"] == 4 * policy["count"]
    norm = np.sqrt(sum(float(parameter.detach().double().square().sum()) for parameter in parameters))
    assert policy["norm"] == pytest.approx(norm)
    assert found["algorithm"] == "ppo"


def test_the_way_of_an_observation(inspector):
    stages = told(inspector, "/api/runs/pixels/pipeline")["stages"]
    names = [stage["name"] for stage in stages]
    assert names[0] == "CartPoleEnv"
    assert [name for name in names if name in ("PixelObservationWrapper", "ImageObservation", "FrameStack")] == [
        "PixelObservationWrapper",
        "ImageObservation",
        "FrameStack",
    ]
    assert names[-1] == "ObservationEncoder"
    assert stages[names.index("FrameStack")]["space"].startswith("uint8 [")


def test_normalisation_is_shown_with_its_statistics(tmp_path):
    gymlab.train(
        "MountainCar-v0:ppo",
        run_id="car",
        runs_dir=tmp_path,
        quiet=True,
        video=False,
        max_env_steps=512,
        eval_freq_epochs=None,
        eval_episodes=1,
    )
    agent = gymlab.load("car", runs_dir=tmp_path)
    inspector = Inspector(tmp_path)
    found = told(inspector, "/api/runs/car/agent")["normalisation"]
    encoder = agent.workflow.modules["encoder"]
    assert found["names"] == ["position", "velocity"]
    np.testing.assert_allclose(found["mean"], encoder.mean.numpy())
    np.testing.assert_allclose(found["std"], encoder.variance.sqrt().numpy())
    plane = told(inspector, "/api/runs/car/map")
    assert plane["kind"] == "plane"
    assert plane["x_range"] == pytest.approx([-1.2, 0.6])
    assert plane["y_range"] == pytest.approx([-0.07, 0.07])
    row, column = 12, 40
    point = np.array([np.linspace(-1.2, 0.6, 61)[column], np.linspace(-0.07, 0.07, 61)[row]], np.float32)
    agent.act(point)
    assert plane["values"][row][column] == pytest.approx(float(agent.extras["value"][0]), rel=1e-4)
    assert plane["actions"][row][column] == int(agent.extras["probabilities"][0].argmax())
    assert plane["sureness"][row][column] == pytest.approx(float(agent.extras["probabilities"][0].max()), rel=1e-4)


def test_a_plane_through_four_entries_holds_the_others(inspector, trained):
    agent = gymlab.load("cartpole-s1/@best", runs_dir=trained)
    plane = told(inspector, "/api/runs/cartpole-s1/map", x=2, y=3)
    assert plane["names"][2] == "pole angle (rad)"
    assert plane["held"] == [0, 0, 0, 0]
    assert plane["y_range"] == [-3, 3]  # no bounds are known
    agent.act(np.array([0, 0, plane["x_range"][0], 3.0], np.float32))
    assert plane["values"][60][0] == pytest.approx(float(agent.extras["value"][0]), rel=1e-4)


@pytest.mark.parametrize(
    ("low", "high", "axes"),
    [
        ([-1, -1, -1, -1], [1, 1, 1, 1], (1, 2)),  # the first one only switches
        ([-1, -np.inf, -1, -1], [1, np.inf, 1, 1], (2, 3)),  # those with bounds first
        ([-np.inf] * 4, [np.inf] * 4, (1, 2)),
    ],
)
def test_the_first_axes_are_entries_that_move(monkeypatch, low, high, axes):
    rows = np.random.default_rng(0).normal(size=(50, 4)).round(3)
    rows[:, 0] = np.arange(50) > 25
    monkeypatch.setattr(maps, "visited", lambda agent, entries: rows)
    assert maps.first_axes(None, gym.spaces.Box(np.float32(low), np.float32(high)), 4) == axes


def test_a_plane_begins_with_places_and_holds_switches_where_they_were(tmp_path):
    """A lander's legs are on or off: neither an axis, nor half on the ground."""
    gymlab.train(
        "LunarLander-v3:ppo",
        run_id="lander",
        runs_dir=tmp_path,
        quiet=True,
        video=False,
        max_env_steps=64,
        n_envs=2,
        n_steps=32,
        batch_size=32,
        eval_freq_epochs=None,
        eval_episodes=1,
    )
    plane = told(Inspector(tmp_path), "/api/runs/lander/map")
    assert [plane["names"][plane[axis]] for axis in "xy"] == ["x", "y"]
    assert all(value in (0, 1) for value in plane["held"][6:])
    chosen = told(Inspector(tmp_path), "/api/runs/lander/map", x=4, y=5)
    assert (chosen["x"], chosen["y"]) == (4, 5)


def test_a_world_of_one_state_is_a_table_of_one_row(tmp_path):
    gymlab.train(
        "Bandit-v0:ppo", run_id="arms", runs_dir=tmp_path, quiet=True, max_env_steps=512, eval_freq_epochs=None
    )
    agent = gymlab.load("arms", runs_dir=tmp_path)
    inspector = Inspector(tmp_path)
    assert [entry["kind"] for entry in told(inspector, "/api/runs/arms/agent")["maps"]] == ["table"]
    table = told(inspector, "/api/runs/arms/map")
    agent.act(np.zeros(10, np.float32))
    np.testing.assert_allclose(table["cells"], agent.extras["probabilities"], rtol=1e-6)


def test_a_lake_is_a_grid_with_the_tables_values(inspector, trained):
    table = gymlab.load("lake", runs_dir=trained).workflow.modules["table"]
    assert [entry["kind"] for entry in told(inspector, "/api/runs/lake/agent")["maps"]] == ["grid", "table"]
    grid = told(inspector, "/api/runs/lake/map")
    assert (grid["rows"], grid["columns"]) == (4, 4)
    assert "".join(grid["letters"]) == "SFFFFHFHFFFHHFFG"
    assert grid["labels"] == {"0": "left", "1": "down", "2": "right", "3": "up"}
    np.testing.assert_allclose(grid["values"], table.q.numpy().max(axis=1))
    np.testing.assert_allclose(grid["q"], table.q.numpy())
    for state, policy in enumerate(grid["policy"]):
        assert [action for action, share in enumerate(policy) if share > 0] == table.greedy(state)
    cells = told(inspector, "/api/runs/lake/map", kind="table")
    np.testing.assert_allclose(cells["cells"], table.q.numpy())
    assert cells["visits"] == table.visits.tolist()


def test_taxis_town(tmp_path):
    gymlab.train(
        "Taxi-v4:q_learning",
        run_id="taxi",
        runs_dir=tmp_path,
        quiet=True,
        video=False,
        max_env_steps=4000,
        eval_freq_epochs=None,
        eval_episodes=1,
    )
    table = gymlab.load("taxi", runs_dir=tmp_path).workflow.modules["table"]
    town = told(Inspector(tmp_path), "/api/runs/taxi/map", passenger=4, destination=2)
    states = [((row * 5 + column) * 5 + 4) * 4 + 2 for row in range(5) for column in range(5)]
    np.testing.assert_allclose(town["values"], table.q.numpy().max(axis=1)[states])
    places = {letter: town["letters"].index(letter) for letter in "RGYB"}
    assert places == {"R": 0, "G": 4, "Y": 20, "B": 23}
    assert [0, 1] in town["walls"]
    assert [2, 2] not in town["walls"]


def test_saliency_of_a_step_of_a_trace(inspector):
    trace = played(inspector, "pixels", steps=4)
    found = told(inspector, f"/api/traces/{trace['id']}/saliency/2")
    assert np.array(found["policy"]).shape == (found["rows"], found["columns"])
    assert found["most"]["policy"] > 0
    other = played(inspector, "cartpole-s1", steps=3)
    with pytest.raises(HttpError, match="agents that see images"):
        ask(inspector, f"/api/traces/{other['id']}/saliency/0")


@pytest.mark.parametrize(
    ("run", "query"),
    [("lake", {"kind": "plane"}), ("lake", {"passenger": 9}), ("cartpole-s1", {"x": -1}), ("pixels", {})],
)
def test_maps_that_cannot_be(inspector, run, query):
    with pytest.raises(HttpError) as refused:
        ask(inspector, f"/api/runs/{run}/map", **query)
    assert refused.value.status in (400, 404)
