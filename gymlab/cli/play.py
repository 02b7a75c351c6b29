"""Watch an agent play its environment or its dream in a window, play either yourself, browse saved episodes, or save a video."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymlab.cli.arguments import (
    add_best_reference,
    add_env_kwargs,
    add_json,
    add_limits,
    add_playing,
    add_plugins,
    add_runs_directory,
    at_least_one,
    named_modules,
    positive,
    take_files,
)
from gymlab.errors import CheckpointError, GymlabError

if TYPE_CHECKING:
    from gymlab.config.schema import Config
    from gymlab.engine.agent import Agent
    from gymlab.engine.evaluation import Limits
    from gymlab.engine.playing import PlayedEpisode, Playing
    from gymlab.engine.run import Run
    from gymlab.engine.saved_episodes import EpisodeEntry

USAGE = "gymlab play [REF | ENVIRONMENT] [options]"
EXAMPLES = """  gymlab play                                  the newest run's best agent, in a window; h shows the keys
  gymlab play my-run/epoch=13 --stochastic --step-by-step
  gymlab play @last --headless --episodes 20   a table of episodes
  gymlab play @last --save                     an mp4 in the run's videos/
  gymlab play @last --mode user                the agent's environment, played by you
  gymlab play ALE/Pong-v5 --mode user          any environment, without a run
  gymlab play LunarLander-v3 --mode random --headless
  gymlab play @last -a                         the agent in its dream: a world model instead of the environment
  gymlab play @last -w                         you in the dream
  gymlab play @last -e                         browse the episodes that the run has saved"""

MODES = ("trained", "random", "user")
AGENT_DREAMS, USER_DREAMS, RECORDED = "agent-in-world-model", "play-in-world-model", "replay-episodes"
"""Modes that have an option of their own."""
BY_HAND = ("user", USER_DREAMS)
WITHOUT_AGENT = ("random", "user")
HEADLESS_EPISODES = 10
STEPS_SHOWN = 1000
"""Between two looks at how far an episode is."""
SHOWN_SAVED = 10
"""Newest episodes of each split in the table of those that are saved."""
MOST_FRAMES = 108_000
"""Of a video: an hour at 30 frames a second."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_best_reference(parser, ". With --mode random or user also an environment: CartPole-v1, CartPole-v1:ppo")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--mode", choices=MODES, default="trained", help="who plays: the agent (default), chance or you")
    for short, mode, text in (
        ("-a", AGENT_DREAMS, "the agent in its dream: in what its world model makes up, from a real start on"),
        ("-w", USER_DREAMS, "you in the agent's dream"),
        ("-e", RECORDED, "browse episodes that the run has saved, train and test; headless: a table of them"),
    ):
        modes.add_argument(short, f"--{mode}", action="store_const", const=mode, dest="mode", help=text)
    parser.add_argument(
        "--likeliest", action="store_true", help="dreams: the likeliest at each step, instead of what the model draws"
    )
    parser.add_argument("--headless", action="store_true", help="no window: print a table of the episodes")
    parser.add_argument(
        "-s",
        "--save",
        nargs="?",
        const="",
        metavar="PATH",
        help="write an mp4 instead of opening a window (default: into the run's videos/); where you play, the window's play is filmed",
    )
    parser.add_argument(
        "--step-by-step", action="store_true", help="begin paused: n or right takes a step; headless: one line a step"
    )
    parser.add_argument("--no-header", action="store_true", help="no panel beside the picture and no table of keys")
    parser.add_argument("--fps", type=positive, metavar="N", help="steps a second (default: the environment's own)")
    parser.add_argument(
        "--episodes",
        type=at_least_one,
        metavar="N",
        help=f"episodes to play (default: until you quit; {HEADLESS_EPISODES} headless, 1 for a video)",
    )
    add_playing(parser)
    add_limits(parser)
    add_env_kwargs(parser)
    add_plugins(parser)
    add_runs_directory(parser)
    add_json(parser)


@dataclass(frozen=True)
class Target:
    """What is played."""

    config: Config
    run: Run | None = None
    agent: Agent | None = None

    @property
    def checkpoint(self) -> Path | None:
        """The checkpoint that plays."""
        return None if self.agent is None or self.agent.checkpoint is None else self.agent.checkpoint.path

    @property
    def name(self) -> str:
        """The run and its checkpoint, as far as there are any."""
        run = [] if self.run is None else [self.run.id]
        return " · ".join(run if self.checkpoint is None else [*run, self.checkpoint.stem])


def run(arguments: argparse.Namespace) -> int:
    """Play, then say how it went."""
    from gymlab.cli.output import output_kept_clean, show_json

    in_window = needs_window(arguments)
    if in_window:
        from gymlab.cli.play_window import require_display

        require_display()
    with output_kept_clean(arguments.json):
        result = play(arguments, in_window)
    if arguments.json:
        show_json(result)
    else:
        _show(result)
    return 0


