"""Run by test_faults.py in a mount namespace: trains on 2 MB of disk that fills up or becomes read-only, and goes on."""

import subprocess
import sys
from pathlib import Path

import torch

import gymlab
from gymlab.engine import checkpoint as saving
from gymlab.engine.run import Run
from gymlab.errors import GymlabError

SETTINGS = {
    "n_envs": 2,
    "n_steps": 64,
    "batch_size": 64,
    "n_epochs": 2,
    "max_env_steps": 1024,
    "quiet": True,
    "video": False,
    "eval_freq_epochs": 1,
    "eval_episodes": 2,
    "eval_max_episode_steps": 10,
    "early_stop_on_eval_threshold": False,
    "hidden_dims": [64, 64],
    "policy_lr": 0.001,
    "clip_range": 0.2,
}


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def main(disk, fault):
    mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk))
    whole = gymlab.train("CartPole-v1:ppo", runs_dir=disk.with_name("elsewhere"), run_id="whole", **SETTINGS)
    told = fill_up(disk) if fault == "full" else write_protect(disk)
    print(told)
    assert ("No space left" if fault == "full" else "Read-only") in told, told
    assert "--resume cut" in told, told
    run = Run(disk / "cut")
    assert run.status == "crashed" if fault == "full" else "finished", run.status
    assert [checkpoint.place[0] for checkpoint in run.checkpoints.all()] == [1, 2]
    mount("-o", "remount,rw", str(disk))
    (disk / "somebody-else").unlink(missing_ok=True)
    resumed = gymlab.resume("cut", runs_dir=disk, max_env_steps=SETTINGS["max_env_steps"])
    assert resumed.record["resumed"][-1]["from"] == "epoch=0002.ckpt"
    assert not list((disk / "cut" / "checkpoints").glob(".tmp*"))
    rows, others = (
        {name: values for name, values in one.metrics.items() if not name.startswith("sys/")}
        for one in (whole, resumed)
    )
    assert rows == others
    first, second = whole.checkpoints.find().read_model(), resumed.checkpoints.find().read_model()
    assert all(torch.equal(first[name], second[name]) for name in first)
    print("equal")


def fill_up(disk):
    """Train; in the middle of the third save somebody else takes the room that is left."""
    save_file = saving.save_file

    def filling(tensors, path):
        if "epoch=0003" in str(path) and path.name == "optimizer.safetensors":
            (disk / "somebody-else").write_bytes(bytes(free(disk) - 50_000))
        save_file(tensors, path)

    saving.save_file = filling
    try:
        return failure(lambda: gymlab.train("CartPole-v1:ppo", runs_dir=disk, run_id="cut", **SETTINGS))
    finally:
        saving.save_file = save_file


def write_protect(disk):
    """Train a little, then try to go on in a directory that cannot be written."""
    gymlab.train("CartPole-v1:ppo", runs_dir=disk, run_id="cut", **{**SETTINGS, "max_env_steps": 256})
    mount("-o", "remount,ro", str(disk))
    assert "--runs-dir" in failure(lambda: gymlab.train("CartPole-v1:ppo", runs_dir=disk, run_id="new", **SETTINGS))
    return failure(lambda: gymlab.resume("cut", runs_dir=disk, max_env_steps=SETTINGS["max_env_steps"]))


def failure(train):
    """The message that the training ends with."""
    try:
        train()
    except GymlabError as error:
        return str(error)
    raise AssertionError("the training did not stop")


def free(disk):
    usage = subprocess.run(["df", "--output=avail", "-B1", str(disk)], capture_output=True, text=True, check=True)
    return int(usage.stdout.split()[-1])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
