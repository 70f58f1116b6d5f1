"""A model's server of the tests' own: Anthropic's Messages API as a stream of events, scripted."""

import asyncio
import json

from aiohttp import web

from tests.integration.agent.provider import Provider, Tool

STATUSES = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}


class Anthropic(Provider):
    """As `Provider`. Texts in a row are one block, a `Tool` is its own, a dict is an error event."""

    BASE = ""

    async def complete(self, request):
        self.requests.append((dict(request.headers), await request.json()))
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            error = {"type": STATUSES[answer], "message": "sk-secret is wrong"}
            headers = {"retry-after": "0"} if answer == 429 else {}
            body = {"type": "error", "error": error}
            return web.json_response(body, status=answer, headers=headers)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        blocks = Blocks()
        await response.write(packed([begin(), {"type": "ping"}]))
        for delta in answer:
            if delta is self.BREAK:
                request.transport.abort()
                return response
            if delta is self.EOF:
                return response
            if isinstance(delta, asyncio.Event):
                await delta.wait()
            else:
                await response.write(packed(blocks.say(delta)))
        await response.write(packed(blocks.end()))
        return response


def begin():
    """It tells a token of the answer before there is any."""
    usage = {"input_tokens": 10, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted"}
    ended = {"stop_reason": None, "stop_sequence": None}
    return {"type": "message_start", "message": {**message, "content": [], **ended, "usage": usage}}


class Blocks:
    """The events of an answer's content."""

    def __init__(self):
        self.index = -1
        self.text = False
        self.called = False

    def say(self, delta):
        if isinstance(delta, dict):
            return [{"type": "error", "error": delta}]
        if isinstance(delta, Tool):
            return self._tool(delta)
        begin = [] if self.text else self._begin({"type": "text", "text": ""})
        self.text = True
        return [*begin, self._event("delta", delta={"type": "text_delta", "text": delta})]

    def _tool(self, tool):
        self.called = True
        end = self._close()
        block = {"type": "tool_use", "id": tool.call, "name": "run", "input": {}}
        begin = self._begin(block)
        pieces = ["", *tool.json]
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        events = [self._event("delta", delta=delta) for delta in deltas]
        return [*end, *begin, *events, self._event("stop")]

    def _begin(self, block):
        self.index += 1
        return [self._event("start", content_block=block)]

    def _close(self):
        text, self.text = self.text, False
        return [self._event("stop")] if text else []

    def _event(self, what, **fields):
        return {"type": f"content_block_{what}", "index": self.index, **fields}

    def end(self):
        reason = {"stop_reason": "tool_use" if self.called else "end_turn", "stop_sequence": None}
        told = {"type": "message_delta", "delta": reason, "usage": {"output_tokens": 5}}
        return [*self._close(), told, {"type": "message_stop"}]


def packed(events):
    texts = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return "".join(texts).encode()
