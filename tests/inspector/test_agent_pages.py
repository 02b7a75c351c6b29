"""Episode, Agent and World model in a real browser: what they show is what the agent does by itself."""

import csv
import time

import numpy as np
import pytest
from asking import PLUGIN, rows_apart

import gymlab
from gymlab.metrics.video import frame_count


def open_tab(page, server, tab, run, **settings):
    query = "".join(f"&{name}={value}" for name, value in settings.items())
    page.goto(f"{server.url}#{tab}?runs={run}{query}")


def roll_out(page, server, run, **settings):
    open_tab(page, server, "episode", run, **settings)
    page.get_by_role("button", name="Rollout").click()
    page.locator(".steps-body [data-row='0']").wait_for(timeout=60_000)


def until(page, wanted, seconds=20):
    """Wait for something; a page that allows no eval cannot be told to wait by itself."""
    end = time.monotonic() + seconds
    while not wanted():
        assert time.monotonic() < end, wanted
        page.wait_for_timeout(30)


def number(text):
    return float(text.replace(",", ""))


def figure(page, name):
    return page.locator(f"#panel-episode [data-figure='{name}']").inner_text()


def shown_row(page):
    """The numbers beside the frame."""
    bars = page.locator("#panel-episode .bar").all()
    return {
        "index": int(figure(page, "index")),
        "action": figure(page, "action"),
        "probabilities": [float(bar.locator(".bar-number").inner_text().rstrip("%")) / 100 for bar in bars],
        "chosen": [place for place, bar in enumerate(bars) if "chosen" in bar.get_attribute("class")],
        **{name: number(figure(page, name)) for name in ("value", "reward", "cumulative_reward", "mc_return")},
    }


def assert_shows(page, row, index, labels):
    found = shown_row(page)
    assert found["index"] == index
    assert found["action"] == labels[row["action"]]
    assert found["chosen"] == [row["action"]]
    np.testing.assert_allclose(found["probabilities"], row["probabilities"], atol=6e-4)
    for name in ("value", "reward", "cumulative_reward", "mc_return"):
        assert found[name] == pytest.approx(row[name], rel=1e-5, abs=1e-6), name
    greedy = row["probabilities"][row["action"]] == max(row["probabilities"])
    assert page.locator("#panel-episode .tag.off").count() == (0 if greedy else 1)


def test_an_episode_shows_what_the_agent_does_by_itself(server, runs, page, tmp_path):
    rows = rows_apart("cartpole-s1", runs, seed=7, deterministic=False, steps=80)
    labels = {0: "push left", 1: "push right"}
    roll_out(page, server, "cartpole-s1", seed=7, steps=80, mode="stochastic")
    assert_shows(page, rows[0], 0, labels)
    page.locator("#panel-episode .stage").click()
    for index in (1, 2, 3):
        page.keyboard.press("ArrowRight")
        assert_shows(page, rows[index], index, labels)
    page.keyboard.press("ArrowLeft")
    assert_shows(page, rows[2], 2, labels)
    # The row of the table that is clicked is the step that is shown.
    page.locator(".steps-body [data-row='5']").click()
    assert_shows(page, rows[5], 5, labels)
    assert page.locator(".steps-body [aria-selected='true']").get_attribute("data-row") == "5"
    # Down the episodes and up again.
    second = next(place for place, row in enumerate(rows) if row["ended"]) + 1
    page.keyboard.press("ArrowDown")
    assert_shows(page, rows[second], second, labels)
    page.keyboard.press("ArrowUp")
    assert_shows(page, rows[0], 0, labels)
    page.get_by_role("button", name="Next end").click()
    assert_shows(page, rows[second - 1], second - 1, labels)
    page.keyboard.press("ArrowRight")  # the picture of the end itself
    assert page.locator("#panel-episode .frame-badge").inner_text() in ("terminated", "truncated")
    assert_shows(page, rows[second - 1], second - 1, labels)
    _exports(page, rows, tmp_path)


