"""Files that a run's config names: refused, unless they are a family's own or the user names them again."""

import json
import re
import shutil
from pathlib import Path

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import gymlab
from gymlab.api import get_hyperparameters, resolve, resume, set_hyperparameters
from gymlab.cli.compare import random_return
from gymlab.cli.main import main
from gymlab.engine.origin import is_plain, only_moved
from gymlab.engine.registry import scan
from gymlab.engine.run import Run, is_run_file
from gymlab.engine.trace import Player
from gymlab.engine.train import run_config
from gymlab.envs.families import family_of
from gymlab.envs.wrappers import EnvWrapperRegistry
from gymlab.errors import ConfigError
from gymlab.inspector.loading import read_agent
from gymlab.inspector.routes import Inspector

PACKAGE = Path(__file__).parents[2] / "gymlab"
TINY = {"n_envs": 2, "n_steps": 16, "batch_size": 16, "n_epochs": 1, "max_env_steps": 64, "quiet": True}
TINY |= {"eval_freq_epochs": None, "eval_episodes": 1, "video": False, "vectorization_mode": "sync"}


class MappedEnv(CartPoleEnv):
    """An environment of a user's, with a file."""

    def __init__(self, map_file, level="easy", render_mode=None):
        super().__init__(render_mode=render_mode)
        self.map = Path(map_file).read_text()


class MappedWrapper(gym.Wrapper):
    """A wrapper of a user's, with a file."""

    def __init__(self, env, map_file):
        super().__init__(env)
        self.map = Path(map_file).read_text()


