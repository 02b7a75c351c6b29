"""Arguments that several commands share, and a parser whose errors teach."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from gymlab.errors import GymlabError, did_you_mean

EXAMPLES_FORMATTER = argparse.RawDescriptionHelpFormatter
_IN_A_FILE = re.compile(r"(?P<before>(\+*env_id=)?)(?P<file>[^=:]+\.py):(?P<id>.+)")


class Parser(argparse.ArgumentParser):
    """Raises `GymlabError` instead of leaving by itself, and names the nearest option or choice."""

    _named_run: str | None = None
    """The run that `--run-id` names."""

    def accept_run_id(self) -> None:
        """Where a command takes a run as its first word, `--run-id` names it as well, unless that names one it makes."""
        if self._run_words is not None and "--run-id" not in self._option_string_actions:
            self.add_argument(
                "--run-id", metavar="REF", action=_RunId, default=argparse.SUPPRESS, help="the same as REF"
            )

    @property
    def _run_words(self) -> argparse.Action | None:
        """The words that are runs, or begin with one."""
        words = (action for action in self._actions if not action.option_strings)
        return next((action for action in words if str(action.metavar).split(" ")[0] in ("REF", "RUN")), None)

    def runs_in(self, parsed: argparse.Namespace) -> list[str]:
        """The runs that the command line names one by one: no patterns, nothing that is the newest run anyway."""
        return [
            name for name in self.runs_meant(parsed) if not name.startswith("@last") and not set(name) & set("*?[=")
        ]

    def runs_meant(self, parsed: argparse.Namespace) -> list[str]:
        """The runs and patterns of a command line, or what the command takes where none is given."""
        named = [getattr(parsed, "resume", None)]
        if self._run_words is not None:
            words = getattr(parsed, self._run_words.dest)
            several = [words] if isinstance(words, str) else list(words or ())
            named += several[:1] if " " in str(self._run_words.metavar) else several
        return [name for name in named if name]

    def plain_options(self, words: Sequence[str]) -> list[str]:
        """The words with `--max_env_steps` written as the option that there is, `--max-env-steps`."""
        known = {option for action in self._actions for option in action.option_strings}
        plain: list[str] = []
        for position, word in enumerate(words):
            if word == "--":
                return [*plain, *words[position:]]
            option, equals, value = word.partition("=")
            dashed = option.replace("_", "-")
            is_other = option.startswith("--") and option not in known and dashed in known
            plain.append(f"{dashed}{equals}{value}" if is_other else word)
        return plain

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Options may stand anywhere between the words, but for a command that has commands of its own."""
        if any(isinstance(action, _RunId) for action in self._actions):
            words = self._run_first(words)
        return self.parse_intermixed_args(words) if self._subparsers is None else self.parse_args(words)

    def _run_first(self, words: Sequence[str]) -> list[str]:
        rest = list(words)
        for position, word in enumerate(rest):
            if word == "--run-id" and position + 1 < len(rest):
                self._named_run = rest[position + 1]
                return [self._named_run, *rest[:position], *rest[position + 2 :]]
            if word.startswith("--run-id="):
                self._named_run = word.partition("=")[2]
                return [self._named_run, *rest[:position], *rest[position + 1 :]]
        return rest

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line and where its help is."""
        second = re.search(r"unrecognized arguments: ([^-\s]\S*)", message)
        if self._named_run is not None and second:
            raise GymlabError(f"Two runs were given: {second[1]!r} and --run-id {self._named_run!r}. Leave one out.")
        text = f"{message[:1].upper()}{message[1:]}. {self._nearest(message)}".rstrip()
        raise GymlabError(f"{text}\n`{self.prog} --help` shows what can be given.")

    def _nearest(self, message: str) -> str:
        if unknown := re.search(r"unrecognized arguments: (-\S+)", message):
            options = [option for action in self._actions for option in action.option_strings]
            return did_you_mean(unknown[1].split("=")[0], options)
        if choice := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message):
            return did_you_mean(choice[1], re.findall(r"[\w-]+", choice[2]))
        return ""


class _RunId(argparse.Action):
    """Stands in the help; `Parser.parse` has put its value in front before."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        """Only one that comes last is still there."""
        parser.error("argument --run-id: expected one argument")


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument(
        "--json", action="store_true", help="print the result as JSON on the output, and nothing else there"
    )


def add_runs_directory(parser: argparse.ArgumentParser) -> None:
    """`--runs-dir`."""
    parser.add_argument(
        "--runs-dir", metavar="DIR", help="where runs are (default: $GYMLAB_RUNS, or runs below this directory)"
    )


def seconds(text: str) -> float:
    """A length of time: 30min, 12h, 2d, 1w."""
    units = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|min|m|h|d|w)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time such as 30min, 12h, 2d or 1w")
    return float(match[1]) * units[match[2]]


def at_least_one(text: str) -> int:
    """A whole number above 0."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def positive(text: str) -> float:
    """A number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not (math.isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def add_plugins(parser: argparse.ArgumentParser) -> None:
    """`--plugin`."""
    text = "module of yours that registers environments, algorithms or components; repeatable"
    parser.add_argument("--plugin", action="append", default=[], metavar="MODULE", help=text)


def add_env_kwargs(parser: argparse.ArgumentParser, whose: str = "the run's") -> None:
    """`--env-kwargs`."""
    text = (
        f"argument of the environment, on top of {whose}; a file that a run names counts only if you name it: "
        "config_path=my_maze.cfg. Wrapper.argument=value is for a wrapper; repeatable"
    )
    parser.add_argument("--env-kwargs", action="append", default=[], metavar="key=value", help=text)


def add_best_reference(parser: argparse.ArgumentParser, more: str = "") -> None:
    """The run or checkpoint whose agent plays."""
    text = "run or checkpoint: @last (default), ID, ID/@best, ID/epoch=13 or a run's directory; its best checkpoint unless one is named, else the last"
    parser.add_argument("reference", nargs="?", default="@last", metavar="REF", help=text + more)


def add_playing(parser: argparse.ArgumentParser) -> None:
    """Seed of episodes that an agent plays, and how it chooses in them."""
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the episodes (default: 0)")
    parser.add_argument(
        "--deterministic",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="take the most likely action, or sample (default: as the run evaluates)",
    )
    parser.add_argument(
        "--stochastic", action="store_false", dest="deterministic", help="the same as --no-deterministic"
    )


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Where playing gives up on episodes that do not end."""
    parser.add_argument(
        "--step-limit",
        type=at_least_one,
        metavar="N",
        help="give up on an episode after N steps; it is then unfinished (default: the run's eval_step_limit, else 100,000)",
    )
    parser.add_argument(
        "--time-limit",
        type=positive,
        metavar="SECONDS",
        help="stop after so long; what has not ended is unfinished (default: the run's eval_time_limit, else 600)",
    )


