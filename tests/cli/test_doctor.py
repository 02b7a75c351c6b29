"""`gymlab doctor`: findings, pip lines, exit codes."""

import sys

import pytest

from gymlab.cli import doctor, extras


def test_a_machine_that_works(cli):
    shown = cli("doctor", "--json")
    assert shown.code == 0, shown.out
    found = shown.json()
    assert found["works"] is True
    named = {finding["name"]: finding for finding in found["findings"]}
    assert {
        "python",
        "torch",
        "gymnasium",
        "ffmpeg",
        "kernels",
        "runs",
        "git",
        "display",
        "gymlab[box2d]",
    } <= named.keys()
    assert "threads" in named["torch"]["detail"]
    assert named["torch"]["state"] == "ok"
    assert "gymlab[dev]" not in named


def test_people_get_a_table(cli):
    shown = cli("doctor")
    assert shown.code == 0
    assert "gymlab works here." in shown.out
    assert "gymlab[box2d]" in shown.out


def test_a_missing_extra_has_its_pip_line_and_is_no_failure(cli, monkeypatch):
    for module in ("Box2D", "ocatari"):
        monkeypatch.setitem(sys.modules, module, None)
    known = extras.package_version
    monkeypatch.setattr(extras, "package_version", lambda name: None if name == "wandb" else known(name))
    extras.extra.cache_clear()
    shown = cli("doctor", "--json")
    extras.extra.cache_clear()
    assert shown.code == 0
    findings = {finding["name"]: finding for finding in shown.json()["findings"]}
    assert findings["gymlab[box2d]"]["state"] == "missing"
    assert "Box2D" in findings["gymlab[box2d]"]["detail"]
    assert findings["gymlab[box2d]"]["fix"] == "pip install 'gymlab[box2d]'"
    assert findings["gymlab[wandb]"]["fix"] == "pip install 'gymlab[wandb]'"
    lines = findings["gymlab[objects]"]["fix"].splitlines()
    assert lines == ["pip install 'gymlab[objects]'", "pip install --no-deps ocatari"]


def test_a_core_that_does_not_import_is_a_failure(cli, monkeypatch):
    monkeypatch.setattr(doctor, "CORE", ("gymnasium", "no_such_core"))
    shown = cli("doctor", "--json")
    assert shown.code == 1
    finding = next(finding for finding in shown.json()["findings"] if finding["name"] == "no_such_core")
    assert finding["state"] == "broken"
    assert finding["fix"].startswith("pip install")


def test_a_runs_directory_that_cannot_be_written(cli, tmp_path):
    (tmp_path / "file").write_text("")
    shown = cli("doctor", "--runs-dir", "file/runs", "--json")
    assert shown.code == 1
    finding = next(finding for finding in shown.json()["findings"] if finding["name"] == "runs")
    assert finding["state"] == "broken"
    assert "--runs-dir" in finding["fix"]


def test_asking_makes_no_directory(cli, tmp_path):
    cli("doctor")
    assert list(tmp_path.iterdir()) == []


def kernels_found(cli):
    found = cli("doctor", "--json")
    assert found.code == 0
    return next(finding for finding in found.json()["findings"] if finding["name"] == "kernels")


def test_a_machine_without_a_compiler_is_slower_and_works(cli, monkeypatch):
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX2")
    monkeypatch.setattr("gymlab.components.compiled.find_compiler", lambda: None)
    finding = kernels_found(cli)
    assert finding["state"] == "missing"
    assert "C compiler" in finding["fix"]


@pytest.mark.parametrize(("quicker", "told"), [(True, "quicker than torch's"), (False, "torch's are quicker")])
def test_which_kernels_are_used(cli, monkeypatch, quicker, told):
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX2")
    monkeypatch.setattr("gymlab.components.compiled.find_compiler", lambda: ["cc"])
    monkeypatch.setattr("gymlab.components.compiled.kernels", lambda name: object())
    monkeypatch.setattr("gymlab.components.winograd.is_wanted", lambda: quicker)
    finding = kernels_found(cli)
    assert finding["state"] == "ok"
    assert told in finding["detail"]


def test_kernels_that_are_not_wanted_are_not_missed(cli, monkeypatch):
    monkeypatch.setenv("GYMLAB_KERNELS", "0")
    finding = kernels_found(cli)
    assert finding["state"] == "ok"
    assert "GYMLAB_KERNELS" in finding["detail"]
