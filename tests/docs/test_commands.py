"""Every `gymlab ...` of README and docs: run in a short form, or, where that would take long or wait for a person, parsed and resolved."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from gymlab.api import resolve
from gymlab.cli.arguments import named_modules, resolve_keywords
from gymlab.cli.main import find_command, main
from gymlab.cli.train import train_keywords

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN_BY_TEST_PAGES = {"add-an-environment.md", "add-an-algorithm.md"}
"""How-tos whose commands need the files that they show: test_pages.py writes them, and runs each."""

NOT_RUN = {
    "gymlab inspect": "serves a page until Ctrl-C: tests/cli/test_inspect.py",
    "gymlab bench": "measures for minutes, beside peers that must be installed: tests/cli/test_bench.py",
    "gymlab smoke": "trains every shipped experiment: tests/cli/test_smoke.py",
    "gymlab doctor": "has every backend of GL draw: tests/cli/test_doctor.py",
    "gymlab play": "opens a window, or needs a world model: tests/cli/test_play.py, test_play_window.py",
    "gymlab eval my-run --env-kwargs": "names a file of an environment that takes one: tests/engine/test_origin.py",
    "gymlab repeat my-run --plugin": "names a module and a file of the user's own: tests/cli/test_repeat.py",
    "gymlab train": "trains for minutes to days: its config is resolved here, and `make verify` trains those with a result",
}
"""Commands that are parsed and resolved only, and why; what `SHORT` has of them is run."""

TINY = ["max_env_steps=256", "n_envs=2", "n_steps=32", "batch_size=64", "n_epochs=1", "eval_freq_epochs=2"]
TINY += ["eval_episodes=2", "video=false", "-q"]
SHORT = {
    "gymlab train": ["max_env_steps=512", "eval_freq_epochs=null", "eval_episodes=2", "video=false", "-q"],
    "gymlab train --resume": ["max_env_steps=320", "-q"],
    "gymlab play": ["--episodes", "1"],
    "gymlab eval": ["--episodes", "2"],
    "gymlab record": ["--episodes", "2", "--overwrite"],
    "gymlab env check": ["--steps", "60"],
}
"""What makes a command short."""
SHORT_TRAININGS = ("CartPole-v1:ppo", "CartPole-v1:reinforce", "Acrobot-v1", "Bandit-v0", "--resume @last")


def commands():
    """(page, command) of each line in a block of a page; comments and what belongs to two pages once."""
    found = {}
    for page in PAGES:
        for block in re.findall(r"```(?:sh|bash)?\n(.*?)```", page.read_text(), flags=re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("gymlab "):
                    found.setdefault(re.split(r"\s#", line)[0].strip(), page.name)
    return [(page, command) for command, page in found.items()]


def inline_commands():
    """Commands inside of sentences, without those that leave something out."""
    found = {}
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for command in re.findall(r"`(gymlab [^`]+)`", text):
            # A name alone is a mention: `gymlab set` lists what there is.
            if not re.search(r"\.\.\.|…|<|\[", command) and re.search(r" (@|-|\w+ \S*[@=:-])", command[6:]):
                found.setdefault(" ".join(command.split()), page.name)
    return [(page, command) for command, page in found.items()]


def is_run(command):
    """Whether a command is run: it ends by itself, in seconds."""
    if command.startswith("gymlab train"):
        return any(part in command for part in SHORT_TRAININGS) and not re.search(
            r"3e6|:ppo_|--plugin|--seeds|--algo tdmpc2", command
        )
    if command.startswith("gymlab play"):
        dreams = re.search(r" (-a|-w|--likeliest)\b", command)
        return not dreams and "--mode user" not in command and re.search(r"--headless|--save| -s ", command) is not None
    return not any(command.startswith(prefix) for prefix in NOT_RUN)


COMMANDS = [(page, command) for page, command in commands() if page not in RUN_BY_TEST_PAGES]
RUN = [command for _, command in COMMANDS if is_run(command)]


def understood(command):
    """The command's name and what its parser made of the words."""
    name, _, parser, rest = find_command(shlex.split(command)[1:])
    return name, parser.parse(rest)


def modules_of(parsed):
    return parsed.plugin or named_modules(
        parsed.words[0] if parsed.words else None, parsed.words[1:], getattr(parsed, "algo", None)
    )


@pytest.mark.parametrize(("page", "command"), [*commands(), *inline_commands()], ids=lambda value: value[:70])
def test_a_command_is_understood_and_its_experiment_resolves(page, command):
    name, parsed = understood(command)
    if name == "train" and (parsed.resume or parsed.list_envs is not None):
        return
    if name in ("train", "describe") and parsed.words and not modules_of(parsed):
        if not (ROOT / parsed.words[0]).exists() and parsed.words[0].isupper():
            # A placeholder: EXPERIMENT, RUN.
            return
        keywords = (train_keywords if name == "train" else resolve_keywords)(parsed)
        if not keywords.get("init_from_run"):
            resolve(**keywords)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with a few tiny runs; the newest is `my-run`."""
    directory = tmp_path_factory.mktemp("commands")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.delenv("GYMLAB_RUNS", raising=False)
        for number, experiment in enumerate(["CartPole-v1:ppo", "CartPole-v1:reinforce", "CartPole-v1:ppo"]):
            run_id = ["cartpole-v1-ppo-s0", "cartpole-v1-reinforce-s0", "my-run"][number]
            settings = [
                word for word in TINY if "reinforce" not in experiment or not re.match("n_steps|batch|n_ep", word)
            ]
            assert main(["train", experiment, *settings, "keep_episodes=2", "--run-id", run_id, "--seed", "0"]) == 0
        yield directory


@pytest.mark.parametrize("command", RUN, ids=lambda value: value[:70])
def test_a_short_form_of_a_command_runs(place, monkeypatch, command):
    monkeypatch.chdir(place)
    monkeypatch.delenv("GYMLAB_RUNS", raising=False)
    words = shlex.split(command)[1:]
    longest = max((prefix for prefix in SHORT if command.startswith(prefix)), key=len, default=None)
    more = SHORT.get(longest, [])
    if words[0] == "train" and "--resume" not in words:
        # The newest run stays the one that the other commands are meant for.
        more = [*more, "--runs-dir", "others"]
    assert main([*words, *more]) == 0


def test_every_reason_not_to_run_a_command_is_needed():
    left = [command for _, command in COMMANDS if command not in RUN]
    for prefix in NOT_RUN:
        assert any(command.startswith(prefix) for command in left), prefix
    assert all(any(command.startswith(prefix) for prefix in NOT_RUN) for command in left)
    assert len(RUN) >= 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_are_python_that_names_what_there_is(page):
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gymlab"):
                module = __import__(node.module, fromlist=["*"])
                assert all(hasattr(module, alias.name) for alias in node.names), (page.name, node.module)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "gymlab":
                assert hasattr(__import__("gymlab"), node.attr), (page.name, node.attr)


SNIPPETS = ("docs/how-to/change-a-running-run.md", "docs/how-to/inspect.md")


@pytest.mark.parametrize("page", SNIPPETS)
def test_a_snippet_on_a_run_runs(place, monkeypatch, page):
    monkeypatch.chdir(place)
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    exec(compile("import gymlab\n" + block, page, "exec"), {})
