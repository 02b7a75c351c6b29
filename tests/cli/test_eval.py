"""`gymlab eval` on a trained run."""

import pytest

FIELDS = {"mean", "ci95", "n", "min", "max", "seed", "checkpoint", "ep_len", "deterministic", "env_id", "solved"}


def test_json_has_all_fields(cli, trained):
    shown = cli("eval", "@last", "--episodes", "7", "--runs-dir", trained, "--json")
    assert shown.code == 0, shown.err
    result = shown.json()
    assert result.keys() >= FIELDS
    assert result["n"] == 7
    assert result["seed"] == 0
    assert result["env_id"] == "CartPole-v1"
    assert result["threshold"] == 475
    assert result["solved"] is False
    assert result["ci95"][0] <= result["mean"] <= result["ci95"][1]
    assert result["min"] <= result["mean"] <= result["max"]
    # A step of CartPole is worth 1.
    assert result["mean"] == pytest.approx(result["ep_len"])


def test_the_same_seed_plays_the_same_episodes(cli, trained):
    first, again, other = (
        cli("eval", "tiny", "--episodes", "5", "--seed", seed, "--runs-dir", trained, "--json").json()
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_stochastic_and_deterministic(cli, trained):
    results = {
        option: cli("eval", "tiny", "--episodes", "5", option, "--runs-dir", trained, "--json").json()
        for option in ("--stochastic", "--deterministic")
    }
    assert results["--stochastic"]["deterministic"] is False
    assert results["--deterministic"]["deterministic"] is True


def test_a_checkpoint_may_be_named(cli, trained):
    shown = cli("eval", "tiny/epoch=2", "--episodes", "2", "--runs-dir", trained, "--json")
    assert shown.json()["checkpoint"].endswith("epoch=0002.ckpt")
    by_path = cli("eval", f"{trained}/tiny", "--episodes", "2", "--json")
    assert by_path.code == 0, by_path.err


def test_people_get_a_table(cli, trained, monkeypatch):
    monkeypatch.setenv("GYMLAB_RUNS", str(trained))
    shown = cli("eval", "--episodes", "3")
    assert shown.code == 0, shown.err
    assert "n=3" in shown.out
    assert "not solved" in shown.out
    assert "deterministic" in shown.out


def test_one_episode_has_no_interval(cli, trained):
    shown = cli("eval", "tiny", "--episodes", "1", "--runs-dir", trained, "--json")
    assert shown.json()["ci95"] is None
    shown = cli("eval", "tiny", "--episodes", "1", "--runs-dir", trained)
    assert "(n=1, no interval)" in shown.out
    assert "95%" not in shown.out


@pytest.mark.parametrize("option", ["--episodes=0", "--seed=-1"])
def test_numbers_out_of_range(cli, option):
    shown = cli("eval", option)
    assert shown.code == 2
    assert option.split("=")[0] in shown.err


def test_eval_and_play_take_the_best_checkpoint_and_say_so(cli, tmp_path, tiny):
    # No evaluation after the first one is better: best and last differ.
    words = [*tiny, "early_stop_on_eval_threshold=false", "eval_episodes=3", "policy_lr=1.0", "video=false"]
    assert cli("train", "CartPole-v1:ppo", *words, "--quiet", "--run-id", "one", "--seed", "3").code == 0
    checkpoints = tmp_path / "runs" / "one" / "checkpoints"
    if (checkpoints / "best.ckpt").resolve() == (checkpoints / "last.ckpt").resolve():
        (checkpoints / "best.ckpt").unlink()
        (checkpoints / "best.ckpt").symlink_to("epoch=0002.ckpt")
    best = (checkpoints / "best.ckpt").resolve().name
    for command in (["eval", "one", "--episodes", "2"], ["play", "one", "--headless", "--episodes", "2"]):
        assert cli(*command, "--json").json()["checkpoint"].endswith(f"/{best}")
        shown = "".join(cli(*command).out.split())
        assert f"{best}(best)" in shown
    reported = cli("eval", "one", "--stream", "test", "--json").json()
    assert reported["checkpoint_is"] == ["last"]
    assert reported["report"]["same"] is True
    named = cli("eval", "one/@best", "--stream", "test", "--json").json()
    assert (named["checkpoint_is"], named["n"]) == (["best"], 3)


def test_the_stream_of_the_report_gives_the_report_s_number(cli, trained):
    shown = cli("eval", "tiny", "--stream", "test", "--runs-dir", trained)
    assert shown.code == 0, shown.err
    assert "the same to the bit" in shown.out
    assert "seed            3, stream test" in shown.out
    found = cli("eval", "tiny", "--stream", "test", "--runs-dir", trained, "--json").json()
    reported = cli("report", "tiny", "--runs-dir", trained, "--json").json()["result"]
    for name in ("mean", "ci95", "min", "max", "n", "ep_len", "verdict"):
        assert found[name] == reported[name], name


@pytest.mark.parametrize("option", ["--episodes=5", "--seed=0", "--stochastic"])
def test_the_stream_of_the_report_is_what_it_was(cli, trained, option):
    shown = cli("eval", "tiny", "--stream", "test", option, "--runs-dir", trained)
    assert shown.code == 2
    assert option.split("=")[0] in shown.err
