"""The explorer's server: the page, and what its scripts ask for. Nothing is written to the disk."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from matchkernel.errors import MatchKernelError, MissingExtraError, short_message
from matchkernel.explore.guard import Guard, own_hosts
from matchkernel.explore.inside import COMPARED, RANGES, PatchChange, PatchInspector, Region
from matchkernel.explore.jobs import BusyError, Jobs, StoppedError
from matchkernel.explore.matching import PageMatcher
from matchkernel.explore.page_files import TYPES, pack, page_file
from matchkernel.explore.photos import PagePhoto, PhotoStore, UnknownPhotoError, decode, read_sample
from matchkernel.explore.settings import MAX_KEYPOINTS, ExploreSettings
from matchkernel.photos.match import NUMBERS
from matchkernel.storage.settings import Checked, from_dict, setting

JSON_BYTES = 65536  # maximum size of a request that is not a photo
JSON_SECONDS = 10.0  # for it to arrive
VIEWED = 2 + len(COMPARED)  # requests for the insides of one match: a model and RootSIFT beside those compared
UPLOADS = 4  # photos that may arrive at a time; others wait
# The report is one page without scripts; its styles are inside.
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
NAMELESS = "this file"
STATUS = {
    UnknownPhotoError: 404,
    MissingExtraError: 501,
    MatchKernelError: 400,
    BusyError: 503,
    StoppedError: 503,
    ClientDisconnect: 400,
}
Fields = TypeVar("Fields")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MatchRequest(Checked):
    """What /api/match takes."""

    a: str = ""
    b: str = ""
    model: str = ""
    keypoints: int = setting(2000, low=10, high=MAX_KEYPOINTS)
    filter: str = "ratio"


@dataclass(frozen=True)
class PatchesRequest(Checked):
    """What /api/patches takes."""

    photo: str = ""
    keypoints: int = setting(2000, low=10, high=MAX_KEYPOINTS)


@dataclass(frozen=True)
class PairRequest(Checked):
    """What /api/maps takes."""

    a: str = ""
    frame_a: Region = field(default_factory=Region)
    b: str = ""
    frame_b: Region = field(default_factory=Region)
    fixed: PatchChange = field(default_factory=PatchChange)
    model: str = ""


@dataclass(frozen=True)
class WarpRequest(PairRequest):
    """What /api/warp takes."""

    along: str = ""


class Explorer:
    """What the server knows: photos, models, results; all in memory."""

    def __init__(self, settings: ExploreSettings, pair: tuple[PagePhoto, PagePhoto], report: str | None = None) -> None:
        self.settings, self.pair, self.report = settings, pair, report
        self.photos = PhotoStore(settings.kept_photos, pair)
        self.matcher = PageMatcher(settings)
        self.inspector = PatchInspector(VIEWED * settings.kept_results, self.matcher.own)
        self.long = Jobs(settings.workers, settings.waiting)
        self.arriving = asyncio.Semaphore(UPLOADS)
        self.short = Jobs(settings.workers, settings.waiting)  # a curve may run while maps are asked for

    def facts(self) -> dict[str, Any]:
        """What the page must know before anything is computed."""
        return {
            "models": list(self.matcher.models),
            "model": self.matcher.chosen[0],
            "keypoints": self.settings.keypoints,
            "max_keypoints": MAX_KEYPOINTS,
            "filters": list(NUMBERS),
            "upload_bytes": self.settings.upload_bytes,
            "ranges": RANGES,
            "views": self.inspector.views,
            "compared": COMPARED,
            "receptive_field": self.inspector.receptive_side,
            "pair": [photo.facts for photo in self.pair],
            "report": self.report is not None,
        }

    def close(self) -> None:
        """Drop all jobs."""
        self.long.close()
        self.short.close()

    async def upload(self, request: Request) -> Response:
        """Take a photo: the body is the file."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not kind.startswith("image/") and kind != "application/octet-stream":
            raise HTTPException(415, "send the file of a photo, with the type image/... or application/octet-stream")
        try:
            async with asyncio.timeout(self.settings.upload_seconds), self.arriving:
                data = await _body(request, self.settings.upload_bytes)
        except TimeoutError:
            raise HTTPException(408, "the photo took too long to arrive", {"connection": "close"}) from None
        photo = await self.long.run(decode, data, NAMELESS, self.settings)
        self.photos.add(photo)
        return JSONResponse(photo.facts)

    async def sample(self, _: Request) -> Response:
        """The sample pair."""
        pair = await self.long.run(read_sample, self.settings)
        for photo in pair:
            self.photos.add(photo)
        return JSONResponse([photo.facts for photo in pair])

    async def picture(self, request: Request) -> Response:
        """A JPEG of a photo in memory."""
        return Response(self.photos.get(request.path_params["photo"]).jpeg, media_type="image/jpeg")

    async def match(self, request: Request) -> Response:
        """Match two photos."""
        asked = await _fields(request, MatchRequest)
        a, b = self.photos.get(asked.a), self.photos.get(asked.b)

        def work() -> bytes:
            found = self.matcher.compare(a, b, asked.model, asked.keypoints, asked.filter)
            return pack(found.facts, found.arrays)

        return _bytes(await self.long.run(work))

    async def patches(self, request: Request) -> Response:
        """The patches of all keypoints of a photo."""
        asked = await _fields(request, PatchesRequest)
        photo = self.photos.get(asked.photo)
        found = await self.long.run(self.matcher.patches, photo, asked.keypoints)
        return _bytes(pack({}, {"patches": found}))

    async def maps(self, request: Request) -> Response:
        """The similarity maps of every position of two patches, the second changed, for every view of a model."""
        asked = await _fields(request, PairRequest)
        a, b = self.photos.get(asked.a), self.photos.get(asked.b)
        found = await self.short.run(self.inspector.map, a, asked.frame_a, b, asked.frame_b, asked.fixed, asked.model)
        return _bytes(pack({}, found))

    async def warp(self, request: Request) -> Response:
        """How similarity falls along one change of the second patch."""
        asked = await _fields(request, WarpRequest)
        a, b = self.photos.get(asked.a), self.photos.get(asked.b)
        cosines, values, patches = await self.short.run(
            self.inspector.curve, a, asked.frame_a, b, asked.frame_b, asked.along, asked.fixed, asked.model
        )
        return _bytes(pack({"views": list(cosines)}, {**cosines, "values": values, "patches": patches}))

    async def results(self, _: Request) -> Response:
        """The report page."""
        if self.report is None:
            raise HTTPException(404, "no results were given: start with --results FOLDER")
        return HTMLResponse(self.report, headers={"content-security-policy": REPORT_POLICY})


