"""Episodes in a run: every hook draws from a sampler of its own, files are shared by checkpoints, and resume is exact."""

import shutil
from typing import Any, ClassVar

import numpy as np
import pytest
from replaying import Replaying
from test_chunk_store import SETTINGS, files, needed, outcome

import gymlab
from gymlab.buffers.episodes import Episodes, Field
from gymlab.engine.run import Run
from gymlab.engine.workflow import UpdateResult, register_workflow
from gymlab.errors import ConfigError


@register_workflow("episodic")
class Episodic(Replaying):
    """Remembers every batch that two hooks are shown."""

    phases: ClassVar[tuple[dict[str, Any], ...]] = (
        {"name": "begin", "type": "online", "hooks": ["collect"], "buffer": "episodes", "duration_steps": 128},
        {
            "name": "train",
            "type": "online",
            "hooks": [
                "collect",
                {"name": "update_tokenizer", "times": 2, "buffer": "tokenizer"},
                {"name": "update_controller", "ratio": 0.1, "buffer": "controller"},
            ],
            "buffer": "episodes",
        },
    )

    def default_buffers(self):
        fields = {
            "observation/observation": Field(self.context.observation_space.shape, np.float32),
            "action": Field((2,), np.float32),
            "reward": Field((), np.float32),
            **{name: Field((), np.bool_) for name in ("is_first", "is_last", "is_terminal")},
        }
        count = self.context.train_environment.num_envs
        episodes = Episodes(
            fields, count, capacity=self.config.replay_size, on_disk=self.config.replay_on_disk, memory=20_000
        )
        seeds = self.context.seeds.child("episodes")
        options = {"tokenizer": {"alpha": 5.0, "past_end": True}, "controller": {"alpha": 1.0, "past_end": False}}
        samplers = {
            name: episodes.sampler(name, seeds.child(name).generator(), batch_size=4, length=5, **option)
            for name, option in options.items()
        }
        return {**samplers, "episodes": episodes}

    def update_tokenizer(self, batch, phase):
        return self._remember(batch)

    def update_controller(self, batch, phase):
        return self._remember(batch)

    def _remember(self, batch):
        shown = [np.abs(batch.values[name]).astype(np.float64).mean() for name in sorted(batch.values)]
        self.memory.sums.mul_(0.9)[: len(shown)] += self.memory.sums.new_tensor(shown)
        return UpdateResult(1, {**batch.metrics(), f"train/loss/{batch.name}": float(sum(shown))})


FIELDS = {**SETTINGS, "algo": "episodic", "replay_size": 300, "max_env_steps": 12 * 64, "eval_freq_epochs": 3}


def train(runs, run_id, **fields):
    return gymlab.train("CartPole-v1", runs_dir=runs, run_id=run_id, **{**FIELDS, **fields})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never interrupted."""
    return train(tmp_path_factory.mktemp("whole"), "whole")


def test_each_hook_draws_by_its_own_counts_and_the_episodes_are_saved_once(whole):
    states = whole.checkpoints.find().read_part("buffers")
    assert sorted(states) == ["controller", "episodes", "tokenizer"]
    assert states["tokenizer"]["counts"].sum() > 0
    assert states["controller"]["counts"].tolist() != states["tokenizer"]["counts"].tolist()
    assert "growing" not in states["tokenizer"]
    assert {"train/replay/tokenizer/age", "train/replay/controller/padding"} <= set(whole.metrics)
    assert files(whole) == needed(whole)
    assert all(name.startswith("episodes-") and name.endswith(".safetensors.z") for name in files(whole))


def test_on_disk_the_run_is_the_same(whole, tmp_path):
    on_disk = train(tmp_path, "disk", replay_on_disk=True)
    assert outcome(on_disk) == outcome(whole)
    assert files(on_disk) == needed(on_disk)


def test_a_copied_run_goes_on_from_an_earlier_epoch_bit_for_bit(whole, tmp_path):
    shutil.copytree(whole.dir, tmp_path / "cut", symlinks=True)
    resumed = gymlab.resume("cut", epoch=6, runs_dir=tmp_path)
    assert resumed.record["resumed"][0]["from"] == "epoch=0006.ckpt"
    assert outcome(resumed) == outcome(whole)
    first, second = (run.checkpoints.find().read_part("buffers") for run in (whole, resumed))
    for name in ("tokenizer", "controller"):
        assert first[name]["counts"].tolist() == second[name]["counts"].tolist()
        assert first[name]["generator"] == second[name]["generator"]
    assert files(Run(tmp_path / "cut")) == needed(resumed) == files(whole)


def test_a_hook_that_draws_from_what_only_takes_in_is_told_so(tmp_path):
    phase = {"name": "p", "type": "online", "hooks": ["collect", "update_controller"], "buffer": "episodes"}
    with pytest.raises(ConfigError, match=r"draws from the buffer 'episodes'.*`buffer:` at the hook: tokenizer"):
        train(tmp_path, "wrong", training={"phases": [phase]})
