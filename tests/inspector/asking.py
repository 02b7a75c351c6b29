"""Asking the inspector's handlers without a server, and agents without the inspector."""

import importlib
import json
import time
from pathlib import Path

import numpy as np

from gymlab.engine.agent import load_best
from gymlab.inspector.routes import Request, answer
from gymlab.inspector.server import HANDLERS

PLUGIN = str(Path(__file__).parent / "linear_world.py")
"""A workflow with a world model."""

for name in HANDLERS:
    importlib.import_module(f"gymlab.inspector.{name}")


def ask(inspector, path, method="GET", body=None, **query):
    """The response of a handler."""
    return answer(method, path, Request(inspector, {name: [str(value)] for name, value in query.items()}, body))


def told(inspector, path, **query):
    """The JSON of a handler."""
    return json.loads(ask(inspector, path, **query).body)


def played(inspector, run, seconds=60, **wish):
    """The progress of a trace once it is over."""
    trace = json.loads(ask(inspector, "/api/traces", "POST", {"run": run, **wish}).body)
    end = time.monotonic() + seconds
    while trace["status"] in ("waiting", "playing"):
        assert time.monotonic() < end, trace
        time.sleep(0.02)
        trace = told(inspector, f"/api/traces/{trace['id']}")
    return trace


def rows_apart(run, runs_dir, *, seed, deterministic, steps):
    """What `gymlab.load` and the agent alone do on a seed: the numbers that the page has to show."""
    _, agent = load_best(run, runs_dir=runs_dir)
    agent.seed(seed)
    rows = []
    with agent.make_env(1, seed=seed, render_mode="rgb_array") as environment:
        observation = environment.reset()
        total = 0.0
        for _ in range(steps):
            frame = environment.render()
            action = agent.act(observation, deterministic=deterministic)
            step = environment.step(action)
            total += float(step.reward[0])
            rows.append(
                {
                    "action": action[0].tolist(),
                    "probabilities": agent.extras["probabilities"][0].tolist(),
                    "value": float(agent.extras["value"][0]),
                    "reward": float(step.reward[0]),
                    "cumulative_reward": total,
                    "ended": bool(step.ended[0]),
                    "observation": np.array(observation[0]),
                    "frame": frame,
                }
            )
            observation = step.observation
            total *= not step.ended[0]
    gamma, running = agent.workflow.hyperparameters.gamma, 0.0
    for row in reversed(rows):
        running = row["reward"] + (0.0 if row["ended"] else gamma * running)
        row["mc_return"] = running
    return rows
