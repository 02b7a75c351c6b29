"""Pages are run, not believed: the how-to's algorithm trains, the README's commands and snippets work as written."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import gymlab as gymlab_package
from benchmarks.pages import wrapper_rows
from gymlab.engine.run import Run
from gymlab.envs.wrappers import EnvWrapperRegistry
from gymlab.workflows.ppo import PPOConfig

ROOT = Path(__file__).parents[2]


def blocks(page, *languages):
    found = re.findall(r"```(\w*)\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    return [text for language, text in found if language in languages]


def commands(page):
    lines = [line for block in blocks(page, "", "sh", "bash") for line in block.splitlines()]
    return [line.split("#")[0].strip() for line in lines if line.startswith("gymlab ")]


def gymlab(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "gymlab", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_the_how_to_adds_an_algorithm_with_no_file_edited(tmp_path):
    page = "docs/how-to/add-an-algorithm.md"
    (tmp_path / "cem.py").write_text(blocks(page, "python")[0])
    command = next(line for line in commands(page) if line.startswith("gymlab train"))
    done = gymlab(*shlex.split(command)[1:], "-q", "video=false", "--run-id", "cem", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = Run(tmp_path / "runs" / "cem")
    assert run.result["mean"] >= 475
    evaluated = gymlab("eval", "cem", "--plugin", "cem", "--episodes", "5", "--json", cwd=tmp_path)
    assert evaluated.returncode == 0, evaluated.stderr


def test_the_how_to_adds_an_environment_with_no_file_edited(tmp_path):
    page = "docs/how-to/add-an-environment.md"
    (tmp_path / "maze.py").write_text(blocks(page, "python")[0])
    (tmp_path / "conf" / "environments").mkdir(parents=True)
    (tmp_path / "conf" / "environments" / "Maze-v0.yaml").write_text(blocks(page, "yaml")[0])
    shown = commands(page)
    assert len(shown) == 8
    for number, line in enumerate(shown):
        words = shlex.split(line)[1:]
        named = ["-q", "video=false", "--run-id", f"run-{number}"] if words[0] == "train" else []
        done = gymlab(*words, *named, cwd=tmp_path)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        if words[0] == "train" and "size=9" not in words:
            assert Run(tmp_path / "runs" / f"run-{number}").result["mean"] >= 0.7
        if words[:2] == ["env", "check"]:
            assert "It can be trained on." in done.stdout
        if words[0] == "smoke":
            assert "2 passed, 0 failed, 0 skipped" in done.stdout


def test_the_how_to_changes_a_run(tmp_path):
    page = "docs/how-to/change-a-running-run.md"
    small = [
        "max_env_steps=512",
        "n_steps=32",
        "batch_size=64",
        "eval_freq_epochs=null",
        "eval_episodes=2",
        "video=false",
    ]
    assert gymlab("train", "CartPole-v1:ppo", *small, "-q", "--run-id", "one", cwd=tmp_path).returncode == 0
    shown = [line for line in commands(page) if line.startswith("gymlab set")]
    assert len(shown) == 5
    for line in shown:
        done = gymlab(*shlex.split(line)[1:], cwd=tmp_path)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    rules = yaml.safe_load(blocks(page, "yaml")[0])
    assert PPOConfig(env_id="CartPole-v1", algo_id="ppo", **rules).plateau_interventions[0].cooldown == 20


def test_the_pipeline_of_world_models_is_as_written_out():
    phases = yaml.safe_load(blocks("docs/algorithms/world_models.md", "yaml")[0])["training"]["phases"]
    config = gymlab_package.resolve("VizDoom-TakeCover-v0:world_models_dream").config
    assert tuple(phases) == config.curriculum(sees_pictures=True)


@pytest.mark.parametrize(
    "page", ["README.md", "SECURITY.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
)
def test_links_and_pictures_exist(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", (ROOT / page).read_text()):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_readme_commands_parse_and_name_shipped_experiments(tmp_path):
    shown = commands("README.md")
    assert shown
    for line in shown:
        words = shlex.split(line)[1:]
        if words[0] == "train" and "--resume" not in words:
            done = gymlab("train", *words[1:], "--cfg", "job", cwd=tmp_path)
        else:
            done = gymlab(words[0], "--help", cwd=tmp_path)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_readme_snippet_runs(tmp_path):
    snippet = blocks("README.md", "python")[0]
    small = snippet.replace("n_envs=16", "n_envs=16, max_env_steps=1024, eval_episodes=2, video=False")
    assert small != snippet
    done = subprocess.run([sys.executable, "-c", small], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_reference_has_a_line_for_each_wrapper():
    head, _, *lines = wrapper_rows()
    assert head == "| wrapper | arguments | what it does |"
    assert [line.split("`")[1] for line in lines] == list(EnvWrapperRegistry)
    by_name = {line.split("`")[1]: line for line in lines}
    skip = (
        "Repeats an action `skip` times, or a number of times drawn from [lo, hi] at each step, and sums the rewards."
    )
    assert by_name["FrameSkipWrapper"] == f"| `FrameSkipWrapper` | `skip=4` | {skip} |"
    assert "| `mapping` (required) |" in by_name["DiscreteActionSpaceRemapperWrapper"]
    assert "`noop_penalty=0.005`, `move_reward=0.002`" in by_name["VizDoom_RewardShaper"]
    assert "context" not in by_name["MountainCarV0_StateCountBonus"].split("|")[2]
    for line in lines:
        assert len(re.split(r"(?<!\\)\|", line)) == 5, line
        assert line.split(" | ")[-1].rstrip(" |"), line
