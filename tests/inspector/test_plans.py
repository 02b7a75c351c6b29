"""Plans: what a workflow's `plans` gives is what the page is told, and others plan nothing."""

import numpy as np
import pytest
from asking import ask, played, told

import gymlab
from gymlab.inspector.plans import MOST_SEQUENCES
from gymlab.inspector.routes import HttpError, Inspector

TINY = {"size": "tiny", "latent": 16, "hidden": 16, "encoder_hidden": 16, "seed_steps": 64, "max_env_steps": 128}
PLANNING = {"plan_samples": 64, "plan_policy_samples": 8, "plan_elites": 40, "plan_iterations": 2, "batch_size": 16}
SHORT = {"n_envs": 2, "quiet": True, "video": False, "eval_episodes": 1, "eval_max_episode_steps": 20}


@pytest.fixture(scope="module")
def planners(tmp_path_factory):
    runs = tmp_path_factory.mktemp("planners")
    for env in ("Pendulum-v1", "CartPole-v1"):
        gymlab.train(env, algo="tdmpc2", run_id=env.lower(), runs_dir=runs, **TINY, **PLANNING, **SHORT)
    return runs


@pytest.fixture
def inspector(planners):
    return Inspector(planners, [])


def test_plans_are_what_the_workflow_considered(inspector):
    assert told(inspector, "/api/runs/pendulum-v1/world_model")["plans"]
    trace = played(inspector, "pendulum-v1", deterministic=False, seed=1, steps=30)
    found = told(inspector, f"/api/traces/{trace['id']}/plans", start=5, horizon=200)
    assert (found["start"], found["horizon"]) == (5, 14)  # an episode of 20 steps
    actions = np.array(found["actions"])
    assert actions.shape == (MOST_SEQUENCES, 3, 1)
    assert np.abs(actions).max() <= 2
    assert not found["choices"]
    assert np.array(found["returns"]).shape == (MOST_SEQUENCES, 3)
    assert (np.diff(found["values"]) <= 0).all()
    assert len(found["drift"]) == 14
    assert np.isfinite(found["drift"]).all()
    assert len(found["taken"]) == 1


def test_choices_are_told_as_such(inspector):
    trace = played(inspector, "cartpole-v1", deterministic=False, seed=1, steps=12)
    found = told(inspector, f"/api/traces/{trace['id']}/plans", start=0, horizon=3)
    assert found["choices"]
    assert set(np.array(found["actions"]).ravel()) <= {0, 1}


def test_who_plans_nothing_is_told_so(runs):
    inspector = Inspector(runs, [])
    trace = played(inspector, "cartpole-s1", deterministic=False, seed=1, steps=12)
    with pytest.raises(HttpError, match="ppo plans nothing"):
        ask(inspector, f"/api/traces/{trace['id']}/plans", start=0)


def test_plans_on_the_page(planners, start_server, page):
    server = start_server(planners)
    page.goto(f"{server.url}#world_model?runs=pendulum-v1&steps=12&seed=1")
    panel = page.locator("#panel-world_model")
    panel.get_by_text("No plans yet").wait_for()
    panel.get_by_role("button", name="Dream", exact=True).click()
    panel.get_by_text("Planned at step 10: the best of 32 is worth").wait_for()
    assert panel.get_by_text("Actions of the best sequences").is_visible()
    assert panel.get_by_text("Drift of the latent").is_visible()
    assert not panel.get_by_label("Step of the dream").is_visible()
