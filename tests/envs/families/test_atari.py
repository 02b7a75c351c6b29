"""Atari: protocols, the same pictures from every backend, lost lives, scores, exact resume."""

import sys

import numpy as np
import pytest

from gymlab.config.environment_ids import family_defaults
from gymlab.config.schema import Config
from gymlab.engine.seeding import SeedTree
from gymlab.envs.adapter import GymnasiumVector
from gymlab.envs.build import blueprint, make_env, make_vector
from gymlab.envs.families.atari_game import AtariGame, AtariSettings, fire_actions
from gymlab.envs.families.atari_vector import Game
from gymlab.envs.vector import EnvironmentSpec
from gymlab.errors import ConfigError, EnvironmentFailure

pytest.importorskip("ale_py")

PICTURES = {
    "obs_type": "rgb",
    "grayscale_obs": True,
    "resize_obs": (84, 84),
    "frame_stack": 4,
    "frame_skip": 4,
}
STILL = {"repeat_action_probability": 0.0}
"""Without sticky actions and no-ops a game is decided by the actions alone."""


def atari(game="Breakout", **fields):
    return Config(env_id=f"ALE/{game}-v5", algo_id="ppo", **{**PICTURES, **fields})


def play(vector, length, seed=0):
    generator = np.random.default_rng(seed)
    vector.reset()
    steps, observations = [], [vector.observation.copy()]
    for _ in range(length):
        step = vector.step(generator.integers(0, vector.action_space.n, vector.num_envs))
        steps.append((step.reward.copy(), step.terminated.copy(), step.truncated.copy(), list(step.episodes)))
        observations.append(step.observation.copy())
    return steps, observations


def test_protocols_say_what_they_are():
    plan = blueprint(atari(env_kwargs={"protocol": "atari100k"}))
    kwargs = plan.env_kwargs
    assert (kwargs["repeat_action_probability"], kwargs["noop_max"]) == (0.0, 30)
    assert (kwargs["episodic_life"], kwargs["reward_clipping"], kwargs["full_action_space"]) == (True, True, False)
    told = plan.family.notice(kwargs, plan.config)
    assert "protocol atari100k: sticky actions 0, a lost life ends the return, up to 30 no-ops, rewards clipped" in told
    assert "84x84 grey, 4 frames" in told
    machado = blueprint(atari(env_kwargs={"protocol": "machado"})).env_kwargs
    assert (machado["repeat_action_probability"], machado["full_action_space"]) == (0.25, True)
    assert not machado["episodic_life"]
    default = blueprint(atari()).env_kwargs
    assert (default["protocol"], default["repeat_action_probability"], default["noop_max"]) == ("v5", 0.25, 0)


def test_evaluation_neither_clips_nor_ends_at_a_life():
    kwargs = blueprint(atari(env_kwargs={"protocol": "atari100k"}), purpose="val").env_kwargs
    assert not kwargs["episodic_life"]
    assert not kwargs["reward_clipping"]
    assert kwargs["noop_max"] == 30


def test_settings_beside_a_protocol_win_and_unknown_ones_are_named():
    assert blueprint(atari(env_kwargs={"protocol": "machado", "noop_max": 7})).env_kwargs["noop_max"] == 7
    assert blueprint(atari(env_kwargs={"frameskip": 1})).env_kwargs["frame_skip"] == 4
    assert blueprint(atari(env_kwargs={"frameskip": 3})).env_kwargs["frame_skip"] == 3
    with pytest.raises(ConfigError, match="machado"):
        blueprint(atari(env_kwargs={"protocol": "machdo"}))
    with pytest.raises(ConfigError, match="noop_max"):
        blueprint(atari(env_kwargs={"noops_max": 3}))
    with pytest.raises(EnvironmentFailure, match="ALE/Breakout-v5"):
        blueprint(atari("Breakot"))
    with pytest.raises(ConfigError, match="has no mode 99"):
        make_env(atari(env_kwargs={"mode": 99}))


