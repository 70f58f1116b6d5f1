"""The built page, from memory: content hashes as ETags, gzip made once, a strict CSP."""

import gzip
import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

DIST = Path(__file__).parent.parent / "web" / "dist"
_GZIP_MIN_BYTES = 1024
_YEAR_S = 365 * 24 * 60 * 60

_POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "font-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
)
CONTENT_SECURITY_POLICY = "; ".join(_POLICY)
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class File:
    """One file of the page; `immutable` where its name holds a hash of its content."""

    body: bytes
    packed: bytes | None
    kind: str
    etag: str
    immutable: bool


class Page:
    """All files of the build, read once."""

    def __init__(self, dist: Path = DIST) -> None:
        self._files = {
            path.relative_to(dist).as_posix(): _read(path, dist)
            for path in sorted(dist.rglob("*"))
            if path.is_file()
        }

    @property
    def built(self) -> bool:
        return "index.html" in self._files

    async def index(self, request: web.Request) -> web.Response:
        """The page itself, for / and every room's address."""
        if not self.built:
            text = "The page is not built yet: run `make setup`, then start the server again.\n"
            return web.Response(status=503, text=text)
        return _answer(request, self._files["index.html"])

    async def file(self, request: web.Request) -> web.Response:
        found = self._files.get(request.path.lstrip("/"))
        if found is None or found is self._files.get("index.html"):
            raise web.HTTPNotFound
        return _answer(request, found)


def _read(path: Path, dist: Path) -> File:
    body = path.read_bytes()
    packed = gzip.compress(body, mtime=0) if len(body) >= _GZIP_MIN_BYTES else None
    if packed is not None and len(packed) > len(body) * 0.9:
        packed = None
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    if kind.startswith("text/") or kind.endswith("javascript"):
        kind += "; charset=utf-8"
    digest = hashlib.sha256(body).hexdigest()[:32]
    immutable = path.relative_to(dist).parts[0] == "assets"
    return File(body, packed, kind, f'"{digest}"', immutable)


def _answer(request: web.Request, file: File) -> web.Response:
    caching = f"public, max-age={_YEAR_S}, immutable" if file.immutable else "no-cache"
    headers = {"ETag": file.etag, "Cache-Control": caching, "Vary": "Accept-Encoding"}
    wanted = request.headers.get("If-None-Match", "")
    if file.etag in (tag.strip().removeprefix("W/") for tag in wanted.split(",")):
        return web.Response(status=304, headers=headers)
    headers["Content-Type"] = file.kind
    if file.packed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return web.Response(body=file.packed, headers=headers)
    return web.Response(body=file.body, headers=headers)
