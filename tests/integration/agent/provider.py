"""A model's server of the tests' own: OpenAI's streaming API over real HTTP, scripted."""

import asyncio
import contextlib
import json

from aiohttp import web


class Provider:
    """Answers in order: a list of deltas (texts, events to wait for, BREAK), or an HTTP status.

    BREAK resets the connection, EOF just ends the stream.
    """

    BREAK, EOF = object(), object()
    BASE = "/v1"

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.url = ""
        self.pause_s = 0.0
        """Between two texts: how fast the model speaks."""

    async def complete(self, request):
        self.requests.append((dict(request.headers), await request.json()))
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            headers = {"Retry-After": "0"} if answer == 429 else {}
            error = {"error": {"message": "sk-secret is wrong", "type": "x"}}
            return web.json_response(error, status=answer, headers=headers)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for delta in answer:
            if delta is self.BREAK:
                request.transport.abort()
                return response
            if delta is self.EOF:
                await response.write_eof()
                return response
            if isinstance(delta, asyncio.Event):
                await delta.wait()
            else:
                await response.write(chunk({"content": delta}))
                await asyncio.sleep(self.pause_s)
        await response.write(chunk({}, finish="stop"))
        await response.write(b"data: [DONE]\n\n")
        return response


def chunk(delta, finish=None):
    choice = {"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": finish}
    body = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
        "choices": [choice],
    }
    if finish:
        body["usage"] = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return f"data: {json.dumps(body)}\n\n".encode()


@contextlib.asynccontextmanager
async def provider(*answers, kind=Provider):
    """A running one. Its `url` is what DUET_AGENT_BASE_URL takes."""
    made = kind(*answers)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", made.complete)
    app.router.add_post("/v1/messages", made.complete)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    made.url = f"http://127.0.0.1:{port}{kind.BASE}"
    try:
        yield made
    finally:
        await runner.cleanup()
