"""Only our page is answered, only what is in the tables is served, and nothing leads out of the runs directory."""

import http.client
import json
import shutil
import time

import pytest

from gymlab.errors import GymlabError
from gymlab.inspector.routes import ROUTES, Inspector, Response, route
from gymlab.inspector.server import FILES, STATIC, Server, serve

SECRET = b"the-planted-secret"
CLIMBS = [
    "../secret.txt",
    "..%2fsecret.txt",
    "%2e%2e/secret.txt",
    "%2e%2e%2fsecret.txt",
    "%252e%252e%252fsecret.txt",
    "..%252fsecret.txt",
    "..\\secret.txt",
    "..%5csecret.txt",
    "%2e%2e%5csecret.txt",
    "..%c0%afsecret.txt",
    "....//secret.txt",
    "./../secret.txt",
    "lake/../../secret.txt",
    "lake%2f..%2f..%2fsecret.txt",
    "lake%00/../../secret.txt",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "//etc/passwd",
    "file:///etc/passwd",
    "~/secret.txt",
    "@last",
    "%40last",
    "lake/run.json",
    "linked",
    ".hidden",
    "LAKE",
]
"""Ways to write a path that leads where it should not."""


@pytest.fixture
def ask(server):
    """`ask("GET", "/api/runs")` -> status, headers, body; the path goes over the wire as it is written."""

    def send(method, path, headers=None, body=None, to=server):
        connection = http.client.HTTPConnection("127.0.0.1", to.port, timeout=10)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in {"Host": f"127.0.0.1:{to.port}", **(headers or {})}.items():
            if value is not None:
                connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), content

    return send


@pytest.fixture
def post_headers(server):
    return {
        "Content-Type": "application/json",
        "Origin": f"http://127.0.0.1:{server.port}",
        "Sec-Fetch-Site": "same-origin",
        "X-Gymlab-Token": server.inspector.token,
    }


def test_every_file_of_the_table_is_there_and_served_with_its_type(ask):
    for path, (name, content_type) in FILES.items():
        status, headers, body = ask("GET", path)
        assert (status, headers["Content-Type"]) == (200, content_type), path
        if path != "/":
            assert body == (STATIC / name).read_bytes()
    assert {name for name, _ in FILES.values()} == {path.name for path in STATIC.iterdir()}


def test_files_of_the_page_stay_small():
    for path in STATIC.iterdir():
        assert len(path.read_text().splitlines()) <= 520, path.name


def test_headers_of_every_answer(ask):
    for path in ("/", "/api/runs", "/nothing", "/static/app.js"):
        _, headers, _ = ask("GET", path)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "img-src 'self' data: blob:" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers
        assert "Python" not in headers["Server"]


@pytest.mark.parametrize("climb", CLIMBS)
def test_no_path_leads_out(ask, runs, climb):
    for place in ("/", "/static/", "/api/runs/", "/api/"):
        for tail in ("", "/curves?metric=a", "/marks", "/metrics"):
            status, _, body = ask("GET", place + climb + tail)
            assert status in (400, 403, 404), (place + climb + tail, status, body[:200])
            assert SECRET not in body
            assert b"root:" not in body
    status, _, body = ask("GET", f"/api/bands?metric=a&run={climb}")
    assert status in (400, 403, 404)
    assert SECRET not in body


def test_a_file_of_a_run_that_leads_out_is_not_read(ask, start_server, runs, tmp_path):
    copies = tmp_path / "runs"
    (tmp_path / "secret.txt").write_bytes(SECRET + b"\n" + SECRET + b"\n")
    for name in ("metrics.csv", "run.json", "config.json", "alerts.json", "changes.jsonl"):
        run = copies / name.replace(".", "-")
        shutil.copytree(runs / "lake", run, symlinks=True)
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(tmp_path / "secret.txt")
    server = start_server(copies)
    status, _, body = ask("GET", "/api/runs", to=server)
    assert status == 200
    assert SECRET not in body
    listed = {run["id"]: run for run in json.loads(body)["runs"]}
    assert len(listed) == 5
    assert {run["status"] for run in listed.values()} == {"damaged"}
    assert "metrics.csv leads out of the run" in listed["metrics-csv"]["reason"]
    for name in listed:
        for tail in ("metrics", "curves?metric=a", "marks", "hyperparameters"):
            status, _, body = ask("GET", f"/api/runs/{name}/{tail}", to=server)
            assert status == 403
            assert SECRET not in body


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("LOCALHOST:{port}", 200),
        ("localhost:9000", 200),
        ("[::1]:{port}", 200),
        ("evil.example:{port}", 403),
        ("127.0.0.1.evil.example:{port}", 403),
        ("localhost.evil.example", 403),
        ("192.168.1.5:{port}", 403),
        ("", 403),
        (None, 403),
    ],
)
def test_a_name_that_was_pointed_at_this_machine_is_refused(ask, server, host, status):
    for path in ("/", "/api/runs", "/static/app.js"):
        found = ask("GET", path, {"Host": host and host.format(port=server.port)})
        assert found[0] == status
        assert status == 200 or server.inspector.token.encode() not in found[2]


