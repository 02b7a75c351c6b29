"""A run that is killed without warning goes on from its newest whole checkpoint as if nothing had happened."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

import torch

import gymlab
from gymlab.engine.checkpoint import CheckpointManager
from gymlab.engine.run import Run

SETTINGS = [
    "max_env_steps=24576",
    "eval_freq_epochs=4",
    "eval_episodes=5",
    "early_stop_on_eval_threshold=false",
    "video=false",
    "normalize_obs=rolling",
    "n_epochs=4",
]


def columns(run):
    return {name: values for name, values in run.metrics.items() if not name.startswith("sys/")}


def start(tmp_path, *arguments):
    command = [sys.executable, "-m", "gymlab", "train", *arguments, "-q", "--runs-dir", str(tmp_path)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)


def kill_at(process, run, epoch):
    """SIGKILL the whole process group once the epoch's checkpoint is there."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if any(checkpoint.place[0] >= epoch for checkpoint in run.checkpoints.all()):
            os.killpg(process.pid, signal.SIGKILL)
            break
        time.sleep(0.002)
    process.wait(timeout=30)


def test_three_kills_change_nothing(tmp_path):
    whole = gymlab.train("CartPole-v1:ppo", overrides=SETTINGS, runs_dir=tmp_path, run_id="whole", quiet=True, seed=3)
    cut = Run(tmp_path / "cut")
    process = start(tmp_path, "CartPole-v1:ppo", *SETTINGS, "--seed", "3", "--run-id", "cut")
    for epoch in sorted(random.Random(0).sample(range(4, 72), 3)):
        kill_at(process, cut, epoch)
        assert cut.status == "crashed"
        process = start(tmp_path, "--resume", "cut")
    assert process.wait(timeout=120) == 0
    assert cut.status == "finished"
    assert len(cut.record["resumed"]) == 3
    assert columns(cut) == columns(whole)
    first, second = whole.checkpoints.find().read_model(), cut.checkpoints.find().read_model()
    assert all((first[name] == second[name]).all() for name in first)


def save_forever(directory, first):
    manager = CheckpointManager(directory, keep=2)
    for epoch in range(first, first + 100_000):
        manager.save(
            epoch=epoch,
            env_steps=epoch,
            mid_epoch=False,
            model={"policy.weight": torch.full((256, 256), float(epoch))},
            parts={"workflow": {"epoch": epoch}},
            state={"counters": {"epoch": epoch}},
            metrics={"epoch": epoch},
            best=epoch % 3 == 0,
        )


def test_a_kill_at_any_instant_of_saving_leaves_a_whole_checkpoint(tmp_path):
    generator = random.Random(0)
    context = multiprocessing.get_context("fork")
    manager, newest = CheckpointManager(tmp_path), 0
    for _ in range(50):
        process = context.Process(target=save_forever, args=(tmp_path, newest + 1))
        process.start()
        time.sleep(generator.uniform(0.005, 0.06))
        process.kill()
        process.join()
        if not manager.all():
            continue
        checkpoint = manager.find("@last")
        epoch = checkpoint.place[0]
        assert epoch >= newest
        assert (checkpoint.read_model()["policy.weight"] == epoch).all()
        assert checkpoint.read_part("workflow") == {"epoch": epoch}
        newest = epoch
    assert newest > 20
