"""What an agent has learned, over all its states: grids with arrows, Taxi's town, planes through a vector, tables of numbers.

Everything comes from `act` on made-up observations, so that a network's policy is drawn like a table's. Where the agent holds a `QTable`,
its entries and visits are shown as well.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import gymnasium as gym
import numpy as np

from gymlab.components.observation import UNBOUNDED, ObservationEncoder
from gymlab.components.q_table import QTable
from gymlab.engine.agent import Agent
from gymlab.engine.trace import Player, component_names, discrete_labels, play_environment

MOST_STATES = 4096
"""Larger tables are not drawn."""
MOST_DIMENSIONS = 64
POINTS = 61
"""Points along each side of a plane."""
UNKNOWN_RANGE = 3.0
"""How far a plane goes along an entry that has no bounds, in deviations where they are known."""
LOOKED_AT = 256
"""Steps that are played to see what the entries of an observation do."""
FEW_VALUES = 4
"""An entry that takes no more than these is a switch: it makes no axis."""
TAXI_PLACES = ("R", "G", "Y", "B")
_visited: WeakKeyDictionary[Agent, np.ndarray] = WeakKeyDictionary()
"""Observations of agents whose planes were drawn."""


def kinds_of_map(agent: Agent) -> list[dict[str, Any]]:
    """The maps that can be drawn, the best one first: kind, title, and what may be chosen."""
    space = agent.workflow.context.observation_space
    kinds: list[dict[str, Any]] = []
    if isinstance(space, gym.spaces.Discrete) and int(space.n) <= MOST_STATES and agent.config.frame_stack == 1:
        if agent.config.env_id.startswith("Taxi") and int(space.n) == 500:
            kinds.append(
                {
                    "kind": "taxi",
                    "title": "The town",
                    "passengers": [*TAXI_PLACES, "in the taxi"],
                    "destinations": TAXI_PLACES,
                }
            )
        elif _grid_size(agent) is not None:
            kinds.append({"kind": "grid", "title": "The world as a grid"})
        kinds.append({"kind": "table", "title": "All states"})
    elif table_of(agent) is not None:
        kinds.append({"kind": "table", "title": "All states"})
    elif isinstance(space, gym.spaces.Box) and len(space.shape) == 1 and space.dtype != np.uint8:
        entries = space.shape[0] // agent.config.frame_stack
        if (space.low == space.high).all():
            if isinstance(agent.action_space, gym.spaces.Discrete):
                kinds.append({"kind": "table", "title": "Its only state"})
        elif 2 <= entries <= MOST_DIMENSIONS:
            kinds.append({"kind": "plane", "title": "A plane through the state", "names": entry_names(agent, entries)})
    return kinds


def draw_map(agent: Agent, kind: str, options: dict[str, int]) -> dict[str, Any]:
    """The data of a map; a plane without `x` and `y` has the axes that tell most."""
    env = play_environment(agent.config)
    first = _first_action(agent)
    labels = {str(action - first): name for action, name in discrete_labels(env, agent.config).items()}
    env.close()
    drawn = {"grid": _grid, "taxi": _taxi, "table": _table, "plane": _plane}[kind](agent, options)
    return {"kind": kind, "labels": labels, **drawn}


def table_of(agent: Agent) -> QTable | None:
    """The agent's table, where it has one."""
    return next((part for part in agent.workflow.modules.values() if isinstance(part, QTable)), None)


def entry_names(agent: Agent, count: int) -> list[str]:
    """What the entries of a vector observation are called."""
    names = component_names(agent.config, "observation_space")
    return names if len(names) == count else [f"entry {place}" for place in range(count)]


def look(agent: Agent, observations: np.ndarray) -> dict[str, np.ndarray]:
    """What the agent tells about a batch of observations; it does not move on by it."""
    workflow = agent.workflow
    _, _, extras = workflow.act(observations, workflow.initial_state(len(observations)), deterministic=True)
    return extras


