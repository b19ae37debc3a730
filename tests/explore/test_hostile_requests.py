"""Requests that mean no good, or are only mistaken: the server answers clearly and goes on."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import numpy as np
import pytest
from helpers import wait_until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_images import jpeg_of_scans, png_claiming
from made_photos import in_own_loop, noise_png, resident_mib
from PIL import Image
from starlette.exceptions import HTTPException
from starlette.requests import Request

from matchkernel.explore import connections, server
from matchkernel.explore.guard import own_hosts
from matchkernel.explore.server import JSON_BYTES

JSON_TYPE = {"content-type": "application/json"}


def error_of(body):
    return json.loads(body)["error"]


@pytest.fixture(autouse=True)
def alive_afterwards(served):
    yield
    assert served.ask("GET", "/api/models")[0] == 200


@pytest.mark.parametrize("said", [True, False], ids=["length told", "chunked"])
def test_a_file_of_50_mb_is_refused_while_it_arrives(served, said):
    before = resident_mib()
    data = bytes(50 * 2**20)
    body = data if said else iter([data[:65536]] * 800)
    try:
        status, _, answer = served.ask("POST", "/api/photos", body, {"content-type": "image/png"})
    except (BrokenPipeError, ConnectionResetError):  # refused before all of it was sent
        pass
    else:
        assert (status, bool(error_of(answer))) == (413, True)
    assert resident_mib() - before < 80


PNG, HTML = "image/png", "text/html"
REFUSED_UPLOADS = {
    **{f"claims {side} x {side} pixels": (png_claiming(side, side), PNG, 400) for side in (12_000, 30_000, 2**31 - 1)},
    "nothing": (b"", PNG, 400),
    "text": (b"no photo", PNG, 400),
    "the start of a PNG": (b"\x89PNG\r\n\x1a\n", PNG, 400),
    "a JPEG of 200 scans": (jpeg_of_scans(200), "image/jpeg", 400),
    "SVG": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", PNG, 400),
    **{f"type {kind}": (noise_png(64, 48), kind, 415) for kind in (HTML, "multipart/form-data; boundary=x", "")},
}


@pytest.mark.parametrize(("data", "kind", "expected"), REFUSED_UPLOADS.values(), ids=REFUSED_UPLOADS)
def test_a_file_that_is_no_photo_is_refused_without_decoding_it(served, data, kind, expected):
    before = resident_mib()
    status, answer = served.upload(data, kind)
    assert status == expected
    assert len(answer["error"].splitlines()) == 1
    assert resident_mib() - before < 50


REFUSED_FIELDS = {
    **{f"type {kind!r}": ("{}", {"content-type": kind} if kind else {}, 415) for kind in ("text/plain", HTML, "")},
    **{f"body {body[:9]!r}": (body, JSON_TYPE, 400) for body in ("", "{", "[1, 2", "nul", "[" * 10_000, "9" * 5000)},
    "too long": (" " * (JSON_BYTES + 1), JSON_TYPE, 413),
}


@pytest.mark.parametrize(("body", "headers", "expected"), REFUSED_FIELDS.values(), ids=REFUSED_FIELDS)
def test_fields_must_be_json(served, body, headers, expected):
    status, _, answer = served.ask("POST", "/api/match", body, headers)
    assert (status, bool(error_of(answer))) == (expected, True)


@pytest.mark.parametrize(
    "path",
    [
        "/page/../server.py",
        "/page/..%2fserver.py",
        "/page/%2e%2e/%2e%2e/errors.py",
        "/page//etc/passwd",
        "//etc/passwd",
        "/page/main.js%00.css",
        "/api/photos/../../../etc/passwd.jpg",
        "/api/photos/..%2f..%2fetc%2fpasswd.jpg",
        "/api/photos/%2fetc%2fpasswd.jpg",
        "/page/index.html/..",
        "/results/../api",
    ],
)
def test_no_path_leads_out(served, path):
    status, _, body = served.ask("GET", path)
    assert status == 404
    assert error_of(body)
    assert b"root:" not in body


def test_a_model_is_never_read_from_a_path_in_a_request(served, pair):
    for model in ("/etc/passwd", "../mine.safetensors", "", "light-wide.safetensors", "x" * 10_000):
        status, answer = served.post("/api/match", {"a": pair[0].id, "b": pair[1].id, "model": model})
        assert status == 400
        assert len(answer["error"]) < 400


def test_names_of_hosts_have_no_case():
    assert own_hosts("DESKTOP-AB12", 80) == {"desktop-ab12:80", "desktop-ab12"}
    assert own_hosts("LocalHost", 8765) == own_hosts("localhost", 8765)


ELSEWHERE = {"sec-fetch-site": "cross-site"}
SITES = [  # method, path, headers, and whether the request is served
    *(("GET", "/", {"host": f"{name}:{{port}}"}, True) for name in ("127.0.0.1", "localhost", "LOCALHOST")),
    *(
        ("GET", "/", {"host": host}, False)
        for host in ("evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:80", " ", "[::1]:80")
    ),
    ("GET", "/api/models", {"origin": "http://127.0.0.1:{port}", "sec-fetch-site": "same-origin"}, True),
    *(
        (method, path, {"origin": origin}, False)
        for origin in ("http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1", "file://")
        for method, path in (("POST", "/api/sample"), ("GET", "/page/main.js"), ("OPTIONS", "/api/match"))
    ),
    ("GET", "/results", ELSEWHERE, False),
    ("POST", "/", ELSEWHERE, False),
    ("GET", "/", ELSEWHERE, True),  # a link to the page
]


@pytest.mark.parametrize(("method", "path", "headers", "is_served"), SITES)
def test_only_its_own_pages_under_its_own_names_are_served(served, method, path, headers, is_served):
    headers = {name: value.format(port=served.settings.port) for name, value in headers.items()}
    status, answered, _ = served.ask(method, path, headers=headers)
    assert status in ((200,) if is_served else (400, 403))
    assert "access-control-allow-origin" not in answered


def test_every_answer_keeps_the_page_to_itself(served):
    for method, path in (
        ("GET", "/"),
        ("GET", "/page/main.js"),
        ("GET", "/nothing"),
        ("PUT", "/api/match"),
        ("GET", "/results"),
    ):
        _, headers, _ = served.ask(method, path)
        assert "default-src 'self'" in headers["content-security-policy"] or path == "/results"
        assert "unsafe-eval" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def pair_of_regions(a, b):
    """Fields of a request for the insides of a region of 18 x 18 pixels in each photo."""
    region = {"x": 50, "y": 50, "xx": 9, "yy": 9}
    return {"a": a, "frame_a": region, "b": b, "frame_b": region, "model": "light"}


def test_twenty_requests_at_once_are_all_answered(served, pair):
    """Matches with several models and budgets, maps and curves: each is answered."""
    a, b = (photo.id for photo in pair)
    both = pair_of_regions(a, b)
    jobs = [
        ("/api/match", {"a": a, "b": b, "model": name, "keypoints": 60 + k})
        for k, name in enumerate(["rootsift", "sift"] * 5)
    ]
    jobs += [
        ("/api/maps", both),
        ("/api/warp", {**both, "along": "turn"}),
        ("/api/patches", {"photo": a, "keypoints": 99}),
    ] * 3
    jobs += [("/api/match", {"a": a, "b": "gone", "model": "sift"})]
    with ThreadPoolExecutor(len(jobs)) as pool:
        answers = list(pool.map(lambda job: served.post(*job)[0], jobs))
    assert answers == [200] * 19 + [404]
    assert len(served.explorer.photos) <= 2 + served.settings.kept_photos


def test_too_many_jobs_are_told_to_come_back(served, pair):
    jobs, gate = served.explorer.short, threading.Event()
    old, jobs._waiting = jobs._waiting, 1
    try:
        for _ in range(served.settings.workers):
            jobs._pool.submit(gate.wait)
        a, b = (photo.id for photo in pair)
        fields = pair_of_regions(a, b)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(served.post, "/api/maps", fields)
            wait_until(lambda: jobs._jobs)
            status, answer = served.post("/api/maps", fields)
            assert (status, bool(answer["error"])) == (503, True)
            assert served.ask("GET", "/api/models")[0] == 200
            assert served.post("/api/match", {"a": a, "b": b, "model": "sift", "keypoints": 50})[0] == 200
            gate.set()
            assert first.result()[0] == 200
    finally:
        jobs._waiting = old
        gate.set()


def test_a_slow_client_holds_nobody_up(served):
    with socket.create_connection(("127.0.0.1", served.settings.port)) as slow:
        head = f"POST /api/photos HTTP/1.1\r\nhost: 127.0.0.1:{served.settings.port}\r\ncontent-type: image/png\r\n"
        slow.sendall(head.encode() + b"content-length: 1000\r\n\r\nabc")
        assert served.upload(noise_png(64, 48))[0] == 200
    with socket.create_connection(("127.0.0.1", served.settings.port)) as broken:
        broken.sendall(b"\x16\x03\x01\x02\x00\x01\x00" * 100)


def test_photos_in_memory_are_bounded_and_one_that_is_gone_is_explained(served):
    first = served.upload(noise_png(40, 40, seed=1000))[1]["id"]
    for seed in range(served.settings.kept_photos):
        assert served.upload(noise_png(40, 40, seed=seed))[0] == 200
    assert len(served.explorer.photos) == 2 + served.settings.kept_photos
    status, _, body = served.ask("GET", f"/api/photos/{first}.jpg")
    assert (status, bool(error_of(body))) == (404, True)


def test_photos_without_keypoints_or_content(served):
    blank = served.upload(noise_png(64, 64, contrast=0))[1]["id"]
    status, (facts, arrays) = served.post("/api/match", {"a": blank, "b": blank, "model": "light"})
    assert status == 200
    assert facts["geometry"] is None
    assert arrays["pairs"].shape == (0, 2)
    both = pair_of_regions(blank, blank)
    assert served.post("/api/maps", both)[0] == 200
    status, (_, arrays) = served.post("/api/warp", {**both, "along": "octaves", "model": "RootSIFT"})
    assert status == 200
    assert np.isnan(arrays["RootSIFT"]).all()


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NUMBER = st.floats() | st.integers() | ANYTHING
REGION = st.fixed_dictionaries({}, optional=dict.fromkeys(("x", "y", "xx", "xy", "yx", "yy", "z"), NUMBER)) | ANYTHING
MOVED = st.fixed_dictionaries({}, optional=dict.fromkeys(("turn", "right", "down", "octaves"), NUMBER)) | ANYTHING


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_fields_get_an_answer(served, pair, data):
    photo = st.sampled_from([pair[0].id, pair[1].id]) | ANYTHING
    both = {"a": photo, "b": photo}
    regions = {**both, "frame_a": REGION, "frame_b": REGION, "model": st.sampled_from(["tiny", "RootSIFT"]) | ANYTHING}
    names = {"model": st.just("sift") | ANYTHING, "filter": st.text(max_size=20) | ANYTHING}
    along = st.sampled_from(["turn", "down", ""]) | ANYTHING
    fields = {
        "/api/match": {**both, **names, "keypoints": NUMBER},
        "/api/patches": {"photo": photo, "keypoints": NUMBER},
        "/api/maps": regions,
        "/api/warp": {**regions, "fixed": MOVED, "along": along},
    }
    path = data.draw(st.sampled_from(sorted(fields)))
    body = data.draw(st.fixed_dictionaries({}, optional=fields[path]) | ANYTHING)
    status, answer = served.post(path, body)
    assert status in (200, 400, 404)
    if status != 200:
        assert answer["error"]
        assert len(answer["error"]) <= 500


def test_a_16_bit_and_a_cmyk_photo_are_read_as_files_are(served, tmp_path):
    for name, image in {
        "deep.png": Image.fromarray(np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)),
        "print.jpg": Image.new("CMYK", (64, 48), (0, 90, 10, 20)),
    }.items():
        image.save(tmp_path / name)
        status, answer = served.upload((tmp_path / name).read_bytes())
        assert (status, answer["width"]) == (200, 64)
        assert served.ask("GET", f"/api/photos/{answer['id']}.jpg")[2][:2] == b"\xff\xd8"


def test_only_a_few_photos_arrive_at_a_time(pair, monkeypatch):
    """So that many large files at once do not fill the memory; the others wait for their turn."""
    now = most = 0

    async def body(*_):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        raise HTTPException(400, "enough")

    async def all_at_once(explorer):
        request = Request({"type": "http", "method": "POST", "headers": [(b"content-type", b"image/png")]})
        return await asyncio.gather(*(explorer.upload(request) for _ in range(20)), return_exceptions=True)

    monkeypatch.setattr(server, "_body", body)
    explorer = server.Explorer(server.ExploreSettings(), pair)
    answers = in_own_loop(all_at_once(explorer))
    explorer.close()
    assert [answer.status_code for answer in answers] == [400] * 20
    assert most == server.UPLOADS


def open_connections(served, count, data=b""):
    """Connections that have sent this, and wait."""
    found = []
    for _ in range(count):
        connection = socket.create_connection((served.settings.host, served.settings.port), timeout=30)
        connection.sendall(data)
        found.append(connection)
    return found


def is_closed(connection, seconds):
    connection.settimeout(seconds)
    try:
        while connection.recv(4096):
            pass  # the rest of an answer
        return True
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


HALF = b"POST /api/match HTTP/1.1\r\nhost: 127.0.0.1"


@pytest.mark.parametrize("data", [b"", HALF], ids=["idle", "half a header"])
def test_150_connections_that_send_no_request_keep_nobody_out(data, served):
    waiting = open_connections(served, 150, data)
    try:
        for _ in range(3):
            assert served.ask("GET", "/api/models")[0] == 200
    finally:
        for connection in waiting:
            connection.close()


def test_headers_and_fields_must_arrive_in_time(served, monkeypatch):
    monkeypatch.setattr(connections, "SECONDS_FOR_HEADERS", 1.0)
    monkeypatch.setattr(server, "JSON_SECONDS", 1.0)
    host = f"host: 127.0.0.1:{served.settings.port}\r\n".encode()
    kept = b"GET /api/models HTTP/1.1\r\n" + host + b"\r\n"
    (idle, half, after), (slow,) = (
        [open_connections(served, 1, data)[0] for data in (b"", HALF, kept)],
        open_connections(served, 1, b"POST /api/match HTTP/1.1\r\n" + host),
    )
    slow.sendall(b"content-type: application/json\r\ncontent-length: 100\r\n\r\n{")
    assert b"200 OK" in after.recv(65536)
    after.sendall(HALF)
    answered = slow.recv(4096)
    assert b" 408 " in answered
    closed = [is_closed(connection, 30) for connection in (idle, half, after, slow)]
    for connection in (idle, half, after, slow):
        connection.close()
    assert closed == [True] * 4


def test_who_does_not_read_the_answers_is_closed(served, pair, monkeypatch):
    monkeypatch.setattr(connections, "SECONDS_TO_READ", 1.0)
    request = f"GET /api/photos/{pair[0].id}.jpg HTTP/1.1\r\nhost: 127.0.0.1:{served.settings.port}\r\n\r\n".encode()
    (connection,) = open_connections(served, 1, 500 * request)
    with connection, suppress(ConnectionResetError, BrokenPipeError):
        for _ in range(300):
            time.sleep(0.1)
            connection.send(b"G")
        pytest.fail("it is still open")


MANY = """
import resource, socket, subprocess, sys, threading
from matchkernel.explore.serve import serve
from matchkernel.explore.settings import ExploreSettings
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 4096))
serve(ExploreSettings(port=0, model="sift"), started=lambda address: print(address, flush=True))
"""


def test_more_connections_than_files_can_be_open_print_nothing_and_keep_nobody_out(tmp_path):
    with ExitStack() as stack:
        errors = stack.enter_context((tmp_path / "errors").open("w"))
        process = subprocess.Popen([sys.executable, "-c", MANY], stdout=subprocess.PIPE, stderr=errors, text=True)
        stack.enter_context(process)
        stack.callback(process.kill)
        port = int(process.stdout.readline().rstrip("/\n").rpartition(":")[2])
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=120))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/models", timeout=120) as answer:
            assert answer.status == 200
    assert (tmp_path / "errors").read_text() == ""


def test_small_answers_are_sent_at_once(served, monkeypatch):
    """Without TCP_NODELAY each waits 40 ms for the reader to acknowledge its headers."""
    found, receive = [], connections.Connection.data_received

    def data_received(self, data):
        found.append(self.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        receive(self, data)

    monkeypatch.setattr(connections.Connection, "data_received", data_received)
    assert served.ask("GET", "/api/models")[0] == 200
    assert found
    assert all(found)
