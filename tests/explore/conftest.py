"""A real server in a thread, with a small pair of real photos, and a headless Chromium to look at its page."""

import http.client
import io
import json
import threading
import time
from dataclasses import dataclass, replace

import pytest
import uvicorn
from made_photos import unpack
from page_steps import SHOWN
from PIL import Image

from matchkernel.explore.connections import server_config
from matchkernel.explore.photos import decode
from matchkernel.explore.serve import address_of, listen
from matchkernel.explore.server import create_app
from matchkernel.explore.settings import ExploreSettings

LIMITS = ExploreSettings(port=0, model="light", keypoints=150, upload_bytes=2**20, upload_pixels=1_000_000, waiting=64)


@dataclass(frozen=True)
class Served:
    """A running server."""

    settings: ExploreSettings
    explorer: object

    @property
    def address(self):
        return address_of(self.settings)

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and body of an answer; the path is sent as it is."""
        connection = http.client.HTTPConnection(self.settings.host, self.settings.port, timeout=60)
        try:
            own = {"host": f"127.0.0.1:{self.settings.port}"}
            connection.request(method, path, body, {**own, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def post(self, path, fields):
        """Status and, of JSON, its contents, or facts and arrays."""
        status, headers, body = self.ask("POST", path, json.dumps(fields), {"content-type": "application/json"})
        return status, json.loads(body) if headers["content-type"] == "application/json" else unpack(body)

    def upload(self, data, kind="image/png"):
        status, _, body = self.ask("POST", "/api/photos", data, {"content-type": kind})
        return status, json.loads(body)


def png(image):
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()


@pytest.fixture(scope="session")
def photo_files(photos_cc0, tmp_path_factory):
    """Two small photos of one scene, as files."""
    folder = tmp_path_factory.mktemp("explore")
    paths = []
    for path in sorted((photos_cc0 / "images").glob("*.jpg"))[:2]:
        image = Image.open(path)
        image.thumbnail((360, 360))
        paths.append(folder / f"{path.stem}.png")
        paths[-1].write_bytes(png(image))
    return paths


@pytest.fixture(scope="session")
def pair(photo_files):
    return tuple(decode(path.read_bytes(), path.name, LIMITS) for path in photo_files)


@pytest.fixture(scope="session")
def served(pair):
    with listen(LIMITS) as place:
        settings = replace(LIMITS, port=place.getsockname()[1])
        app = create_app(settings, pair, "<!doctype html><title>r</title><h1>the report</h1>")
        server = uvicorn.Server(server_config(app))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield Served(settings, app.state.explorer)
        server.should_exit = True
        thread.join(10)
        app.state.explorer.close()


@pytest.fixture
def new_page(chromium):
    """A function that opens a page; the test fails if the page reports an error of a script."""
    contexts, errors = [], []

    def open_page(address, *, width=1200, height=900, **options):
        contexts.append(chromium.new_context(viewport={"width": width, "height": height}, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(180_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def page(served, new_page):
    page = new_page(served.address)
    page.wait_for_selector(SHOWN)
    return page
