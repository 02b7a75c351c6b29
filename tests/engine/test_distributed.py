"""Two processes train one agent into one run directory."""

import json
import subprocess
import sys
import time

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
    longer = [*command[:4], "--resume", "both", *command[5:], "max_env_steps=3072"]
    done = subprocess.run(longer, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert run.metrics["train/cnt/env_steps"] == [512, 1024, 1536, 2048, 2560, 3072]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["@last", "both"]
    assert "the others begin with fresh episodes" in (run.dir / "report.md").read_text()


def test_a_change_reaches_every_process_in_the_same_epoch(tmp_path):
    """The processes average their gradients: with other learning rates their parameters, and so their losses, would part.

    One is asked for by hand, one comes about by itself; each process tells in a file of its own what it learned with.
    """
    (tmp_path / "witness.py").write_text(
        "import os\n"
        "from gymlab.workflows.ppo import PPO\n"
        "original = PPO.update_controller\n"
        "def update_controller(self, batch, phase):\n"
        "    hp, rank = self.hyperparameters, self.context.fabric.global_rank\n"
        "    with open(f'rank-{rank}.txt', 'a') as file:\n"
        "        file.write(f'{self.context.counters.env_steps} {hp.policy_lr} {hp.ent_coef}\\n')\n"
        "    return original(self, batch, phase)\n"
        "PPO.update_controller = update_controller\n"
    )
    rules = [{"metric": "train/opt/policy/entropy", "window": 4, "min_improvement": 9, "set": {"ent_coef": 0.01}}]
    settings = {
        "devices": 2,
        "accelerator": "cpu",
        "max_env_steps": 10**7,
        "eval_freq_epochs": None,
        "eval_episodes": 2,
        "video": False,
        "policy_lr": 1e-3,
        "plateau_interventions": rules,
    }
    words = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
    command = [
        sys.executable,
        "-m",
        "gymlab",
        "train",
        "CartPole-v1:ppo",
        "-q",
        "--runs-dir",
        "runs",
        "--run-id",
        "both",
    ]
    process = subprocess.Popen([*command, "--plugin", "witness.py", *words], cwd=tmp_path, stdout=subprocess.DEVNULL)
    first, second = tmp_path / "rank-0.txt", tmp_path / "rank-1.txt"
    try:
        wait_for(lambda: first.exists() and first.read_text().count("\n") > 8, process)
        path = tmp_path / "runs" / "both" / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"policy_lr": 1e-4}))
        wait_for(lambda: " 0.0001 " in first.read_text() and " 0.0001 " in second.read_text(), process)
    finally:
        process.terminate()
        process.wait(timeout=60)
    lines = [path.read_text().splitlines() for path in (first, second)]
    shared = min(map(len, lines))
    assert lines[0][:shared] == lines[1][:shared]
    assert [line.split()[2] for line in lines[0][:6]] == ["0.0"] * 5 + ["0.01"]
    assert {line.split()[1] for line in lines[1]} == {"0.001", "0.0001"}


def wait_for(condition, process, seconds=90):
    """Wait until something holds while a process lives."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
