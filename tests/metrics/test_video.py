import numpy as np
import pytest

from gymlab.errors import GymlabError
from gymlab.metrics.video import FrameReader, VideoWriter, frame_count, read_frame, to_gif, video_size


def solid(height, width, value):
    return np.full((height, width, 3), value, dtype=np.uint8)


def test_frames_are_streamed_to_an_mp4_and_read_back(tmp_path):
    path = tmp_path / "videos" / "a.mp4"
    with VideoWriter(path, fps=10) as video:
        for value in (0, 100, 200):
            assert video.add(solid(64, 96, value))
        assert not path.exists()
    assert [item.name for item in path.parent.iterdir()] == ["a.mp4"]
    assert frame_count(path) == 3
    for index, value in enumerate((0, 100, 200)):
        frame = read_frame(path, index)
        assert frame.shape == (64, 96, 3)
        assert frame.mean() == pytest.approx(value, abs=4)
    assert read_frame(path, -1).mean() == pytest.approx(200, abs=4)
    with pytest.raises(GymlabError, match="3 frames"):
        read_frame(path, 3)


def test_colours_stay_in_their_channels(tmp_path):
    frame = solid(32, 32, 0)
    frame[:, :, 0] = 220
    with VideoWriter(tmp_path / "red.mp4") as video:
        video.add(frame)
    red, green, blue = read_frame(tmp_path / "red.mp4", 0).mean(axis=(0, 1))
    assert red > 200
    assert green < 30
    assert blue < 30


def test_odd_sizes_get_a_row_and_a_column(tmp_path):
    with VideoWriter(tmp_path / "odd.mp4") as video:
        video.add(solid(33, 47, 80))
    assert video_size(tmp_path / "odd.mp4") == (48, 34)
    assert read_frame(tmp_path / "odd.mp4", 0)[-1, -1].mean() == pytest.approx(80, abs=4)


def test_grey_frames_are_taken(tmp_path):
    with VideoWriter(tmp_path / "grey.mp4") as video:
        video.add(np.full((32, 32), 90, dtype=np.uint8))
        video.add(np.full((32, 32, 1), 90, dtype=np.uint8))
    assert read_frame(tmp_path / "grey.mp4", 1).mean() == pytest.approx(90, abs=4)


def test_length_is_capped(tmp_path):
    with VideoWriter(tmp_path / "long.mp4", max_frames=5) as video:
        taken = [video.add(solid(32, 32, 10)) for _ in range(9)]
    assert taken == [True] * 5 + [False] * 4
    assert frame_count(tmp_path / "long.mp4") == 5


def test_an_error_leaves_no_file_and_no_frame_leaves_none_either(tmp_path):
    def crash():
        with VideoWriter(tmp_path / "broken.mp4") as video:
            video.add(solid(32, 32, 10))
            raise RuntimeError("environment crashed")

    with pytest.raises(RuntimeError, match="environment crashed"):
        crash()
    empty = VideoWriter(tmp_path / "empty.mp4")
    assert empty.close() is None
    assert list(tmp_path.iterdir()) == []


def test_a_video_of_a_run_that_is_gone_does_not_bring_it_back(tmp_path):
    with pytest.raises(FileNotFoundError):
        VideoWriter(tmp_path / "run" / "videos" / "a.mp4").add(solid(32, 32, 10))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "frame", [np.zeros((8, 8, 3)), np.zeros((3, 8, 8, 3), np.uint8), np.zeros((8, 8, 2), np.uint8)]
)
def test_a_frame_of_a_wrong_kind_is_refused(tmp_path, frame):
    with pytest.raises(GymlabError, match="rgb_array"):
        VideoWriter(tmp_path / "a.mp4").add(frame)


def test_a_frame_of_another_size_is_refused(tmp_path):
    with VideoWriter(tmp_path / "a.mp4") as video:
        video.add(solid(32, 32, 0))
        with pytest.raises(GymlabError, match="32x48 after frames of 32x32"):
            video.add(solid(48, 32, 0))


def test_a_gif_is_made_of_a_video(tmp_path):
    with VideoWriter(tmp_path / "a.mp4", fps=30) as video:
        for value in range(0, 240, 8):
            video.add(solid(60, 90, value))
    gif = to_gif(tmp_path / "a.mp4", tmp_path / "a.gif", width=45, fps=10)
    assert gif.read_bytes()[:6] == b"GIF89a"
    assert video_size(gif) == (45, 30)
    assert 8 <= frame_count(gif) <= 12
    (tmp_path / "no.mp4").write_bytes(b"not a video")
    with pytest.raises(GymlabError, match="could not be made into a GIF"):
        to_gif(tmp_path / "no.mp4", tmp_path / "b.gif")


def test_frames_are_read_when_they_are_asked_for_in_any_order(tmp_path, monkeypatch):
    path = tmp_path / "a.mp4"
    with VideoWriter(path) as video:
        for value in range(0, 250, 25):
            video.add(solid(16, 16, value))
    monkeypatch.setattr(FrameReader, "KEPT", 3)
    film = FrameReader(path)
    assert len(film) == 10
    # On, back within what is held, back beyond it, and on again.
    for index in (0, 4, 3, 0, 9, 2):
        assert film[index].mean() == pytest.approx(25 * index, abs=5)
    with pytest.raises(IndexError, match="10 frames"):
        film[10]
    film.close()


NO_MP4 = {
    "nothing": "",
    "text": "hello",
    "other files by name": "ffconcat version 1.0\nfile inside.mp4\n",
    "a picture": '<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"></svg>',
    "an address": "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:9/x.ts\n#EXT-X-ENDLIST\n",
}


@pytest.mark.parametrize("content", NO_MP4.values(), ids=NO_MP4)
def test_a_video_of_a_run_that_is_no_mp4_is_named_and_nothing_else_is_read_for_it(tmp_path, content):
    with VideoWriter(tmp_path / "inside.mp4") as video:
        video.add(solid(32, 32, 0))
    assert len(FrameReader(tmp_path / "inside.mp4")) == 1
    (tmp_path / "a.mp4").write_text(content)
    with pytest.raises(GymlabError, match=r"a\.mp4 is no mp4 that can be read .*Delete it"):
        FrameReader(tmp_path / "a.mp4")


def test_a_video_that_is_damaged_further_on_is_named(tmp_path):
    path = tmp_path / "a.mp4"
    with VideoWriter(path) as video:
        for value in range(0, 250, 10):
            video.add(np.random.default_rng(value).integers(0, 256, (64, 64, 3), np.uint8))
    frames = FrameReader(path)
    # Another file took its place.
    path.write_bytes(b"")
    with pytest.raises(GymlabError, match=r"a\.mp4 .*Delete it"):
        frames[0]