def _exports(page, rows, tmp_path):
    with page.expect_download() as file:
        page.get_by_role("button", name="CSV").click()
    file.value.save_as(tmp_path / "steps.csv")
    lines = list(csv.DictReader((tmp_path / "steps.csv").open()))
    np.testing.assert_allclose([float(line["value"]) for line in lines], [row["value"] for row in rows], rtol=1e-6)
    assert [int(line["action"]) for line in lines] == [row["action"] for row in rows]
    with page.expect_download() as film:
        page.get_by_role("button", name="mp4").click()
    film.value.save_as(tmp_path / "film.mp4")
    assert frame_count(tmp_path / "film.mp4") == len(rows) + sum(row["ended"] for row in rows)


def test_the_largest_surprise_is_the_largest_advantage(server, page):
    roll_out(page, server, "cartpole-s1", seed=7, steps=80, mode="stochastic")
    page.get_by_role("button", name="Largest surprise").click()
    shown = abs(number(figure(page, "advantage")))
    steps = page.evaluate(
        """async () => { const id = document.querySelector('a[download]').href.split('/').at(-2);
        return (await (await fetch(`/api/traces/${id}/steps`)).json()).advantage; }"""
    )
    assert shown == pytest.approx(max(map(abs, steps)), rel=1e-5)


def test_playing_moves_on_and_stops_at_the_end(server, page):
    roll_out(page, server, "lake", seed=3, steps=12, mode="stochastic")
    page.keyboard.press(" ")  # the frame has the focus after a rollout
    page.get_by_role("button", name="Pause (space)").wait_for()
    page.get_by_label("Speed").select_option("8")
    until(page, lambda: figure(page, "index") == "11")
    page.get_by_role("button", name="Play (space)").wait_for()
    page.locator("#panel-episode input[aria-label=Position]").fill("2")
    assert int(figure(page, "index")) <= 2


def test_views_of_an_agent_that_sees_pictures(server, page):
    roll_out(page, server, "pixels", steps=6)
    canvas = page.locator("#panel-episode canvas.frame")

    def size():
        return canvas.evaluate("canvas => [canvas.width, canvas.height]")

    until(page, lambda: size() == [600, 400])
    page.get_by_role("button", name="Processed").click()
    until(page, lambda: size()[0] != 600)
    width, height = size()
    page.get_by_role("button", name="Stacked").click()
    until(page, lambda: size()[0] > width)
    wide = size()
    assert wide[1] == height
    assert wide[0] % width == 0
    page.get_by_label("Zoom").select_option("2")
    assert canvas.evaluate("canvas => canvas.style.width") == f"{2 * wide[0]}px"


def test_a_long_table_has_only_the_rows_in_sight(server, page):
    roll_out(page, server, "lake", seed=1, steps=600, mode="stochastic")
    assert page.locator(".steps-body .steps-row").count() < 60
    page.locator(".steps").evaluate("table => { table.scrollTop = table.scrollHeight; }")
    page.locator(".steps-body [data-row='599']").wait_for()
    assert page.locator(".steps-body .steps-row").count() < 60
    assert page.locator(".steps-body [data-row='599'] .end-mark").inner_text() != ""


def test_nothing_selected_and_nothing_to_play_say_what_to_do(server, page):
    page.goto(f"{server.url}#episode")
    page.get_by_text("No run selected").wait_for()
    page.get_by_role("tab", name="Agent").click()
    page.locator("#panel-agent").get_by_text("No run selected").wait_for()
    page.get_by_role("tab", name="World model").click()
    page.locator("#panel-world_model").get_by_text("No run selected").wait_for()


@pytest.mark.parametrize("tab", ["runs", "learning", "episode", "agent", "world_model"])
def test_where_there_are_no_runs_each_tab_says_how_to_train_one(start_server, page, tmp_path, tab):
    page.goto(f"{start_server(tmp_path).url}#{tab}")
    page.locator(f"#panel-{tab}").get_by_text("No runs yet").wait_for()
    assert "gymlab train CartPole-v1:ppo" in page.locator(f"#panel-{tab} .command").inner_text()


def test_the_agent_tab_shows_the_lake(server, page):
    open_tab(page, server, "agent", "lake")
    canvas = page.locator("#panel-agent canvas[aria-label='Map of values and actions']")
    canvas.wait_for()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.9)
    assert "row 3, column 3" in page.locator("#panel-agent .readout").first.inner_text()
    page.get_by_role("button", name="All states").click()
    page.locator("canvas[aria-label='Q of every state and action']").wait_for()
    assert "QTable" in page.locator("#panel-agent .tree").inner_text()


