"""The Δ-IRIS comparison: goals from a worker that answers at once, gymlab's own updates and dreams, and a wrong folder."""

import pytest
import torch

from gymlab.bench import delta_iris, delta_iris_dreams
from gymlab.bench.delta_iris_updates import time_updates
from gymlab.bench.plan import Plan
from gymlab.cli.main import main

SETTINGS = {"sequences": 2, "starts": 5, "threads": 1, "precision": "32-true", "repeats": 2}
GYMLAB = {"tokenizer": 1.0, "world_model": 0.5, "controller": 2.0}
AUTHORS = {
    "as written": {"tokenizer": 4.0, "world_model": 1.0, "controller": 5.0},
    "32-true": {"tokenizer": 2.0, "world_model": 0.6, "controller": 5.0},
}
TINY = {
    "algo": "delta_iris", "obs_type": "rgb", "resize_obs": [16, 16], "multiples": (1,), "halves": (1,), "fold": 4, "codebook_size": 8, "codebook_dim": 4,
    "token_features": 4, "tokenizer_channels": 8, "tokenizer_frame_channels": 8, "tokenizer_frame_features": 2, "action_channels": 1, "width": 16,
    "layers": 1, "heads": 2, "frame_channels": 8, "frame_features": 4, "actor_channels": 8, "actor_features": 2, "lstm": 8,
}  # fmt: skip
"""CartPole in pictures, and networks that are quick."""
SHORT = {"blocks": 4, "burn_in": 1, "horizon": 3, "tokenizer_length": 4}


def worker(job, timeout):
    if job["task"] == "delta_iris_dreams":
        assert job["steps"] == 20
        return {
            f"{what}/{key}": n for what in ("whole", "words") for n, key in enumerate(("with", "without", "ratio"), 1)
        }
    answer = dict(GYMLAB if job["library"] == "gymlab" else AUTHORS[job["precision"]])
    answer |= {f"{name}/anew": answer[name] + 1 for name in GYMLAB if name != "tokenizer"}
    answer |= {f"{name}/parameters": 1000 + len(name) for name in GYMLAB}
    answer |= {f"{name}/{part}": 0.125 for name, parts in delta_iris.PARTS.items() for part in parts}
    return answer | {"peak_bytes": 3e9}


def test_the_faster_of_the_authors_precisions_is_the_goal():
    section = delta_iris.measure_updates(Plan(repeats=2, worker=worker), SETTINGS, delta_iris.PRECISIONS)
    assert [(check.name.partition(":")[0], check.value, check.met) for check in section.checks] == [
        ("tokenizer", 2.0, True),
        ("world_model", 1.2, False),
        ("controller", 2.5, True),
    ]
    table, spent = section.tables
    theirs = ["authors as written s", "faster", "authors 32-true s", "faster"]
    assert table.columns == ["component", "gymlab s", "words anew s", *theirs]
    assert table.rows[1] == ["world_model", "0.5", "1.5", "1", "2.00x", "0.6", "1.20x"]
    assert "tokenizer: 1,009; world_model: 1,011;" in table.note
    assert spent.rows[0][1].startswith("tokenizer, encode 12%, tokenizer, decode 12%, backward, clipping 12%")


@pytest.mark.parametrize("has_bfloat16", [True, False])
def test_a_processor_without_bfloat16_is_spared_the_authors_own_precision(monkeypatch, has_bfloat16):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: has_bfloat16)
    peers = delta_iris.peer_precisions()
    section = delta_iris.measure_updates(Plan(repeats=1, worker=worker), SETTINGS, peers)
    assert ("authors as written s" in section.tables[0].columns) is has_bfloat16
    assert ("no bfloat16" in section.tables[0].note) is not has_bfloat16
    assert [check.value for check in section.checks] == [2.0, 1.2, 2.5]


def test_gymlab_alone_has_no_goals_beside_anyone():
    section = delta_iris.measure_updates(Plan(repeats=1, worker=worker), SETTINGS, ())
    assert not section.checks
    assert section.tables[0].rows == [["tokenizer", "1", "–"], ["world_model", "0.5", "1.5"], ["controller", "2", "3"]]


def test_dreams_are_held_to_their_goal_at_every_size():
    section = delta_iris.measure_dreams(Plan(repeats=1, worker=worker), SETTINGS)
    assert section.tables[0].rows[2] == ["tiny", "32", "1", "2", "3.00x", "1", "2", "3.00x"]
    assert [check.met for check in section.checks] == [True, True, True]


def test_full_batches_are_the_authors():
    asked = []

    def noting(job, timeout):
        asked.append((job["components"], job["sequences"] // job["parts"], job["starts"] // job["parts"]))
        return worker(job, timeout)

    section = delta_iris.measure_full(Plan(repeats=3, worker=noting), SETTINGS)
    assert asked == [(["tokenizer"], 8, 21), (["world_model"], 32, 86), (["controller"], 32, 86)]
    assert section.tables[0].rows[0] == ["tokenizer", "32", "4", "1", "3,000"]


def test_updates_are_timed():
    job = delta_iris.update_job("gymlab", "32-true", {**SETTINGS, "sequences": 4, "starts": 4, "parts": 2}, seed=0)
    answer = time_updates({**job, "experiment": "CartPole-v1", "options": TINY | SHORT})
    for component, parts in delta_iris.PARTS.items():
        assert answer[component] > 0
        shares = [answer[f"{component}/{part}"] for part in parts]
        assert all(share > 0 for share in shares)
        # No part that is not told belongs to a component.
        assert sum(shares) == pytest.approx(1)
    assert all(answer[f"{name}/anew"] > 0 for name in ("world_model", "controller"))
    assert answer["peak_bytes"] > 1e8


def test_without_a_cache_the_same_is_dreamt_and_both_are_timed(monkeypatch):
    job = {**delta_iris.dream_job("tiny", SETTINGS, seed=0), "steps": 3, "dreams": 2, "repeats": 1}
    dreamt, dream_on = [], delta_iris_dreams.dream_on

    def noting(*arguments):
        dreamt.append([words.tolist() for words in dream_on(*arguments)])

    monkeypatch.setattr(delta_iris_dreams, "dream_on", noting)
    answer = delta_iris_dreams.time_dreams({**job, "experiment": "CartPole-v1", "options": TINY})
    assert len(dreamt) == 4
    assert len(dreamt[0]) == 3
    assert dreamt == [dreamt[0]] * 4
    assert answer["whole/with"] > answer["words/with"] > 0
    assert answer["whole/ratio"] == pytest.approx(answer["whole/without"] / answer["whole/with"])


def test_a_folder_without_their_program_is_refused(tmp_path, capsys):
    assert main(["bench", "delta_iris", "--peer-source", str(tmp_path)]) == 2
    assert "has no src/models/world_model.py" in capsys.readouterr().err
