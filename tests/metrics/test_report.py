from dataclasses import FrozenInstanceError, replace

import pytest
from rich.console import Console

from gymlab.metrics.alerts import Recap
from gymlab.metrics.report import ReportData, RunResult, format_duration, render_report, report_panel, results_table
from gymlab.metrics.results import judge

FOUND = {"mean": 498.25, "ci95": [495.0, 500.0], "n": 100, "threshold": 475}
DATA = ReportData(
    experiment="CartPole-v1:ppo",
    run_id="cartpole-ppo-0",
    run_directory="runs/cartpole-ppo-0",
    algorithm="ppo",
    environment="CartPole-v1",
    seed=0,
    status="finished",
    result=judge(FOUND),
    env_steps=51_200,
    updates=800,
    episodes=412,
    wall_seconds=5.6,
    training_seconds=3.2,
    command="gymlab train CartPole-v1:ppo --seed 0",
    threshold=475,
    deterministic=True,
    best_checkpoint="checkpoints/best.ckpt",
    last_checkpoint="checkpoints/last.ckpt",
    video="videos/final.mp4",
    curve="curve.png",
    report="runs/cartpole-ppo-0/report.md",
    commit="0123456789abcdef0123456789abcdef01234567",
    versions={"gymlab": "0.1.0", "torch": "2.13.0"},
    notices=("Taxi-v3 is loaded as Taxi-v4.",),
)


def panel_text(data, width=100):
    console = Console(width=width, record=True, file=open("/dev/null", "w"), color_system=None)  # noqa: SIM115
    console.print(report_panel(data))
    return console.export_text()


def test_the_report_says_everything_a_reader_asks():
    text = render_report(DATA)
    for part in (
        "# CartPole-v1:ppo: solved (threshold 475)",
        "498.2 [495.0, 500.0] (mean and 95% interval, n=100); deterministic actions",
        "51,200 (412 episodes, 800 updates)",
        "| wall time | 5.6 s (3.2 s of training, 16,000 env steps/s) |",
        "`checkpoints/best.ckpt`",
        "![Learning curve](curve.png)",
        "[Video of the agent](videos/final.mp4)",
        "gymlab train CartPole-v1:ppo --seed 0",
        "- Taxi-v3 is loaded as Taxi-v4.",
        "`0123456789ab`",
        "torch 2.13.0",
    ):
        assert part in text, part


@pytest.mark.parametrize(
    ("changes", "verdict", "solved"),
    [
        ({}, "solved (threshold 475)", True),
        ({"threshold": 500}, "not solved (threshold 500)", False),
        ({"threshold": -110, "mean": -110.0}, "solved (threshold -110)", True),
        ({"threshold": None}, "no threshold known", None),
        (None, "not evaluated", None),
        ({"n": 9, "asked": 100, "complete": False}, "not judged: 9 of 100 finished", None),
        ({"shortened": [50, 200]}, "not judged: episodes were cut at 50 of the task's 200 steps", None),
    ],
)
def test_verdict(changes, verdict, solved):
    data = replace(DATA, result=None if changes is None else judge(FOUND | changes))
    assert data.verdict == verdict
    assert data.solved is solved
    assert verdict in render_report(data)
    assert verdict in panel_text(data)


def test_the_panel_has_the_result_and_where_things_are():
    text = panel_text(DATA)
    for part in (
        "498.2 [495.0, 500.0]",
        "n=100",
        "51,200",
        "3.2 s",
        "videos/final.mp4",
        "report.md",
        DATA.command,
        "Taxi-v3",
    ):
        assert part in text, part
    assert "stopped by SIGINT" in panel_text(replace(DATA, status="stopped by SIGINT"))


def test_checkpoints_are_named_from_the_run_directory_and_once_when_they_are_one():
    text = panel_text(replace(DATA, best_checkpoint="runs/cartpole-ppo-0/checkpoints/epoch=0009.ckpt"))
    assert " best       checkpoints/epoch=0009.ckpt " in text
    assert " last       checkpoints/last.ckpt " in text
    assert "best, last  a.ckpt" in panel_text(replace(DATA, best_checkpoint="a.ckpt", last_checkpoint="a.ckpt"))


