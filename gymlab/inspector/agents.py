"""Agent: its parameters, what an observation goes through before it sees it, where it looks, and what it has learned as a map."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
from torch import Tensor, nn

from gymlab.components.observation import ObservationEncoder
from gymlab.engine.agent import Agent
from gymlab.engine.trace import entry_names, play_environment
from gymlab.envs.subenv import EpisodeRecorder, SubEnv
from gymlab.inspector.episodes import find_trace
from gymlab.inspector.loading import agents_of
from gymlab.inspector.maps import draw_map, kinds_of_map
from gymlab.inspector.routes import HttpError, Request, Response, json_response, route
from gymlab.inspector.saliency import saliency

MOST_STATISTICS = 256
"""Dimensions whose mean and deviation are shown."""


@route("GET", "/api/runs/{run}/agent", query=("checkpoint",))
def agent_facts(request: Request, run: str) -> Response:
    """Modules with their parameters, spaces, the way of an observation, hyperparameters, and which maps can be drawn."""
    with agents_of(request.inspector).use(request.run(run), request.text("checkpoint", "best")) as agent:
        assert agent.checkpoint is not None
        return json_response(
            {
                "algorithm": agent.config.algo_id,
                "environment": agent.config.env_id,
                "checkpoint": agent.checkpoint.name.removesuffix(".ckpt"),
                "modules": [module_tree(module, name) for name, module in agent.workflow.modules.items()],
                "action_space": str(agent.action_space),
                "maps": kinds_of_map(agent),
                "normalisation": normalisation(agent),
            }
        )


@route("GET", "/api/runs/{run}/pipeline", query=("checkpoint",))
def pipeline(request: Request, run: str) -> Response:
    """What the observation goes through, from the environment to the network; the environment is made to look at it."""
    with agents_of(request.inspector).use(request.run(run), request.text("checkpoint", "best")) as agent:
        return json_response({"stages": stages(agent)})


@route("GET", "/api/runs/{run}/map", query=("checkpoint", "kind", "x", "y", "passenger", "destination"))
def policy_map(request: Request, run: str) -> Response:
    """Values and actions over all states, or over a plane of a continuous state."""
    with agents_of(request.inspector).use(request.run(run), request.text("checkpoint", "best")) as agent:
        kinds = [entry["kind"] for entry in kinds_of_map(agent)]
        if not kinds:
            raise HttpError(404, "The states of this environment cannot be drawn as a map.")
        kind = request.text("kind", kinds[0], choices=kinds)
        options = {
            name: request.integer(name, default, low=0, high=high)
            for name, default, high in (("x", None, 63), ("y", None, 63), ("passenger", 0, 4), ("destination", 1, 3))
            if default is not None or name in request.query
        }
        return json_response(draw_map(agent, kind, options))


@route("GET", "/api/traces/{trace}/saliency/{step}")
def step_saliency(request: Request, trace: str, step: str) -> Response:
    """Where in the picture the policy and the value of a step come from."""
    found = find_trace(request.inspector, trace)
    if found.film is None:
        raise HttpError(404, "Saliency is for agents that see images.")
    if not step.isdecimal() or len(step) > 9 or int(step) >= len(found.steps):
        raise HttpError(404, f"There are {len(found.steps)} steps, counted from 0.")
    wish = found.wish
    with agents_of(request.inspector).use(request.run(wish.run), wish.checkpoint) as agent:
        return json_response(saliency(agent, found.observation(int(step))))


def module_tree(module: nn.Module, name: str) -> dict[str, Any]:
    """A module with its own parameters and buffers, its parts below it, and sums over all of them."""
    tensors: list[tuple[str, Tensor, bool]] = [
        (key, value, True) for key, value in module.named_parameters(recurse=False)
    ]
    tensors += [(key, value, False) for key, value in module.named_buffers(recurse=False)]
    own = [
        {
            "name": key,
            "shape": list(value.shape),
            "count": value.numel(),
            "norm": float(value.detach().double().norm()),
            "bytes": value.numel() * value.element_size(),
            "learned": learned,
        }
        for key, value, learned in tensors
    ]
    parts = [module_tree(part, key) for key, part in module.named_children()]
    return {
        "name": name,
        "type": type(module).__name__,
        "detail": module.extra_repr(),
        "tensors": own,
        "parts": parts,
        "count": sum(entry["count"] for entry in (*own, *parts)),
        "bytes": sum(entry["bytes"] for entry in (*own, *parts)),
        "norm": math.sqrt(sum(entry["norm"] ** 2 for entry in (*own, *parts))),
    }


def stages(agent: Agent) -> list[dict[str, Any]]:
    """The environment's layers from the inside out, then what the agent does itself, each with the space behind it."""
    env = play_environment(agent.config)
    try:
        layers: list[gym.Env] = [env]
        while isinstance(layers[-1], gym.Wrapper):
            layers.append(layers[-1].env)
        found = [
            {"name": type(layer).__name__, "about": _about(layer), "space": _space(layer.observation_space)}
            for layer in reversed(layers)
            if not isinstance(layer, EpisodeRecorder)
        ]
        found[0]["about"] = agent.config.spec.description or found[0]["about"]
    finally:
        env.close()
    encoder = encoder_of(agent)
    if encoder is not None:
        about = "pixels 0 to 255 are scaled inside the network" if encoder.is_image else _encoding(encoder)
        space = f"{'uint8' if encoder.is_image else 'float32'} {list(encoder.output_shape)}"
        found.append({"name": "ObservationEncoder", "about": about, "space": space})
    return found


def encoder_of(agent: Agent) -> ObservationEncoder | None:
    """The part of an agent that encodes observations, where it has one."""
    return next((part for part in agent.workflow.modules.values() if isinstance(part, ObservationEncoder)), None)


def normalisation(agent: Agent) -> dict[str, Any] | None:
    """Mean and deviation by which observations are normalised, with the names that the environment's file gives."""
    encoder = encoder_of(agent)
    if encoder is None or encoder.normalize == "off":
        return None
    entries = math.prod(encoder.output_shape)
    facts: dict[str, Any] = {"kind": encoder.normalize, "names": entry_names(agent.config, entries)}
    if encoder.normalize == "rolling":
        facts["mean"] = encoder.mean[:MOST_STATISTICS].numpy()
        facts["std"] = encoder.variance[:MOST_STATISTICS].sqrt().numpy()
        facts["count"] = float(encoder.count)
        facts["clip"] = float(encoder.clip)
    return facts


def _encoding(encoder: ObservationEncoder) -> str:
    if not isinstance(encoder.space, gym.spaces.Box):
        return "one-hot" if not isinstance(encoder.space, gym.spaces.MultiBinary) else "as floats"
    words = {
        "off": "as it is",
        "rolling": "less the running mean, by the running deviation, clipped",
        "static": "bounds to [0, 1]",
    }
    return words[encoder.normalize]


def _about(layer: gym.Env) -> str:
    """The first line that a layer's class says about itself."""
    if isinstance(layer, SubEnv):
        return "one array: dicts and tuples are flattened, float64 becomes float32"
    return (type(layer).__doc__ or "").strip().split("\n")[0].strip("# ")


def _space(space: gym.Space) -> str:
    if isinstance(space, gym.spaces.Box):
        low, high = float(space.low.min()), float(space.high.max())
        return f"{space.dtype} {list(space.shape)}, {low:g} to {high:g}"
    return str(space)
