"""A screen of our own for tests of windows, with real keys."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

SECONDS = 90
"""How long a condition is waited for: a loaded machine is slow."""


def start_screen():
    """An X server without a monitor on a free display; skips where it or the keyboard are not installed."""
    missing = [name for name in ("Xvfb", "xdotool") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}. Run: sudo apt-get install xvfb xdotool")
    reading, writing = os.pipe()
    command = ["Xvfb", "-displayfd", str(writing), "-screen", "0", "1400x900x24", "-nolisten", "tcp", "-noreset"]
    server = subprocess.Popen(command, pass_fds=[writing], stderr=subprocess.DEVNULL)
    os.close(writing)
    with os.fdopen(reading) as number:
        return server, f":{number.readline().strip()}"


class Played:
    """A `gymlab play` in a window."""

    def __init__(self, display, arguments, directory):
        self.environment = {**os.environ, "DISPLAY": display, "OMP_NUM_THREADS": "1"}
        for name in ("WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
            self.environment.pop(name, None)
        command = [sys.executable, "-m", "gymlab", "play", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, env=self.environment, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.last_title = ""
        self.wait(lambda: "episode" in self.title)

    def xdotool(self, *arguments):
        command = ["xdotool", *map(str, arguments)]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False).stdout

    def wait(self, condition):
        end = time.monotonic() + SECONDS
        while not (found := condition()):
            if self.process.poll() is not None:
                raise AssertionError(self.process.communicate())
            assert time.monotonic() < end, f"waited in vain; the window says {self.last_title!r}"
            time.sleep(0.05)
        return found

    @property
    def window(self):
        """Its number, asked for each time: a window that changes its size may be another one."""
        return self.xdotool("search", "--onlyvisible", "--pid", self.process.pid).strip()

    @property
    def title(self):
        found = self.window
        self.last_title = self.xdotool("getwindowname", found).strip() if found else ""
        return self.last_title

    @property
    def place(self):
        """Episode and step, as the title tells them; before both while there is no window."""
        found = re.search(r"episode (\d+), step (\d+)", self.title)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def key(self, name):
        self.xdotool("key", name)

    def key_down(self, name):
        self.xdotool("keydown", name)

    def key_up(self, name):
        self.xdotool("keyup", name)

    @property
    def size(self):
        found = re.search(r"Geometry: (\d+)x(\d+)", self.xdotool("getwindowgeometry", self.window))
        return (int(found[1]), int(found[2])) if found else None

    def finish(self):
        """Wait for its end; code, output and errors."""
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.communicate()
