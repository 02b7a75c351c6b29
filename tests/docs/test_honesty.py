"""The walk over all settings: every key has a case, and what does nothing, or is refused without reason, is found."""

import pkgutil
import re

import pytest

from benchmarks import honesty
from benchmarks.honesty import (
    EFFECT,
    LISTED,
    NOTHING,
    NOTICE,
    REFUSED,
    SLOW,
    SUBJECTS,
    WRONG,
    Trainings,
    Verdict,
    judge,
    walk,
)
from gymlab import workflows
from gymlab.config.effects import NoEffect
from gymlab.workflows.ppo import PPOConfig


@pytest.fixture(autouse=True, scope="module")
def environments():
    honesty.register_own()


def test_every_algorithm_is_walked():
    walked = {subject.algo or subject.experiment.partition(":")[2] for subject in SUBJECTS.values()}
    assert walked == {module.name for module in pkgutil.iter_modules(workflows.__path__)}


@pytest.mark.parametrize("name", [name for name in SUBJECTS if name not in SLOW])
def test_every_key_has_another_value_to_try(name):
    trainings = Trainings(SUBJECTS[name])
    config = trainings.resolve().config
    for key in type(config).model_fields:
        if key not in honesty.STATED:
            case = honesty.case_of(SUBJECTS[name], type(config), config, key)
            assert case.value != getattr(config, key), key


def test_what_is_stated_exists_and_has_a_reason():
    known = {
        key
        for name in SUBJECTS
        if name not in SLOW
        for key in type(Trainings(SUBJECTS[name]).resolve().config).model_fields
    }
    assert honesty.STATED.keys() <= known
    assert all(honesty.STATED.values())


EXPECTED = {
    "gamma": EFFECT,
    "seed": EFFECT,
    "keep_checkpoints": EFFECT,
    "replay_is_clip": EFFECT,
    "normalize_returns": EFFECT,
    "resize_obs": REFUSED,
    "env_workers": NOTICE,
    "quiet": LISTED,
}


def test_a_part_of_the_walk():
    assert {key: verdict.kind for key, verdict in walk("ppo", EXPECTED)} == EXPECTED


def test_a_refusal_is_checked_by_training_all_the_same(monkeypatch):
    kinds = {key: verdict.kind for key, verdict in walk("q_learning", ["precision", "double_buffer"])}
    assert kinds == {"precision": REFUSED, "double_buffer": REFUSED}
    monkeypatch.setattr(PPOConfig, "no_effect", (*PPOConfig.no_effect, NoEffect(("activation",), "it is said")))
    verdict = judge(Trainings(SUBJECTS["ppo"]), PPOConfig, "activation")
    assert verdict.kind == WRONG
    assert not verdict.honest


def test_a_setting_that_does_nothing_in_silence_is_found(monkeypatch, capsys):
    stated = {key: why for key, why in honesty.STATED.items() if key != "max_states"}
    monkeypatch.setattr(honesty, "STATED", stated)
    assert honesty.main(["q_learning", "--keys", "max_states"]) == 1
    assert "dishonest: q_learning max_states: NOTHING 20000 -> 40000" in capsys.readouterr().out


def test_trainings_that_do_not_repeat_prove_nothing(monkeypatch):
    counted = iter(range(10))
    fingerprint = honesty.fingerprint
    monkeypatch.setattr(honesty, "fingerprint", lambda run: {**fingerprint(run), "metrics": str(next(counted))})
    with pytest.raises(SystemExit, match=r"CliffWalking-v1 by q_learning with the same settings differ: \['metrics'\]"):
        list(walk("q_learning", ["gamma"]))


def test_the_page_counts_and_names(tmp_path, monkeypatch):
    monkeypatch.setattr(honesty, "WALKED", tmp_path / "walked.json")
    monkeypatch.setattr(honesty, "PAGE", tmp_path / "page.md")
    honesty.record("reinforce", {"gamma": Verdict(EFFECT, "model")})
    honesty.record(
        "ppo", {"gamma": Verdict(EFFECT, "model"), "quiet": Verdict(LISTED, "printed"), "foo": Verdict(NOTHING, "")}
    )
    text = (tmp_path / "page.md").read_text()
    assert re.search(r"\| ppo \| 1 \| 0 \| 0 \| 1 \| 1 \| `\w+", text)
    assert text.index("## ppo") < text.index("## reinforce")
    assert "- effect: `gamma`" in text
    assert "| `quiet` | what is printed |" in text
    assert "Not walked yet: ppo_pixels, q_learning" in text


def test_the_page_is_that_of_the_walks_and_none_found_a_dishonest_setting():
    assert honesty.PAGE.read_text() == honesty.page(honesty.walked())
    for name, verdicts in honesty.walked().items():
        assert not [verdicts[kind] for kind in honesty.DISHONEST if verdicts[kind]], name
        known = {key for kind in (EFFECT, REFUSED, NOTICE, LISTED) for key in verdicts[kind]}
        trainings = Trainings(SUBJECTS[name])
        assert known == set(honesty.keys_of(type(trainings.resolve().config), SUBJECTS[name])), name
    assert honesty.walked().keys() >= SUBJECTS.keys() - set(SLOW)
