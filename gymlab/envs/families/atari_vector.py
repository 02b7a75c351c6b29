"""ale-py's vector environment behind the one step format.

Every game has a pool of its own, stepped by a thread in C++: each episode gets the seed of its place in the tree, is
replayed from its actions on resume, and no row is wasted. A seed costs the loading of the ROM, as long as a few hundred
steps, so the game of each next episode is made ready beside the one that is played.
"""

from __future__ import annotations

import logging
import os
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import gymnasium as gym
import numpy as np

from gymlab.envs.families.atari_game import CLOCK, AtariSettings, fire_actions, life_lost
from gymlab.envs.pace import Pace
from gymlab.envs.step import LIFE_LOST, Episode, Step
from gymlab.envs.vector import EnvironmentSpec, Seeds, Slot, VectorEnv
from gymlab.errors import ConfigError

logger = logging.getLogger(__name__)

LARGEST_SEED = 2**31 - 1
FRAME_SECONDS = 1e-4
"""What the emulator takes for a frame, to the order that the reckoning about halves needs."""


class Game:
    """One emulator with preprocessing and a stack of frames, in C++."""

    def __init__(self, settings: AtariSettings, size: tuple[int, int], stack: int) -> None:
        from ale_py.vector_env import AtariVectorEnv

        self._pool = AtariVectorEnv(
            settings.rom,
            1,
            num_threads=1,
            repeat_action_probability=settings.repeat_action_probability,
            full_action_space=settings.full_action_space,
            max_num_frames_per_episode=settings.max_num_frames_per_episode,
            img_height=size[0],
            img_width=size[1],
            grayscale=settings.grayscale,
            stack_num=stack,
            frameskip=settings.frame_skip,
            maxpool=settings.max_pool,
            # ale-py draws from 0 to one less than this.
            noop_max=settings.noop_max + 1 if settings.noop_max else 0,
            # It would press the button for a frame, before the no-ops, and never again after a lost life.
            use_fire_reset=False,
            episodic_life=False,
            life_loss_info=False,
            reward_clipping=False,
        )
        self.action_space = self._pool.single_action_space
        self.length = 0
        """Steps since the episode began."""
        self.score = 0.0
        """Sum of what the game itself gave since then."""
        self.lives = self.frames = 0
        """Lives that are left, and frames since the episode began, no-ops included."""
        self._first_frame = 0
        self.picture = np.empty(0, np.uint8)
        """[C, H, W] the newest frames."""
        self.reward = 0.0
        self.terminated = self.truncated = False
        self.actions: list[int] = []
        """All that were taken in the episode."""
        self._settings, self._stack = settings, stack
        meanings = [action.name for action in self._pool.ale.get_action_set()] if settings.use_fire_reset else []
        self._fire_actions = fire_actions(meanings)
        self._pictures = 0
        """Frames since play began or began anew; older ones in the stack are not shown."""

    def replay(self, seed: int, actions: list[int]) -> None:
        """Load the ROM with a seed, begin an episode and take actions in it; other threads go on meanwhile."""
        self._reset(seed)
        while self._settings.noop_max and self.frames == 0:
            # No no-op at all was drawn, and one is the least.
            seed = (seed + 1) % LARGEST_SEED
            self._reset(seed)
        self.length, self.score, self.actions = 0, 0.0, []
        for action in self._fire_actions:
            self._press(action)
        self._first_frame = self.frames
        for action in actions:
            self.send(action)
            self.receive()

    def _reset(self, seed: int) -> None:
        self._pictures = 0
        self._look(*self._pool.reset(seed=np.array([seed], dtype=np.int64)))

    def send(self, action: int) -> None:
        """Have the thread take a step."""
        self.actions.append(action)
        self._pool.send(np.array([action], dtype=np.int64))

    def receive(self) -> None:
        """Wait for the step; with `use_fire_reset`, a lost life is followed by the actions that serve the next ball."""
        before = self.lives
        self.reward = self._recv()
        if self._fire_actions and life_lost(before, self.lives) and not (self.terminated or self.truncated):
            self.reward += sum(map(self._press, (0, *self._fire_actions)))
        self.length += 1
        self.score += self.reward

    def _press(self, action: int) -> float:
        """Take an action that is not the agent's, and give its reward. The stack of frames begins anew with its picture."""
        self._pictures = 0
        self._pool.send(np.array([action], dtype=np.int64))
        return self._recv()

    def _recv(self) -> float:
        pictures, rewards, terminated, truncated, infos = self._pool.recv()
        self.terminated, self.truncated = bool(terminated[0]), bool(truncated[0])
        self._look(pictures, infos)
        return float(rewards[0])

    def _look(self, pictures: np.ndarray, infos: dict[str, np.ndarray]) -> None:
        self.lives, self.frames = int(infos["lives"][0]), int(infos["episode_frame_number"][0])
        self._pictures += 1
        grayscale = self._settings.grayscale
        self.picture = pictures[0] if grayscale else pictures[0, 0].transpose(2, 0, 1)
        # ale-py stacks black frames before an episode's first, and all frames after it; the other backends repeat the first one.
        missing = self._stack - self._pictures
        if grayscale and missing > 0:
            self.picture[:missing] = self.picture[missing]

    @property
    def frames_played(self) -> int:
        """Frames since the agent took over."""
        return self.frames - self._first_frame

    def close(self) -> None:
        """Stop the thread."""
        self._pool.close()


