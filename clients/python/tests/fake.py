"""A server that does on each connection what a test says, and clients of both kinds behind one face."""

import asyncio
import os
import shutil
import socket
import tempfile
import threading
from types import TracebackType
from typing import Any, Callable, List, Optional, Sequence, Tuple, Type

from weir import AsyncClient, AsyncProducer, Client, Coordinate, Durability, Outcome, Producer, codec
from weir.codec import MessageType

WATCHDOG_SECONDS = 20.0

ACK = codec.encode_frame(MessageType.ACK, 1, b"")
HEALTHY = codec.encode_frame(MessageType.HEALTH_CHECK_RESPONSE, 1, b"")


def nack(reason: int, version: int = 1) -> bytes:
    return codec.encode_frame(MessageType.NACK, 1, codec.encode_nack(reason, version))


def ack_batch(*acked: bool) -> bytes:
    return codec.encode_frame(MessageType.ACK_BATCH, 1, codec.encode_ack_batch(acked))


def ack_tracked(payload: bytes, index: int = 1, segment: str = "shard_00/seg") -> bytes:
    at = Coordinate(segment, index, codec.record_id(segment, index, payload))
    return codec.encode_frame(MessageType.ACK_TRACKED, 1, codec.encode_coordinate(at))


def read_exactly(conn: socket.socket, n: int) -> Optional[bytes]:
    parts = b""
    while len(parts) < n:
        chunk = conn.recv(n - len(parts))
        if not chunk:
            return None
        parts += chunk
    return parts


def read_frame(conn: socket.socket) -> Optional[Tuple[MessageType, Durability, bytes]]:
    """Read one frame; None at the end of the connection."""
    head = read_exactly(conn, codec.HEADER_BYTES)
    if head is None:
        return None
    header = codec.decode_header(head)
    body = read_exactly(conn, header.payload_bytes + codec.TRAILER_BYTES)
    if body is None:
        return None
    return header.type, header.durability, codec.decode_payload(body)


Handler = Callable[[socket.socket], None]


def answering(*replies: bytes) -> Handler:
    """Answer one frame with each reply, then close."""

    def handle(conn: socket.socket) -> None:
        for reply in replies:
            if read_frame(conn) is None:
                return
            conn.sendall(reply)

    return handle


def acking(conn: socket.socket) -> None:
    """Answer every push with an Ack."""
    while read_frame(conn) is not None:
        conn.sendall(ACK)


class Server:
    """Handles connection i with handler i, one thread each; the last handler serves all that follow."""

    def __init__(self, *handlers: Handler, path: Optional[str] = None) -> None:
        self._dir = tempfile.mkdtemp(prefix="weir-")
        self.path = path or os.path.join(self._dir, "weir.sock")
        self.connections = 0
        self._handlers = handlers
        self._threads: List[threading.Thread] = []
        self._open: List[socket.socket] = []
        self._faults: List[BaseException] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(8)
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                conn = self._listener.accept()[0]
            except OSError:
                return
            handler = self._handlers[min(self.connections, len(self._handlers) - 1)]
            self.connections += 1
            self._open.append(conn)
            thread = threading.Thread(target=self._handle, args=(handler, conn))
            thread.start()
            self._threads.append(thread)

    def _handle(self, handler: Handler, conn: socket.socket) -> None:
        try:
            handler(conn)
        except OSError:
            pass  # the client went away
        except BaseException as err:
            self._faults.append(err)
        finally:
            conn.close()

    def until_handled(self, n: int) -> None:
        """Wait until the first n connections, which were made, have ended."""
        while len(self._threads) < n:
            pass
        for thread in self._threads[:n]:
            thread.join()

    def close(self) -> None:
        for sock in (self._listener, *self._open):
            try:
                sock.shutdown(socket.SHUT_RDWR)  # wakes who waits for it
            except OSError:
                pass
        self._accepting.join()
        self._listener.close()
        for thread in self._threads:
            thread.join()
        shutil.rmtree(self._dir)
        if self._faults:
            raise self._faults[0]

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


class Looped:
    """An asyncio object behind a blocking face."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    def run(self, awaitable: Any) -> Any:
        return self.loop.run_until_complete(awaitable)

    def stop(self) -> None:
        self.loop.close()


class LoopedClient(Looped):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.inner = AsyncClient(*args, **kwargs)

    def push(self, payload: bytes, durability: Durability = Durability.DURABLE) -> None:
        self.run(self.inner.push(payload, durability))

    def push_tracked(self, payload: bytes) -> Coordinate:
        at = self.run(self.inner.push_tracked(payload))
        assert isinstance(at, Coordinate)
        return at

    def push_batch(self, payloads: Sequence[bytes]) -> List[bool]:
        return list(self.run(self.inner.push_batch(payloads)))

    def health(self) -> None:
        self.run(self.inner.health())

    def close(self) -> None:
        self.run(self.inner.close())


class LoopedProducer(Looped):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.inner = AsyncProducer(*args, **kwargs)

    def send(
        self,
        payload: bytes,
        report: Callable[[Outcome], None],
        durability: Durability = Durability.DURABLE,
        timeout: Optional[float] = None,
    ) -> None:
        self.run(asyncio.wait_for(self.inner.send(payload, report, durability), timeout))

    def flush(self) -> None:
        self.run(asyncio.wait_for(self.inner.flush(), WATCHDOG_SECONDS))

    def close(self, timeout: Optional[float] = WATCHDOG_SECONDS) -> None:
        self.run(self.inner.close(timeout))


def be_patient(client: Any) -> None:
    """Take back the short timeout with which a test began."""
    getattr(client, "inner", client)._timeout = WATCHDOG_SECONDS


CLIENTS: List[Any] = [Client, LoopedClient]
PRODUCERS: List[Any] = [Producer, LoopedProducer]