def test_native_is_chosen_when_it_does_what_is_asked_for():
    with make_vector(atari(), 1, SeedTree(0)) as vector:
        assert (vector.backend, vector.observation_space.shape) == ("native", (4, 84, 84))
        assert "protocol v5" in vector.notice
        assert vector.resumable
    for fields, reason in (
        ({"resize_obs": None}, "resize_obs"),
        ({"grayscale_obs": False}, "frame_stack"),
        ({"env_wrappers": ({"id": "ALEActionMaskingWrapper"},)}, "env_wrappers"),
        ({"env_kwargs": {"difficulty": 1}}, "difficulty"),
        ({"obs_type": "ram", "grayscale_obs": False, "resize_obs": None}, "obs_type: ram"),
    ):
        with pytest.raises(ConfigError, match=reason):
            make_vector(atari(**fields), 1, SeedTree(0), backend="native")


def test_backends_show_the_same_game():
    config = atari(env_kwargs=STILL)
    with make_vector(config, 2, SeedTree(3), backend="native") as native:
        native_steps, native_pictures = play(native, 240)
    with make_vector(config, 2, SeedTree(3), backend="sync") as sync:
        sync_steps, sync_pictures = play(sync, 240)
    assert native_steps[-1][3] == sync_steps[-1][3]
    for one, other in zip(native_steps, sync_steps, strict=True):
        for left, right in zip(one[:3], other[:3], strict=True):
            np.testing.assert_array_equal(left, right)
        assert one[3] == other[3]
    assert sum(len(step[3]) for step in native_steps) >= 2
    # Both take the mean of the area under a pixel; OpenCV rounds some of them the other way.
    for one, other in zip(native_pictures, sync_pictures, strict=True):
        assert np.abs(one.astype(int) - other).max() <= 1


def test_a_lost_life_is_a_termination_to_the_agent_only():
    config = atari(env_kwargs={**STILL, "episodic_life": True})
    for backend in ("native", "sync", "async"):
        with make_vector(config, 1, SeedTree(3), backend=backend) as vector:
            steps, _ = play(vector, 240)
        terminations = sum(int(step[1].sum()) for step in steps)
        episodes = [episode for step in steps for episode in step[3]]
        # Five lives a game: four terminations before the one that ends it.
        assert len(episodes) >= 1
        assert terminations >= 5 * len(episodes)
        assert all(episode.terminated for episode in episodes)
        assert all(episode.length > 90 for episode in episodes)


def test_score_is_whole_where_rewards_are_clipped():
    config = atari("SpaceInvaders", env_kwargs=STILL, max_episode_steps=250)
    with make_vector(config, 1, SeedTree(0), backend="native") as clipped:
        shown, _ = play(clipped, 250)
    raw = config.model_copy(update={"env_kwargs": {**STILL, "reward_clipping": False}})
    with make_vector(raw, 1, SeedTree(0), backend="native") as whole:
        points, _ = play(whole, 250)
    assert {float(step[0][0]) for step in shown} == {0.0, 1.0}
    assert max(float(step[0][0]) for step in points) >= 5.0
    ended, reference = (next(step[3][0] for step in steps if step[3]) for steps in (shown, points))
    assert ended.env_return == reference.env_return == reference.shaped_return
    assert ended.shaped_return < ended.env_return
    first = next(index for index, step in enumerate(points) if step[3])
    assert reference.env_return == sum(float(step[0][0]) for step in points[: first + 1])


def test_each_episode_has_its_own_seed_and_repeats():
    config = atari("Pong", env_kwargs={"protocol": "atari100k", "repeat_action_probability": 0.25})
    with make_vector(config, 2, SeedTree(5), backend="native") as vector:
        _, first = play(vector, 30)
        vector.reset(SeedTree(5))
        generator = np.random.default_rng(0)
        again = [vector.observation.copy()]
        again += [vector.step(generator.integers(0, 6, 2)).observation.copy() for _ in range(30)]
        _, other = play(vector, 30)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[-1], other[-1])
    assert not np.array_equal(first[-1][0], first[-1][1])


