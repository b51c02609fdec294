"""What the clients make of a server that does what it should not."""

import asyncio
import json
import os
import pathlib
import socket
import threading
from typing import Any, Callable, Iterator, List, Tuple

import pytest
from fake import (
    ACK,
    CLIENTS,
    HEALTHY,
    WATCHDOG_SECONDS,
    Server,
    ack_batch,
    ack_tracked,
    acking,
    answering,
    be_patient,
    nack,
    read_exactly,
    read_frame,
)

import weir
from weir import (
    BUFFERED,
    DURABLE,
    AsyncClient,
    Client,
    ClosedError,
    ConnectError,
    Durability,
    ProtocolError,
    Reason,
    RefusedError,
    State,
    TimedOutError,
    TransientError,
    UnknownOutcomeError,
    UnknownReasonError,
    VersionMismatchError,
    codec,
)
from weir.codec import MessageType

CODES = json.loads(
    (pathlib.Path(__file__).resolve().parents[3] / "conformance" / "vectors" / "codes.json").read_text()
)

Make = Callable[..., Any]


@pytest.fixture(params=CLIENTS, ids=["blocking", "asyncio"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: List[Any] = []

    def build(path: str, timeout: float = WATCHDOG_SECONDS) -> Any:
        made.append(request.param(path, timeout=timeout))
        return made[-1]

    yield build
    for client in made:
        client.close()
        if hasattr(client, "stop"):
            client.stop()


def test_every_call(make: Make) -> None:
    seen: List[Any] = []

    def handle(conn: socket.socket) -> None:
        replies = [ACK, ACK, ack_tracked(b"three", 7), ack_batch(*[c == "1" for c in "101100001"]), HEALTHY]
        for reply in replies:
            seen.append(read_frame(conn))
            conn.sendall(reply)

    with Server(handle) as server:
        client = make(server.path)
        client.push(b"one")
        client.push(bytearray(b"two"), BUFFERED)
        at = client.push_tracked(memoryview(b"three"))
        bits = client.push_batch([b"%d" % i for i in range(9)])
        client.health()
    assert (at.segment, at.index, at.key) == ("shard_00/seg", 7, "sha256:" + at.record_id.hex())
    assert bits == [True, False, True, True, False, False, False, False, True]
    body = codec.encode_batch([b"%d" % i for i in range(9)])
    assert seen == [
        (MessageType.PUSH, DURABLE, b"one"),
        (MessageType.PUSH, BUFFERED, b"two"),
        (MessageType.PUSH_TRACKED, DURABLE, b"three"),
        (MessageType.PUSH_BATCH, DURABLE, body),
        (MessageType.HEALTH_CHECK, DURABLE, b""),
    ]


def test_the_tier_of_a_reply_means_nothing(make: Make) -> None:
    with Server(answering(codec.encode_frame(MessageType.ACK, Durability.BUFFERED, b""), ACK)) as server:
        client = make(server.path)
        client.push(b"x", DURABLE)
        client.push(b"x", BUFFERED)
        assert server.connections == 1


def flipped(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


def push(client: Any) -> None:
    client.push(b"x")


def tracked(client: Any) -> None:
    client.push_tracked(b"x")


def batch(client: Any) -> None:
    client.push_batch([b"%d" % i for i in range(9)])


def body(kind: MessageType, raw: bytes) -> bytes:
    return codec.encode_frame(kind, 1, raw)


BITS = b"\x01\x09\x00\xff"
WRONG = [
    ("nothing", push, b"", ""),
    ("half a header", push, ACK[:9], ""),
    ("half a payload", tracked, ack_tracked(b"x")[:40], ""),
    ("garbage", push, b"HTTP/1.1 400 Bad Request\r\n\r\n", "BadMagic"),
    ("version", push, flipped(ACK, 4), "VersionMismatch"),
    ("header CRC", push, flipped(ACK, 12), "HeaderCrcMismatch"),
    ("payload CRC", push, flipped(ACK, 19), "PayloadCrcMismatch"),
    ("unknown type", push, body(0x0A, b""), "UnknownMessageType"),  # type: ignore[arg-type]
    ("ack of a batch", push, ack_batch(True), "UnexpectedReply"),
    ("health response", push, HEALTHY, "UnexpectedReply"),
    ("ack of a health check", lambda c: c.health(), ACK, "UnexpectedReply"),
    ("a push", push, body(MessageType.PUSH, b"x"), "UnexpectedReply"),
    ("ack of a tracked push", tracked, ACK, "UnexpectedReply"),
    ("ack of a batch as one", batch, ACK, "UnexpectedReply"),
    ("ack with a payload", push, body(MessageType.ACK, b"x"), "PayloadTooLarge"),
    ("long nack", push, body(MessageType.NACK, b"\x06\x00\x00"), "PayloadTooLarge"),
    ("nack without a reason", push, body(MessageType.NACK, b""), "Truncated"),
    ("nack without its version", push, body(MessageType.NACK, b"\x02"), "LengthMismatch"),
    ("coordinate of another record", tracked, ack_tracked(b"y"), "UnexpectedReply"),
    ("coordinate version", tracked, body(MessageType.ACK_TRACKED, b"\x02" + bytes(42)), "UnsupportedVersion"),
    ("another count", batch, ack_batch(*[True] * 10), "LengthMismatch"),
    ("padding", batch, body(MessageType.ACK_BATCH, BITS + b"\x03"), "PaddingNotZero"),
    ("bitmap too short", batch, body(MessageType.ACK_BATCH, BITS), "LengthMismatch"),
    ("bitmap too long", batch, body(MessageType.ACK_BATCH, BITS + b"\x01\x00"), "LengthMismatch"),
]


@pytest.mark.parametrize("call,reply,verdict", [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_wrong_replies_poison_the_connection(
    make: Make, call: Callable[[Any], None], reply: bytes, verdict: str
) -> None:
    """The record is UNKNOWN, and the good replies that follow are not taken for the answer to the next push."""
    follow = ACK if verdict else b""
    with Server(answering(reply + follow), answering(nack(Reason.EMPTY_PAYLOAD))) as server:
        client = make(server.path)
        with pytest.raises(UnknownOutcomeError) as caught:
            call(client)
        assert caught.value.state is State.UNKNOWN
        assert getattr(caught.value, "verdict", "") == verdict
        with pytest.raises(RefusedError):
            client.push(b"x")


LONG = [
    ("push", push, MessageType.ACK, (1 << 32) - 1),
    ("nack", push, MessageType.NACK, 3),
    ("tracked", tracked, MessageType.ACK_TRACKED, 299),
    ("batch", batch, MessageType.ACK_BATCH, 260),
    ("a tracked length for a batch", batch, MessageType.ACK_BATCH, 298),
]


@pytest.mark.parametrize("call,kind,length", [w[1:] for w in LONG], ids=[w[0] for w in LONG])
def test_an_overlong_reply_is_refused_by_its_header(
    make: Make, call: Callable[[Any], None], kind: MessageType, length: int
) -> None:
    """The payload never comes, so the verdict can only come from the header."""
    over = threading.Event()

    def handle(conn: socket.socket) -> None:
        read_frame(conn)
        conn.sendall(codec._header(kind, 1, length))
        over.wait(WATCHDOG_SECONDS)

    with Server(handle) as server:
        client = make(server.path)
        with pytest.raises(ProtocolError, match="PayloadTooLarge"):
            call(client)
        over.set()


@pytest.mark.parametrize("reason", [r["number"] for r in CODES["reasons"]] + [0x00, 0x0A, 0xFF])
def test_every_nack(make: Make, reason: int) -> None:
    names = {r["number"]: r["name"] for r in CODES["reasons"]}
    keeps = reason == Reason.INTERNAL_ERROR
    with Server(answering(nack(reason, 7), ACK), acking) as server:
        client = make(server.path)
        with pytest.raises(weir.WeirError) as caught:
            client.push(b"x")
        client.push(b"y")
        assert server.connections == (1 if keeps else 2)
    err = caught.value
    if keeps:
        assert type(err) is TransientError and err.state is State.UNKNOWN
    elif reason in names:
        assert isinstance(err, RefusedError) and err.state is State.REFUSED
        assert (err.reason, err.name) == (reason, names[reason])
    else:
        assert isinstance(err, UnknownReasonError) and err.state is State.UNKNOWN
        assert err.reason == reason and err.name == "0x%02X" % reason in str(err)


def test_version_mismatch_says_both(make: Make) -> None:
    late = bytearray(ACK)
    late[4] = 3
    with Server(answering(nack(Reason.VERSION_MISMATCH, 2)), answering(bytes(late))) as server:
        client = make(server.path)
        with pytest.raises(VersionMismatchError, match="v2.*v1") as caught:
            client.push(b"x")
        assert (caught.value.daemon_version, caught.value.client_version) == (2, 1)
        with pytest.raises(ProtocolError, match="v3.*v1"):
            client.push(b"x")


def test_a_late_reply_is_not_the_next_one(make: Make) -> None:
    given_up = threading.Event()

    def late(conn: socket.socket) -> None:
        read_frame(conn)
        given_up.wait(WATCHDOG_SECONDS)
        conn.sendall(ACK)

    def second(conn: socket.socket) -> None:
        given_up.set()
        answering(nack(Reason.PAYLOAD_TOO_LARGE))(conn)

    with Server(late, second) as server:
        client = make(server.path, timeout=0.05)
        with pytest.raises(TimedOutError):
            client.push(b"x")
        be_patient(client)
        with pytest.raises(RefusedError):
            client.push(b"y")


def test_a_reply_that_nobody_asked_for_is_not_the_next_one(make: Make) -> None:
    sent = threading.Event()

    def twice(conn: socket.socket) -> None:
        read_frame(conn)
        conn.sendall(ACK)
        conn.sendall(ACK)
        sent.set()
        read_frame(conn)

    with Server(twice, answering(nack(Reason.EMPTY_PAYLOAD))) as server:
        client = make(server.path)
        client.push(b"x")
        assert sent.wait(WATCHDOG_SECONDS)
        with pytest.raises(RefusedError):
            client.push(b"y")


def test_two_replies_in_one_are_one_too_many(make: Make) -> None:
    with Server(answering(ACK + ACK, nack(Reason.PAYLOAD_TOO_LARGE)), answering(nack(Reason.EMPTY_PAYLOAD))) as server:
        client = make(server.path)
        client.push(b"x")
        with pytest.raises(RefusedError) as caught:
            client.push(b"y")
        assert caught.value.reason == Reason.EMPTY_PAYLOAD


def test_a_connection_that_ended_while_idle_is_replaced(make: Make) -> None:
    with Server(answering(ACK), acking) as server:
        client = make(server.path)
        client.push(b"x")
        server.until_handled(1)
        client.push(b"y")


def test_a_large_frame_refused_by_its_header(make: Make) -> None:
    """The daemon answers and closes without reading the payload; the Nack is found all the same."""

    def refuse(conn: socket.socket) -> None:
        read_exactly(conn, codec.HEADER_BYTES)
        conn.sendall(nack(Reason.PAYLOAD_TOO_LARGE))

    with Server(refuse) as server:
        with pytest.raises(RefusedError) as caught:
            make(server.path).push(bytes(4 << 20))
        assert caught.value.reason == Reason.PAYLOAD_TOO_LARGE


def test_an_ack_to_a_frame_that_was_not_written_is_none(make: Make) -> None:
    def early(conn: socket.socket) -> None:
        read_exactly(conn, codec.HEADER_BYTES)
        conn.sendall(ACK)

    with Server(early) as server:
        with pytest.raises(UnknownOutcomeError):
            make(server.path).push(bytes(4 << 20))


def test_checks_before_it_sends(make: Make) -> None:
    big = bytes(codec.MAX_PAYLOAD_BYTES + 1)
    client = make("/nowhere")
    calls: List[Tuple[Callable[[], Any], Reason]] = [
        (lambda: client.push(b""), Reason.EMPTY_PAYLOAD),
        (lambda: client.push(big), Reason.PAYLOAD_TOO_LARGE),
        (lambda: client.push_tracked(b""), Reason.EMPTY_PAYLOAD),
        (lambda: client.push_batch([]), Reason.BAD_BATCH_FRAMING),
        (lambda: client.push_batch([b"a", b""]), Reason.EMPTY_PAYLOAD),
        (lambda: client.push_batch([b"a"] * 2049), Reason.PAYLOAD_TOO_LARGE),
        (lambda: client.push_batch([big[: 8 << 20]] * 2), Reason.PAYLOAD_TOO_LARGE),
    ]
    for call, reason in calls:
        with pytest.raises(RefusedError) as caught:
            call()
        assert caught.value.reason == reason
    with pytest.raises(TypeError):
        client.push("text")
    with pytest.raises(ValueError):
        client.push(b"x", 2)
    with pytest.raises(ConnectError):
        client.push(b"x")


def test_nobody_listens(make: Make, tmp_path: pathlib.Path) -> None:
    for path in (str(tmp_path / "none.sock"), str(tmp_path / ("long" * 50))):
        with pytest.raises(ConnectError) as caught:
            make(path).health()
        assert isinstance(caught.value, TransientError)


def test_closed(make: Make) -> None:
    with Server(answering(HEALTHY)) as server:
        client = make(server.path)
        client.health()
        client.close()
        client.close()
        with pytest.raises(ClosedError):
            client.health()


@pytest.mark.parametrize("kind", CLIENTS, ids=["blocking", "asyncio"])
def test_default_path(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(answering(HEALTHY)) as server:
        monkeypatch.setenv("WEIR_SOCKET", server.path)
        client = kind()
        client.health()
        client.close()
        if hasattr(client, "stop"):
            client.stop()


def test_another_process_gets_its_own_connection(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(acking) as server:
        client = make(server.path)
        client.push(b"parent")
        monkeypatch.setattr(os, "getpid", lambda: 1)
        client.push(b"child")
        assert server.connections == 2


def tracking(conn: socket.socket) -> None:
    while True:
        got = read_frame(conn)
        if got is None:
            return
        conn.sendall(ack_tracked(got[2]))


def test_threads_take_turns() -> None:
    """Each answer reaches its own call: the id in it is checked against the record."""
    with Server(tracking) as server, Client(server.path) as client:

        def push_many(n: int) -> None:
            for i in range(50):
                client.push_tracked(b"%d %d" % (n, i))

        threads = [threading.Thread(target=push_many, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.connections == 1
        client.push_tracked(b"last")


def test_tasks_take_turns() -> None:
    async def run(path: str) -> None:
        async with AsyncClient(path) as client:
            await asyncio.gather(*(client.push_tracked(b"%d" % i) for i in range(100)))

    with Server(tracking) as server:
        asyncio.run(run(server.path))
        assert server.connections == 1


def test_a_cancelled_call_drops_the_connection() -> None:
    asked = threading.Event()
    cancelled = threading.Event()

    def late(conn: socket.socket) -> None:
        read_frame(conn)
        asked.set()
        cancelled.wait(WATCHDOG_SECONDS)
        conn.sendall(ACK)

    async def run(path: str) -> None:
        async with AsyncClient(path) as client:
            task = asyncio.ensure_future(client.push(b"x"))
            await asyncio.get_running_loop().run_in_executor(None, asked.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            cancelled.set()
            with pytest.raises(RefusedError):
                await client.push(b"y")

    with Server(late, answering(nack(Reason.EMPTY_PAYLOAD))) as server:
        asyncio.run(run(server.path))
