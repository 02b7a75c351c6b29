import json
import struct
import sys

import numpy as np
import pytest

from gymlab.errors import GymlabError
from gymlab.metrics.names import ENV_STEPS
from gymlab.metrics.video import VideoWriter
from gymlab.metrics.wandb import WandbSink, project_name

CANARY = "hf_" + "CanaryCanaryCanaryCanary123456"


def scan(path):
    """Records of an offline file: LevelDB log format, blocks of 32 KiB, each fragment with checksum, length and kind."""
    content = path.read_bytes()
    assert content[:4] == b":W&B"
    position, record = 7, b""
    while position + 7 <= len(content):
        room = 32768 - position % 32768
        if room < 7:
            position += room
            continue
        _, length, kind = struct.unpack("<IHB", content[position : position + 7])
        record += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or last fragment
            yield record
            record = b""


def read_offline_run(directory):
    """Records of the offline run, by kind."""
    from wandb.proto import wandb_internal_pb2

    (path,) = directory.glob("wandb/offline-run-*/run-*.wandb")
    records = {}
    for data in scan(path):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        records.setdefault(record.WhichOneof("record_type"), []).append(record)
    return path, records


def history_of(records):
    """Rows of the history; a nested value (a video) has its parts joined by '/'."""
    return [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records["history"]
    ]


@pytest.fixture
def offline_run(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HF_TOKEN", CANARY)
    config = {"env_id": "ALE/Pong-v5", "seed": 3, "hub": {"token": "canary-by-key"}, "note": f"uses {CANARY}"}
    with VideoWriter(tmp_path / "a.mp4") as video:
        video.add(np.zeros((32, 32, 3), dtype=np.uint8))
    sink = WandbSink(tmp_path, project="ALE/Pong-v5", run_id="pong-ppo-1", config=config)
    assert sink.where.startswith(f"W&B is offline; upload with: wandb sync {tmp_path}/wandb/offline-run-")
    sink.log({ENV_STEPS: 1024, "train/loss/policy": 0.5}, 1024)
    sink.log({ENV_STEPS: 2048, "val/roll/ep_rew/mean": 18.25}, 2048)
    sink.log_video(tmp_path / "a.mp4", "val/video", 2048)
    sink.close()
    wandb.teardown()  # its service writes the last records after `finish`; a process that ends waits for it likewise
    return tmp_path


def test_an_offline_run_holds_metrics_video_and_settings_and_no_secret(offline_run):
    path, records = read_offline_run(offline_run)
    (run,) = (record.run for record in records["run"])
    assert run.project == "ALE-Pong-v5"
    assert run.run_id == "pong-ppo-1"
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["env_id"] == "ALE/Pong-v5"
    assert config["hub"] == {"token": "[redacted]"}

    history = history_of(records)
    assert history[0][ENV_STEPS] == 1024
    assert history[0]["train/loss/policy"] == 0.5
    assert history[1]["val/roll/ep_rew/mean"] == 18.25
    assert history[2]["val/video/_type"] == "video-file"
    assert (path.parent / "files" / history[2]["val/video/path"]).is_file()

    metrics = [record.metric for record in records["metric"]]
    assert any(metric.glob_name == "*" and metric.step_metric == ENV_STEPS for metric in metrics)

    written = b"".join(file.read_bytes() for file in (offline_run / "wandb").rglob("*") if file.is_file())
    assert b"18.25" in written
    for canary in (CANARY.encode(), b"canary-by-key"):
        assert canary not in written


def test_a_login_that_fails_says_what_to_do(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")

    def refuse(**_):
        raise wandb.errors.UsageError("api_key not configured")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(GymlabError, match=r"api_key not configured.*wandb login.*WANDB_MODE=offline"):
        WandbSink(tmp_path, project="p", run_id="r", config={})


def test_project_names_are_made_fit():
    assert project_name("CartPole-v1") == "CartPole-v1"
    assert project_name("ALE/Pong-v5") == "ALE-Pong-v5"
    assert project_name("module:Env?v 1") == "module-Env-v-1"
    assert project_name("/") == "gymlab"
    assert len(project_name("x" * 200)) == 128


def test_a_missing_package_names_the_pip_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(GymlabError, match=r'pip install "gymlab\[wandb\]"'):
        WandbSink(tmp_path, project="p", run_id="r", config={})