def test_bound_to_every_address_it_answers_to_addresses_and_not_to_names(tmp_path):
    server = Server(Inspector(tmp_path), "0.0.0.0", 0)
    try:
        assert server.allows_host("192.168.1.5:7860")
        assert not server.allows_host("evil.example:7860")
        assert not server.is_private
        assert server.url == f"http://127.0.0.1:{server.port}/"
    finally:
        server.server_close()


def test_other_sites_may_not_ask(ask):
    assert ask("GET", "/api/runs", {"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert ask("GET", "/api/runs", {"Sec-Fetch-Site": "same-site"})[0] == 403
    assert ask("GET", "/api/runs", {"Sec-Fetch-Site": "same-origin"})[0] == 200


@pytest.mark.parametrize(
    "change",
    [
        {"X-Gymlab-Token": None},
        {"X-Gymlab-Token": "guessed"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[bad"},
        {"Origin": "http://[::1"},
        {"Origin": "http://\u00b2\u00bd"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": None, "Sec-Fetch-Site": None},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
    ],
)
def test_a_change_comes_from_our_page_alone(ask, post_headers, runs, change):
    body = b'{"values": {"policy_lr": "1"}}'
    before = (runs / "cartpole-s1" / "config.json").read_bytes()
    status, _, content = ask("POST", "/api/runs/cartpole-s1/hyperparameters", {**post_headers, **change}, body)
    assert status == 403
    assert "error" in json.loads(content)
    assert (runs / "cartpole-s1" / "config.json").read_bytes() == before
    assert not (runs / "cartpole-s1" / "changes.jsonl").exists()


def test_bodies_are_bounded_and_must_be_json(ask, post_headers):
    address = "/api/runs/cartpole-s1/hyperparameters"
    assert ask("POST", address, post_headers, b"{not json")[0] == 400
    assert ask("POST", address, post_headers, b"[" * 60000)[0] == 400
    for length in ("99999999", "9" * 5000, "\u00b2", "-1", "1e3", ""):
        assert ask("POST", address, {**post_headers, "Content-Length": length})[0] == 413


def test_methods_and_unknown_values(ask, post_headers):
    assert ask("POST", "/api/runs", post_headers, b"{}")[0] == 405
    assert ask("GET", "/api/nothing")[0] == 404
    assert ask("DELETE", "/api/runs")[0] == 501
    assert ask("GET", "/api/runs?odd=1")[0] == 400
    status, _, body = ask("GET", "/api/runs/lake/curves?metric=a&points=many")
    assert status == 400
    assert json.loads(body) == {"error": "points is a whole number from 10 to 4000."}
    assert ask("GET", "/api/runs/lake/curves?metric=a&points=99999999")[0] == 400
    assert ask("GET", "/api/runs/lake/curves?metric=a&axis=sideways")[0] == 400
    assert ask("GET", "/api/runs/lake/curves")[0] == 400
    assert ask("GET", "/api/runs/lake/curves?metric=%ff")[0] == 400
    assert ask("HEAD", "/")[2] == b""


@pytest.mark.parametrize("address", ["http://[::1", "http://[bad]/api/runs", "http://[", "//[::1", "http://[v1.a:b/"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_an_address_that_is_none_is_refused(ask, post_headers, caplog, method, address):
    status, _, body = ask(method, address, post_headers, b"{}" if method == "POST" else None)
    assert status in (400, 404)
    assert method == "HEAD" or "error" in json.loads(body)
    assert not caplog.records, "no error of ours"


def test_an_error_of_our_own_is_told_in_a_sentence_without_a_traceback(ask, caplog):
    @route("GET", "/api/broken")
    def broken(request):
        return Response(str(1 / 0).encode())

    try:
        status, _, body = ask("GET", "/api/broken")
    finally:
        ROUTES.pop()
    assert status == 500
    assert json.loads(body)["error"].startswith("The inspector met an error of its own.")
    assert b"Traceback" not in body
    end = time.monotonic() + 5
    while "ZeroDivisionError" not in caplog.text:  # It is told after the answer is out.
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_next_free_port_is_taken(tmp_path, server):
    other = serve(tmp_path, port=server.port)
    try:
        assert server.port < other.port <= server.port + 20
    finally:
        other.server_close()


def test_addresses_that_cannot_be_bound_are_explained(tmp_path):
    with pytest.raises(GymlabError, match=r"--host 127\.0\.0\.1 is this machine alone"):
        serve(tmp_path, "203.0.113.7", 7860)
    with pytest.raises(GymlabError, match="there is no such address"):
        serve(tmp_path, "no-such-host.invalid", 7860)


def test_the_token_is_in_the_page_alone(ask, server):
    assert server.inspector.token.encode() in ask("GET", "/")[2]
    for path in [*list(FILES)[1:], "/api/runs"]:
        assert server.inspector.token.encode() not in ask("GET", path)[2]
