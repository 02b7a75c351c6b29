import json

import pytest

from gymlab.bench.report import BenchReport, Check, Section, Table, number, times, write_markdown


def make_report(bench="ppo", value=3.0):
    table = Table("Speed", ["library", "steps/s"], [["gymlab", number(value * 10_000)]], "a note")
    check = Check("gymlab / reference", value, 2.5)
    return BenchReport(
        bench, f"gymlab bench {bench}", [Section("speed", [table], {"gymlab": {"ratio": value}}, [check])]
    )


@pytest.mark.parametrize(
    ("check", "met"),
    [
        (Check("a", 2.5, 2.5), True),
        (Check("a", 2.4, 2.5), False),
        (Check("a", None, 2.5), False),
        (Check("a", 0.4, 0.5, at_least=False), True),
        (Check("a", 0.6, 0.5, at_least=False), False),
    ],
)
def test_a_goal_is_met_on_its_side(check, met):
    assert check.met is met


def test_json_has_figures_checks_and_where_they_come_from():
    data = json.loads(json.dumps(make_report().to_dict()))
    assert set(data) == {"bench", "date", "commit", "command", "machine", "sections", "checks"}
    assert data["sections"] == {"speed": {"gymlab": {"ratio": 3.0}}}
    assert data["checks"] == [{"name": "gymlab / reference", "value": 3.0, "goal": 2.5, "at_least": True, "met": True}]
    assert data["machine"]["cores"] >= 1
    assert data["machine"]["packages"]["torch"]


def test_markdown_says_machine_command_and_date(tmp_path):
    report = make_report()
    path = tmp_path / "docs" / "benchmarks.md"
    write_markdown(path, report)
    text = path.read_text()
    for part in (
        "`gymlab bench ppo`",
        report.date,
        report.machine["cpu"],
        "| gymlab | 30,000 |",
        "a note",
        "### Goals",
    ):
        assert part in text


def test_writing_again_replaces_only_the_same_bench(tmp_path):
    path = tmp_path / "benchmarks.md"
    for report in (make_report(value=3.0), make_report("envs", 5.0), make_report(value=4.0)):
        write_markdown(path, report)
    text = path.read_text()
    assert text.startswith("# Benchmarks\n")
    assert "| gymlab | 40,000 |" in text
    assert "| gymlab | 50,000 |" in text
    assert "30,000" not in text
    assert text.count("## gymlab bench ppo") == 1


def test_figures_as_people_read_them():
    assert [number(value) for value in (None, 0.01234, 2.534, 123.4, 12345.6)] == [
        "–",
        "0.0123",
        "2.53",
        "123",
        "12,346",
    ]
    assert times(2.534) == "2.53x"
    assert times(None) == "–"