def needs_window(arguments: argparse.Namespace) -> bool:
    """Whether a window is opened; what does not go together is refused."""
    if arguments.seed < 0:
        raise GymlabError(f"--seed {arguments.seed}: a seed is 0 or more.")
    if arguments.mode in BY_HAND and arguments.headless:
        option = "--mode user" if arguments.mode == "user" else f"--{arguments.mode}"
        raise GymlabError(f"{option} needs a window for its keys: leave --headless out.")
    in_window = not arguments.headless and (
        arguments.save is None or arguments.mode in BY_HAND or arguments.step_by_step
    )
    for option, given in (("--step-limit", arguments.step_limit), ("--time-limit", arguments.time_limit)):
        if in_window and given is not None:
            raise GymlabError(f"{option} is for --headless and --save: a window is open until you close it.")
    return in_window


def play(arguments: argparse.Namespace, in_window: bool) -> dict[str, Any]:
    """Play as asked for; the episodes in plain values, and all that is needed to repeat them."""
    target = find_target(
        arguments.reference, arguments.mode, arguments.runs_dir, arguments.plugin, arguments.env_kwargs
    )
    from gymlab.engine.evaluation import Limits
    from gymlab.engine.recorded_game import RecordedGame
    from gymlab.metrics.video import VideoWriter

    deterministic = target.config.eval_deterministic if arguments.deterministic is None else arguments.deterministic
    video = None if arguments.save is None else video_path(arguments.save, target, arguments.mode, arguments.seed)
    episodes = arguments.episodes or (HEADLESS_EPISODES if video is None else 1)
    limits = Limits.of(target.config, steps=arguments.step_limit, seconds=arguments.time_limit)
    with ExitStack() as stack:
        drawn = in_window or video is not None
        game = stack.enter_context(_open(target, arguments, deterministic=deterministic, render=drawn))
        fps = arguments.fps or game.fps
        film = None if video is None else stack.enter_context(VideoWriter(video, fps, MOST_FRAMES))
        if in_window:
            from gymlab.cli.play_window import PlayWindow

            if not arguments.no_header:
                _show_keys(game)
            title, header = target.name or arguments.mode, not arguments.no_header
            window = stack.enter_context(PlayWindow(game, fps, title=title, film=film, header=header))
            window.play(arguments.episodes, paused=arguments.step_by_step)
        elif arguments.mode != RECORDED or film is not None:
            _play_headless(game, arguments, film, episodes, limits)
    if isinstance(game, RecordedGame):
        played = saved(game.entries)
    else:
        played = summary(game.finished) if in_window else summary(game.finished, episodes, limits)
    return {
        **played,
        "env_id": target.config.env_id,
        "mode": arguments.mode,
        "seed": arguments.seed,
        "deterministic": deterministic if arguments.mode in ("trained", AGENT_DREAMS) else None,
        "checkpoint": target.checkpoint,
        "video": video if film is not None and film.frames else None,
        "video_cut": film is not None and film.full,
    }


def _open(target: Target, arguments: argparse.Namespace, *, deterministic: bool, render: bool) -> Playing:
    """What is played, and by whom."""
    from gymlab.engine.dream_game import DreamGame
    from gymlab.engine.playing import AgentPolicy, Game, RandomPolicy
    from gymlab.engine.recorded_game import RecordedGame
    from gymlab.engine.saved_episodes import saved_episodes

    seed, agent = arguments.seed, target.agent
    if arguments.mode == RECORDED:
        assert agent is not None
        assert target.run is not None
        return RecordedGame(target.config, saved_episodes(target.run, agent), one_size=arguments.save is not None)
    game: Playing
    if arguments.mode in (AGENT_DREAMS, USER_DREAMS):
        assert agent is not None
        game = DreamGame(agent, seed=seed, render=render, likeliest=arguments.likeliest)
    else:
        game = Game(target.config, seed=seed, render=render, agent=agent)
    if arguments.mode == "random":
        game.policy = RandomPolicy(game.env.action_space, seed=seed)
    elif arguments.mode in ("trained", AGENT_DREAMS):
        assert agent is not None
        game.policy = AgentPolicy(agent, seed=seed, deterministic=deterministic)
    return game


def _play_headless(game: Playing, arguments: argparse.Namespace, film: Any, episodes: int, limits: Limits) -> None:
    from gymlab.cli.output import progress

    lines = arguments.step_by_step
    if lines:
        # Somebody may sit before each step.
        limits = replace(limits, seconds=arguments.time_limit)
    with progress("playing", episodes, shown=not lines and not arguments.json) as advance:
        for _ in game.play(episodes, limits):
            if film is not None:
                film.add(game.frame())
            if lines:
                _show_step(game)
            if game.ending is not None or not game.steps % STEPS_SHOWN:
                advance(len(game.finished), game.steps)