@pytest.mark.parametrize(("backend", "num_envs", "before"), [("native", 3, 190), ("sync", 1, 40)])
def test_resume_goes_on_exactly(backend, num_envs, before):
    config = atari(env_kwargs={"protocol": "atari100k", "repeat_action_probability": 0.25})
    actions = np.random.default_rng(1).integers(0, 4, (before + 25, num_envs))
    with make_vector(config, num_envs, SeedTree(9), backend=backend) as vector:
        vector.reset()
        for row in actions[:before]:
            vector.step(row)
        state, saved = vector.get_state(), vector.observation.copy()
        expected = [(vector.step(row).episodes, vector.observation.copy()) for row in actions[before:]]
    with make_vector(config, num_envs, SeedTree(9), backend=backend) as resumed:
        resumed.set_state(state)
        np.testing.assert_array_equal(resumed.observation, saved)
        for row, (episodes, pictures) in zip(actions[before:], expected, strict=True):
            assert resumed.step(row).episodes == episodes
            np.testing.assert_array_equal(resumed.observation, pictures)
    if backend == "native":
        # Ages of the open episodes differ, so that the replay had to wait for some of them.
        assert len({len(history) for history in state["actions"].values()}) > 1


def test_halves_by_turns_are_the_same_games():
    config = atari(env_kwargs={**STILL, "episodic_life": True})
    actions = np.random.default_rng(2).integers(0, 4, (200, 4))
    with make_vector(config, 4, SeedTree(3), backend="native") as whole:
        whole.reset()
        whole.step(actions[0])
        expected = [
            (step.reward.copy(), step.ended.copy(), step.observation.copy(), step.episodes)
            for step in (whole.step(row) for row in actions[1:])
        ]
    with make_vector(config, 4, SeedTree(3), backend="native") as vector:
        vector.reset()
        assert vector.halves == (slice(0, 2), slice(2, 4))
        vector.step(actions[0])
        for half, rows in enumerate(vector.halves):
            vector.step_async(actions[1][rows], half)
        for t, (reward, ended, pictures, episodes) in enumerate(expected, 1):
            told = []
            for half, rows in enumerate(vector.halves):
                step = vector.step_wait(half)
                np.testing.assert_array_equal(step.reward, reward[rows])
                np.testing.assert_array_equal(step.ended, ended[rows])
                np.testing.assert_array_equal(step.observation, pictures[rows])
                told += step.episodes
                if t + 1 < len(actions):
                    vector.step_async(actions[t + 1][rows], half)
            assert told == episodes
        np.testing.assert_array_equal(vector.observation, expected[-1][2])
    assert any(episodes for *_, episodes in expected)


def test_a_time_limit_truncates():
    with make_vector(atari("Pong", max_episode_steps=9), 2, SeedTree(0), backend="native") as vector:
        steps, _ = play(vector, 20)
    assert [index for index, step in enumerate(steps) if step[2].any()] == [8, 17]
    assert all(episode.length == 9 and not episode.terminated for step in steps for episode in step[3])


def test_autoreset_of_the_vector_env_itself_gives_the_same_rows():
    """Dead rows of next-step autoreset are left out, and what remains is what our own resets give."""
    from ale_py.vector_env import AtariVectorEnv
    from gymnasium.vector import AutoresetMode

    def rows(environment, length=130):
        found = [[], []]
        counts = [0, 0]
        environment.reset()
        for _ in range(length):
            actions = np.array([(7 * count + 3) % 4 for count in counts])
            step = environment.step(actions)
            for index in range(2):
                if step.valid is not None and not step.valid[index]:
                    continue
                counts[index] = 0 if step.ended[index] else counts[index] + 1
                picture = (step.final_observation if step.ended[index] else step.observation)[index, -1].copy()
                found[index].append((float(step.reward[index]), bool(step.terminated[index]), picture))
        return found

    options = {"noop_max": 0, "use_fire_reset": False, "reward_clipping": True}
    with make_vector(atari(env_kwargs=STILL), 2, SeedTree(0), backend="native") as own:
        expected = rows(own)
    assert any(terminated for _, terminated, _ in expected[0])
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        games = AtariVectorEnv("breakout", 2, autoreset_mode=mode, **options)
        with GymnasiumVector(games, EnvironmentSpec("ALE/Breakout-v5"), SeedTree(0)) as adapted:
            for one, other in zip(rows(adapted), expected, strict=True):
                for (reward, terminated, picture), reference in zip(one, other, strict=False):
                    assert (reward, terminated) == reference[:2]
                    np.testing.assert_array_equal(picture, reference[2])


