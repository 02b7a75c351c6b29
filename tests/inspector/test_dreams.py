"""World model: what a workflow's `imagine` gives is what the page shows, and others say what to train."""

import numpy as np
import pytest
from asking import PLUGIN, ask, played, told

import gymlab
from gymlab.api import load_plugins, resolve
from gymlab.cli.main import main
from gymlab.engine.workflow import Dream, Recording, WorldModel, find_workflow
from gymlab.inspector.dreams import KINDS, recorded
from gymlab.inspector.episodes import traces_of
from gymlab.inspector.frames import decode
from gymlab.inspector.routes import HttpError, Inspector


@pytest.fixture
def inspector(dreamers):
    return Inspector(dreamers, [PLUGIN])


def test_errors_are_root_mean_squares():
    truth = np.zeros((2, 2, 2))
    dream = Dream(truth, truth + 1, np.stack([np.full((2, 2), 3), np.array([[4, 0], [0, 0]])]))
    assert dream.reconstruction_error.tolist() == [1, 1]
    assert dream.dream_error.tolist() == [3, 2]


def test_which_workflows_have_a_world_model(inspector):
    load_plugins([PLUGIN])
    assert issubclass(find_workflow("linear_world"), WorldModel)
    assert not issubclass(find_workflow("ppo"), WorldModel)
    found = told(inspector, "/api/runs/vectors/world_model")
    assert (found["dreams"], found["plans"]) == (True, False)
    assert found["able"] == ["delta_iris", "dreamer", "linear_world", "tdmpc", "tdmpc2", "world_models"]


def test_a_dream_is_what_the_workflow_imagines(inspector, dreamers):
    trace = played(inspector, "vectors", deterministic=False, seed=3, steps=40)
    table = told(inspector, f"/api/traces/{trace['id']}/steps")
    start = 4
    left = next(row for row in range(start, 40) if table["end"][row]) - start
    found = told(inspector, f"/api/traces/{trace['id']}/dream", start=start, horizon=200)
    assert (found["start"], found["horizon"]) == (start, left)
    agent = gymlab.load("vectors/@best", runs_dir=dreamers)
    agent.seed(3)
    seen, taken = [], []
    with agent.make_env(1, seed=3, render_mode="rgb_array") as environment:
        observation = environment.reset()
        for _ in range(start + left + 1):
            seen.append(observation[0].copy())
            taken.append(agent.act(observation, deterministic=False)[0])
            observation = environment.step(np.array([taken[-1]])).observation
    recording = Recording(np.stack(seen), np.array(taken), np.arange(len(seen)) == 0)
    expected = agent.workflow.imagine(recording, start, left)
    assert found["kinds"] == [*KINDS, "constant"]
    np.testing.assert_allclose(found["constant"], np.stack([seen[start]] * left), rtol=1e-6)
    for kind in KINDS:
        np.testing.assert_allclose(found[kind], getattr(expected, kind), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["truth"], np.stack(seen)[start + 1 :], rtol=1e-6)
    np.testing.assert_allclose(found["dream_error"], expected.dream_error, rtol=1e-3, atol=1e-6)
    assert max(found["reconstruction_error"]) < 1e-4  # four components hold four numbers
    assert 0 < found["dream_error"][0] < 0.05


def test_pictures_come_as_one_sheet(inspector):
    trace = played(inspector, "pictures", deterministic=False, seed=1, steps=12)
    found = told(inspector, f"/api/traces/{trace['id']}/dream", start=1, horizon=5)
    sheet = decode(ask(inspector, f"/api/traces/{trace['id']}/dream.png", start=1, horizon=5).body)
    assert (found["height"], found["width"]) == (16, 24)
    assert sheet.shape == (4 * 16, found["horizon"] * 24)
    kept = traces_of(inspector).get(trace["id"])
    recording = recorded(kept, 0, 3)
    np.testing.assert_array_equal(sheet[:16, :24], recording.observations[2][-1])
    assert recording.is_first.tolist() == [True, False, False]
    assert all(0 <= error < 1 for error in found["dream_error"])
    with pytest.raises(HttpError):
        ask(inspector, f"/api/traces/{trace['id']}/dream", start=1, horizon=201)


def test_nothing_is_dreamt_beyond_the_end_of_an_episode(inspector):
    trace = played(inspector, "vectors", deterministic=False, seed=3, steps=40)
    table = told(inspector, f"/api/traces/{trace['id']}/steps")
    last = next(row for row in range(40) if table["end"][row])
    with pytest.raises(HttpError, match="nothing after it"):
        ask(inspector, f"/api/traces/{trace['id']}/dream", start=last)


def test_a_run_without_a_world_model_is_refused_in_words(trained):
    inspector = Inspector(trained)
    found = told(inspector, "/api/runs/cartpole-s1/world_model")
    assert (found["dreams"], found["plans"]) == (False, False)
    # What the page says to type: an algorithm of the list that can learn this environment.
    assert resolve(found["experiment"]).config.algo_id in found["dreaming"]
    assert main(["describe", found["experiment"], "--json"]) == 0
    trace = played(inspector, "cartpole-s1", steps=5)
    with pytest.raises(HttpError, match="ppo has no world model"):
        ask(inspector, f"/api/traces/{trace['id']}/dream")