def _show_step(game: Playing) -> None:
    """What came of the last step and what is next; in a terminal Enter goes on."""
    from gymlab.cli.output import show_text
    from gymlab.metrics.statistics import reward_text
    from gymlab.metrics.terminal import clean

    past = (
        "begins" if game.reward is None else f"reward {reward_text(game.reward)}, return {reward_text(game.env_return)}"
    )
    decision = game.decision
    coming = game.ending or (game.text_of(decision.action) if decision is not None else "")
    value = "" if decision is None or decision.value is None else f", value {decision.value:.3f}"
    line = f"episode {game.episode}, step {game.steps}: {past}; then {coming}{value}"
    if sys.stdin.isatty():
        input(clean(line) + "  [Enter] ")
    else:
        show_text(line)


def find_target(
    reference: str, mode: str, runs_dir: str | None, plugins: Sequence[str], env_kwargs: Sequence[str] = ()
) -> Target:
    """The run and its agent; to play at random or by hand, also the environment of a run, or any other."""
    from gymlab.engine.run import find_run, runs_directory

    try:
        # A run that is not there is an answer before what takes seconds to import.
        run, _ = find_run(reference, runs_directory(runs_dir))
        from gymlab.api import load_plugins
        from gymlab.engine.agent import load_best
        from gymlab.engine.train import run_config

        load_plugins(plugins)
        if mode not in WITHOUT_AGENT:
            run, agent = load_best(reference, runs_dir=runs_dir, env_kwargs=env_kwargs)
            return Target(agent.config, run, agent)
        return Target(run_config(run, env_kwargs), run)
    except CheckpointError as error:
        if mode not in WITHOUT_AGENT:
            hint = "An environment without a run is played with --mode user or --mode random."
            raise CheckpointError(f"{error}\n{hint}") from error
        if reference.startswith("@") or Path(reference).exists():
            raise CheckpointError(f"{error}\nOr name an environment: gymlab play CartPole-v1 --mode {mode}") from error
    return Target(_environment(reference, plugins, env_kwargs))


def _environment(name: str, plugins: Sequence[str], env_kwargs: Sequence[str]) -> Config:
    """The config of `CartPole-v1`, `CartPole-v1:ppo`, `my_module:Maze-v0` or `my_module:Maze-v0:ppo`."""
    from gymlab.api import resolve
    from gymlab.cli.output import show_notices
    from gymlab.engine.workflow import workflow_names

    (name,), files = take_files([name])
    # What follows the last colon is a variant, unless it has a version as environments of a module have.
    has_variant = ":" in name and not re.search(r":[^:]+-v\d+$", name)
    # An environment has to be trained by something to have a config; which algorithm makes no difference to it.
    algorithm = None if has_variant else workflow_names()[0]
    modules = named_modules(name, [], algorithm)
    loaded = resolve(name, algo=algorithm, env_kwargs=env_kwargs, plugins=[*plugins, *files, *modules])
    show_notices(loaded.notices)
    return loaded.config


