"""What every world model that can be played in has to hold to."""

import numpy as np

from gymlab.engine.workflow import Recording


def walk(workflow, state, actions, generator=None):
    """Steps of a dream under actions [T, ...]."""
    steps = []
    for action in actions:
        state, step = workflow.dream_step(state, np.asarray(action)[None], generator)
        steps.append(step)
    return steps


def assert_a_door(workflow, recording, start, horizon, atol=1e-4):
    """Step by step is what `imagine` shows; states never change; what is drawn follows from the generator."""
    space = workflow.context.observation_space
    seen = Recording(*(rows[: start + 1] for rows in (recording.observations, recording.actions, recording.is_first)))
    state, actions = workflow.dream_start(seen), recording.actions[start : start + horizon]
    steps = walk(workflow, state, actions)
    imagined = workflow.imagine(recording, start, horizon).dream
    low, high = (space.low, space.high) if hasattr(space, "low") else (-np.inf, np.inf)
    expected = np.clip(imagined, low, high)
    found = np.concatenate([step.observation for step in steps])
    assert found.dtype == space.dtype
    # Bytes are rounded.
    np.testing.assert_allclose(found, expected, atol=0.51 if space.dtype == np.uint8 else atol)
    for step in steps:
        assert space.contains(step.observation[0])
        assert step.reward.shape == step.ended.shape == (1,)
        assert step.ended.dtype == np.bool_
    # The action of the last row is what the first step replaces, and a state may be gone on from twice.
    other = seen.actions.copy()
    other[-1] = 0
    again = walk(workflow, workflow.dream_start(Recording(seen.observations, other, seen.is_first)), actions)
    for one, two, three in zip(steps, again, walk(workflow, state, actions), strict=True):
        np.testing.assert_array_equal(one.observation, three.observation)
        np.testing.assert_array_equal(one.observation, two.observation)
        assert one.reward == two.reward == three.reward
    drawn = [walk(workflow, state, actions, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    first, same, different = (np.concatenate([step.observation for step in way]) for way in drawn)
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, different)
    return steps
