"""What the producers report, in order, whatever the server does."""

import logging
import os
import socket
import threading
from typing import Any, Callable, Iterator, List, Tuple

import pytest
from fake import (
    ACK,
    PRODUCERS,
    WATCHDOG_SECONDS,
    Handler,
    Server,
    acking,
    be_patient,
    nack,
    read_exactly,
    read_frame,
)

from weir import (
    BUFFERED,
    DURABLE,
    ClosedError,
    Outcome,
    Producer,
    Reason,
    RefusedError,
    State,
    TimedOutError,
    WeirError,
)
from weir.codec import HEADER_BYTES
from weir.exchange import push_frame
from weir.pipeline import Backoff, Pipeline
from weir.session import Session

Make = Callable[..., Any]
ACKED, REFUSED, UNKNOWN = State.ACKED, State.REFUSED, State.UNKNOWN


@pytest.fixture(params=PRODUCERS, ids=["blocking", "asyncio"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: List[Any] = []

    def build(path: str, **options: Any) -> Any:
        options.setdefault("min_backoff", 0.001)
        options.setdefault("max_backoff", 0.001)
        made.append(request.param(path, **options))
        return made[-1]

    yield build
    for producer in made:
        producer.close(0)
        if hasattr(producer, "stop"):
            producer.stop()


class Tally:
    """The outcomes in the order in which they came."""

    def __init__(self) -> None:
        self.got: List[Tuple[int, Outcome]] = []

    def report(self, i: int) -> Callable[[Outcome], None]:
        return lambda outcome: self.got.append((i, outcome))

    def send(self, producer: Any, n: int, first: int = 0) -> None:
        for i in range(first, first + n):
            producer.send(b"%d" % i, self.report(i), timeout=WATCHDOG_SECONDS)

    def states(self) -> List[State]:
        """Each record has one outcome, and they came in order."""
        assert [i for i, _ in self.got] == list(range(len(self.got)))
        return [outcome.state for _, outcome in self.got]

    def error(self, i: int) -> Any:
        return self.got[i][1].error


def replying(*replies: bytes, seen: Any = None) -> Handler:
    """Answer a frame with each reply, then wait for the client to go."""

    def handle(conn: socket.socket) -> None:
        for reply in replies:
            frame = read_frame(conn)
            if frame is None:
                return
            if seen is not None:
                seen.append(frame)
            conn.sendall(reply)
        while conn.recv(1 << 16):
            pass

    return handle


def reading(n: int) -> Handler:
    """Read n bytes at most, answer nothing, and close."""

    def handle(conn: socket.socket) -> None:
        read_exactly(conn, n)

    return handle


@pytest.mark.parametrize("in_flight", [1, 7, 256])
def test_all_acked_in_order(make: Make, in_flight: int) -> None:
    seen: List[Any] = []

    def handle(conn: socket.socket) -> None:
        while True:
            frame = read_frame(conn)
            if frame is None:
                return
            seen.append(frame)
            conn.sendall(ACK)

    with Server(handle) as server:
        producer, tally = make(server.path, in_flight=in_flight), Tally()
        tally.send(producer, 1000)
        producer.send(b"buffered", tally.report(1000), BUFFERED)
        producer.flush()
        assert tally.states() == [ACKED] * 1001
        producer.close()
    assert [frame[2] for frame in seen] == [b"%d" % i for i in range(1000)] + [b"buffered"]
    assert [frame[1] for frame in seen] == [DURABLE] * 1000 + [BUFFERED]


def test_frames_in_flight_are_bounded(make: Make) -> None:
    go = threading.Event()
    arrived: List[bytes] = []

    def handle(conn: socket.socket) -> None:
        for _ in range(4):
            frame = read_frame(conn)
            assert frame is not None
            arrived.append(frame[2])
        go.wait(WATCHDOG_SECONDS)
        conn.setblocking(False)
        with pytest.raises(BlockingIOError):
            conn.recv(1)
        conn.setblocking(True)
        conn.sendall(ACK * 4)
        acking(conn)

    with Server(handle) as server:
        producer, tally = make(server.path, in_flight=4), Tally()
        tally.send(producer, 4)
        with pytest.raises(Exception) as caught:
            producer.send(b"too many", tally.report(99), timeout=0.05)
        assert "Timeout" in type(caught.value).__name__
        go.set()
        tally.send(producer, 4, first=4)
        producer.flush()
        assert tally.states() == [ACKED] * 8


def test_bytes_in_flight_are_bounded() -> None:
    pipeline = Pipeline(100, 1000)
    assert pipeline.room(5000)  # alone
    pipeline.add(bytes(5000), print)
    assert not pipeline.room(1)
    pipeline = Pipeline(100, 1000)
    pipeline.add(bytes(600), print)
    assert pipeline.room(400) and not pipeline.room(401)
    assert len(pipeline.hand_out()) == 600
    assert not pipeline.room(401)  # in flight counts, too
    pipeline.lost(ClosedError(""), 0)
    pipeline.abandon(ClosedError(""))
    assert pipeline.room(5000)


def test_only_what_was_not_begun_waits_again() -> None:
    pipeline, tally = Pipeline(10, 1000), Tally()
    for i in range(4):
        pipeline.add(bytes(100), tally.report(i))
    assert len(pipeline.hand_out()) == 400
    assert pipeline.lost(TimedOutError(""), 101) is False
    assert tally.states() == [UNKNOWN, UNKNOWN]
    assert len(pipeline.hand_out()) == 200
    pipeline.received(ACK * 2, 200)
    assert tally.states() == [UNKNOWN, UNKNOWN, ACKED, ACKED]
    assert pipeline.lost(TimedOutError(""), 200) is True


def test_a_failed_write_hides_no_nack() -> None:
    """The daemon refused a record and closed; the write of the next one fails, and the Nack is found all the same."""

    def refuse(conn: socket.socket) -> None:
        read_frame(conn)
        conn.sendall(nack(Reason.PAYLOAD_TOO_LARGE))

    pipeline, tally = Pipeline(10, 1000), Tally()
    with Server(refuse) as server:
        session = Session(server.path, pipeline, WATCHDOG_SECONDS)
        pipeline.add(push_frame(b"0", DURABLE), tally.report(0))
        assert session.write() is None
        server.until_handled(1)
        pipeline.add(push_frame(b"1", DURABLE), tally.report(1))
        assert session.write() is None and not session.blocked
        error = session.read()
        assert error is not None and session.end(error)
    assert tally.states() == [REFUSED]
    assert pipeline.waiting


def test_a_refusal_ends_the_connection(make: Make) -> None:
    def handle(conn: socket.socket) -> None:
        for _ in range(5):
            read_frame(conn)
        conn.sendall(ACK + nack(Reason.PAYLOAD_TOO_LARGE) + ACK)  # the last one belongs to nothing

    with Server(handle, acking) as server:
        producer, tally = make(server.path), Tally()
        tally.send(producer, 5)
        producer.flush()
        states = tally.states()
        assert states[:2] == [ACKED, REFUSED]
        assert isinstance(tally.error(1), RefusedError) and tally.error(1).reason == Reason.PAYLOAD_TOO_LARGE
        assert states[2:] == [UNKNOWN] * 3
        tally.send(producer, 5, first=5)
        producer.flush()
        assert tally.states()[5:] == [ACKED] * 5
        assert server.connections == 2


@pytest.mark.parametrize("reason", [0x0A, 0xFF])
def test_an_unknown_reason_is_unknown(make: Make, reason: int) -> None:
    with Server(replying(nack(reason)), acking) as server:
        producer, tally = make(server.path), Tally()
        tally.send(producer, 1)
        producer.flush()
        assert tally.states() == [UNKNOWN] and tally.error(0).reason == reason


def test_a_transient_nack_keeps_the_connection(make: Make) -> None:
    with Server(replying(ACK, nack(Reason.INTERNAL_ERROR), ACK)) as server:
        producer, tally = make(server.path), Tally()
        tally.send(producer, 3)
        producer.flush()
        assert tally.states() == [ACKED, UNKNOWN, ACKED]
        assert server.connections == 1


BROKEN = {
    "half a reply": ACK[:11],
    "nothing": b"",
    "garbage": b"\x00" * 40,
    "wrong type": nack(Reason.INTERNAL_ERROR)[:5] + b"\x05" + ACK[6:],
    "flipped": ACK[:19] + b"\x01",
}


@pytest.mark.parametrize("reply", list(BROKEN.values()), ids=list(BROKEN))
def test_a_broken_reply_ends_the_connection(make: Make, reply: bytes) -> None:
    def handle(conn: socket.socket) -> None:
        for _ in range(3):
            read_frame(conn)
        # The acks behind it belong to nothing.
        conn.sendall(ACK + reply + (ACK * 2 if len(reply) > 11 else b""))

    with Server(handle, acking) as server:
        producer, tally = make(server.path), Tally()
        tally.send(producer, 3)
        producer.flush()
        assert tally.states() == [ACKED, UNKNOWN, UNKNOWN]
        tally.send(producer, 3, first=3)
        producer.flush()
        assert tally.states()[3:] == [ACKED] * 3


def test_a_late_reply_is_not_the_next_one(make: Make) -> None:
    given_up = threading.Event()

    def late(conn: socket.socket) -> None:
        read_frame(conn)
        given_up.wait(WATCHDOG_SECONDS)
        conn.sendall(ACK)

    with Server(late, replying(nack(Reason.EMPTY_PAYLOAD))) as server:
        producer, tally = make(server.path, timeout=0.05), Tally()
        tally.send(producer, 1)
        producer.flush()
        assert tally.states() == [UNKNOWN] and isinstance(tally.error(0), TimedOutError)
        given_up.set()
        be_patient(producer)
        tally.send(producer, 1, first=1)
        producer.flush()
        assert tally.states() == [UNKNOWN, REFUSED]


def test_a_reply_that_nobody_asked_for_is_not_the_next_one(make: Make) -> None:
    sent = threading.Event()

    def twice(conn: socket.socket) -> None:
        read_frame(conn)
        conn.sendall(ACK)
        sent.wait(WATCHDOG_SECONDS)
        conn.sendall(ACK)
        sent.clear()
        while conn.recv(1 << 16):
            pass

    with Server(twice, replying(nack(Reason.EMPTY_PAYLOAD))) as server:
        producer, tally = make(server.path), Tally()
        tally.send(producer, 1)
        producer.flush()
        sent.set()
        while sent.is_set():
            pass
        tally.send(producer, 1, first=1)
        producer.flush()
        assert tally.states() == [ACKED, REFUSED]


def test_an_ack_to_a_frame_that_was_not_written_is_none(make: Make) -> None:
    def early(conn: socket.socket) -> None:
        read_exactly(conn, HEADER_BYTES)
        conn.sendall(ACK)
        read_exactly(conn, 1 << 16)

    with Server(early, replying(ACK)) as server:
        producer, tally = make(server.path), Tally()
        producer.send(bytes(4 << 20), tally.report(0))
        producer.flush()
        assert tally.states() == [UNKNOWN]


def test_a_large_frame_refused_by_its_header(make: Make) -> None:
    def refuse(conn: socket.socket) -> None:
        read_exactly(conn, HEADER_BYTES)
        conn.sendall(nack(Reason.PAYLOAD_TOO_LARGE))

    with Server(refuse) as server:
        producer, tally = make(server.path), Tally()
        producer.send(bytes(4 << 20), tally.report(0))
        producer.flush()
        assert tally.states() == [REFUSED]


def test_what_was_not_written_waits_for_the_next_connection(make: Make) -> None:
    """The first record is cut in its middle; of the second no byte went out, so its outcome is that of another try."""
    with Server(reading(100), acking) as server:
        producer, tally = make(server.path), Tally()
        for i in range(2):
            producer.send(bytes(3 << 20), tally.report(i))
        producer.flush()
        assert tally.states() == [UNKNOWN, ACKED]


def test_a_connection_that_ended_while_idle_costs_nothing(make: Make) -> None:
    def once(conn: socket.socket) -> None:
        read_frame(conn)
        conn.sendall(ACK)

    with Server(once, acking) as server:
        producer, tally = make(server.path), Tally()
        tally.send(producer, 1)
        producer.flush()
        server.until_handled(1)
        tally.send(producer, 300, first=1)
        producer.flush()
        assert tally.states() == [ACKED] * 301


def test_records_wait_for_a_daemon(make: Make, tmp_path: Any) -> None:
    path = str(tmp_path / "late.sock")
    producer, tally = make(path), Tally()
    tally.send(producer, 100)
    assert tally.got == []
    with Server(acking, path=path):
        producer.flush()
        assert tally.states() == [ACKED] * 100
        producer.close()


def test_close_leaves_no_record_without_an_outcome(make: Make, tmp_path: Any) -> None:
    with Server(reading(1 << 30)) as server:
        producer, tally = make(server.path), Tally()
        tally.send(producer, 3)
        producer.close(0.05)
        assert tally.states() == [UNKNOWN] * 3 and not isinstance(tally.error(0), ClosedError)
    producer, tally = make(str(tmp_path / "none.sock")), Tally()
    tally.send(producer, 3)
    producer.close(0.01)
    producer.close(0.01)
    assert tally.states() == [UNKNOWN] * 3 and isinstance(tally.error(0), ClosedError)
    with pytest.raises(ClosedError):
        producer.send(b"x", tally.report(3))


def test_checks_before_it_takes(make: Make) -> None:
    producer, tally = make("/nowhere"), Tally()
    for payload, fault in ((b"", RefusedError), (bytes((16 << 20) + 1), RefusedError), ("text", TypeError)):
        with pytest.raises(fault):
            producer.send(payload, tally.report(0))
    producer.close(0)
    assert tally.got == []


def test_a_report_that_raises_changes_nothing(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    def bad(_: Outcome) -> None:
        raise KeyError("mine")

    with Server(acking) as server, caplog.at_level(logging.CRITICAL + 1):
        producer, tally = make(server.path), Tally()
        producer.send(b"x", bad)
        tally.send(producer, 3)
        producer.flush()
        assert tally.states() == [ACKED] * 3


def test_a_single_record_needs_no_flush() -> None:
    done = threading.Event()
    with Server(acking) as server, Producer(server.path) as producer:
        producer.send(b"alone", lambda outcome: done.set())
        assert done.wait(WATCHDOG_SECONDS)


def test_a_report_must_not_call_its_producer() -> None:
    faults: List[BaseException] = []
    with Server(acking) as server, Producer(server.path) as producer:

        def report(_: Outcome) -> None:
            try:
                producer.send(b"again", print)
            except RuntimeError as err:
                faults.append(err)

        producer.send(b"x", report)
        producer.flush()
    assert len(faults) == 1


def test_threads_share_a_producer() -> None:
    with Server(acking) as server:
        tallies = [Tally() for _ in range(4)]
        with Producer(server.path, in_flight=16) as producer:
            threads = [threading.Thread(target=tally.send, args=(producer, 500)) for tally in tallies]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            producer.flush()
        assert [tally.states() for tally in tallies] == [[ACKED] * 500] * 4
        assert server.connections == 1


def test_another_process_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    producer, tally = make("/nowhere"), Tally()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        with pytest.raises(ClosedError):
            producer.send(b"x", tally.report(0))


def test_backoff() -> None:
    backoff = Backoff(0.1, 1.0, lambda: 0.0)
    assert [backoff.after(False) for _ in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert backoff.after(True) == 0.0
    assert backoff.after(False) == pytest.approx(0.1)
    assert Backoff(0.1, 1.0, lambda: 0.999).after(False) == pytest.approx(0.1 * (1 - 0.4995))
    long = Backoff(0.1, 5.0, lambda: 0.0)
    assert [long.after(False) for _ in range(5000)][-1] == 5.0


def test_errors_are_weir_errors() -> None:
    """A user who catches WeirError has them all."""
    import weir

    kinds = [getattr(weir, name) for name in weir.__all__ if name.endswith("Error")]
    assert len(kinds) == 10 and all(issubclass(kind, WeirError) for kind in kinds)
