"""Pictures of an episode: kept once, given back as they were."""

import numpy as np
import pytest

from gymlab.inspector.frames import Film, Frames, decode, media_type, png


def test_equal_pictures_share_their_bytes_and_come_back_exactly():
    generator = np.random.default_rng(0)
    first, second = generator.integers(0, 256, (2, 20, 30, 3), dtype=np.uint8)
    frames = Frames()
    for picture in (first, second, first, first):
        frames.add(picture)
    assert len(frames) == 4
    assert frames.nbytes == len(frames.blob(0)) + len(frames.blob(1))
    assert frames.blob(0) is frames.blob(3)
    for found, expected in zip(frames, (first, second, first, first), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_large_pictures_are_jpeg_unless_they_must_be_exact():
    large = np.zeros((400, 600, 3), np.uint8)
    large[100:200, 100:200] = [200, 30, 30]
    loose, exact = Frames(), Frames(lossless=True)
    for frames in (loose, exact):
        frames.add(large)
    assert media_type(loose.blob(0)) == "image/jpeg"
    assert media_type(exact.blob(0)) == "image/png"
    np.testing.assert_array_equal(exact.pixels(0), large)
    assert np.abs(loose.pixels(0).astype(int) - large).mean() < 1


def test_transparency_and_a_single_channel_are_taken():
    frames = Frames()
    frames.add(np.full((4, 5, 4), 7, np.uint8))
    frames.add(np.full((4, 5, 1), 9, np.uint8))
    assert frames.pixels(0).shape == (4, 5, 3)
    assert frames.pixels(1).shape == (4, 5)


@pytest.mark.parametrize(
    ("shape", "stack", "count", "colours"),
    [((4, 6, 8), 4, 4, 1), ((12, 6, 8), 4, 4, 3), ((3, 6, 8), 1, 1, 3), ((5, 6, 8), 1, 5, 1), ((7, 6, 8), 2, 7, 1)],
)
def test_a_film_lays_frames_side_by_side_and_takes_them_apart(shape, stack, count, colours):
    observation = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    film = Film(shape, stack)
    strip = film.strip(observation)
    assert (film.count, film.colours) == (count, colours)
    assert strip.shape == (6, 8 * count) + ((3,) if colours == 3 else ())
    np.testing.assert_array_equal(film.observation(decode(png(strip))), observation)
    newest = observation[-colours:].transpose(1, 2, 0)
    np.testing.assert_array_equal(film.newest(strip).reshape(6, 8, colours), newest)
