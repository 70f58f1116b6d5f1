"""The room's log as clients see it: keys, one dense order, resuming, paging, changed messages."""

import asyncio

from tests.integration.server.harness import JSON, MSGPACK, Wire


async def test_a_key_answers_once_and_says_once(pair, room) -> None:
    ada, ben = pair
    first = await ada.ok("say", room=room, text="once", key="k")
    again = await ada.ok("say", room=room, text="once", key="k")
    assert (again["offset"], again["id"]) == (first["offset"], first["id"])
    assert (await ada.refused("say", room=room, text="twice", key="k"))["code"] == "key_conflict"
    refused = await ada.refused("exec", room=room, command="once", key="k")
    assert (refused["code"], refused["retryable"]) == ("key_conflict", False)
    other = await ben.ok("say", room=room, text="once", key="k")
    assert other["offset"] == first["offset"] + 1
    await ben.event(other["offset"])
    assert len(ben.of("message")) == 2


async def test_a_key_of_an_exec_runs_once(pair, room) -> None:
    ada, _ = pair
    first = await ada.ok("exec", room=room, command="echo ran >> runs; cat runs", key="x")
    end = await ada.exited(first["exec"])
    again = await ada.ok("exec", room=room, command="echo ran >> runs; cat runs", key="x")
    assert (again["exec"], again["offset"]) == (first["exec"], first["offset"])
    refused = await ada.refused("exec", room=room, command="echo other", key="x")
    assert refused["code"] == "key_conflict"
    look = await ada.exited(await ada.run(room, "cat runs"))
    assert end["stdout"] == look["stdout"] == "ran\n"


async def test_a_key_counts_in_one_room_and_failures_are_forgotten(server, codec) -> None:
    first, second = await server.new_room(), await server.new_room()
    async with server.client(codec, "Ada") as ada:
        assert (await ada.refused("say", room=first, text="a", key="k"))["code"] == "not_joined"
        for room in (first, second):
            await ada.join(room)
            assert (await ada.ok("say", room=room, text=room, key="k"))["offset"] >= 1


async def test_offsets_are_dense_and_the_same_for_all(server, room) -> None:
    """Eight sessions say 25 things each at once; a ninth only listens."""
    names = [f"n{number}" for number in range(8)]
    async with server.client(MSGPACK, "Ear") as ear:
        before = (await ear.join(room))["offset"]

        async def talk(name):
            async with server.client(JSON, name) as client:
                await client.join(room)
                offsets = []
                for number in range(25):
                    ack = await client.ok("say", room=room, text=f"{name} {number}")
                    offsets.append(ack["offset"])
                last = before + 8 * 25
                await client.event(last)
                return offsets, {f["offset"]: f["text"] for f in client.of("message")}

        told = await asyncio.gather(*map(talk, names))
        await ear.event(before + 200)
        order = {frame["offset"]: frame["text"] for frame in ear.of("message")}
        assert sorted(order) == list(range(before + 1, before + 201))
        for offsets, seen in told:
            assert offsets == sorted(offsets), "one session's commands keep their order"
            assert seen.items() <= order.items()


async def test_a_session_sends_without_waiting_and_order_is_kept(pair, room) -> None:
    ada, ben = pair
    for number in range(100):
        await ada.send("say", room=room, text=str(number), ref=str(number))
    await ben.until(lambda f: f.get("text") == "99")
    assert [f["text"] for f in ben.of("message")] == [str(number) for number in range(100)]
    await ada.settle()
    acks = [f["ref"] for f in ada.of("ack") if f["ref"].isdecimal()]
    assert acks == [str(number) for number in range(100)]


async def test_resume_gets_exactly_what_was_missed(server, codec, pair, room) -> None:
    ada, ben = pair
    joined = await ben.join(room)
    seen = await ada.ok("say", room=room, text="seen")
    await ben.event(seen["offset"])
    token = ben.welcome["token"]
    await ben.socket.close()
    for number in range(5):
        last = await ada.ok("say", room=room, text=f"missed {number}")
    async with Wire(server, codec, {"token": token}) as back:
        since = {"epoch": joined["epoch"], "offset": seen["offset"]}
        again = await back.join(room, since=since)
        assert (again["resumed"], again["events"]) == (True, [])
        assert (again["offset"], again["epoch"]) == (last["offset"], joined["epoch"])
        await back.until(lambda f: f.get("text") == "missed 4")
        live = await ada.ok("say", room=room, text="live")
        await back.event(live["offset"])
        texts = [frame["text"] for frame in back.of("message")]
        assert texts == [*(f"missed {number}" for number in range(5)), "live"]
        offsets = [frame["offset"] for frame in back.of("message")]
        assert offsets == list(range(seen["offset"] + 1, live["offset"] + 1))


