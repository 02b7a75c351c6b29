"""What may be said of an evaluation: verdicts, and the words beside a return."""

import pytest

from gymlab.metrics.results import beside_text, judge, return_text

WHOLE = {"mean": 480.0, "ci95": [470.0, 490.0], "n": 100, "asked": 100, "complete": True, "threshold": 475.0}
CUT = {"mean": 1.0, "ci95": [1.0, 1.0], "n": 9, "asked": 100, "complete": False, "cut": "time limit of 3 s"}
CUT |= {"threshold": 1.0, "solved": True}


def test_a_whole_evaluation_is_judged():
    found = judge(WHOLE)
    assert (found["solved"], found["note"], found["verdict"]) == (True, None, "solved (threshold 475)")
    found = judge({**WHOLE, "threshold": 481.0})
    assert (found["solved"], found["verdict"]) == (False, "not solved (threshold 481)")
    assert judge({**WHOLE, "threshold": None})["verdict"] == "no threshold known"


def test_one_that_was_cut_is_never_solved_and_has_no_interval():
    found = judge(CUT)
    assert (found["solved"], found["ci95"]) == (None, None)
    assert found["verdict"] == "not judged: 9 of 100 finished"
    assert found["note"] == "9 of 100 finished; the mean favours short episodes (time limit of 3 s)"
    assert return_text(found) == "1.000"
    assert judge(found) == found


def test_no_episode_at_all():
    none = {"mean": None, "n": 0, "asked": 100, "complete": False, "cut": "limit of 3,000 steps an episode"}
    found = judge({**none, "steps": 3000, "threshold": 475.0})
    assert found["note"] == "no episode ended after 3,000 steps: limit of 3,000 steps an episode"
    assert (found["solved"], found["verdict"]) == (None, "no episode ended")
    assert (return_text(found), beside_text(found)) == (found["note"], "")


@pytest.mark.parametrize(
    ("shortened", "words"),
    [([50, 200], "episodes were cut at 50 of the task's 200 steps"), ([50, None], "episodes were cut at 50 steps")],
)
def test_shortened_episodes_have_no_verdict(shortened, words):
    found = judge({**WHOLE, "shortened": shortened})
    assert (found["solved"], found["note"], found["verdict"]) == (None, words, f"not judged: {words}")
    # All of them were played: the interval holds.
    assert return_text(found) == "480.0 [470.0, 490.0]"
    assert beside_text(found) == f"mean and 95% interval, n=100; {words}"


def test_returns_of_a_changed_task_are_not_held_against_its_threshold():
    found = judge({**WHOLE, "changed": ["max_episode_steps"]})
    words = "the threshold holds for another value of max_episode_steps"
    assert (found["solved"], found["note"], found["verdict"]) == (None, words, f"not judged: {words}")
    assert return_text(found) == "480.0 [470.0, 490.0]"
    assert judge({**WHOLE, "changed": ["env_kwargs.g", "max_episode_steps"]})["note"].endswith(
        "other values of env_kwargs.g, max_episode_steps"
    )
    assert judge({**WHOLE, "changed": ["env_kwargs.g"], "threshold": None})["note"] is None
    assert judge({**WHOLE, "changed": []})["solved"] is True


def test_records_of_earlier_releases():
    old = {"mean": 480.0, "ci95": [470.0, 490.0], "n": 100, "threshold": 475.0, "solved": True}
    assert judge(old)["verdict"] == "solved (threshold 475)"
    cut = judge({**old, "n": 9, "complete": False}, {"eval_episodes": 100})
    assert (cut["solved"], cut["asked"]) == (None, 100)
    assert cut["note"] == "9 of 100 finished; the mean favours short episodes"
    assert judge({**old, "complete": False}, {})["note"].startswith("100 finished, and others did not")
    assert judge(old, {"eval_max_episode_steps": 50})["verdict"] == "not judged: episodes were cut at 50 steps"
    assert judge(old, {"eval_max_episode_steps": 50, "max_episode_steps": 50})["solved"] is True


def test_the_return_in_words():
    assert return_text({"mean": 487.25, "ci95": [480.12, 493.9]}) == "487.2 [480.1, 493.9]"
    assert return_text({"mean": 0.5, "ci95": None}) == "0.500"
    assert return_text({"mean": 34.0, "ci95": None, "n": 1}) == "34.0 (n=1, no interval)"
    assert return_text(judge({"mean": 34.0, "ci95": [34.0, 34.0], "n": 1})) == "34.0 (n=1, no interval)"
    assert return_text({}) == "-"
