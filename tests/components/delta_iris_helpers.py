"""A Δ-IRIS small enough to look at every number."""

from gymlab.components.delta_iris_config import DeltaIRISConfig

SHAPE = (3, 16, 16)
ACTIONS = 3


def small(**changes):
    """Pictures of 16x16, a 4x4 grid, four words of a patch of 2x2 each."""
    fields = {
        "env_id": "MiniGrid-Empty-8x8-v0", "algo_id": "delta_iris", "multiples": (1, 2), "halves": (1, 1), "codebook_size": 32, "codebook_dim": 8,
        "token_features": 4, "tokenizer_channels": 8, "tokenizer_frame_channels": 8, "tokenizer_frame_features": 2, "action_channels": 1,
        "width": 32, "layers": 2, "heads": 2, "blocks": 4, "frame_channels": 8, "frame_features": 2, "actor_channels": 8,
        "actor_features": 2, "lstm": 16, "burn_in": 1, "horizon": 3, **changes,
    }  # fmt: skip
    return DeltaIRISConfig(**fields)
