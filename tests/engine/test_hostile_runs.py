"""Run directories made to harm whoever opens them: nothing in them is executed, nothing is written outside of them.

A case is a line of `HOSTILE`: what the config says, which package it is about and what the refusal has to say. Each goes through all
`DOORS`, one after the other. In texts `{run}`, `{redacted}`, `{outside}`, `{work}`, `{home}` and `{vizdoom}` are the folders of the case; all
but the last hold the same bait: a Doom scenario whose file names a program, a Python module and a robot's model.
"""

import importlib
import json
import shutil
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest
from run_makers import tree

from gymlab.cli.main import main
from gymlab.errors import GymlabError
from gymlab.inspector.routes import Inspector, Request, answer
from gymlab.inspector.server import HANDLERS
from gymlab.metrics.redact import REDACTED

DOOM, ROBOT, GAME = "VizDoom-Basic-v0", "HalfCheetah-v5", "Retro/Airstriker-Genesis-v0"
NAME_IT = "name it yourself: --env-kwargs"
NO_VALUE = f"{REDACTED} is no value"


@dataclass(frozen=True)
class Hostile:
    """A run directory that means harm."""

    about: str
    config: dict
    needs: str = ""
    says: str = NAME_IT
    variables: dict = field(default_factory=dict)
    links: dict = field(default_factory=dict)
    """Symbolic links to make: where, and what they lead to."""
    without: str = ""
    """A file of the run that is left out."""
    is_finding: bool = False
    """Whether `env check` answers with a finding, and code 1: the environment's own rules refuse it, in a process of its own."""


def doom(about, config_path, **more):
    return Hostile(f"doom {about}", {"env_id": DOOM, "env_kwargs": {"config_path": config_path}}, "vizdoom", **more)


def kwargs(about, env_id, env_kwargs, needs="", **more):
    return Hostile(about, {"env_id": env_id, "env_kwargs": env_kwargs}, needs, **more)