class AtariVector(VectorEnv):
    """N games stepped by threads in C++. Clipping and lost lives are done here, so that the score stays whole."""

    backend = "native"

    def __init__(
        self,
        settings: AtariSettings,
        spec: EnvironmentSpec,
        num_envs: int,
        seeds: Seeds,
        purpose: str,
        *,
        size: tuple[int, int],
        stack: int,
    ) -> None:
        self._games = [Game(settings, size, stack) for _ in range(num_envs)]
        channels = stack if settings.grayscale else 3
        super().__init__(
            spec=spec,
            num_envs=num_envs,
            observation_space=gym.spaces.Box(0, 255, (channels, *size), np.uint8),
            action_space=self._games[0].action_space,
        )
        self.render_fps = CLOCK / settings.frame_skip
        if num_envs % 2 == 0:
            self.halves = (slice(0, num_envs // 2), slice(num_envs // 2, num_envs))
        self.num_workers = num_envs
        self.pace = Pace(FRAME_SECONDS * settings.frame_skip, 1.0)
        self._settings, self._size, self._stack = settings, size, stack
        self._seeds, self._purpose = seeds, purpose
        self._slots = (Slot(num_envs, self.observation_space), Slot(num_envs, self.observation_space))
        self._turns = np.zeros(num_envs, dtype=np.int64)
        """Slot of each environment's newest step; halves that are stepped apart take turns by themselves."""
        self._episode_indices = np.full(num_envs, -1, dtype=np.int64)
        self._shaped_returns = np.zeros(num_envs, dtype=np.float64)
        self._background = ThreadPoolExecutor(min(num_envs, os.cpu_count() or 1), "atari")
        self._spares: list[Game | None] = [None] * num_envs
        """The games that next episodes begin in; each changes places with the one that was played."""
        self._ready: list[Future[None]] = []
        """By environment, when the next episode has begun there; empty before the first."""

    @property
    def observation(self) -> np.ndarray:
        """[N, C, H, W] the newest pictures."""
        return self._slots[self._turns[0]].observation

    def reset(self, seeds: Seeds | None = None) -> np.ndarray:
        """Begin a new episode everywhere; with `seeds`, with numbering anew from that tree."""
        if seeds is not None:
            self._seeds = seeds
            self._episode_indices.fill(-1)
            self.episode_counts.fill(0)
        self._episode_indices += 1
        self._play_from([[] for _ in range(self.num_envs)])
        return self.observation

    def _play_from(self, histories: list[list[int]]) -> None:
        """Begin the episodes that are numbered now, and take the actions that were already taken in them."""
        wait(self._ready)
        begun = [
            self._background.submit(game.replay, self._seed(index, 0), history)
            for index, (game, history) in enumerate(zip(self._games, histories, strict=True))
        ]
        self._ready = [
            self._background.submit(self._prepare, index, self._seed(index, 1)) for index in range(self.num_envs)
        ]
        self._turns ^= 1
        for index, future in enumerate(begun):
            future.result()
            self._show(index)
            self._shaped_returns[index] = 0

    def _prepare(self, index: int, seed: int) -> None:
        """Begin the next episode of an environment, in its spare game."""
        spare = self._spares[index]
        if spare is None:
            spare = self._spares[index] = Game(self._settings, self._size, self._stack)
        spare.replay(seed, [])

    def _seed(self, index: int, ahead: int) -> int:
        episode = int(self._episode_indices[index]) + ahead
        return self._seeds.child(self._purpose, index, episode).integer() % LARGEST_SEED

    def _show(self, index: int) -> None:
        self._slots[self._turns[index]].observation[index] = self._games[index].picture

    def _begin_next(self, index: int) -> None:
        """Go on with the episode that was made ready, and make ready the one behind it."""
        self._ready[index].result()
        spare = self._spares[index]
        assert spare is not None
        self._games[index], self._spares[index] = spare, self._games[index]
        self._episode_indices[index] += 1
        self._shaped_returns[index] = 0
        self._ready[index] = self._background.submit(self._prepare, index, self._seed(index, 1))
        self._show(index)

    def step(self, actions: np.ndarray) -> Step:
        """Take one action in each game; one that ends begins its next episode in the same step."""
        everywhere = slice(0, self.num_envs)
        self._send(actions, everywhere)
        return self._receive(everywhere)

    def step_async(self, actions: np.ndarray, half: int) -> None:
        """Have the threads step one half of the games."""
        self._send(actions, self.halves[half])

    def step_wait(self, half: int) -> Step:
        """The step of that half."""
        return self._receive(self.halves[half])

    def _send(self, actions: np.ndarray, rows: slice) -> None:
        for game, action in zip(self._games[rows], np.asarray(actions).reshape(-1).tolist(), strict=True):
            game.send(action)

    def _receive(self, rows: slice) -> Step:
        turn = 1 - self._turns[rows.start]
        self._turns[rows] = turn
        slot, settings, limit = self._slots[turn], self._settings, self.spec.max_episode_steps
        games = self._games[rows]
        lives_before = np.array([game.lives for game in games])
        for index, game in enumerate(games, rows.start):
            game.receive()
            self._show(index)
            slot.reward[index] = game.reward
            slot.terminated[index] = game.terminated
            over_time = game.truncated or (limit is not None and game.length >= limit)
            slot.truncated[index] = over_time and not game.terminated
        step = Step(slot.observation[rows], slot.reward[rows], slot.terminated[rows], slot.truncated[rows])
        if settings.reward_clipping:
            np.clip(step.reward, -1.0, 1.0, out=step.reward)
        self._shaped_returns[rows] += step.reward
        lives = np.array([game.lives for game in games])
        step.info = {"lives": lives}
        ended = step.ended
        if settings.episodic_life:
            self._lose_lives(step, slot.final_observation[rows], (lives > 0) & (lives < lives_before) & ~ended)
        if ended.any():
            self._end(step, slot.final_observation[rows], ended, rows.start)
        return step

    def _lose_lives(self, step: Step, final_observation: np.ndarray, lost: np.ndarray) -> None:
        """A life lost is a termination to the agent while the game, and the statistics, go on."""
        if lost.any():
            np.logical_or(step.terminated, lost, out=step.terminated)
            final_observation[lost] = step.observation[lost]
            step.final_observation = final_observation
            step.info[LIFE_LOST] = lost

    def _end(self, step: Step, final_observation: np.ndarray, ended: np.ndarray, first: int) -> None:
        """Tell the episodes that ended in these rows, and begin the next ones. `first` is the environment of row 0."""
        final_observation[ended] = step.observation[ended]
        step.final_observation = final_observation
        over = (first + np.flatnonzero(ended)).tolist()
        step.episodes = [
            Episode(
                index,
                int(self._episode_indices[index]),
                self._games[index].score,
                float(self._shaped_returns[index]),
                self._games[index].length,
                self._games[index].terminated,
                frames=self._games[index].frames_played,
            )
            for index in over
        ]
        self.episode_counts[over] += 1
        for index in over:
            self._begin_next(index)

    def get_state(self) -> dict[str, Any]:
        """Number and actions of the open episodes, and the observation that their replay must reach."""
        return {
            "episode_indices": self._episode_indices.copy(),
            "episode_counts": self.episode_counts.copy(),
            "shaped_returns": self._shaped_returns.copy(),
            "actions": {str(index): np.array(game.actions, dtype=np.int64) for index, game in enumerate(self._games)},
            "observation": self.observation.copy(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Replay the open episodes, all at once; one that does not reach its saved picture is left for a fresh one."""
        if len(state["episode_indices"]) != self.num_envs:
            raise ConfigError(
                f"The saved state of {self.spec.id} has {len(state['episode_indices'])} environments, "
                f"this one {self.num_envs}."
            )
        self._episode_indices[:] = state["episode_indices"]
        self.episode_counts[:] = state["episode_counts"]
        if self._episode_indices[0] < 0:
            return
        self._play_from([np.asarray(state["actions"][str(index)]).tolist() for index in range(self.num_envs)])
        self._shaped_returns[:] = state["shaped_returns"]
        expected = np.asarray(state["observation"])
        wrong = [
            index for index in range(self.num_envs) if not np.array_equal(self.observation[index], expected[index])
        ]
        if wrong:
            logger.warning(
                "%s: the replay of %s open episodes gave other pictures than before. Continuing them from fresh episodes.",
                self.spec.id,
                len(wrong),
            )
            for index in wrong:
                self._begin_next(index)

    def render(self) -> np.ndarray | None:
        """Nothing: the games draw for the agent only."""
        return None

    def close(self) -> None:
        """Stop the threads."""
        self._background.shutdown(cancel_futures=True)
        for game in (*self._games, *self._spares):
            if game is not None:
                game.close()
