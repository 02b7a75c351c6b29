"""Pictures: gray, size and stacks by numbers; the rendered CartPole."""

import gymnasium as gym
import numpy as np
import pytest
from counting_env import Counting

from gymlab.envs.wrappers import FrameStack, ImageObservation, PixelObservationWrapper
from gymlab.envs.wrappers.images import AreaResize, CropObservationWrapper
from gymlab.errors import ConfigError, EnvironmentFailure


class Picture(Counting):
    """Shows one picture, brighter by one at each step."""

    def __init__(self, picture: np.ndarray):
        super().__init__(shift=2)
        self.picture = picture
        self.observation_space = gym.spaces.Box(0, 255, picture.shape, np.uint8)

    def _observation(self):
        return self.picture + np.uint8(self.count + 10 * self.episode)


def shown(picture: np.ndarray, **options) -> np.ndarray:
    env = ImageObservation(Picture(picture), **options)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    return observation


def test_channels_come_first():
    picture = np.arange(6 * 5 * 3, dtype=np.uint8).reshape(6, 5, 3)
    np.testing.assert_array_equal(shown(picture), picture.transpose(2, 0, 1))


def test_gray_by_luma():
    picture = np.zeros((5, 5, 3), dtype=np.uint8)
    picture[0, 0] = (255, 0, 0)
    picture[0, 1] = (0, 255, 0)
    picture[0, 2] = (0, 0, 255)
    picture[0, 3] = (200, 100, 50)
    gray = shown(picture, grayscale=True)
    assert gray.shape == (1, 5, 5)
    # 0.299 * 255 = 76.2, 0.587 * 255 = 149.7, 0.114 * 255 = 29.1, 59.8 + 58.7 + 5.7 = 124.2
    assert gray[0, 0, :4].tolist() == [76, 150, 29, 124]


def test_half_size_takes_means_of_four():
    picture = np.zeros((6, 6), dtype=np.uint8)
    picture[:2, :2] = [[10, 20], [30, 41]]
    small = shown(picture, size=(3, 3))
    assert small.shape == (1, 3, 3)
    assert small[0, 0, 0] == 25  # 25.25
    assert small[0].sum() == 25


def test_uneven_sizes_weigh_by_area():
    # Three pixels to two: each new pixel covers one and a half.
    resized = AreaResize(1, 3, 1, 2)(np.array([[0.0, 30.0, 90.0]], dtype=np.float32))
    np.testing.assert_allclose(resized, [[(0 + 15) / 1.5, (15 + 90) / 1.5]], rtol=1e-6)
    resized = AreaResize(3, 1, 2, 1)(np.array([[0.0], [30.0], [90.0]], dtype=np.float32))
    np.testing.assert_allclose(resized, [[10], [70]], rtol=1e-6)


@pytest.mark.parametrize(
    "shape", [(400, 600, 84, 84), (210, 160, 84, 84), (96, 96, 64, 64), (50, 40, 84, 84), (7, 5, 3, 4)]
)
def test_resizing_keeps_the_mean_and_constants(shape):
    height, width, new_height, new_width = shape
    resize = AreaResize(*shape)
    plane = np.random.default_rng(0).random((height, width)).astype(np.float32)
    assert resize(plane).mean() == pytest.approx(plane.mean(), rel=1e-4)
    np.testing.assert_allclose(
        resize(np.full((height, width), 7, np.float32)), np.full((new_height, new_width), 7), rtol=1e-5
    )


def test_colour_is_resized_channel_by_channel():
    picture = np.zeros((6, 6, 3), dtype=np.uint8)
    picture[:2, :2, 1] = 100
    small = shown(picture, size=(3, 3))
    assert small[1, 0, 0] == 100
    assert small.sum() == 100


def test_white_stays_white():
    assert (shown(np.full((30, 20, 3), 255, np.uint8), grayscale=True, size=(7, 7)) == 255).all()


def test_vectors_are_no_images():
    with pytest.raises(ConfigError, match="obs_type: rgb"):
        ImageObservation(Counting())


def test_c5_the_stack_starts_with_copies_of_the_first_frame_and_forgets_the_last_episode():
    env = FrameStack(ImageObservation(Picture(np.zeros((6, 6), np.uint8))), 3)
    assert env.observation_space.shape == (3, 6, 6)
    first, _ = env.reset(seed=0)
    assert first[:, 0, 0].tolist() == [0, 0, 0]
    assert env.step(0)[0][:, 0, 0].tolist() == [0, 0, 1]
    assert env.step(0)[0][:, 0, 0].tolist() == [0, 1, 2]
    again, _ = env.reset(seed=0)
    assert again[:, 0, 0].tolist() == [10, 10, 10]


def test_colour_frames_are_stacked_oldest_first():
    env = FrameStack(ImageObservation(Picture(np.arange(108, dtype=np.uint8).reshape(6, 6, 3))), 2)
    assert env.observation_space.shape == (6, 6, 6)
    env.reset(seed=0)
    assert env.step(0)[0][:, 0, 0].tolist() == [0, 1, 2, 1, 2, 3]


def test_vectors_are_stacked_too():
    env = FrameStack(Counting(shift=2), 2)
    assert env.observation_space.shape == (2,)
    assert env.reset(seed=0)[0].tolist() == [0, 0]
    assert env.step(0)[0].tolist() == [0, 1]


def test_c6_a_stack_that_the_caller_changes_does_not_change_the_next():
    env = FrameStack(Counting(shift=2), 2)
    first, _ = env.reset(seed=0)
    first[:] = 99
    second = env.step(0)[0]
    assert second.tolist() == [0, 1]
    second[:] = 99
    assert env.step(0)[0].tolist() == [1, 2]


def test_pixels_of_cartpole():
    env = PixelObservationWrapper(gym.make("CartPole-v1", render_mode="rgb_array"))
    observation, _ = env.reset(seed=0)
    assert observation.shape == (400, 600, 3)
    np.testing.assert_array_equal(observation, env.env.render())
    for _ in range(5):
        moved = env.step(1)[0]
    assert not np.array_equal(moved, observation)
    env.close()


def test_pixels_beside_the_state():
    env = PixelObservationWrapper(gym.make("CartPole-v1", render_mode="rgb_array"), pixels_only=False)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert set(observation) == {"pixels", "state"}
    env.close()


def test_pixels_need_a_renderer():
    with pytest.raises(EnvironmentFailure, match="rgb_array"):
        PixelObservationWrapper(gym.make("CartPole-v1"))


def test_a_part_of_the_picture():
    picture = np.arange(5 * 6 * 3, dtype=np.uint8).reshape(5, 6, 3)
    env = CropObservationWrapper(Picture(picture), top=1, bottom=4, left=2)
    assert env.observation_space.shape == (3, 4, 3)
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(observation, env.unwrapped._observation()[1:4, 2:])
    with pytest.raises(ConfigError, match="leave nothing"):
        CropObservationWrapper(Picture(picture), top=5)
    with pytest.raises(ConfigError, match="needs pictures"):
        CropObservationWrapper(gym.make("CartPole-v1"), top=1)