HOSTILE = [
    # Doom: the program that a scenario's file names
    doom("absolute path", "{run}/basic.cfg"),
    doom("run of an earlier release", "{run}/basic.cfg", without="config.start.json"),
    doom("relative path", "../runs/hostile/basic.cfg"),
    doom("file in the working folder", "basic.cfg"),
    doom("file without an ending in the working folder", "basic"),
    doom("file with a number for its name", "7"),
    doom("number of a file", 7, says="there is no file 7"),
    doom("file of somebody else's", "{outside}/basic.cfg"),
    doom("file in the home folder", "~/basic.cfg", variables={"HOME": "{home}"}),
    doom("home of nobody", "~nobody-of-this-name/basic.cfg"),
    doom("link in the run", "{run}/link.cfg", links={"{run}/link.cfg": "{outside}/basic.cfg"}),
    doom("linked folder", "{run}/folder/basic.cfg", links={"{run}/folder": "{outside}"}),
    doom("back out of the package", "{vizdoom}/../../../../../../../../../../../..{run}/basic.cfg"),
    doom("back out of a link to the package", "{run}/pack/../basic.cfg", links={"{run}/pack": "{vizdoom}"}),
    doom("another folder of scenarios", "{run}/basic.cfg", variables={"VIZDOOM_SCENARIOS_DIR": "{outside}"}),
    doom("back out of the scenarios", "{home}/../runs/hostile/basic.cfg", variables={"VIZDOOM_SCENARIOS_DIR": "{home}"}),
    doom("below the scenarios", "{run}/basic.cfg", variables={"VIZDOOM_SCENARIOS_DIR": "{run}/.."}),
    doom("address", "file://{run}/basic.cfg"),
    doom("reference", "${params.path}"),
    doom("in a list", ["{run}/basic.cfg"]),
    doom("in a mapping", {"path": "{run}/basic.cfg"}),
    doom("as a key", {"{run}/basic.cfg": 1}),
    doom("line feed", "{run}/basic.cfg\n"),
    doom("below a folder named as a blanked secret", "{redacted}/basic.cfg", says=NO_VALUE),
    kwargs("doom program", DOOM, {"vizdoom_path": "{run}/evil"}, "vizdoom"),
    kwargs("doom program by settings", DOOM, {"settings": {"vizdoom_path": "{run}/evil"}}, "vizdoom"),
    kwargs("doom arguments by settings", DOOM, {"settings": {"game_args": "+logfile {outside}/new"}}, "vizdoom"),
    kwargs("doom console by the map", DOOM, {"settings": {"doom_map": "map01;logfile {outside}/new"}}, "vizdoom"),
    kwargs("doom scenario back out of the scenarios", DOOM, {"scenario": "../../basic"}, "vizdoom"),
    kwargs("doom scenario by the id", "VizDoom-../../../basic-v0", {}, "vizdoom", says="Unknown scenario"),
    # Consoles: states, scenarios and integrations
    kwargs("retro state", GAME, {"state": "{run}/basic.cfg"}, "stable_retro", says="env_kwargs.state", is_finding=True),
    kwargs("retro scenario", GAME, {"scenario": "../../basic.cfg"}, "stable_retro", says="env_kwargs.scenario", is_finding=True),
    kwargs("retro data", GAME, {"info": "{run}/basic.cfg"}, "stable_retro"),
    kwargs("retro integrations", GAME, {"inttype": "CUSTOM_ONLY"}, "stable_retro", says="unknown argument 'inttype'"),
    kwargs("retro game by the id", "Retro/../../../outside", {}, "stable_retro", says="Unknown game"),
    # MuJoCo and others with files of their own
    kwargs("mujoco absolute path", ROBOT, {"xml_file": "{run}/model.xml"}, "mujoco"),
    kwargs("mujoco relative path", ROBOT, {"xml_file": "./model.xml"}, "mujoco"),
    kwargs("mujoco file in the home folder", ROBOT, {"xml_file": "~/model.xml"}, "mujoco", variables={"HOME": "{home}"}),
    kwargs("mujoco back out of the package", ROBOT, {"xml_file": "x/../../../../../../../../../..{run}/model.xml"}, "mujoco"),
    kwargs(
        "mujoco below a folder named as a blanked secret", ROBOT, {"xml_file": "{redacted}/model.xml"}, "mujoco", says=NO_VALUE
    ),
    kwargs("dm_control", "dmc/cartpole-balance", {"xml": "{run}/model.xml"}, "dm_control"),
    kwargs("brax", "brax/fast", {"path": "{run}/model.xml"}, "brax"),
    kwargs("crafter", "Crafter-v1", {"assets": "{run}"}, "crafter"),
    kwargs("minigrid", "MiniGrid-Empty-5x5-v0", {"wfc_config": "{run}/basic.cfg"}, "minigrid"),
    kwargs("atari ROM", "ALE/Pong-v5", {"rom_path": "{run}/rom.bin"}, "ale_py"),
    # Code by its name
    kwargs("module of the environment", "evil_module:Evil-v0", {}, says="--plugin evil_module"),
    kwargs("module of an environment within", "GymV26Environment-v0", {"env_id": "evil_module:Evil-v0"}),
    kwargs("entry point", "CartPole-v1", {"entry_point": "evil_module:Evil"}),
    kwargs("class", "CartPole-v1", {"env_class": "evil_module.Evil"}),
    kwargs("another id", "CartPole-v1", {"id": "evil_module:Evil-v0"}),
    kwargs("vector arguments", "CartPole-v1", {"vector_kwargs": {"worker": "evil_module:work"}}),
    kwargs("further wrappers", "CartPole-v1", {"additional_wrappers": [{"entry_point": "evil_module:Evil"}]}),
    kwargs("target among arguments", "CartPole-v1", {"x": {"_target_": "os.system", "command": "touch"}}, says="_target_"),
    Hostile("target of a component", {"components": {"x": {"_target_": "os.system"}}}, says="_target_"),
    Hostile("target of an optimizer", {"optimizers": {"x": {"_target_": "torch.nn.parameter.torch.os.system"}}}, says="_target_"),
    Hostile("wrapper by its module", {"env_wrappers": [{"id": "evil_module:Evil"}]}, says="evil_module:Evil", is_finding=True),
    Hostile("file for a wrapper", {"env_wrappers": [{"id": "FrameSkipWrapper", "skip": "{run}/x"}]}, says=f"{NAME_IT} FrameSkipWrapper.skip="),
    Hostile(
        "file to draw into",
        {"env_wrappers": [{"id": "PixelObservationWrapper", "render_kwargs": {"path": "{outside}/new"}}]},
        says=f"{NAME_IT} PixelObservationWrapper.render_kwargs.path=",
    ),
    Hostile("algorithm by its module", {"algo_id": "evil_module:Evil"}, says="evil_module:Evil"),
    Hostile("plugins", {"plugins": ["evil_module"]}, says="plugins"),
]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small real run that nobody writes to."""
    runs = tmp_path_factory.mktemp("trained")
    words = [
        "n_envs=2",
        "n_steps=16",
        "batch_size=16",
        "n_epochs=1",
        "eval_freq_epochs=null",
        "eval_episodes=1",
        "video=false",
    ]
    options = ["--max-env-steps", "64", "--quiet", "--runs-dir", str(runs), "--run-id", "plain"]
    assert main(["train", "CartPole-v1:ppo", *words, *options]) == 0
    return runs / "plain"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folders of a case, with bait in each, and the names that cases have for them."""
    folders = {name: tmp_path / name for name in ("outside", "work", "home")}
    folders["run"] = tmp_path / "runs" / "hostile"
    folders["redacted"] = folders["run"] / REDACTED
    for folder in folders.values():
        folder.mkdir(parents=True)
        _lay_bait(folder, tmp_path / "executed")
    monkeypatch.chdir(folders["work"])
    monkeypatch.syspath_prepend(folders["work"])
    if find_spec("vizdoom") is not None:
        folders["vizdoom"] = Path(importlib.import_module("vizdoom").scenarios_path)
    return folders