def test_ram_is_128_bytes_and_scaled_by_default():
    assert family_defaults("ALE/Pong-v5", "ram") == {"frame_skip": 4, "normalize_obs": "static"}
    env = make_env(Config(env_id="ALE/Pong-v5", algo_id="ppo", obs_type="ram", frame_skip=4), seeds=SeedTree(0))
    observation, _ = env.reset()
    assert (observation.shape, observation.dtype) == ((128,), np.uint8)
    env.close()


def test_full_action_set_can_be_masked():
    config = atari(
        "Pong", env_kwargs={"protocol": "machado"}, env_wrappers=({"id": "ALEActionMaskingWrapper"},), frame_stack=1
    )
    with make_vector(config, 1, SeedTree(0), backend="sync") as vector:
        vector.reset()
        assert vector.action_space.n == 18
        np.testing.assert_array_equal(np.flatnonzero(vector.action_mask[0]), [0, 1, 3, 4, 11, 12])


def objects(**fields):
    return Config(env_id="ALE/Pong-v5", algo_id="ppo", obs_type="objects", frame_skip=4, **fields)


def test_objects_of_pong():
    pytest.importorskip("ocatari.core")
    env = make_env(objects(env_wrappers=({"id": "PongV5_FeatureExtractor"},)), seeds=SeedTree(0))
    observation, _ = env.reset()
    assert observation.shape == (15,)
    seen = [env.step(2)[0] for _ in range(40)]
    assert env.unwrapped.objects[0].category == "Player"
    # Holding "up" brings the agent's paddle, which is the right one, to the top of the field.
    assert seen[-1][0] < -0.9
    assert env.unwrapped.objects[0].x == 140
    assert any(features[8] == 1 for features in seen)
    env.close()


def test_missing_packages_are_said_with_the_lines_to_run(monkeypatch):
    monkeypatch.setitem(sys.modules, "ocatari", None)
    monkeypatch.setitem(sys.modules, "ocatari.core", None)
    with pytest.raises(EnvironmentFailure, match=r"pip install 'gymlab\[objects\]' && pip install --no-deps ocatari"):
        make_env(objects())


def test_games_of_several_players_have_no_id():
    family = blueprint(atari()).family
    assert "ALE/Pong-v5" in family.ids()
    assert "ALE/Combat-v5" not in family.ids()


def without_noops(backend, game="Breakout", **fields):
    """A classic game that actions alone decide."""
    config = atari(game, env_kwargs={"protocol": "classic", "noop_max": 0, **fields})
    return make_vector(config, 1, SeedTree(3), backend=backend)


def test_classic_is_what_stable_baselines_does():
    plan = blueprint(atari(env_kwargs={"protocol": "classic"}))
    wanted = {"repeat_action_probability": 0.0, "noop_max": 30, "use_fire_reset": True, "episodic_life": True}
    wanted |= {"reward_clipping": True, "max_pool": True, "full_action_space": False, "frame_skip": 4}
    assert {key: plan.env_kwargs[key] for key in wanted} == wanted
    told = plan.family.notice(plan.env_kwargs, plan.config)
    assert "protocol classic: sticky actions 0, a lost life ends the return, up to 30 no-ops, rewards clipped" in told
    assert "fire pressed at the start and after a lost life" in told
    evaluated = blueprint(atari(env_kwargs={"protocol": "classic"}), purpose="val").env_kwargs
    assert (evaluated["episodic_life"], evaluated["reward_clipping"]) == (False, False)
    assert evaluated["use_fire_reset"], "an agent that never had to press the button cannot serve by itself"


@pytest.mark.parametrize("backend", ["native", "sync"])
def test_classic_serves_at_the_start_and_after_a_lost_life(backend):
    """Played again on the emulator alone: fire and the action after it, each for four frames, a no-op before them when a life was lost."""
    ale_py = pytest.importorskip("ale_py")
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(str(ale_py.roms.get_rom_path("breakout")))
    actions = ale.getMinimalActionSet()

    def hold(action):
        return sum(ale.act(actions[action]) for _ in range(4))

    ale.reset_game()
    for action in (1, 2):
        hold(action)
    lives, lost_at, scores = ale.lives(), [], 0
    with without_noops(backend, reward_clipping=False) as vector:
        vector.reset()
        for step_index in range(120):
            reward = hold(0)
            if 0 < ale.lives() < lives and not ale.game_over():
                reward += sum(map(hold, (0, 1, 2)))
                lost_at.append(step_index)
            lives = ale.lives()
            step = vector.step(np.array([0]))
            assert step.reward[0] == reward
            assert bool(step.terminated[0]) == (step_index in lost_at or ale.game_over())
            scores += reward
            if ale.game_over():
                assert step.episodes[0].env_return == scores
                break
    assert len(lost_at) == 4, "the ball was served five times although the agent never pressed the button"
    assert ale.game_over()


