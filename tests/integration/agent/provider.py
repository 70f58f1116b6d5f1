"""A model's server of the tests' own: OpenAI's streaming API over real HTTP, scripted."""

import asyncio
import contextlib
import json

from aiohttp import web


class Tool:
    """A call of a tool in an answer; its arguments come in pieces."""

    def __init__(self, command, *, call="call_1", args=None):
        self.call = call
        self.json = json.dumps({"command": command}) if args is None else args


class Provider:
    """Answers in order: a list of deltas (texts, events to wait for, BREAK), or an HTTP status.

    A `Tool` is a call; `LENGTH` and `FILTER` end the answer with that reason.

    BREAK resets the connection, EOF just ends the stream.
    """

    BREAK, EOF = object(), object()
    LENGTH, FILTER = "length", "content_filter"
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
        finish, calls = "stop", 0
        for delta in answer:
            if delta is self.BREAK:
                request.transport.abort()
                return response
            if delta is self.EOF:
                await response.write_eof()
                return response
            if isinstance(delta, asyncio.Event):
                await delta.wait()
            elif delta in (self.LENGTH, self.FILTER):
                finish = delta
            elif isinstance(delta, Tool):
                for part in tool_parts(delta, calls):
                    await response.write(chunk({"tool_calls": [part]}))
                finish, calls = "tool_calls", calls + 1
            else:
                await response.write(chunk({"content": delta}))
                await asyncio.sleep(self.pause_s)
        await response.write(chunk({}, finish=finish))
        await response.write(b"data: [DONE]\n\n")
        return response


def tool_parts(tool, index):
    """The pieces of a call, as they are streamed: who is called first, then its arguments."""
    begin = {"id": tool.call, "type": "function", "function": {"name": "run", "arguments": ""}}
    pieces = [{"function": {"arguments": piece}} for piece in tool.json]
    return [{"index": index, **part} for part in (begin, *pieces)]


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