async def test_resume_with_nothing_missed(pair, room) -> None:
    ada, _ = pair
    ack = await ada.ok("say", room=room, text="hi")
    joined = await ada.join(room)
    begin = len(ada.frames)
    again = await ada.join(room, since={"epoch": joined["epoch"], "offset": ack["offset"]})
    assert (again["resumed"], again["events"], again["offset"]) == (True, [], ack["offset"])
    await ada.settle()
    assert not [f for f in ada.frames[begin:] if f["type"] == "message"]


async def test_a_position_the_log_does_not_have_gets_a_fresh_page(pair, room) -> None:
    ada, _ = pair
    await ada.ok("say", room=room, text="hi")
    joined = await ada.join(room)
    for since in (
        {"epoch": "another", "offset": joined["offset"]},
        {"epoch": joined["epoch"], "offset": joined["offset"] + 1},
        {"epoch": joined["epoch"], "offset": 2**53 - 1},
        {"epoch": "", "offset": 0},
    ):
        again = await ada.join(room, since=since)
        assert again["resumed"] is False
        assert [event["text"] for event in again["events"]] == ["hi"]


async def test_too_much_missed_is_a_fresh_page(server, codec, room) -> None:
    async with server.client(codec, "Ada") as ada:
        joined = await ada.join(room)
        limit = ada.welcome["limits"]["resumeEvents"]
        for number in range(limit + 1):
            await ada.send("say", room=room, text=str(number), ref=f"s{number}")
        await ada.until(lambda f: f.get("ref") == f"s{limit}", limit_s=60)
        since = {"epoch": joined["epoch"], "offset": joined["offset"]}
        again = await ada.join(room, since=since)
        assert again["resumed"] is False
        assert again["events"][-1]["text"] == str(limit)
        since["offset"] += 1
        begin = len(ada.frames)
        again = await ada.join(room, since=since)
        assert again["resumed"] is True
        await ada.until(lambda f: f.get("text") == str(limit), begin)
        begin = ada.frames.index(again)
        replayed = [f["text"] for f in ada.frames[begin:] if f["type"] == "message"]
        assert replayed == [str(number) for number in range(1, limit + 1)]


async def test_history_pages_both_ways(pair, room) -> None:
    ada, _ = pair
    acks = [await ada.ok("say", room=room, text=str(number)) for number in range(10)]
    offsets = [ack["offset"] for ack in acks]

    async def page(**fields):
        answer = await ada.ok("history", room=room, **fields)
        assert answer["type"] == "page"
        return [event["offset"] for event in answer["events"]], answer["more"]

    first = (await page(after=0, limit=200))[0]
    assert first[-10:] == offsets
    assert await page(limit=3) == (offsets[-3:], True)
    assert await page(before=offsets[5], limit=2) == (offsets[3:5], True)
    assert await page(after=offsets[5], limit=2) == (offsets[6:8], True)
    assert await page(after=offsets[7], limit=2) == (offsets[8:], False)
    assert await page(after=offsets[-1]) == ([], False)
    assert await page(before=first[0]) == ([], False)
    assert (await page(before=offsets[0] + 1, limit=200))[1] is False
    assert await page(before=2**53 - 1, limit=1) == ([offsets[-1]], True)


async def test_a_page_defaults_to_fifty(server, codec, room) -> None:
    async with server.client(codec, "Ada") as ada:
        await ada.join(room)
        for number in range(60):
            await ada.send("say", room=room, text=str(number))
        await ada.settle()
        page = await ada.ok("history", room=room)
        assert [event["text"] for event in page["events"]] == [str(n) for n in range(10, 60)]
        assert page["more"] is True
        assert (await ada.refused("history", room=room, limit=201))["code"] == "invalid"
        status, listed = await server.http("GET", f"/api/rooms/{room}/messages?limit=50")
        assert (status, listed["more"]) == (200, True)
        assert listed["events"] == page["events"]
        first = page["events"][0]["offset"]
        status, older = await server.http(
            "GET", f"/api/rooms/{room}/messages?before={first}&limit=200"
        )
        assert [event["text"] for event in older["events"] if "text" in event] == [
            str(n) for n in range(10)
        ]
        assert older["more"] is False


