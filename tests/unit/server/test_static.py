"""The built page: served from memory, cached by content, packed where that helps."""

import gzip
import random

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from server.static import CONTENT_SECURITY_POLICY, SECURITY_HEADERS, Page


@pytest.fixture
def dist(tmp_path):
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html>" + "<p>hello</p>" * 200)
    (tmp_path / "assets" / "main-1a2b.js").write_text("let x = 1;" * 500)
    (tmp_path / "assets" / "noise.woff2").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "icon.svg").write_text("<svg/>")
    (tmp_path / "odd.unknowntype").write_text("?")
    return tmp_path


@pytest.fixture
def page(dist):
    return Page(dist)


def ask(path, **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return make_mocked_request("GET", path, headers=names)


async def test_the_page_is_asked_for_each_time_and_its_assets_once(page) -> None:
    index = await page.index(ask("/r/blue"))
    assert index.headers["Content-Type"] == "text/html; charset=utf-8"
    assert index.headers["Cache-Control"] == "no-cache"
    script = await page.file(ask("/assets/main-1a2b.js"))
    assert script.headers["Content-Type"].endswith("javascript; charset=utf-8")
    assert "immutable" in script.headers["Cache-Control"]
    assert "max-age=31536000" in script.headers["Cache-Control"]
    icon = await page.file(ask("/icon.svg"))
    assert icon.headers["Cache-Control"] == "no-cache"
    assert icon.headers["Content-Type"] == "image/svg+xml"
    odd = await page.file(ask("/odd.unknowntype"))
    assert odd.headers["Content-Type"] == "application/octet-stream"


async def test_who_has_it_already_is_told_so(page) -> None:
    etag = (await page.index(ask("/"))).headers["ETag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}'):
        answer = await page.index(ask("/", If_None_Match=known))
        assert (answer.status, answer.body) == (304, None)
        assert answer.headers["ETag"] == etag
    assert (await page.index(ask("/", If_None_Match='"other"'))).status == 200


async def test_another_content_has_another_tag(page, dist) -> None:
    before = (await page.index(ask("/"))).headers["ETag"]
    (dist / "index.html").write_text("other")
    assert (await Page(dist).index(ask("/"))).headers["ETag"] != before
    assert (await page.index(ask("/"))).headers["ETag"] == before


async def test_it_is_packed_for_who_can_unpack_it(page, dist) -> None:
    whole = (dist / "index.html").read_bytes()
    packed = await page.index(ask("/", Accept_Encoding="br, gzip"))
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.body) == whole
    plain = await page.index(ask("/"))
    assert "Content-Encoding" not in plain.headers
    assert plain.body == whole
    assert packed.headers["Vary"] == plain.headers["Vary"] == "Accept-Encoding"


async def test_what_does_not_get_smaller_stays_as_it_is(tmp_path) -> None:
    (tmp_path / "noise.bin").write_bytes(random.Random(7).randbytes(4096))
    (tmp_path / "small.txt").write_text("x" * 1000)
    page = Page(tmp_path)
    for path in ("/noise.bin", "/small.txt"):
        answer = await page.file(ask(path, Accept_Encoding="gzip"))
        assert "Content-Encoding" not in answer.headers


@pytest.mark.parametrize(
    "path", ["/nothing.js", "/index.html", "/assets", "/../secret", "/assets/../../secret", "//"]
)
async def test_only_what_was_built_is_there(page, dist, path) -> None:
    (dist.parent / "secret").write_text("secret")
    with pytest.raises(web.HTTPNotFound):
        await page.file(ask(path))


async def test_without_a_build_it_says_what_to_run(tmp_path) -> None:
    page = Page(tmp_path / "none")
    assert not page.built
    answer = await page.index(ask("/"))
    assert answer.status == 503
    assert "make setup" in answer.text
    with pytest.raises(web.HTTPNotFound):
        await page.file(ask("/index.html"))


def test_the_policy_lets_nothing_run_that_was_not_built() -> None:
    rules = dict(rule.split(" ", 1) for rule in CONTENT_SECURITY_POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe-eval" not in CONTENT_SECURITY_POLICY
    assert SECURITY_HEADERS["X-Content-Type-Options"] == "nosniff"
