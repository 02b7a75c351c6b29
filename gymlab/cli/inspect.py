"""Look at runs in the browser: learning curves, episodes step by step, what the agent has learned. Served from this machine, for this machine."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from gymlab.cli.arguments import add_env_kwargs, add_plugins, add_runs_directory
from gymlab.errors import GymlabError

USAGE = "gymlab inspect [REF] [options]"
EXAMPLES = """  gymlab inspect                               all runs, the newest one selected
  gymlab inspect my-run                        that one selected
  gymlab inspect --port 9000 --no-browser      print the address only
  ssh -L 7860:localhost:7860 HOST              then `gymlab inspect --no-browser` there: its runs in the browser here"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "reference", nargs="?", metavar="REF", help="run to begin with: @last, ID or its directory (default: @last)"
    )
    parser.add_argument(
        "--port", type=int, default=7860, metavar="N", help="port; the next free one if it is taken (default: 7860)"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address and open nothing")
    add_env_kwargs(parser, whose="those of REF")
    add_plugins(parser)
    add_runs_directory(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    if not 0 <= arguments.port <= 65535:
        raise GymlabError(f"--port {arguments.port}: a port is a number from 0 (any free one) to 65535.")
    from gymlab.cli.output import show_notices, show_text
    from gymlab.inspector.server import serve
    from gymlab.metrics.terminal import CleanFormatter

    runs_dir, chosen = _place(arguments.reference, arguments.runs_dir)
    if arguments.plugin:
        from gymlab.api import load_plugins

        load_plugins(arguments.plugin)
    server = serve(runs_dir, arguments.host, arguments.port, arguments.plugin)
    server.inspector.initial, server.inspector.env_kwargs = chosen, arguments.env_kwargs
    handler = logging.StreamHandler()
    handler.setFormatter(CleanFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    if arguments.port not in (0, server.port):
        show_notices([f"port {arguments.port} is taken; {server.port} is used"])
    if not server.is_private:
        show_notices(
            [
                f"--host {arguments.host} lets everybody who can reach this machine see your runs and change those that train: "
                "there is no password. A tunnel is safer: ssh -L 7860:localhost:7860 THIS-MACHINE"
            ]
        )
    show_text(f"gymlab inspector: {server.url}  ({runs_dir}; Ctrl-C ends it)")
    sys.stdout.flush()
    if not arguments.no_browser:
        _open(server.url)
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        print("\nInspector ended.", file=sys.stderr)
    finally:
        server.server_close()
    return 0


def _place(reference: str | None, given: str | None) -> tuple[Path, str | None]:
    """The runs directory to serve, and the run to begin with; without any run yet the page says what to do."""
    from gymlab.engine.run import all_runs, find_run, runs_directory

    runs_dir = runs_directory(given)
    if reference is None and not any(True for _ in all_runs(runs_dir)):
        return runs_dir, None
    found, _ = find_run(reference or "@last", runs_dir)
    return found.dir.parent, found.id


def _open(url: str) -> None:
    """Show the page where there is a browser; on a machine without a screen nothing happens."""
    import os
    import webbrowser

    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    webbrowser.open(url)
