"""An update of each component of Δ-IRIS' authors, timed: `python delta_iris_peer.py JOB` where torch, numpy and einops are, JSON in and out.

It imports nothing of gymlab. Of their program, in a folder that the job names, `src/models` is used with what that needs. Packages
that their modules import and that no update calls are replaced by stand-ins. Sizes are those of their config/params/crafter.yaml; the batch is
random numbers of the shapes that their replay gives; an update is what their `Trainer.train_component` does with a batch.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

UNUSED = ("PIL", "cv2", "gym", "matplotlib", "matplotlib.pyplot", "torchvision")
"""What they import and no update calls."""
STAGES: dict[str, Any] = {"mult": [1, 1, 2, 2, 4], "down": [1, 0, 1, 1, 0]}
ACTIONS, IMAGE_CHANNELS, IMAGE_SIZE = 17, 3, 64
CODEBOOK_SIZE, TOKENS = 1024, 4
LEARNING_RATE, WEIGHT_DECAY, MAX_GRAD_NORM = 1e-4, 0.01, 10.0
MIXED = ("tokenizer", "world_model")
"""Components that they train under bfloat16 autocast."""


class StandIn(type):
    """A class that has whatever is asked for: more of its kind, fit for type hints and to inherit from."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(name, (), {})


def components() -> dict[str, nn.Module]:
    """Their networks at the size for Crafter."""
    from models.actor_critic import ActorCritic, ActorCriticConfig, CnnLstmActorCritic
    from models.convnet import FrameCnnConfig
    from models.tokenizer import Tokenizer, TokenizerConfig
    from models.transformer import TransformerConfig
    from models.world_model import WorldModel, WorldModelConfig

    def frame_network(image_channels: int, latent_dim: int, num_channels: int) -> Any:
        return FrameCnnConfig(image_channels, latent_dim, num_channels, **STAGES)

    tokenizer = TokenizerConfig(
        image_channels=IMAGE_CHANNELS,
        image_size=IMAGE_SIZE,
        num_actions=ACTIONS,
        num_tokens=TOKENS,
        decoder_act_channels=4,
        codebook_size=CODEBOOK_SIZE,
        codebook_dim=64,
        max_codebook_updates_with_revival=0,
        encoder_config=frame_network(2 * IMAGE_CHANNELS + 1, 64, 64),
        decoder_config=frame_network(IMAGE_CHANNELS, 8 + 4 + 64, 64),
        frame_cnn_config=frame_network(IMAGE_CHANNELS, 8, 64),
    )
    transformer = TransformerConfig(
        tokens_per_block=2 + TOKENS,
        max_blocks=21,
        num_layers=3,
        num_heads=8,
        embed_dim=512,
        attention="causal",
        embed_pdrop=0.0,
        resid_pdrop=0.0,
        attn_pdrop=0.0,
    )
    world_model = WorldModelConfig(
        latent_vocab_size=CODEBOOK_SIZE,
        num_actions=ACTIONS,
        image_channels=IMAGE_CHANNELS,
        image_size=IMAGE_SIZE,
        latents_weight=1.0,
        rewards_weight=1.0,
        ends_weight=1.0,
        two_hot_rews=True,
        transformer_config=transformer,
        frame_cnn_config=frame_network(IMAGE_CHANNELS, 8, 32),
    )
    actor_critic = ActorCriticConfig(
        burn_in_length=5,
        imagination_horizon=15,
        gamma=0.997,
        lambda_=0.95,
        entropy_weight=0.001,
        two_hot_rets=True,
        model=CnnLstmActorCritic(frame_network(IMAGE_CHANNELS, 16, 32), ACTIONS, two_hot_rets=True),
    )
    return {
        "tokenizer": Tokenizer(tokenizer),
        "world_model": WorldModel(world_model),
        "controller": ActorCritic(actor_critic),
    }


def random_batch(sequences: int, length: int) -> Any:
    """Segments without padding and without ends."""
    from data import Batch

    shape = (sequences, length)
    return Batch(
        observations=torch.rand(*shape, IMAGE_CHANNELS, IMAGE_SIZE, IMAGE_SIZE),
        actions=torch.randint(ACTIONS, shape),
        rewards=torch.randn(shape),
        ends=torch.zeros(shape, dtype=torch.long),
        mask_padding=torch.ones(shape, dtype=torch.bool),
        segment_ids=[],
    )


def updating(name: str, networks: dict[str, nn.Module], batch: Any, *, mixed: bool) -> Callable[[], None]:
    """An update of one component, as `Trainer.train_component` does it."""
    from utils import configure_optimizer

    network: Any = networks[name]
    others = {"tokenizer": (), "world_model": ("tokenizer",), "controller": ("tokenizer", "world_model")}[name]
    given = {other: networks[other] for other in others}
    optimizer: torch.optim.Optimizer = (
        torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
        if name == "controller"
        else configure_optimizer(network, LEARNING_RATE, WEIGHT_DECAY)
    )

    def update() -> None:
        network.train()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
            losses, _ = network.compute_loss(batch, **given)
        losses.loss_total.backward()
        nn.utils.clip_grad_norm_(network.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        optimizer.zero_grad()
        network.eval()

    return update


def median_seconds(call: Callable[[], None], job: dict[str, Any]) -> float:
    """Of a call, after the warm-up."""
    spent = []
    for number in range(job["warmup"] + job["repeats"]):
        began = time.perf_counter()
        call()
        if number >= job["warmup"]:
            spent.append(time.perf_counter() - began)
    return statistics.median(spent)


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Median seconds of an update of each component, and its learned parameters."""
    torch.manual_seed(job["seed"])
    torch.set_num_threads(job["threads"])
    sys.modules.update({name: StandIn(name, (), {}) for name in UNUSED})  # type: ignore[misc]
    sys.path.insert(0, str(Path(job["source"]) / "src"))
    networks = components()
    for network in networks.values():
        network.eval()
    found: dict[str, Any] = {}
    for name in job["components"]:
        batch = random_batch(job["starts"], 6) if name == "controller" else random_batch(job["sequences"], 21)
        mixed = job["precision"] == "as written" and name in MIXED
        found[name] = median_seconds(updating(name, networks, batch, mixed=mixed), job)
        learned = [parameter for parameter in networks[name].parameters() if parameter.requires_grad]
        found[f"{name}/parameters"] = sum(parameter.numel() for parameter in learned)
    return found


def main() -> None:
    """Do the job given as the only argument and print its answer."""
    job = json.loads(sys.argv[1])
    with contextlib.redirect_stdout(sys.stderr):
        answer = measure(job)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
