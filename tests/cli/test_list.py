"""`gymlab list`: environments, algorithms."""

import subprocess
import sys


def test_everything_as_json(cli):
    found = cli("list", "--json").json()
    assert set(found) == {"environments", "composed", "algorithms"}
    cartpole = next(entry for entry in found["environments"] if entry["id"] == "CartPole-v1")
    assert "ppo" in cartpole["variants"]
    assert "CartPole-v1:ppo" in cartpole["experiments"]
    assert cartpole["threshold"] == 475
    assert cartpole["description"]
    assert (cartpole["needs"], cartpole["installed"]) == (None, True)
    assert "ppo" in [entry["name"] for entry in found["algorithms"]]


def test_a_section_or_a_word(cli):
    assert set(cli("list", "algorithms", "--json").json()) == {"algorithms"}
    found = cli("list", "cartpole-v1", "--json").json()
    assert [entry["id"] for entry in found["environments"]] == ["CartPole-v1"]
    assert found["algorithms"] == []


def test_people_get_tables(cli):
    shown = cli("list")
    assert shown.code == 0
    for word in ("CartPole-v1", "475", "ppo"):
        assert word in shown.out


def test_runs_have_a_command_of_their_own(cli):
    shown = cli("list", "runs")
    assert shown.code == 2
    assert "`gymlab runs`" in shown.err


def test_what_needs_an_extra_is_marked_with_its_pip_line(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    found = {entry["name"]: entry for entry in cli("list", "--json").json()["environments"]}
    lander = found["LunarLander-v3"]
    assert (lander["needs"], lander["installed"]) == ("box2d", False)
    assert lander["install"] == ["pip install 'gymlab[box2d]'"]
    for name in ("CartPole-v1", "Bandit-v0"):
        assert (found[name]["needs"], found[name]["installed"], found[name]["install"]) == (None, True, [])
    shown = cli("list", "lunar").out
    assert "box2d ✗" in shown
    assert "box2d is not installed: pip install 'gymlab[box2d]'" in shown


def test_a_variant_may_need_more_than_its_environment(cli, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ocatari", None)
    (tmp_path / "conf" / "environments").mkdir(parents=True)
    text = "env_id: ALE/Pong-v5\nppo: {}\nppo_things: {algo_id: ppo, obs_type: objects}\n"
    (tmp_path / "conf" / "environments" / "MyPong.yaml").write_text(text)
    entry = cli("list", "mypong", "--json").json()["environments"][0]
    assert (entry["family"], entry["needs"]) == ("atari", "atari")
    assert list(entry["variants_need"]) == ["ppo_things"]
    assert entry["variants_need"]["ppo_things"]["installed"] is False
    assert entry["variants_need"]["ppo_things"]["install"][1] == "pip install --no-deps ocatari"
    assert "ppo_things (objects ✗)" in " ".join(cli("list", "mypong").out.split())


def test_listing_imports_no_package_of_a_family(tmp_path):
    code = (
        "import sys; from gymlab.cli.main import main; main(['list', '--json']); "
        "print([name for name in ('ale_py', 'vizdoom', 'mujoco', 'dm_control', 'minigrid', 'crafter', 'stable_retro', "
        "'ocatari', 'cv2', 'Box2D', 'brax', 'jax') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr.strip() == "[]"


def test_a_composed_experiment_is_listed(cli, tmp_path):
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text("env_id: CartPole-v1\nalgo_id: ppo\n")
    assert {"name": "mine", "experiment": "experiment=mine"} in cli("list", "composed", "--json").json()["composed"]
    assert "gymlab train experiment=mine" in cli("list", "mine").out


def test_nothing_of_that_name(cli):
    assert "`gymlab list`" in cli("list", "environments", "nowhere").out


def test_listing_needs_no_torch(tmp_path):
    code = "import sys; from gymlab.cli.main import main; main(['list', '--json']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=tmp_path)
