"""Connections to a real Valkey: few, reused, and whole again after whatever happened."""

import asyncio
import contextlib

import pytest

from protocol.errors import Unavailable
from tests.integration.log.appends import message

OWN_VALKEY = True


async def clients(store):
    """How many connections Valkey sees, this one included."""
    return len((await store.call("CLIENT", "LIST")).splitlines())


async def test_many_calls_at_once_share_few_connections(node, store) -> None:
    other = node.store()
    alone = await clients(other)
    replies = await asyncio.gather(*(store.call("ECHO", f"{number}") for number in range(500)))
    assert replies == [f"{number}".encode() for number in range(500)]
    assert alone < await clients(other) <= alone + 16
    await store.close()
    async with asyncio.timeout(5):
        while await clients(other) != alone:  # Valkey hears of it a moment later
            pass


async def test_a_pipeline_gives_its_replies_in_order(store) -> None:
    commands = [("SET", "k", "v"), ("GET", "k"), ("GET", "none"), ("STRLEN", "k")]
    assert await store.pipeline(commands) == [b"OK", b"v", None, 1]


async def test_scripts_that_valkey_forgot_are_sent_again(log, room, store) -> None:
    await log.append(room, message("a"))
    await store.call("SCRIPT", "FLUSH")
    assert (await log.append(room, message("b"))).offset == 2


async def test_a_refusal_is_told_and_costs_no_connection(store) -> None:
    before = await clients(store)
    for _ in range(30):
        with pytest.raises(Unavailable, match="takes nothing now"):
            await store.call("NONSENSE")
    assert await store.call("PING") == b"PONG"
    assert await clients(store) == before


async def test_a_refusal_within_a_pipeline_leaves_no_answer_for_the_next_caller(store) -> None:
    commands = [("NONSENSE",), ("SET", "a", "1"), ("GET", "a"), ("NONSENSE",), ("INCR", "a")]
    for _ in range(5):
        with pytest.raises(Unavailable):
            await store.pipeline(commands)
        assert await store.call("PING") == b"PONG"
    assert await store.call("GET", "a") == b"2"


async def test_connections_that_were_cut_while_idle_are_replaced_unseen(node, store) -> None:
    await asyncio.gather(*(store.call("PING") for _ in range(40)))
    await node.store().call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert await asyncio.gather(*(store.call("PING") for _ in range(40))) == [b"PONG"] * 40


async def test_a_call_that_is_given_up_does_not_disturb_the_next(store) -> None:
    """Its answer must not be taken for that of another call."""
    await store.call("PING")
    for number in range(50):
        given_up = asyncio.create_task(store.call("ECHO", f"old {number}"))
        for _ in range(number % 5):
            await asyncio.sleep(0)
        given_up.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # it may have been quicker
            await given_up
        assert await store.call("ECHO", f"new {number}") == f"new {number}".encode()


async def test_the_run_id_is_the_nodes_own(store) -> None:
    info = (await store.call("INFO", "server")).decode()
    assert f"run_id:{await store.run_id()}" in info