def _states(agent: Agent, states: np.ndarray) -> dict[str, Any]:
    """Value, policy and, of a table, entries and visits of these states, counted from 0."""
    space = agent.workflow.context.observation_space
    assert isinstance(space, gym.spaces.Discrete)
    told = look(agent, (states + int(space.start)).astype(space.dtype))
    found: dict[str, Any] = {name: told.get(key) for name, key in (("values", "value"), ("policy", "probabilities"))}
    table = table_of(agent)
    if table is not None:
        found |= {"q": table.q.numpy()[states], "visits": table.visits.numpy()[states]}
    return found


def _grid(agent: Agent, options: dict[str, int]) -> dict[str, Any]:
    size = _grid_size(agent)
    assert size is not None
    letters = _letters(agent, size)
    return {"rows": size[0], "columns": size[1], "letters": letters, **_states(agent, np.arange(size[0] * size[1]))}


def _grid_size(agent: Agent) -> tuple[int, int] | None:
    """Rows and columns of a world whose states are fields, counted row by row."""
    states = int(agent.workflow.context.observation_space.n)  # type: ignore[attr-defined]
    told = getattr(agent.config, "grid", None)
    if told is not None:
        return int(told[0]), int(told[1])
    if agent.config.env_id.startswith("CliffWalking") and states == 48:
        return 4, 12
    if agent.config.env_id.startswith("FrozenLake") and round(states**0.5) ** 2 == states:
        return round(states**0.5), round(states**0.5)
    return None


def _letters(agent: Agent, size: tuple[int, int]) -> list[str]:
    """S start, G goal, H hole, C cliff, F plain ground, one for each field; empty where the world does not tell."""
    count = size[0] * size[1]
    if agent.config.env_id.startswith("CliffWalking") and count == 48:
        return ["F"] * 36 + ["S"] + ["C"] * 10 + ["G"]
    if not agent.config.env_id.startswith("FrozenLake"):
        return []
    desc = _description(agent)
    return [letter.decode() for letter in desc.ravel().tolist()] if desc.size == count else []


def _taxi(agent: Agent, options: dict[str, int]) -> dict[str, Any]:
    """The 5 x 5 fields for one place of the passenger and one destination."""
    fields = np.arange(25)
    states = (fields * 5 + options["passenger"]) * 4 + options["destination"]
    desc = _description(agent)
    signs = [(row, column, desc[1 + row, 2 * column + 1].decode()) for row in range(5) for column in range(5)]
    walls = [(row, column) for row in range(5) for column in range(4) if desc[1 + row, 2 * column + 2] == b"|"]
    return {
        "rows": 5,
        "columns": 5,
        "letters": [sign if sign in TAXI_PLACES else "F" for _, _, sign in signs],
        "walls": walls,
        "passenger": options["passenger"],
        "destination": options["destination"],
        **_states(agent, states),
    }


def _description(agent: Agent) -> np.ndarray:
    """The map that a toy-text environment was made with."""
    env = play_environment(agent.config)
    desc = np.asarray(env.unwrapped.desc)  # type: ignore[attr-defined]
    env.close()
    return desc


def _table(agent: Agent, options: dict[str, int]) -> dict[str, Any]:
    """Every state by every action: the entries of a table (those it has learned), else the probabilities."""
    table, space = table_of(agent), agent.workflow.context.observation_space
    if table is not None:
        known = min(table.index.known, MOST_STATES)
        return {"what": "Q", "cells": table.q.numpy()[:known], "visits": table.visits.numpy()[:known]}
    if isinstance(space, gym.spaces.Box):
        return {"what": "probability", "cells": look(agent, space.low[None])["probabilities"]}
    assert isinstance(space, gym.spaces.Discrete)
    return {"what": "probability", "cells": _states(agent, np.arange(int(space.n)))["policy"]}


