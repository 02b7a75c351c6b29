"""What extras need, from package metadata."""

from gymlab.cli.extras import extra, extras


def test_an_extra_of_an_extra_is_followed():
    packages = {**extra("gymlab[box2d]").installed, **dict.fromkeys(extra("gymlab[box2d]").missing)}
    assert {"box2d", "pygame-ce"} <= packages.keys()
    assert "gymnasium" not in packages


def test_all_extras_but_development():
    names = [entry.name for entry in extras()]
    assert "gymlab[wandb]" in names
    assert "gymlab[dev]" not in names


def test_the_pip_line():
    assert extra("gymlab[wandb]").pip_line == "pip install 'gymlab[wandb]'"
