import sys

import numpy as np
import pytest

from gymlab.errors import GymlabError
from gymlab.metrics.names import ENV_STEPS
from gymlab.metrics.tensorboard import TensorBoardSink
from gymlab.metrics.video import VideoWriter


def read_events(directory):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory), size_guidance={"scalars": 0, "images": 0})
    events.Reload()
    return events


def test_scalars_are_read_back_over_env_steps(tmp_path):
    pytest.importorskip("tensorboard")
    sink = TensorBoardSink(tmp_path)
    sink.log({ENV_STEPS: 1024, "train/loss/policy": 0.5}, 1024)
    sink.log({ENV_STEPS: 2048, "train/loss/policy": 0.25, "val/roll/ep_rew/mean": 475}, 2048)
    sink.close()
    events = read_events(tmp_path)
    assert [(event.step, event.value) for event in events.Scalars("train/loss/policy")] == [(1024, 0.5), (2048, 0.25)]
    assert [(event.step, event.value) for event in events.Scalars("val/roll/ep_rew/mean")] == [(2048, 475.0)]


def test_a_video_becomes_a_moving_picture(tmp_path):
    pytest.importorskip("tensorboard")
    with VideoWriter(tmp_path / "a.mp4", fps=30) as video:
        for value in range(0, 240, 8):
            video.add(np.full((32, 48, 3), value, dtype=np.uint8))
    sink = TensorBoardSink(tmp_path / "events")
    sink.log_video(tmp_path / "a.mp4", "val/video", 4096)
    sink.close()
    (image,) = read_events(tmp_path / "events").Images("val/video")
    assert (image.step, image.width, image.height) == (4096, 48, 32)
    assert image.encoded_image_string[:6] == b"GIF89a"


def test_a_missing_package_names_the_pip_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    with pytest.raises(GymlabError, match=r'pip install "gymlab\[tensorboard\]"'):
        TensorBoardSink(tmp_path)