async def test_large_pages_stay_under_the_frame_limit(server, codec, room) -> None:
    """Twenty messages of the largest size are more than one frame holds."""
    async with server.client(codec, "Ada") as ada, server.client(codec, "Ben") as ben:
        await ada.join(room)
        text = "€" * ada.welcome["limits"]["textChars"]
        for _ in range(20):
            last = await ada.ok("say", room=room, text=text)
        joined = await ben.join(room)
        assert joined["offset"] == last["offset"]
        assert joined["events"][-1]["text"] == text
        seen = [event["offset"] for event in joined["events"]]
        while True:
            page = await ben.ok("history", room=room, before=seen[0], limit=200)
            seen[:0] = [event["offset"] for event in page["events"]]
            if not page["more"]:
                break
        assert seen == list(range(last["offset"] - len(seen) + 1, last["offset"] + 1))
        assert len(seen) >= 20


async def test_edit_delete_and_react(pair, room) -> None:
    ada, ben = pair
    said = await ada.ok("say", room=room, text="helo")
    edited = await ada.ok("edit", room=room, id=said["id"], text="hello")
    event = await ben.until("message.edited")
    assert (event["id"], event["text"], event["offset"]) == (said["id"], "hello", edited["offset"])
    reacted = await ben.ok("react", room=room, id=said["id"], emoji="👍", on=True)
    event = await ada.until("message.reacted")
    assert (event["emoji"], event["on"], event["offset"]) == ("👍", True, reacted["offset"])
    read = await _read_back(ben, room, said["offset"])
    assert read["text"] == "hello"
    assert read["editedTs"] >= read["ts"]
    deleted = await ada.ok("delete", room=room, id=said["id"])
    event = await ben.until("message.deleted")
    assert (event["id"], event["offset"]) == (said["id"], deleted["offset"])
    read = await _read_back(ben, room, said["offset"])
    assert read["deleted"] is True
    assert "text" not in read
    page = await ben.ok("history", room=room)
    assert "hello" not in str([event.get("text") for event in page["events"]])
    refused = await ada.refused("edit", room=room, id=said["id"], text="again")
    assert refused["code"] in ("unknown_message", "conflict")


async def _read_back(client, room, offset):
    page = await client.ok("history", room=room, after=offset - 1, limit=1)
    return page["events"][0]


async def test_only_the_author_changes_a_message(pair, room) -> None:
    ada, ben = pair
    said = await ada.ok("say", room=room, text="mine")
    for type_, fields in (("edit", {"text": "yours"}), ("delete", {})):
        assert (await ben.refused(type_, room=room, id=said["id"], **fields))["code"] == "forbidden"
        for unknown in ("m-none", "x" * 128):
            refused = await ben.refused(type_, room=room, id=unknown, **fields)
            assert refused["code"] == "unknown_message"
    refused = await ben.refused("react", room=room, id="m-none", emoji="x", on=True)
    assert refused["code"] == "unknown_message"
    assert (await _read_back(ben, room, said["offset"]))["text"] == "mine"


async def test_a_restart_keeps_log_epoch_and_tokens(start, codec) -> None:
    first = start()
    room = await first.new_room(name="Kept")
    async with first.client(codec, "Ada") as ada:
        joined = await ada.join(room)
        said = await ada.ok("say", room=room, text="before", key="k")
        token = ada.welcome["token"]
    assert first.stop() == 0
    second = start()
    async with Wire(second, codec, {"token": token}) as back:
        assert back.welcome["participant"]["id"] == ada.id
        since = {"epoch": joined["epoch"], "offset": said["offset"]}
        again = await back.join(room, since=since)
        assert again["resumed"] is True
        retried = await back.ok("say", room=room, text="before", key="k")
        assert retried["id"] == said["id"]
        page = await back.ok("history", room=room)
        assert [event["text"] for event in page["events"] if "text" in event] == ["before"]
