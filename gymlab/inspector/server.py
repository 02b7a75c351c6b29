"""The inspector's web server: this machine only, a fixed table of routes and files, no path from the browser to the disk."""

from __future__ import annotations

import errno
import importlib
import ipaddress
import json
import logging
import re
import socket
import sys
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from gymlab.errors import GymlabError
from gymlab.inspector.routes import HttpError, Inspector, Request, Response, answer, json_response

logger = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
SCRIPT, STYLE, PAGE, PICTURE = (
    "text/javascript; charset=utf-8",
    "text/css; charset=utf-8",
    "text/html; charset=utf-8",
    "image/svg+xml",
)
FILES = {
    "/": ("index.html", PAGE),
    "/favicon.ico": ("icon.svg", PICTURE),
    "/static/style.css": ("style.css", STYLE),
    "/static/tabs.css": ("tabs.css", STYLE),
    "/static/episode.css": ("episode.css", STYLE),
    "/static/play.css": ("play.css", STYLE),
    "/static/theme.js": ("theme.js", SCRIPT),
    "/static/app.js": ("app.js", SCRIPT),
    "/static/dom.js": ("dom.js", SCRIPT),
    "/static/charts.js": ("charts.js", SCRIPT),
    "/static/runs.js": ("runs.js", SCRIPT),
    "/static/learning.js": ("learning.js", SCRIPT),
    "/static/learning_data.js": ("learning_data.js", SCRIPT),
    "/static/learning_form.js": ("learning_form.js", SCRIPT),
    "/static/episode.js": ("episode.js", SCRIPT),
    "/static/rollout.js": ("rollout.js", SCRIPT),
    "/static/player.js": ("player.js", SCRIPT),
    "/static/steps.js": ("steps.js", SCRIPT),
    "/static/maps.js": ("maps.js", SCRIPT),
    "/static/agent.js": ("agent.js", SCRIPT),
    "/static/world_model.js": ("world_model.js", SCRIPT),
    "/static/plans.js": ("plans.js", SCRIPT),
    "/static/play.js": ("play.js", SCRIPT),
    "/static/play_stage.js": ("play_stage.js", SCRIPT),
    "/static/play_keys.js": ("play_keys.js", SCRIPT),
}
"""Every file that is served, by address: nothing else of the package is."""
HANDLERS = ("runs", "curves", "changes", "episodes", "agents", "dreams", "plans", "play")
"""Modules of this package that register routes."""
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
BODY_LIMIT = 65536
PORTS_TRIED = 20
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Server(ThreadingHTTPServer):
    """Serves one runs directory; each request in a thread of its own."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, inspector: Inspector, host: str = "127.0.0.1", port: int = 7860) -> None:
        for name in HANDLERS:
            importlib.import_module(f"gymlab.inspector.{name}")
        self.inspector = inspector
        self.host = host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Connection)

    @property
    def port(self) -> int:
        """The port that was bound."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """The address to open in a browser."""
        host = "127.0.0.1" if self.host in ("", "0.0.0.0") else "::1" if self.host == "::" else self.host
        return f"http://[{host}]:{self.port}/" if ":" in host else f"http://{host}:{self.port}/"

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host == "localhost" or (is_address(self.host) and ipaddress.ip_address(self.host).is_loopback)

    def allows_host(self, header: str) -> bool:
        """Whether a Host header names this server. A name that somebody has pointed at this machine (DNS rebinding) does not.

        The port is left aside: through a tunnel it is another one.
        """
        name = host_name(header)
        if name in (*LOOPBACK, self.host.lower()):
            return True
        return self.host in ("", "0.0.0.0", "::") and (is_address(name) or name == socket.gethostname().lower())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no error; anything else is told in the terminal."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            logger.error("The inspector failed to answer.", exc_info=True)


class Connection(BaseHTTPRequestHandler):
    """Judges a request, hands it to its route and writes the answer."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "gymlab"
    sys_version = ""
    timeout = 60
    disable_nagle_algorithm = True
    """An answer is two writes: with it, the second waits 40 ms for the browser to acknowledge the first, for every picture."""

    def do_GET(self) -> None:
        """Files and what handlers tell."""
        self._answer("GET")

    def do_HEAD(self) -> None:
        """The same without the content."""
        self._answer("GET")

    def do_POST(self) -> None:
        """What changes something: only from the page itself."""
        self._answer("POST")

    def _answer(self, method: str) -> None:
        # Whatever happens there is an answer; an error that is not the user's goes on to `handle_error`, which prints it.
        response = json_response(
            {"error": "The inspector met an error of its own. The terminal it runs in says which."}, 500
        )
        try:
            response = self._respond(method)
        except HttpError as error:
            response = json_response({"error": str(error)}, error.status)
        except GymlabError as error:
            response = json_response({"error": str(error)}, 400)
        finally:
            self._send(response)

    def _respond(self, method: str) -> Response:
        if not self.server.allows_host(self.headers.get("Host", "")):
            self.close_connection = True
            raise HttpError(403, "This address is not the inspector's. Open the one that `gymlab inspect` printed.")
        try:
            address = urlsplit(self.path)
        except ValueError:
            self.close_connection = True
            raise HttpError(400, "The address cannot be read.") from None
        path = decoded(address.path)
        body = self._body() if method == "POST" else None
        if method == "GET" and path in FILES:
            return self._file(path)
        if path.startswith("/api/") and self.headers.get("Sec-Fetch-Site", "same-origin") not in (
            "same-origin",
            "none",
        ):
            raise HttpError(403, "Other sites may not ask the inspector.")
        try:
            query = parse_qs(address.query, keep_blank_values=True, errors="strict", max_num_fields=200)
        except ValueError:
            raise HttpError(400, "The address cannot be read.") from None
        return answer(method, path, Request(self.server.inspector, query, body))

    def _file(self, path: str) -> Response:
        name, content_type = FILES[path]
        content = (STATIC / name).read_bytes()
        if path == "/":
            content = content.replace(b"{{token}}", self.server.inspector.token.encode())
        return Response(content, content_type)

    def _body(self) -> Any:
        """The JSON of a POST that comes from our own page; anything else is refused before it is read."""
        self.close_connection = True  # What is refused stays unread and would be taken for the next request.
        if self.headers.get_content_type() != "application/json":
            raise HttpError(403, "Only JSON is taken.")
        origin = self.headers.get("Origin")
        site = self.headers.get("Sec-Fetch-Site")
        if origin is None and site is None:
            raise HttpError(403, "A change must come from the inspector's own page.")
        if origin is not None and origin_host(origin) != self.headers.get("Host"):
            raise HttpError(403, "A change must come from the inspector's own page.")
        if site not in (None, "same-origin"):
            raise HttpError(403, "A change must come from the inspector's own page.")
        if self.headers.get("X-Gymlab-Token") != self.server.inspector.token:
            raise HttpError(403, "This page belongs to an inspector that has ended. Reload it.")
        length = self.headers.get("Content-Length", "")
        # Some characters are digits to Python and no number, and a number may be too long to be read.
        if not re.fullmatch(r"[0-9]{1,9}", length) or int(length) > BODY_LIMIT:
            raise HttpError(413, f"A request has at most {BODY_LIMIT:,} bytes.")
        content = self.rfile.read(int(length))
        self.close_connection = False
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise HttpError(400, "The request is not valid JSON.") from None

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        headers = {
            "Content-Type": response.content_type,
            "Content-Length": str(len(response.body)),
            "Cache-Control": "no-store",
        }
        for name, value in {**headers, **SECURITY_HEADERS, **response.headers}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing for each request: the terminal is for errors."""


def serve(runs_dir: str | Path, host: str = "127.0.0.1", port: int = 7860, plugins: Sequence[str] = ()) -> Server:
    """A server bound to the first free port from `port` on (0: any); `serve_forever` runs it."""
    inspector = Inspector(Path(runs_dir), plugins)
    taken: OSError | None = None
    for candidate in range(port, min(port + PORTS_TRIED, 65536)) if port else [0]:
        try:
            return Server(inspector, host, candidate)
        except socket.gaierror as error:
            raise GymlabError(
                f"--host {host}: there is no such address ({error.strerror}). Leave it out for this machine alone."
            ) from error
        except PermissionError as error:
            raise GymlabError(
                f"Port {candidate} may not be used ({error.strerror}). Take one above 1023: --port 7860."
            ) from error
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise GymlabError(
                    f"Cannot listen on {host}:{candidate}: {error.strerror}. --host 127.0.0.1 is this machine alone."
                ) from error
            taken = error
    raise GymlabError(
        f"Ports {port} to {port + PORTS_TRIED - 1} are all taken. Give another one: --port 9000."
    ) from taken


def decoded(path: str) -> str:
    """The path after one decoding; one that is odd in any way leads nowhere."""
    try:
        plain = unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise HttpError(404, "There is nothing at this address.") from None
    segments = plain.split("/")[1:]
    odd = any(character in plain for character in "\\%\0\r\n") or any(part in (".", "..") for part in segments)
    if odd or not plain.startswith("/") or "" in segments[:-1]:
        raise HttpError(404, "There is nothing at this address.")
    return plain


def origin_host(header: str) -> str | None:
    """Host and port of an Origin header; None where it is no address."""
    try:
        return urlsplit(header).netloc
    except ValueError:
        return None


def host_name(header: str) -> str:
    """The name of a Host header without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def is_address(name: str) -> bool:
    """Whether a name is an IP address: nobody can point that one elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
