"""`gymlab list`: environments, algorithms."""

from gymlab.cli import extras
from gymlab.cli import list as list_command
from gymlab.cli.extras import Extra


def test_everything_as_json(cli):
    found = cli("list", "--json").json()
    assert set(found) == {"environments", "composed", "algorithms"}
    cartpole = next(entry for entry in found["environments"] if entry["id"] == "CartPole-v1")
    assert "ppo" in cartpole["variants"]
    assert "CartPole-v1:ppo" in cartpole["experiments"]
    assert cartpole["threshold"] == 475
    assert cartpole["description"]
    assert cartpole["needs"] is None
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


def test_what_needs_an_extra_is_marked(cli, monkeypatch):
    monkeypatch.setattr(extras, "extra", lambda name: Extra(name, {}, ("box2d",)))
    assert list_command._missing_extra("LunarLander-v3") == "pip install 'gymlab[box2d]'"
    assert list_command._missing_extra("CartPole-v1") is None
    assert list_command._missing_extra("Bandit-v0") is None


def test_a_composed_experiment_is_listed(cli, tmp_path):
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text("env_id: CartPole-v1\nalgo_id: ppo\n")
    assert {"name": "mine", "experiment": "experiment=mine"} in cli("list", "composed", "--json").json()["composed"]
    assert "gymlab train experiment=mine" in cli("list", "mine").out


def test_nothing_of_that_name(cli):
    assert "`gymlab list`" in cli("list", "environments", "nowhere").out


def test_listing_needs_no_torch(tmp_path):
    import subprocess
    import sys

    code = "import sys; from gymlab.cli.main import main; main(['list', '--json']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=tmp_path)
