import pytest

from gymlab.bench import settings
from gymlab.bench.settings import REFERENCE, SETTINGS, Setting, choose_peers, contenders
from gymlab.errors import GymlabError


def test_the_settings_are_those_of_the_comparison():
    shapes = {name: (s.n_envs, s.n_steps, s.n_epochs, s.batch_size, s.goal) for name, s in SETTINGS.items()}
    assert shapes == {
        "8x128": (8, 128, 4, 256, 2.5),
        "8x32": (8, 32, 10, 256, 1.7),
        "64x128": (64, 128, 4, 2048, 2.2),
    }
    assert SETTINGS["8x128"].fastest_goal == 3.0
    for setting in SETTINGS.values():
        assert (setting.learning_rate, setting.gamma, setting.gae_lambda) == (3e-4, 0.99, 0.95)
        assert setting.rollout % setting.batch_size == 0


def test_derived_numbers_of_a_setting():
    setting = Setting("x", 8, 128, 4, 256, nominal_rate=10_000)
    assert setting.rollout == 1024
    assert setting.minibatches == 16
    assert setting.steps_for(2.0) == 20 * 1024  # 20,000 steps are 19.5 rollouts
    assert setting.steps_for(0.0) == 5 * 1024
    assert Setting(**setting.to_dict()) == setting


def test_rows_of_the_comparison():
    rows = {row.name: row for row in contenders([REFERENCE, "sbx"], ["compile"])}
    assert list(rows) == ["gymlab", "gymlab compile", REFERENCE, "sbx", f"{REFERENCE}, default threads"]
    assert rows["gymlab"].options == {}
    assert rows["gymlab compile"].options == {"update_backend": "compile"}
    assert rows["gymlab"].threads == rows[REFERENCE].threads == 1
    assert rows[f"{REFERENCE}, default threads"].threads is None


def test_the_reference_must_be_installed(monkeypatch):
    monkeypatch.setattr(settings, "installed", lambda library: library != REFERENCE)
    with pytest.raises(GymlabError, match=r"pip install 'gymlab\[peers\]'"):
        choose_peers(None)


def test_peers_are_those_installed_and_the_reference_is_first(monkeypatch):
    monkeypatch.setattr(settings, "installed", lambda library: library in {REFERENCE, "skrl"})
    assert choose_peers(None) == [REFERENCE, "skrl"]
    assert choose_peers([]) == [REFERENCE]
    with pytest.raises(GymlabError, match="pip install sbx-rl"):
        choose_peers(["sbx"])
    with pytest.raises(GymlabError, match="Did you mean 'tianshou'"):
        choose_peers(["tianshu"])