def _lay_bait(folder, marker):
    """What leaves the marker when it is executed; the program then is the true one, so that nobody would notice."""
    (folder / "evil_module.py").write_text(f"open({str(marker)!r}, 'w')\n")
    (folder / "model.xml").write_text("<mujoco><worldbody/></mujoco>")
    if find_spec("vizdoom") is not None:
        vizdoom = importlib.import_module("vizdoom")
        scenarios = Path(vizdoom.scenarios_path)
        (folder / "evil").write_text(f'#!/bin/sh\necho > "{marker}"\nexec "{vizdoom.exe_path}" "$@"\n')
        (folder / "evil").chmod(0o755)
        text = (scenarios / "basic.cfg").read_text()
        for name in ("basic.cfg", "basic", "7"):
            (folder / name).write_text(f"{text}\nvizdoom_path = evil\n")
        shutil.copy(scenarios / "basic.wad", folder)


def filled(value, place):
    """A value with the folders of the case in place of their names."""
    text = json.dumps(value)
    for name, folder in place.items():
        text = text.replace(f"{{{name}}}", str(folder))
    return json.loads(text)


def make_hostile(case, trained, place):
    """The case's run: a real one with another config."""
    run = place["run"]
    shutil.copytree(trained, run, symlinks=True, dirs_exist_ok=True)
    for where, target in filled(case.links, place).items():
        Path(where).symlink_to(target)
    changes = {"vectorization_mode": "auto", "env_restarts": 0, "params": {"path": "{run}/basic.cfg"}, **case.config}
    for name in ("config.json", "config.start.json"):
        data = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps(data | filled(changes, place)))
    if case.without:
        (run / case.without).unlink()
    # A resumed run chooses its backend anew, and measures the environment for it.
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "backend": None}))
    return run


def _rollout(run):
    """The inspector's Episode tab."""
    inspector = _inspector(run)
    trace = _post(inspector, "/api/traces", {"run": run.name, "steps": 3})
    end = time.monotonic() + 60
    while trace["status"] in ("waiting", "playing"):
        assert time.monotonic() < end, trace
        time.sleep(0.01)
        trace = json.loads(answer("GET", f"/api/traces/{trace['id']}", Request(inspector, {}, None)).body)
    raise GymlabError(f"{trace['status']}: {trace['error']}")


def _play_tab(run):
    """The inspector's Play tab."""
    _post(_inspector(run), "/api/play", {"run": run.name, "where": "real", "by": "agent"})