def test_classic_backends_show_the_same_game():
    with without_noops("native") as native, without_noops("sync") as sync:
        native_steps, native_pictures = play(native, 150)
        sync_steps, sync_pictures = play(sync, 150)
    assert sum(len(step[3]) for step in native_steps) >= 1
    for one, other in zip(native_steps, sync_steps, strict=True):
        assert (one[0], one[1], one[2], one[3]) == (other[0], other[1], other[2], other[3])
    for one, other in zip(native_pictures, sync_pictures, strict=True):
        assert np.abs(one.astype(int) - other).max() <= 1


def test_a_stack_begins_anew_after_the_serve():
    with without_noops("native") as vector:
        first = vector.reset()
        assert all(np.array_equal(frame, first[0, -1]) for frame in first[0])
        for _ in range(60):
            step = vector.step(np.array([0]))
            if step.terminated[0]:
                break
        assert all(np.array_equal(frame, step.observation[0, -1]) for frame in step.observation[0])
        after = vector.step(np.array([0])).observation[0]
    np.testing.assert_array_equal(after[:3], step.observation[0, 1:])
    assert not np.array_equal(after[2], after[3])


def test_a_game_without_the_button_is_not_served():
    assert fire_actions(["NOOP", "UP", "RIGHT"]) == ()
    assert fire_actions(["NOOP", "FIRE", "UP"]) == (1, 2)
    assert fire_actions([]) == ()


@pytest.mark.parametrize("backend", ["native", "sync"])
def test_no_ops_are_one_to_the_most(backend):
    config = atari("SpaceInvaders", env_kwargs={**STILL, "noop_max": 3})
    settings, seen = AtariSettings(**blueprint(config).env_kwargs), set()
    for seed in range(24):
        if backend == "native":
            game = Game(settings, (84, 84), 4)
            game.replay(seed, [])
            seen.add(game.frames)
        else:
            game = AtariGame(settings)
            game.reset(seed=seed)
            seen.add(game.ale.getEpisodeFrameNumber())
        game.close()
    assert seen == {1, 2, 3}


@pytest.mark.parametrize("game", ["Breakout", "SpaceInvaders", "Qbert"])
def test_classic_plays_as_stable_baselines_wrapper_does(game):
    """The same actions give the same rewards, ends and pictures, until the game is over.

    Its maximum of two frames is taken in colour and ours in grey, so it gets the emulator's grey as its three colours.
    """
    wrappers = pytest.importorskip("stable_baselines3.common.atari_wrappers")
    import ale_py
    import gymnasium as gym

    gym.register_envs(ale_py)
    grey = gym.make(f"{game}NoFrameskip-v4", obs_type="grayscale")
    as_colours = gym.spaces.Box(0, 255, (*grey.observation_space.shape, 3), np.uint8)
    stacked = gym.wrappers.TransformObservation(grey, lambda frame: np.stack([frame] * 3, axis=-1), as_colours)
    theirs = wrappers.AtariWrapper(stacked, noop_max=0)
    expected, _ = theirs.reset(seed=0)
    generator, ends = np.random.default_rng(4), 0
    with without_noops("native", game) as ours:
        np.testing.assert_allclose(ours.reset()[0, -1].astype(int), expected[..., 0], atol=1)
        for _ in range(1500):
            action = int(generator.integers(0, ours.action_space.n))
            expected, reward, terminated, truncated, info = theirs.step(action)
            step = ours.step(np.array([action]))
            assert (step.reward[0], step.terminated[0], step.truncated[0]) == (reward, terminated, truncated)
            if info["lives"] == 0:
                break
            if terminated:
                ends += 1
                expected, _ = theirs.reset()
            np.testing.assert_allclose(step.observation[0, -1].astype(int), expected[..., 0], atol=1)
        else:
            pytest.fail("no game ended")
    assert ends == {"Breakout": 4, "SpaceInvaders": 2, "Qbert": 3}[game]