def create_app(settings: ExploreSettings, pair: tuple[PagePhoto, PagePhoto], report: str | None = None) -> Starlette:
    """The explorer as an ASGI application.

    It answers only requests for the host and port of the settings. The page opens with the pair of photos; the report
    is the HTML of the page of results.
    """
    explorer = Explorer(settings, pair, report)

    async def facts(_: Request) -> Response:
        return JSONResponse(explorer.facts())

    routes = [
        Route("/", _page("index.html")),
        *(Route(f"/page/{name}", _page(name)) for name in TYPES),
        Route("/api/models", facts),
        Route("/api/photos", explorer.upload, methods=["POST"]),
        Route("/api/photos/{photo:str}.jpg", explorer.picture),
        Route("/api/sample", explorer.sample, methods=["POST"]),
        Route("/api/match", explorer.match, methods=["POST"]),
        Route("/api/patches", explorer.patches, methods=["POST"]),
        Route("/api/maps", explorer.maps, methods=["POST"]),
        Route("/api/warp", explorer.warp, methods=["POST"]),
        Route("/results", explorer.results),
    ]
    handlers: dict[Any, Any] = {kind: _answering(status) for kind, status in STATUS.items()}
    handlers |= {HTTPException: _http_error, Exception: _failure}
    hosts = own_hosts(settings.host, settings.port)
    app = Starlette(routes=routes, exception_handlers=handlers, middleware=[Middleware(Guard, hosts=hosts)])
    app.state.explorer = explorer
    return app


def _page(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return Response(page_file(name), media_type=TYPES[name])

    return answer


def _bytes(data: bytes) -> Response:
    return Response(data, media_type="application/octet-stream")


async def _body(request: Request, limit: int) -> bytes:
    """The body, refused as soon as it is known to be too large."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and len(declared) < 20 and int(declared) <= limit:
        data = bytearray()
        async for piece in request.stream():
            data += piece
            if len(data) > limit:
                break
        else:
            return bytes(data)
    raise HTTPException(413, f"larger than {limit / 2**20:g} MiB, which is the limit", {"connection": "close"})


async def _fields(request: Request, kind: type[Fields]) -> Fields:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "send JSON, with the type application/json")
    try:
        async with asyncio.timeout(JSON_SECONDS):
            data = await _body(request, JSON_BYTES)
    except TimeoutError:
        raise HTTPException(408, "the request took too long to arrive", {"connection": "close"}) from None
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the request is not JSON") from None
    return from_dict(kind, values, "request")


def _answering(status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(_: Request, error: Exception) -> Response:
        return JSONResponse({"error": short_message(error, 500)}, status)

    return answer


async def _http_error(_: Request, error: HTTPException) -> Response:
    reasons = {"Not Found": "there is no such page", "Method Not Allowed": "this page takes no such request"}
    reason = reasons.get(error.detail, error.detail)
    return JSONResponse({"error": reason}, error.status_code, error.headers)


async def _failure(_: Request, error: Exception) -> Response:
    if isinstance(error, MemoryError):
        return JSONResponse({"error": "not enough memory for this"}, 500)
    log.error("a request failed", exc_info=error)
    return JSONResponse({"error": f"this failed ({type(error).__name__}); see the terminal"}, 500)