@pytest.fixture(scope="module", autouse=True)
def mapped():
    gym.register("Mapped-v0", f"{__name__}:MappedEnv")
    EnvWrapperRegistry.register(MappedWrapper)
    yield
    del gym.registry["Mapped-v0"], EnvWrapperRegistry._entries["MappedWrapper"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run whose environment and wrapper have files, and its maps."""
    folder = tmp_path_factory.mktemp("mapped")
    for name in ("map.txt", "other.txt"):
        (folder / name).write_text(name)
    wrappers = [{"id": "MappedWrapper", "map_file": str(folder / "other.txt")}]
    given = {"map_file": folder / "map.txt", "level": "easy"}
    fields = {"env_wrappers": wrappers, "env_kwargs": given, **TINY}
    return gymlab.train("Mapped-v0", algo="ppo", runs_dir=folder / "runs", run_id="mapped", **fields)


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained.dir, tmp_path / "runs" / "mapped", symlinks=True)
    return Run(tmp_path / "runs" / "mapped")


@pytest.fixture
def both(trained):
    """Both files, named again."""
    folder = trained.dir.parents[1]
    return {"map_file": str(folder / "map.txt"), "MappedWrapper.map_file": str(folder / "other.txt")}


def as_options(named):
    return [word for key, value in named.items() for word in ("--env-kwargs", f"{key}={value}")]


def test_one_s_own_run_is_refused_too_with_the_option_to_give(run, both):
    with pytest.raises(ConfigError) as refused:
        gymlab.load(str(run.dir))
    message = str(refused.value)
    assert f"env_kwargs.map_file is {both['map_file']!r}" in message
    assert f"--env-kwargs map_file={both['map_file']} (in Python: env_kwargs={{'map_file': ...}})" in message
    with pytest.raises(ConfigError, match=r"--env-kwargs MappedWrapper.map_file="):
        gymlab.load(str(run.dir), env_kwargs={"map_file": both["map_file"]})


def test_named_again_in_python_and_in_texts(run, both):
    for given in (both, [f"{key}={value}" for key, value in both.items()]):
        agent = gymlab.load(str(run.dir), env_kwargs=given)
        assert agent.config.env_kwargs == run_config(run, given).env_kwargs
        assert agent.evaluate(1).summary()["n"] == 1


@pytest.mark.parametrize("argument", ["map_file.x", "MappedWrapper"])
def test_what_is_named_does_not_cover_others(run, both, argument):
    path = run.dir / "config.start.json"
    data = json.loads(path.read_text())
    data["env_kwargs"][argument] = {"map_file": "/somewhere/else"}
    path.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match="name it yourself"):
        gymlab.load(str(run.dir), env_kwargs=both)


def test_another_file_and_another_choice_may_be_named(run, both, tmp_path):
    (tmp_path / "third.txt").write_text("third")
    changed = {
        **both,
        "map_file": tmp_path / "third.txt",
        "MappedWrapper.map_file": tmp_path / "third.txt",
        "level": "x",
    }
    config = gymlab.load(str(run.dir), env_kwargs=changed).config
    assert config.env_kwargs == {"map_file": str(tmp_path / "third.txt"), "level": "x"}
    assert config.env_wrappers == ({"id": "MappedWrapper", "map_file": str(tmp_path / "third.txt")},)


@pytest.mark.parametrize(
    "words",
    [
        ["eval", "--episodes", "1"],
        ["play", "--headless", "--episodes", "1"],
        ["play", "--headless", "--episodes", "1", "--mode", "random"],
        ["record", "--episodes", "1"],
    ],
    ids=lambda words: " ".join(words),
)
def test_named_again_on_the_command_line(run, both, words, capsys, tmp_path, monkeypatch):
    if words[0] == "record":
        pytest.importorskip("minari")
    monkeypatch.chdir(tmp_path)
    assert main([*words, str(run.dir)]) == 2
    assert "--env-kwargs map_file=" in capsys.readouterr().err
    assert main([*words, str(run.dir), *as_options(both)]) == 0


@pytest.mark.parametrize("words", [["eval", "--episodes", "1"], ["play", "--headless", "--episodes", "1"], ["record"]])
def test_arguments_that_make_another_environment_than_the_agent_knows(words, tmp_path, capsys):
    settings = {"n_envs": 2, "n_steps": 4, "max_env_steps": 8, "eval_episodes": 1, "video": False, "quiet": True}
    run = gymlab.train("FrozenLake-v1:q_learning", runs_dir=tmp_path, run_id="lake", **settings)
    assert main([*words, str(run.dir), "--env-kwargs", "map_name=8x8"]) == 2
    assert re.search(r"observations Discrete\(64\).*8x8.* trained on Discrete\(16\)", capsys.readouterr().err)
    agent = gymlab.load("lake", runs_dir=tmp_path, env_kwargs={"map_name": "8x8"})
    with pytest.raises(ConfigError, match="trained on"), Player(agent):
        pass


def test_the_inspector_takes_names_for_the_run_it_was_started_with(run, both, tmp_path):
    shutil.copytree(run.dir, tmp_path / "runs" / "another", symlinks=True)
    inspector = Inspector(tmp_path / "runs")
    inspector.initial, inspector.env_kwargs = "mapped", [f"{key}={value}" for key, value in both.items()]
    assert read_agent(inspector, run, "best").config.env_kwargs["map_file"] == both["map_file"]
    with pytest.raises(ConfigError, match="--env-kwargs"):
        read_agent(inspector, Run(tmp_path / "runs" / "another"), "best")


def test_a_comparison_plays_at_random_only_what_was_named(run, both):
    (entry,) = scan(run.dir.parent).entries
    with pytest.raises(ConfigError, match="--env-kwargs"):
        random_return(entry)
    assert random_return(entry, [*(f"{key}={value}" for key, value in both.items()), "of_another_run=1"]) > 5


def test_what_makes_no_environment_needs_no_names(run):
    assert "policy_lr" in [tunable.name for tunable in get_hyperparameters(str(run.dir))]
    assert set_hyperparameters(str(run.dir), policy_lr=1e-4)
    assert main(["report", str(run.dir)]) == 0
    assert main(["runs", "show", str(run.dir)]) == 0


def test_resume_takes_files_that_were_named_also_from_another_place(run, both, tmp_path):
    with pytest.raises(ConfigError, match="--env-kwargs map_file="):
        resume(str(run.dir), max_env_steps=96)
    shutil.copy(both["map_file"], tmp_path / "moved.txt")
    moved = {**both, "map_file": str(tmp_path / "moved.txt")}
    assert main(["train", "--resume", str(run.dir), "max_env_steps=96", *as_options(moved)]) == 0
    assert run.record["counters"]["env_steps"] == 96
    stored = json.loads((run.dir / "config.start.json").read_text())
    assert stored["env_kwargs"] == {"map_file": moved["map_file"], "level": "easy"}
    assert "Changed: env_kwargs.map_file" in (run.dir / "run.log").read_text()
    named = [f"env_kwargs.map_file={moved['map_file']}"]
    wrapper = {"MappedWrapper.map_file": both["MappedWrapper.map_file"]}
    assert resume(str(run.dir), overrides=named, env_kwargs=wrapper, max_env_steps=128).status == "finished"


def test_resume_changes_nothing_but_the_place_of_a_file(run, both):
    for change in ({"level": "hard"}, {"gravity": 1.0}):
        with pytest.raises(ConfigError, match=r"env_kwargs cannot change when a run goes on"):
            resume(str(run.dir), env_kwargs={**both, **change}, max_env_steps=96)


def test_a_config_of_a_run_is_not_the_user_s_own_file(run, both, tmp_path):
    for name in ("config.json", "config.start.json"):
        with pytest.raises(ConfigError, match="--env-kwargs map_file="):
            resolve(str(run.dir / name))
    text = json.dumps(json.loads((run.dir / "config.json").read_text()))
    (run.dir / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match="--env-kwargs map_file="):
        resolve(str(run.dir / "mine.yaml"))
    assert resolve(str(run.dir / "config.json"), env_kwargs=both).config.env_kwargs["map_file"] == both["map_file"]
    (tmp_path / "own.yaml").write_text(text)
    assert not is_run_file(Path("CartPole-v1:ppo"))
    assert resolve(str(tmp_path / "own.yaml")).config.env_kwargs["map_file"] == both["map_file"]


def test_a_dataset_in_a_directory_is_named_again_before_a_run_goes_on(tmp_path):
    (tmp_path / "demos" / "data").mkdir(parents=True)
    (tmp_path / "demos" / "data" / "metadata.json").write_text("{}")
    config = {"env_id": "CartPole-v1", "algo_id": "dreamer", "variant": "dreamer"}
    for dataset in (str(tmp_path / "demos"), "cartpole/expert-v0"):
        (tmp_path / "config.json").write_text(json.dumps({**config, "dataset": dataset}))
        if dataset == "cartpole/expert-v0":
            assert resolve(str(tmp_path / "config.json")).config.dataset == dataset
            continue
        with pytest.raises(ConfigError, match=f"name it yourself: dataset={dataset}"):
            resolve(str(tmp_path / "config.json"))
        assert resolve(str(tmp_path / "config.json"), overrides=[f"dataset={dataset}"]).config.dataset == dataset


@pytest.mark.parametrize("text", ["", "160x120", "full view", "MOVE_LEFT", "a, b (c)", "0.5", "-1e-3", "Ünder", "4x4"])
def test_words_and_numbers_are_plain(text):
    assert is_plain(text)


@pytest.mark.parametrize(
    "text",
    [
        *("a/b", "a\\b", "..", ".hidden", "~", "~root", "$HOME", "a.cfg", "os:system", "os.system", "+exec x", "-file"),
        *("a;b", "a\nb", "a\0b", "http://x", "%TEMP%", "a=b", "{x}", "`x`", "|x", "1.", "7.txt"),
    ],
)
def test_what_could_name_a_file_an_argument_or_code_is_not(text):
    assert not is_plain(text)


def test_a_word_that_is_a_file_here_is_not_plain(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_plain("scenario")
    assert is_plain("7")
    for name in ("scenario", "7"):
        (tmp_path / name).write_text("")
        assert not is_plain(name)


@pytest.mark.parametrize(
    ("old", "new", "moved"),
    [
        ("/a/b.cfg", "/c/d.cfg", True),
        ("easy", "hard", False),
        ("easy", "/c/d.cfg", False),
        ("/a/b.cfg", 3, False),
        ({"x": 1, "f": "a.b"}, {"x": 1, "f": "c.d"}, True),
        ({"x": 1, "f": "a.b"}, {"x": 2, "f": "c.d"}, False),
        ({"f": "a.b"}, {"f": "a.b", "x": 1}, False),
        ([{"id": "W", "f": "a.b"}], [{"id": "W", "f": "c.d"}], True),
        ([{"id": "W", "f": "a.b"}], [], False),
    ],
)
def test_a_moved_file_is_no_other_setting(old, new, moved):
    assert only_moved(old, new) is moved


def test_doom_scenarios_of_the_package_and_of_the_user_s_folder_are_its_own(tmp_path, monkeypatch):
    vizdoom = pytest.importorskip("vizdoom")
    family = family_of("VizDoom-Basic-v0")
    monkeypatch.delenv("VIZDOOM_SCENARIOS_DIR", raising=False)
    assert family.is_own_file("config_path", f"{vizdoom.scenarios_path}/basic.cfg")
    assert not family.is_own_file("vizdoom_path", f"{vizdoom.scenarios_path}/basic.cfg")
    own = tmp_path / "scenarios" / "maze.cfg"
    assert not family.is_own_file("config_path", str(own))
    monkeypatch.setenv("VIZDOOM_SCENARIOS_DIR", str(own.parent))
    assert family.is_own_file("config_path", str(own))
    monkeypatch.chdir(tmp_path)
    assert family.is_own_file("config_path", "scenarios/../scenarios/maze.cfg")
    assert not family.is_own_file("config_path", str(own.parent / "below" / "maze.cfg"))


def test_robots_of_gymnasium_and_states_of_a_game_are_their_own():
    robots, games = family_of("Ant-v5"), family_of("Retro/Airstriker-Genesis-v0")
    assert robots.is_own_file("xml_file", "ant.xml")
    for text in ("./ant.xml", "../assets/ant.xml", "mine.xml", "/ant.xml"):
        assert not robots.is_own_file("xml_file", text)
    assert games.is_own_file("state", "GreenHillZone.Act1")
    assert not games.is_own_file("info", "data.json")


def test_environments_are_made_of_checked_configs():
    """Who reads a run's config as it was written makes no environment of it; an agent is loaded from a checked one alone."""
    files = PACKAGE.rglob("*.py")
    readers = {str(path.relative_to(PACKAGE)) for path in files if re.search(r"stored_config\b", path.read_text())}
    inspector = {"inspector/changes.py", "inspector/dreams.py"}
    assert readers == {"api.py", "cli/compare.py", "engine/seed_groups.py", "engine/train.py"} | inspector
    assert "run_config(run, env_kwargs)" in (PACKAGE / "engine" / "agent.py").read_text()