def video_path(given: str, target: Target, mode: str, seed: int) -> Path:
    """Where the video goes: as given, or a name of its own in the directory given, the run's videos/ or this directory."""
    from gymlab.engine.links import refuse_links_out

    saved = None if target.agent is None else target.agent.checkpoint
    stem = saved.name.removesuffix(".ckpt") if saved is not None else mode
    if mode in (AGENT_DREAMS, USER_DREAMS, RECORDED):
        stem = f"{mode}-{stem}"
    if target.run is None:
        stem = f"{target.config.env_id.replace('/', '-').replace(':', '-')}-{stem}"
    name = f"play-{stem}-s{seed}.mp4"
    if not given:
        if target.run is not None:
            refuse_links_out(target.run.dir)
        return (Path() if target.run is None else target.run.dir / "videos") / name
    path = Path(given)
    if path.is_dir():
        return path / name
    if path.suffix != ".mp4":
        raise GymlabError(
            f"--save {given}: expected a file ending in .mp4 or a directory. A run comes before the option: "
            f"gymlab play {given} --save"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise GymlabError(
            f"--save {given}: {path.parent} cannot be written to: {error.strerror}. Name another place."
        ) from error
    return path


def summary(
    episodes: Sequence[PlayedEpisode], asked: int | None = None, limits: Limits | None = None
) -> dict[str, Any]:
    """Each episode, and mean, interval and range of those that came to their end; of `asked` ones what may be said."""
    import numpy as np

    from gymlab.engine.playing import LEFT, UNFINISHED
    from gymlab.metrics.results import judge
    from gymlab.metrics.statistics import estimate

    rows = [{"return": e.env_return, "length": e.length, "ending": e.ending, "success": e.success} for e in episodes]
    whole = [episode for episode in episodes if episode.ending not in (LEFT, UNFINISHED)]
    found: dict[str, Any] = {"episodes": rows, "n": len(whole), "mean": None, "ci95": None}
    if whole:
        returns = estimate([episode.env_return for episode in whole], episodes=True)
        found |= {"mean": returns.mean, "ci95": returns.ci95, "min": returns.smallest, "max": returns.largest}
        found["ep_len"] = float(np.mean([episode.length for episode in whole]))
    if asked is None or limits is None:
        return found
    longest = max((episode.length for episode in episodes), default=0)
    cut = None if len(whole) == asked else limits.of_steps if longest >= limits.steps else limits.of_time
    judged = judge(
        {**found, "asked": asked, "complete": len(whole) == asked, "cut": cut, "steps": longest, "shortened": None}
    )
    return found | {name: judged[name] for name in ("asked", "complete", "cut", "ci95", "note")}


def saved(entries: Sequence[EpisodeEntry]) -> dict[str, Any]:
    """The episodes that a run has saved, in plain values, and how many there are of each split."""
    rows: list[dict[str, Any]] = [
        {"split": e.split, "source": e.source, "name": e.name}
        | {"return": e.env_return, "length": e.length, "ending": e.ending, "success": None}
        for e in entries
    ]
    splits = [entry.split for entry in entries]
    return {"episodes": rows, "n": len(rows), "train": splits.count("train"), "test": splits.count("test")}


def _show_keys(game: Playing) -> None:
    """The keys, before the window takes the screen."""
    from gymlab.cli.output import bold, screen, table
    from gymlab.cli.play_window import command_rows
    from gymlab.envs.keys import controls_of

    made = table(f"keys for {game.config.env_id}", "key", "does", whole=("key",))
    controls = None
    if game.by_hand:
        controls = controls_of(game.env.action_space, game.labels, game.config.env_id)
        for key, text in controls.table:
            made.add_row(bold(key), text)
    for key, text in command_rows(controls, browses=game.browses):
        made.add_row(key, text, style="dim")
    screen().print(made)


def _show_saved(result: dict[str, Any]) -> None:
    """The newest episodes of each split, and where a video went."""
    from gymlab.cli.output import screen, table
    from gymlab.metrics.statistics import reward_text

    console = screen()
    made = table(result["env_id"], "split", "episode", "return", "length", "ending", right=("return", "length"))
    for split in ("test", "train"):
        for row in [row for row in result["episodes"] if row["split"] == split][:SHOWN_SAVED]:
            numbers = (
                "" if row["return"] is None else reward_text(row["return"]),
                "" if row["length"] is None else f"{row['length']:,}",
            )
            made.add_row(split, row["name"], *numbers, row["ending"] or row["source"])
    console.print(made)
    console.print(f"{result['test']:,} test and {result['train']:,} train episodes are saved", style="dim")
    if result["video"] is not None:
        console.print(f"video {result['video']}", soft_wrap=True)


def _show(result: dict[str, Any]) -> None:
    from rich.text import Text

    from gymlab.cli.output import checkpoint_text, screen, table
    from gymlab.metrics.results import beside_text, return_text
    from gymlab.metrics.statistics import format_number, reward_text

    if result["mode"] == RECORDED:
        _show_saved(result)
        return
    console = screen()
    made = table(result["env_id"], "episode", "return", "length", "ending", right=("episode", "return", "length"))
    for number, row in enumerate(result["episodes"], 1):
        ending = row["ending"] + {True: ", goal met", False: ", goal missed", None: ""}[row["success"]]
        made.add_row(str(number), reward_text(row["return"]), f"{row['length']:,}", ending)
    if result["episodes"]:
        console.print(made)
    else:
        console.print("No episode was played.")
    if result["n"] > 1:
        lengths = f"mean length {format_number(result['ep_len'])}"
        beside = "; ".join(part for part in (beside_text(result), lengths) if part)
        console.print(Text.assemble("\nreturn ", (return_text(result), "bold"), f"  {beside}"), soft_wrap=True)
    elif result.get("note"):
        console.print(f"\n{result['note']}", soft_wrap=True)
    how = {True: "deterministic actions", False: "sampled actions", None: f"mode {result['mode']}"}
    console.print(f"{how[result['deterministic']]}, seed {result['seed']}", style="dim")
    if result["checkpoint"] is not None:
        console.print(f"checkpoint {checkpoint_text(result['checkpoint'])}", style="dim", soft_wrap=True)
    if result["video"] is not None:
        cut = f" (cut at {MOST_FRAMES:,} frames)" if result["video_cut"] else ""
        console.print(f"video {result['video']}{cut}", soft_wrap=True)