def test_the_agent_tab_shows_where_a_policy_looks_and_what_it_sees(server, page):
    open_tab(page, server, "agent", "pixels")
    page.get_by_role("button", name="Play an episode to look at").click()
    page.locator("#panel-agent .saliency .readout:has-text('largest change')").wait_for(timeout=60_000)
    page.get_by_role("button", name="Policy", exact=True).click()
    assert "Greydanus" in page.locator("#panel-agent .saliency").inner_text()
    assert "FrameStack" in page.locator("#panel-agent .way").inner_text()


def test_a_plane_through_the_state(server, page):
    open_tab(page, server, "agent", "cartpole-s1")
    page.locator("canvas[aria-label^='Value over cart position and pole angle']").wait_for()
    assert [page.get_by_label(name).input_value() for name in ("Across", "Up")] == ["0", "2"]
    page.get_by_label("Across").select_option("3")
    page.locator("canvas[aria-label^='Value over pole angular velocity and pole angle']").wait_for()


def test_a_run_without_a_world_model_says_what_to_train(server, page):
    open_tab(page, server, "world_model", "cartpole-s1")
    page.get_by_text("ppo learns what to do and keeps no model of its world").wait_for()


@pytest.fixture
def dream_server(dreamers, start_server):
    server = start_server(dreamers)
    server.inspector.plugins = (PLUGIN,)
    return server


def test_a_dream_of_vectors(dream_server, page):
    open_tab(page, dream_server, "world_model", "vectors", steps=60, seed=3)
    page.get_by_role("button", name="Dream", exact=True).click()
    readout = page.locator("#panel-world_model .readout")
    page.locator("#panel-world_model .readout:has-text('1 step after step 10')").wait_for()
    error = number(readout.inner_text().split("of the dream ")[1].split(" ")[0])
    assert 0 < error < 0.1
    page.get_by_label("Entry").select_option("2")
    page.get_by_label("Step of the dream").fill("1")
    assert "2 steps after step 10" in readout.inner_text()


def test_a_dream_of_pictures(dream_server, page):
    open_tab(page, dream_server, "world_model", "pictures", steps=30, seed=1)
    page.get_by_label("Start", exact=True).fill("2")
    page.get_by_label("Horizon", exact=True).fill("5")
    page.get_by_role("button", name="Dream", exact=True).click()
    page.locator("canvas[data-kind='dream']").wait_for()
    assert page.locator("#panel-world_model .dream canvas").count() == 4
    truth = page.locator("canvas[data-kind='truth']").evaluate("c => [c.width, c.height]")
    assert truth == [24, 16]
    strip = page.locator("#panel-world_model .strip canvas").evaluate("c => [c.width, c.height]")
    assert strip == [5 * 24, 4 * 16]
    assert page.locator("#panel-world_model .dream figcaption").all_inner_texts() == [
        "Truth",
        "Reconstruction",
        "Dream",
        "constant",
    ]
    assert not page.get_by_text("Returns by generation").is_visible()


def test_returns_of_a_population(start_server, tmp_path, page):
    small = {"hidden": 4, "batch_size": 4, "batch_length": 8, "collect_env_steps": 200, "model_updates": 2, "n_envs": 2}
    small |= {"n_steps": 50, "population": 4, "rollouts": 1, "generations": 3, "evolve_in": "dream", "dream_steps": 5}
    options = {"quiet": True, "video": False, "eval_episodes": 1, "max_env_steps": 200, "elite_every": 2}
    gymlab.train("CartPole-v1", algo="world_models", runs_dir=tmp_path, run_id="evolved", **small, **options)
    open_tab(page, start_server(tmp_path), "world_model", "evolved")
    page.get_by_text("Returns by generation").wait_for()
    page.get_by_text("elite, judged again").wait_for()


@pytest.mark.parametrize("tab", ["episode", "agent", "world_model"])
def test_nothing_runs_over_the_edge_of_a_phone(server, new_page, tab):
    page = new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
    open_tab(page, server, tab, "lake", steps=20)
    if tab == "episode":
        page.get_by_role("button", name="Rollout").click()
        page.locator(".steps-body [data-row='0']").wait_for(timeout=60_000)
    elif tab == "agent":
        page.locator("canvas[aria-label='Map of values and actions']").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#tabs").evaluate("tabs => tabs.scrollWidth <= tabs.clientWidth")
