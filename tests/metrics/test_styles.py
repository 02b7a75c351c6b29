import pytest

from gymlab.errors import ConfigError
from gymlab.metrics.names import ENV_STEPS
from gymlab.metrics.styles import SHIPPED, MetricStyle, load_styles


def write(path, text):
    path.write_text(text)
    return path


def test_the_shipped_file_loads_and_describes_what_ppo_logs():
    styles = load_styles()
    assert styles.general.step_key == ENV_STEPS
    assert styles["val/roll/ep_rew/mean"].highlight
    assert styles["train/roll/ep_rew/mean"].bold
    for name in (
        "train/roll/ep_rew/best",
        "train/roll/ep_len/mean",
        "train/loss/policy",
        "train/opt/ppo/approx_kl",
        "train/opt/grads/norm/actor",
        "train/policy_lr",
        "train/cnt/updates",
        "val/roll/ep_len/mean",
        "sys/speed/env_steps",
        "sys/memory/rss_mb",
    ):
        assert styles[name].description, name
    assert not styles["train/cnt/env_steps"].show_in_table
    assert styles["my/own/metric"] == MetricStyle()


def test_evaluation_comes_first_and_counters_last():
    styles = load_styles()
    names = [
        "train/cnt/updates",
        "train/loss/policy",
        "val/roll/ep_rew/mean",
        "sys/speed/env_steps",
        "train/roll/ep_rew/mean",
    ]
    assert sorted(names, key=styles.rank) == [
        "val/roll/ep_rew/mean",
        "train/roll/ep_rew/mean",
        "train/loss/policy",
        "sys/speed/env_steps",
        "train/cnt/updates",
    ]


def test_a_users_file_lies_on_top_setting_by_setting(tmp_path):
    text = "_global: {key_priority: [sys/*]}\nval/roll/ep_rew/mean: {precision: 0}\nmine/*: {bold: true}\n"
    mine = write(tmp_path / "metrics.yaml", text)
    styles = load_styles([SHIPPED, mine, tmp_path / "absent.yaml"])
    assert styles["val/roll/ep_rew/mean"].precision == 0
    assert styles["val/roll/ep_rew/mean"].highlight
    assert styles["train/mine/x"].bold
    assert styles.general.key_priority == ("sys/*",)
    assert styles.general.step_key == ENV_STEPS


def test_a_full_name_wins_over_a_pattern_and_a_pattern_over_a_name_without_purpose(tmp_path):
    text = "val/a/*: {precision: 1}\na/b: {precision: 2}\nval/a/c: {precision: 4}\n"
    styles = load_styles([write(tmp_path / "metrics.yaml", text)])
    assert [styles[name].precision for name in ("val/a/b", "train/a/b", "val/a/c")] == [1, 2, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a/b: {precison: 2}", r"a/b\.precison: unknown\. Did you mean 'precision'"),
        ("a/b: {precision: lots}", r"a/b\.precision: .*found 'lots'"),
        ("a/b: 3", r"a/b: expected settings"),
        ("_global: {steps: 3}", r"_global\.steps: unknown\. Did you mean 'step_key'"),
        ("- a", "expected metric names"),
        ("a: [", "not valid YAML"),
    ],
)
def test_mistakes_name_the_file_the_key_and_the_nearest_name(tmp_path, text, message):
    path = write(tmp_path / "metrics.yaml", text)
    with pytest.raises(ConfigError, match=message) as error:
        load_styles([path])
    assert str(path) in str(error.value)