def test_brackets_in_paths_are_not_markup():
    assert "runs/[bold]x" in panel_text(replace(DATA, run_directory="runs/[bold]x"))


def test_no_secret_reaches_the_report():
    data = replace(
        DATA, command="gymlab train CartPole-v1:ppo hub.token=canary42", notices=("https://me:canary42@host",)
    )
    assert "canary42" not in render_report(data) + panel_text(data)


def test_report_data_is_frozen():
    with pytest.raises(FrozenInstanceError):
        DATA.env_steps = 1


def test_durations_read_well():
    assert [format_duration(seconds) for seconds in (0.04, 8.44, 59.97, 125, 3720)] == [
        "0.0 s",
        "8.4 s",
        "1 min 00 s",
        "2 min 05 s",
        "1 h 02 min",
    ]


def run(seed, value, experiment="CartPole-v1:ppo", threshold=475.0):
    command = f"gymlab train {experiment} --seeds 0-4"
    return RunResult(experiment, seed, value, 50_000 + 1000 * seed, 10.0, command, "0123456789abcdef", threshold)


def test_results_are_grouped_by_experiment_with_an_interval_over_seeds():
    runs = [run(seed, value) for seed, value in enumerate((500.0, 470.0, 500.0, 500.0, 500.0))]
    runs += [run(3, -90.0, "Acrobot-v1:ppo", threshold=-100.0), run(7, 12.0, "Bandit-v0:ppo", threshold=None)]
    runs += [run(seed, value, "Pendulum-v1:ppo") for seed, value in enumerate((-150.0, -170.0, -190.0))]
    header, _, *lines = results_table(runs).splitlines()
    assert header.count("|") == 11
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0][:4] == [
        "`CartPole-v1:ppo`",
        "494.0 [477.3, 510.7]",
        "0-4",
        "4/5 ≥ 475 (the task has none of its own)",
    ]
    assert cells[0][4:6] == ["52,000", "not recorded (10.0 s)"]
    assert cells[0][6:] == ["`gymlab train CartPole-v1:ppo --seeds 0-4`", "`012345678`", "not recorded", "not recorded"]
    assert cells[1][:4] == [
        "`Acrobot-v1:ppo`",
        "-90.0 (n=1, no interval)",
        "3",
        "1/1 ≥ -100 (the task has none of its own)",
    ]
    assert cells[2][3] == "–"
    assert cells[3][1] == "-170.0 (range -190.0 to -150.0)"
    assert "range below 5 seeds" in header
    known = {
        "own_threshold": 18.0,
        "wall_seconds": 12.0,
        "started": 0.0,
        "processor": "a chip",
        "commit": "0123456789ab+dirty",
    }
    (line,) = results_table([replace(run(0, 5.0, "Pong", threshold=0.0), **known)]).splitlines()[2:]
    assert "| 1/1 ≥ 0 (the task's own: 18) |" in line
    assert line.endswith("| `012345678+dirty` | 1970-01-01 | a chip |")
    assert "| 12.0 s (10.0 s) |" in line


def test_alerts_are_recapped():
    kl = Recap("kl_high", "train/opt/ppo/approx_kl", "approx_kl is 0.2 | high.", "Lower it.", 512, 4096, 2, 16, 2, 9)
    stalled = Recap("return_stalled", "train/roll/ep_rew/mean", "No progress.", "Explore.", 8192, 8192, 32, 32, 1, 1)
    data = replace(DATA, alerts=(kl, stalled))
    text = render_report(data)
    assert "| `kl_high` | 512 to 4,096 | twice, 9 epochs in all | approx_kl is 0.2 \\| high. | Lower it. |" in text
    assert "| `return_stalled` | 8,192 to 8,192 | once, 1 epoch in all | No progress. | Explore. |" in text
    assert "3: kl_high ×2, return_stalled" in panel_text(data)
    assert "lerts" not in render_report(DATA) + panel_text(DATA)
