"""One DreamerV3 update of sheeprl, timed: `python sheeprl_peer.py JOB` in an environment of its own, JSON in and out.

It imports nothing of gymlab, which is not installed there. The configuration is sheeprl's own, composed as its command
line does; its train function gets random sequences of the shapes that its replay buffer would give.
"""

from __future__ import annotations

import contextlib
import json
import resource
import statistics
import sys
import time
from typing import Any

import gymnasium
import hydra
import numpy as np
import torch
from omegaconf import OmegaConf
from sheeprl.algos.dreamer_v3_5.agent import build_agent
from sheeprl.algos.dreamer_v3_5.dreamer_v3_5 import train, update_target_critic
from sheeprl.algos.dreamer_v3_5.utils import Moments
from sheeprl.utils.utils import dotdict


def configuration(job: dict[str, Any]) -> Any:
    """Its configuration of the job's size, with one kind of observation."""
    images = "[image]" if job["image"] else "[]"
    vectors = "[]" if job["image"] else "[vector]"
    with hydra.initialize_config_module("sheeprl.configs", version_base="1.3"):
        config = hydra.compose(
            "config",
            overrides=[
                "exp=dreamer_v3_5",
                f"algo=dreamer_v3_5_{job['size'].upper()}",
                "env=gym",
                f"algo.per_rank_batch_size={job['batch_size']}",
                f"algo.per_rank_sequence_length={job['length']}",
                f"algo.horizon={job['horizon']}",
                f"algo.cnn_keys.encoder={images}",
                f"algo.mlp_keys.encoder={vectors}",
                "root_dir=bench",
                "run_name=bench",
            ],
        )
    return dotdict(OmegaConf.to_container(config, resolve=True, throw_on_missing=True))


def sequences(config: Any, job: dict[str, Any], generator: np.random.Generator) -> dict[str, torch.Tensor]:
    """A batch as its replay buffer gives it: time first, one step of context, latents of the acting policy."""
    rows = (job["length"] + config.algo.replay_context, job["batch_size"])
    model = config.algo.world_model
    actions = generator.integers(job["actions"], size=rows)
    flags = {name: np.zeros((*rows, 1), np.float32) for name in ("is_first", "terminated", "truncated")}
    shape = (*rows, *job["observation"])
    arrays: dict[str, np.ndarray] = {
        **flags,
        "actions": np.eye(job["actions"], dtype=np.float32)[actions],
        "rewards": generator.standard_normal((*rows, 1), dtype=np.float32),
        "deter": np.zeros((*rows, model.recurrent_model.recurrent_state_size), np.float16),
        "stoch": generator.integers(model.discrete_size, size=(*rows, model.stochastic_size)).astype(np.uint8),
    }
    if job["image"]:
        arrays["image"] = generator.integers(256, size=shape, dtype=np.uint8)
    else:
        arrays["vector"] = generator.standard_normal(shape, dtype=np.float32)
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def time_updates(job: dict[str, Any]) -> dict[str, Any]:
    """Median seconds of an update after the warm-up, peak memory of the process, and how many numbers are learned."""
    torch.set_num_threads(job["threads"])
    config = configuration(job)
    torch.set_float32_matmul_precision(config.float32_matmul_precision)
    torch.distributions.Distribution.set_default_validate_args(config.distribution.validate_args)
    fabric = hydra.utils.instantiate(config.fabric, callbacks=[], _convert_="all")
    fabric.seed_everything(job["seed"])
    low, high, dtype = (0, 255, np.uint8) if job["image"] else (-np.inf, np.inf, np.float32)
    space = gymnasium.spaces.Box(low, high, tuple(job["observation"]), dtype)
    spaces = gymnasium.spaces.Dict({"image" if job["image"] else "vector": space})
    actions = (job["actions"],)
    world_model, actor, critic, target_critic, _ = build_agent(fabric, actions, False, config, spaces)
    learned = [*world_model.parameters(), *actor.parameters(), *critic.parameters()]
    optimizer = hydra.utils.instantiate(config.algo.optimizer, params=learned, _convert_="all")
    optimizer = fabric.setup_optimizers(optimizer)
    settings = config.algo.actor.moments
    moments = Moments(settings.decay, settings.max, settings.percentile.low, settings.percentile.high)
    aggregator = hydra.utils.instantiate(config.metric.aggregator, _convert_="all")
    generator = np.random.default_rng(job["seed"])
    wall, cpu = [], []
    for _ in range(job["warmup"] + job["updates"]):
        batch = sequences(config, job, generator)
        began = time.perf_counter(), time.process_time()
        train(fabric, config, world_model, actor, critic, target_critic, optimizer, moments, batch, aggregator, actions)
        update_target_critic(critic, target_critic, config.algo.critic.tau)
        wall.append(time.perf_counter() - began[0])
        cpu.append(time.process_time() - began[1])
    return {
        "seconds": statistics.median(wall[job["warmup"] :]),
        "cpu_seconds": statistics.median(cpu[job["warmup"] :]),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "parameters": sum(parameter.numel() for parameter in learned),
    }


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        answer = time_updates(json.loads(sys.argv[1]))
    print(json.dumps(answer))
