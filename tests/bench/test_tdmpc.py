"""The TD-MPC2 comparison: goals from a worker that answers at once, gymlab's own steps, and a wrong folder."""

import pytest

from gymlab.bench import tdmpc
from gymlab.bench.plan import Plan
from gymlab.bench.tdmpc_steps import time_steps
from gymlab.cli.main import main

SETTINGS = {"threads": 1, "precision": "32-true", "repeats": 2}
SECONDS = {"gymlab": {"plan": 0.2, "update": 0.2}, "tdmpc2": {"plan": 0.4, "update": 0.25}}


def worker(job, timeout):
    assert job["size"] == ("5m" if job["library"] == "gymlab" else 5)
    parts = {f"{kind}/{part}": 0.25 for kind, parts in tdmpc.PARTS.items() for part in parts}
    return {**SECONDS[job["library"]], "parameters": 1000 + len(job["library"]), **parts}


def test_goals_are_taken_from_the_figures():
    section = tdmpc.measure(Plan(repeats=2, worker=worker), ["5m"], SETTINGS, beside_peer=True)
    assert {check.name: (check.value, check.met) for check in section.checks} == {
        "5m: authors' / gymlab's, seconds: plan": (2.0, True),
        "5m: authors' / gymlab's, seconds: update": (1.25, False),
    }
    table, spent = section.tables
    assert table.rows == [["5m", "plan", "0.2", "0.4", "2.00x"], ["5m", "update", "0.2", "0.25", "1.25x"]]
    assert "5m: 1,006 and 1,006" in table.note
    assert spent.rows[0][2].startswith("steps in the model 25%, proposals 25%")


def test_gymlab_alone_has_no_goals():
    section = tdmpc.measure(Plan(repeats=1, worker=worker), ["5m"], SETTINGS, beside_peer=False)
    assert not section.checks
    assert section.tables[0].rows[0] == ["5m", "plan", "0.2"]


def test_steps_are_timed():
    job = tdmpc.step_job("gymlab", "1m", SETTINGS, seed=0)
    answer = time_steps({**job, "size": "tiny", "samples": 32, "policy_samples": 4, "elites": 8, "batch_size": 8})
    assert answer["plan"] > 0
    assert answer["update"] > 0
    for kind, parts in tdmpc.PARTS.items():
        shares = [answer[f"{kind}/{part}"] for part in parts]
        assert all(share > 0 for share in shares)
        assert sum(shares) == pytest.approx(1)


def test_a_folder_without_their_program_is_refused(tmp_path, capsys):
    assert main(["bench", "tdmpc", "--peer-source", str(tmp_path)]) == 2
    assert "has no tdmpc2/tdmpc2.py" in capsys.readouterr().err