def add_experiment(parser: argparse.ArgumentParser) -> None:
    """The experiment, its overrides, and where configs and plugins come from."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="EXPERIMENT key=value",
        help="ENVIRONMENT:VARIANT such as CartPole-v1:ppo (default: Bandit-v0:ppo), then settings that lie on top of "
        "its YAML; experiment=NAME takes a composed one",
    )
    parser.add_argument(
        "--config-id", metavar="NAME", help="the experiment, or the variant of an environment given before"
    )
    parser.add_argument(
        "--algo", metavar="NAME", help="algorithm for an environment that has no YAML or no variant chosen"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the run")
    parser.add_argument(
        "--max-env-steps", "--max-timesteps", type=_count, metavar="N", help="budget in environment steps; 1e5 works"
    )
    parser.add_argument(
        "--override", action="append", default=[], metavar="key=value", help="the same as a bare key=value; repeatable"
    )
    parser.add_argument(
        "--env-kwargs", action="append", default=[], metavar="key=value", help="argument of the environment; repeatable"
    )
    parser.add_argument(
        "--config-dir", metavar="DIR", help="a conf directory that lies on top of ./conf and the shipped one"
    )
    add_plugins(parser)


def resolve_keywords(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `gymlab.api.resolve` and `gymlab.api.train` are called with for these arguments."""
    experiment, overrides = split_words(arguments.words, arguments.config_id)
    (experiment, *overrides), files = take_files([experiment, *overrides, *arguments.override])
    keywords: dict[str, Any] = {
        "experiment": experiment,
        "algo": arguments.algo,
        "overrides": overrides,
        "config_dir": arguments.config_dir,
        "env_kwargs": arguments.env_kwargs,
        "plugins": [*arguments.plugin, *files, *named_modules(experiment, overrides, arguments.algo)],
    }
    fields = {"seed": arguments.seed, "max_env_steps": arguments.max_env_steps}
    return keywords | {name: value for name, value in fields.items() if value is not None}


def split_words(words: list[str], config_id: str | None = None) -> tuple[str | None, list[str]]:
    """The experiment and the overrides; a first word with `=` in it is an override already."""
    is_override = [("=" in word) or word.startswith("~") for word in words]
    names = [word for word, override in zip(words, is_override, strict=True) if not override]
    overrides = [word for word, override in zip(words, is_override, strict=True) if override]
    if len(names) > 1:
        raise GymlabError(
            f"One experiment at a time: {names[0]!r} and {names[1]!r} were given. "
            f"A setting is written key=value, e.g. {names[1]}=..., without spaces around the sign."
        )
    experiment = names[0] if names else None
    if config_id is not None:
        if experiment is not None and (":" in config_id or ":" in experiment):
            raise GymlabError(
                f"Two experiments were given: {experiment!r} and --config-id {config_id!r}. Leave one out."
            )
        experiment = config_id if experiment is None else f"{experiment}:{config_id}"
    return experiment, overrides


def take_files(words: Sequence[str | None]) -> tuple[list[Any], list[str]]:
    """Experiments and settings without the files before their environments, and these files: `maze.py:Maze-v0` is `Maze-v0 --plugin maze.py`."""
    matches = [_IN_A_FILE.fullmatch(word or "") for word in words]
    plain = [match["before"] + match["id"] if match else word for match, word in zip(matches, words, strict=True)]
    return plain, [match["file"] for match in matches if match]


def named_modules(experiment: str | None, overrides: Sequence[str], algo: str | None) -> list[str]:
    """Modules that the user names before an environment's id: `my_package:Maze-v0 --algo ppo`, `my_package:Maze-v0:ppo`.

    On the command line that is a wish to import them; a config may not have it.
    """
    ids = [word.partition("=")[2] for word in overrides if word.lstrip("+").startswith("env_id=")]
    if experiment is not None:
        ids.append(experiment if algo else experiment.rpartition(":")[0])
    modules = [env_id.partition(":")[0] for env_id in ids if ":" in env_id]
    return [module for module in modules if all(part.isidentifier() for part in module.split("."))]


def _count(text: str) -> int:
    """A whole number, also written 1e6 or 100_000."""
    number = float(text.replace("_", ""))
    if number != int(number) or number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(number)
