"""Wrappers of single environments, by registry id."""

from gymlab.envs.wrappers.actions import (
    ActionRewardShaper,
    DiscreteActionSpaceRemapperWrapper,
    FrameSkipWrapper,
    StickyActionsWrapper,
)
from gymlab.envs.wrappers.atari import (
    ALEActionMaskingWrapper,
    BreakoutV5_FeatureExtractor,
    PongV5_FeatureExtractor,
    PongV5_RewardShaper,
)
from gymlab.envs.wrappers.discrete import DiscreteEncoder
from gymlab.envs.wrappers.images import FrameStack, ImageObservation, PixelObservationWrapper
from gymlab.envs.wrappers.registry import EnvWrapperRegistry, WrapperContext
from gymlab.envs.wrappers.retro import RetroSuperMarioBros_RewardShaper
from gymlab.envs.wrappers.shaping import (
    CartPoleV1_RewardShaper,
    MountainCarV0_RewardShaper,
    MountainCarV0_StateCountBonus,
)
from gymlab.envs.wrappers.vizdoom import VizDoom_RewardShaper

__all__ = [
    "ALEActionMaskingWrapper",
    "ActionRewardShaper",
    "BreakoutV5_FeatureExtractor",
    "CartPoleV1_RewardShaper",
    "DiscreteActionSpaceRemapperWrapper",
    "DiscreteEncoder",
    "EnvWrapperRegistry",
    "FrameSkipWrapper",
    "FrameStack",
    "ImageObservation",
    "MountainCarV0_RewardShaper",
    "MountainCarV0_StateCountBonus",
    "PixelObservationWrapper",
    "PongV5_FeatureExtractor",
    "PongV5_RewardShaper",
    "RetroSuperMarioBros_RewardShaper",
    "StickyActionsWrapper",
    "VizDoom_RewardShaper",
    "WrapperContext",
]
