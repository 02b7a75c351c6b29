"""Real runs trained in seconds, a server over them, and a browser that forgives nothing."""

import fcntl
import importlib
import json
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from asking import PLUGIN

import gymlab
from gymlab.cli.main import main
from gymlab.inspector.routes import Inspector, Request, answer
from gymlab.inspector.server import HANDLERS, serve

TRAININGS = {
    "cartpole-s1": [
        "CartPole-v1:ppo",
        "--seed",
        "1",
        "max_env_steps=2048",
        "n_envs=8",
        "n_steps=32",
        "batch_size=64",
        "n_epochs=2",
        "eval_freq_epochs=2",
        "eval_episodes=4",
    ],
    "cartpole-s2": [
        "CartPole-v1:ppo",
        "--seed",
        "2",
        "max_env_steps=2048",
        "n_envs=8",
        "n_steps=32",
        "batch_size=64",
        "n_epochs=2",
        "eval_freq_epochs=2",
        "eval_episodes=4",
    ],
    "lake": ["FrozenLake-v1:q_learning", "--seed", "0", "max_env_steps=4000", "eval_episodes=10"],
    "pixels": [
        "CartPole-v1:ppo_pixels",
        "--seed",
        "0",
        "max_env_steps=64",
        "n_envs=2",
        "n_steps=16",
        "batch_size=16",
        "n_epochs=1",
        "eval_freq_epochs=null",
        "eval_episodes=1",
        "eval_max_episode_steps=10",
    ],
}
"""Run ids and how each was trained."""
CHROMIUM = (
    os.environ.get("GYMLAB_CHROMIUM")
    or shutil.which("chromium")
    or shutil.which("chromium-browser")
    or shutil.which("google-chrome")
)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A runs directory nobody writes to, made once for all processes that test; beside it lies a secret."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    place, whole = base / "inspected", base / "inspected" / "whole"
    with (base / "inspected.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not whole.exists():
            make_runs(place)
            whole.touch()
    return place / "runs"


def make_runs(place):
    """Four trained runs, a corrupt one, a half-written one, a link that leads out and a hidden directory."""
    runs = place / "runs"
    for name, words in TRAININGS.items():
        assert main(["train", *words, "video=false", "--quiet", "--runs-dir", str(runs), "--run-id", name]) == 0
    (place / "secret.txt").write_text("the-planted-secret")
    shutil.copytree(runs / "lake", runs / "corrupt", symlinks=True)
    (runs / "corrupt" / "run.json").write_text('{"status": "fini')
    (runs / "half-written").mkdir()
    (runs / "half-written" / ".run.json.lock").touch()
    (runs / "linked").symlink_to(place)
    (runs / ".hidden").mkdir()
    shutil.copy(runs / "lake" / "config.json", runs / ".hidden")


@pytest.fixture(scope="session")
def dreamers(tmp_path_factory):
    """Two runs of a workflow with a world model: on vectors, and on pictures of two stacked frames."""
    runs = tmp_path_factory.mktemp("dreamers")
    short = {
        "algo": "linear_world",
        "runs_dir": runs,
        "plugins": [PLUGIN],
        "quiet": True,
        "video": False,
        "eval_episodes": 1,
    }
    gymlab.train("CartPole-v1", run_id="vectors", max_env_steps=800, n_envs=4, **short)
    pixels = {"obs_type": "rgb", "grayscale_obs": True, "resize_obs": [16, 24], "frame_stack": 2, "latent_size": 16}
    gymlab.train("CartPole-v1", run_id="pictures", max_env_steps=160, n_envs=2, n_steps=80, **pixels, **short)
    return runs


@pytest.fixture
def runs(trained):
    """The trained runs, to be looked at only."""
    return trained


@pytest.fixture
def start_server():
    """`start_server(runs_dir)` -> a server on a free port, answering until the test ends."""
    servers = []

    def start(runs_dir: Path):
        server = serve(runs_dir, port=0)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def server(start_server, runs):
    """A server over the trained runs."""
    return start_server(runs)


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium under Playwright; skipped only where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'gymlab[dev]' brings Playwright")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def new_page(browser):
    """`new_page(viewport=..., color_scheme=...)` -> a page; the test fails on a console error, a page error or a request to another host."""
    contexts, complaints = [], []

    def open_page(**options):
        context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 800}, "accept_downloads": True, **options}
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.complaints = complaints
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if not _is_ours(request.url) else None)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def page(new_page):
    """A page of 1280 x 800."""
    return new_page()


@pytest.fixture
def wait_until():
    """`wait_until(page, "1 < 2")`. Playwright's own wait for an expression needs what the page's security policy forbids."""

    def wait(page, expression, seconds=20):
        end = time.monotonic() + seconds
        while not page.evaluate(expression):
            assert time.monotonic() < end, expression
            page.wait_for_timeout(50)

    return wait


def _is_ours(url):
    return url.startswith(("http://127.0.0.1:", "data:", "blob:http://127.0.0.1:"))


@pytest.fixture
def call(runs):
    """`call("/api/runs", metric=[...])` -> what the handler tells, without a server; `inspector` for another directory."""
    own = Inspector(runs)
    for name in HANDLERS:
        importlib.import_module(f"gymlab.inspector.{name}")

    def ask(path, *, inspector=own, method="GET", body=None, **query):
        given = {name: value if isinstance(value, list) else [str(value)] for name, value in query.items()}
        return json.loads(answer(method, path, Request(inspector, given, body)).body)

    return ask