def _plane(agent: Agent, options: dict[str, int]) -> dict[str, Any]:
    """Value and action where two entries of the observation vary and the others are held."""
    space, stack = agent.workflow.context.observation_space, agent.config.frame_stack
    assert isinstance(space, gym.spaces.Box)
    entries = space.shape[0] // stack
    low, high, middle = _ranges(agent, space, entries)
    first = first_axes(agent, space, entries)
    x, y = (min(options.get(name, axis), entries - 1) for name, axis in zip("xy", first, strict=True))
    across, up = np.linspace(low[x], high[x], POINTS), np.linspace(low[y], high[y], POINTS)
    points = np.tile(middle, (POINTS, POINTS, 1))
    points[:, :, x] = across[None, :]
    points[:, :, y] = up[:, None]
    told = look(agent, np.tile(points.reshape(-1, entries), (1, stack)).astype(space.dtype))
    shape = (POINTS, POINTS)
    found: dict[str, Any] = {
        "names": entry_names(agent, entries),
        "x": x,
        "y": y,
        "x_range": [low[x], high[x]],
        "y_range": [low[y], high[y]],
        "held": middle,
        "points": POINTS,
        "values": told["value"].reshape(shape) if "value" in told else None,
    }
    if "probabilities" in told and isinstance(agent.action_space, gym.spaces.Discrete):
        found["actions"] = told["probabilities"].argmax(axis=1).reshape(shape)
        found["sureness"] = told["probabilities"].max(axis=1).reshape(shape)
    elif "mean" in told:
        found["means"] = told["mean"][:, 0].reshape(shape)
    return found


def first_axes(agent: Agent, space: gym.spaces.Box, entries: int) -> tuple[int, int]:
    """The two entries that are drawn first: those that move, with bounds before without, in their own order.

    Places have bounds more often than speeds and stand before them; switches, such as a leg that touches the ground, stand still for
    most of an episode.
    """
    bounded = (np.abs(space.low[-entries:]) < UNBOUNDED) & (np.abs(space.high[-entries:]) < UNBOUNDED)
    switches = is_switch(visited(agent, entries))
    x, y = sorted(sorted(range(entries), key=lambda entry: (switches[entry], not bounded[entry], entry))[:2])
    return x, y


def is_switch(observations: np.ndarray) -> np.ndarray:
    """[N, D] -> [D]: entries that take few values, or one."""
    return np.array([len(np.unique(column)) <= FEW_VALUES for column in observations.T])


def visited(agent: Agent, entries: int) -> np.ndarray:
    """[N, entries]: what the agent sees in a short play, the newest frame of a stack."""
    if agent not in _visited:
        with Player(agent, deterministic=False, render=False) as player:
            seen = [step.observation[-entries:] for step in player.play(steps=LOOKED_AT)]
        _visited[agent] = np.stack(seen)
    return _visited[agent]


def _ranges(agent: Agent, space: gym.spaces.Box, entries: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """From where to where each entry goes, and where it is held: by bounds, else by what training has seen, else around 0."""
    low, high = (bound[:entries].astype(np.float64) for bound in (space.low, space.high))
    bounded = (np.abs(low) < UNBOUNDED) & (np.abs(high) < UNBOUNDED)
    mean, deviation = np.zeros(entries), np.ones(entries)
    encoder = next((part for part in agent.workflow.modules.values() if isinstance(part, ObservationEncoder)), None)
    if encoder is not None and encoder.normalize == "rolling":
        mean, deviation = encoder.mean.numpy()[:entries].copy(), np.sqrt(encoder.variance.numpy()[:entries])
    elif bounded.any():
        mean = np.where(bounded, (np.where(bounded, low, 0) + np.where(bounded, high, 0)) / 2, 0.0)
    # Half a switch is nothing that the agent has seen.
    seen = visited(agent, entries)
    mean = np.where(is_switch(seen), np.median(seen, axis=0), mean)
    reach = UNKNOWN_RANGE * deviation
    return np.where(bounded, low, mean - reach), np.where(bounded, high, mean + reach), mean


def _first_action(agent: Agent) -> int:
    return int(getattr(agent.action_space, "start", 0)) if isinstance(agent.action_space, gym.spaces.Discrete) else 0