def _pipeline(run):
    """The inspector's Agent tab, which looks through the layers of an environment."""
    answer("GET", f"/api/runs/{run.name}/pipeline", Request(_inspector(run), {}, None))


def _inspector(run):
    for name in HANDLERS:
        importlib.import_module(f"gymlab.inspector.{name}")
    return Inspector(run.parent)


def _post(inspector, path, body):
    return json.loads(answer("POST", path, Request(inspector, {}, body)).body)


def command(*words):
    """A command line as a door; `RUN` is the run."""

    def open_door(run):
        return main([word.replace("RUN", str(run)) for word in words])

    return open_door


DOORS = {
    "eval": command("eval", "RUN", "--episodes", "1"),
    "play": command("play", "RUN", "--headless", "--episodes", "1"),
    "play at random": command("play", "RUN", "--headless", "--episodes", "1", "--mode", "random"),
    "record": command("record", "RUN", "--episodes", "1", "--out", "../out"),
    "resume": command("train", "--resume", "RUN", "max_env_steps=96", "--quiet"),
    "env check": command("env", "check", "RUN/config.json", "--steps", "20"),
    "repeat": command("repeat", "RUN"),
    "compare": command("compare", "RUN", "--normalise"),
    "rollout": _rollout,
    "play tab": _play_tab,
    "pipeline": _pipeline,
}
"""Ways to make an environment of a run's config: all are refused."""
BUT_LINKS = {"repeat": "leads out of"}
"""What a door says of a run with links, before it reads the config."""
READERS = {
    "describe": command("runs", "show", "RUN"),
    "report": command("report", "RUN"),
    "prune": command("runs", "prune", "hostile", "--yes", "--include-last", "--runs-dir", "../runs"),
}
"""Ways to look at a run, or to put it away, without an environment; the last one takes it away."""


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.about.replace(" ", "-"))
def test_nothing_is_executed_and_nothing_is_written_outside(case, trained, place, tmp_path, monkeypatch, capsys):
    if case.needs:
        pytest.importorskip(case.needs)
    for name, value in filled(case.variables, place).items():
        monkeypatch.setenv(name, value)
    run = make_hostile(case, trained, place)
    marker = tmp_path / "executed"
    around = {name: tree(place[name]) for name in ("outside", "work", "home")}
    for name, open_door in DOORS.items():
        try:
            code, text = open_door(run), "".join(capsys.readouterr())
        except GymlabError as error:
            code, text = 2, str(error)
        except Exception as error:  # An environment that was made may fail in any way.
            code, text = None, repr(error)
        refused = 1 if name == "env check" and case.is_finding else 2
        says = BUT_LINKS.get(name, case.says) if case.links else case.says
        assert not marker.exists(), f"{name} executed something: {text}"
        assert code == refused, f"{name} was not refused: {text}"
        assert filled(says, place) in text, f"{name} says: {text}"
    for name, open_door in READERS.items():
        open_door(run)
        assert not marker.exists(), f"{name} executed something"
    assert {name: tree(place[name]) for name in around} == around
    assert {path.name for path in tmp_path.iterdir()} - {"out"} == {"home", "outside", "runs", "work"}


@pytest.mark.parametrize("door", ["eval", "play at random", "resume"])
def test_a_config_that_is_yaml_constructs_nothing(door, trained, place, tmp_path, capsys):
    run = make_hostile(Hostile("tags", {}), trained, place)
    for name in ("config.json", "config.start.json"):
        (run / name).write_text(
            f'env_id: !!python/object/apply:os.system ["touch {tmp_path}/executed"]\nalgo_id: ppo\n'
        )
    assert DOORS[door](run) == 2
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("named", [True, False], ids=["named by the user", "of the package"])
def test_a_scenario_that_may_be_played_is_played_by_the_program_of_the_package(named, trained, place, tmp_path, capsys):
    pytest.importorskip("vizdoom")
    path = "{outside}/basic.cfg" if named else "{vizdoom}/basic.cfg"
    run = make_hostile(doom("harmless", path), trained, place)
    option = [f"--env-kwargs=config_path={place['outside']}/basic.cfg"] if named else []
    words = ["play", str(run), "--mode", "random", "--headless", "--episodes", "1", "--json", *option]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 1
    assert not (tmp_path / "executed").exists()
