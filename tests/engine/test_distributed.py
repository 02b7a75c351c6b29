"""Two processes train one agent into one run directory."""

import subprocess
import sys

from gymlab.engine.run import Run


def test_two_processes_leave_one_run_and_share_the_budget(tmp_path):
    command = [sys.executable, "-m", "gymlab", "train", "CartPole-v1:ppo", "-q", "--runs-dir", str(tmp_path)]
    settings = [
        "devices=2",
        "accelerator=cpu",
        "max_env_steps=2048",
        "eval_freq_epochs=2",
        "eval_episodes=4",
        "video=false",
    ]
    done = subprocess.run([*command, "--run-id", "both", *settings], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["@last", "both"]
    run = Run(tmp_path / "both")
    assert run.status == "finished"
    assert run.metrics["train/cnt/env_steps"] == [512, 1024, 1536, 2048]
    assert run.metrics["train/cnt/vec_steps"][-1] == 128
    assert [value is not None for value in run.metrics["val/roll/ep_rew/mean"]] == [False, True, False, True]
