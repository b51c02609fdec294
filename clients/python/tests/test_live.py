"""The clients against the daemon that was built: it is killed and started again, and the ledger has to add up."""

import asyncio
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Callable, Dict, Iterator, List, Set

import pytest

import weir
from weir import AsyncClient, AsyncProducer, Client, Outcome, Producer, State

ROUNDS = 4
ACKS_A_ROUND = 3000
LIMIT_SECONDS = 60.0
BENCH_SECONDS = 0.6


class Daemon:
    """bin/weir on a folder of its own."""

    def __init__(self, sink: str = "file") -> None:
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="weir-"))
        self.socket = str(self.dir / "weir.sock")
        self.delivered = self.dir / "delivered.jsonl"
        self._sink = sink
        self.start()

    def start(self) -> None:
        binary = os.environ.get("WEIR_BIN") or str(pathlib.Path(__file__).resolve().parents[3] / "bin" / "weir")
        self._log = open(self.dir / "weir.log", "ab")
        self._process = subprocess.Popen(
            [binary, "run", "--data-dir", str(self.dir), "--admin", "", "--sink", self._sink],
            stdout=self._log,
            stderr=self._log,
        )
        until(self._answers)

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self.dir / "weir.log").read_text()
        try:
            with Client(self.socket, timeout=5) as client:
                client.health()
        except weir.WeirError:
            return False
        return True

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(LIMIT_SECONDS)
        finally:
            self._process.kill()
            self._log.close()
        assert code == 0, (self.dir / "weir.log").read_text()
        shutil.rmtree(self.dir)

    def ids(self) -> Dict[str, Set[str]]:
        """Return the ids under which each payload was delivered."""
        found: Dict[str, Set[str]] = {}
        with open(self.delivered, encoding="utf-8") as lines:
            for line in lines:
                if line.endswith("\n"):  # else it is being written
                    record = json.loads(line)
                    found.setdefault(record["payload"], set()).add(record["id"])
        return found


def until(done: Callable[[], bool]) -> None:
    """Poll until done."""
    limit = time.monotonic() + LIMIT_SECONDS
    pause = threading.Event()
    while not done():
        assert time.monotonic() < limit, "it did not happen"
        pause.wait(0.02)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    it = Daemon()
    yield it
    it.close()


class Ledger:
    """What the producers know: the payloads that were reported acked, and the keys of tracked ones."""

    def __init__(self) -> None:
        self.acked: Set[str] = set()
        self.keys: Dict[str, str] = {}
        self.states: Dict[State, int] = {state: 0 for state in State}
        self.stop = threading.Event()
        self._lock = threading.Lock()

    def book(self, payload: str, state: State) -> None:
        with self._lock:
            self.states[state] += 1
            if state is State.ACKED:
                self.acked.add(payload)

    def report(self, payload: str) -> Callable[[Outcome], None]:
        return lambda outcome: self.book(payload, outcome.state)

    def produce(self, path: str) -> None:
        with Producer(path, max_backoff=0.1) as producer:
            i = 0
            while not self.stop.is_set():
                i += 1
                payload = "producer %d" % i
                producer.send(payload.encode(), self.report(payload))

    def produce_async(self, path: str) -> None:
        async def run() -> None:
            async with AsyncProducer(path, max_backoff=0.1) as producer:
                i = 0
                while not self.stop.is_set():
                    i += 1
                    payload = "async producer %d" % i
                    tier = weir.BUFFERED if i % 2 else weir.DURABLE
                    await producer.send(payload.encode(), self.report(payload), tier)

        asyncio.run(run())

    def call(self, path: str) -> None:
        """Push one at a time and in batches, with pauses only where the daemon is away."""
        with Client(path) as client:
            i = 0
            while not self.stop.is_set():
                i += 1
                payloads = ["call %d/%d" % (i, k) for k in range(10)]
                try:
                    at = client.push_tracked(payloads[0].encode())
                    self.keys[payloads[0]] = at.key
                    self.book(payloads[0], State.ACKED)
                    client.push(payloads[1].encode())
                    self.book(payloads[1], State.ACKED)
                    for payload, ok in zip(payloads[2:], client.push_batch([p.encode() for p in payloads[2:]])):
                        self.book(payload, State.ACKED if ok else State.UNKNOWN)
                except weir.WeirError as err:
                    assert err.state is State.UNKNOWN
                    self.stop.wait(0.005)


def test_every_acked_record_arrives(daemon: Daemon) -> None:
    ledger = Ledger()
    jobs = (ledger.produce, ledger.produce_async, ledger.call)
    threads = [threading.Thread(target=job, args=(daemon.socket,)) for job in jobs]
    for thread in threads:
        thread.start()
    try:
        for _ in range(ROUNDS):
            enough = len(ledger.acked) + ACKS_A_ROUND
            until(lambda enough=enough: len(ledger.acked) >= enough)  # type: ignore[misc]
            daemon.kill()
            daemon.start()
        enough = len(ledger.acked) + ACKS_A_ROUND
        until(lambda: len(ledger.acked) >= enough)
    finally:
        ledger.stop.set()
        for thread in threads:
            thread.join()
    until(lambda: ledger.acked <= daemon.ids().keys())
    ids = daemon.ids()
    assert ledger.states[State.REFUSED] == 0
    assert {kind for kind in ("producer", "async", "call") if any(p.startswith(kind) for p in ledger.acked)} == {
        "producer",
        "async",
        "call",
    }
    for payload, key in ledger.keys.items():
        assert key in ids[payload], "the key of a tracked push is the id that is delivered"


def test_the_example(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    lines = ["line %d" % i for i in range(1234)]
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(lines))  # the last one has no end
    example = pathlib.Path(__file__).resolve().parents[1] / "examples" / "tail.py"
    subprocess.run([sys.executable, str(example), "--socket", daemon.socket, str(file)], check=True)
    until(lambda: daemon.delivered.exists() and set(lines) <= daemon.ids().keys())


def rate(push: Callable[[], int]) -> float:
    start = time.perf_counter()
    count = 0
    while time.perf_counter() < start + BENCH_SECONDS:
        count += push()
    return count / (time.perf_counter() - start)


def test_speed(capsys: pytest.CaptureFixture[str]) -> None:
    """Print records/s; nothing is asserted of them."""
    payload = bytes(256)
    batch = [payload] * 1000
    rows: List[str] = []

    def row(name: str, one: float, many: float, batches: float) -> None:
        rates = (name, one, many, batches)
        rows.append("%-8s %8.0f one at a time %8.0f with 256 in flight %8.0f in batches of 1,000" % rates)

    daemon = Daemon("discard")
    try:
        with Client(daemon.socket) as client, Producer(daemon.socket, in_flight=256) as producer:

            def many() -> int:
                for _ in range(2048):
                    producer.send(payload, lambda outcome: None)
                return 2048

            row(
                "blocking",
                rate(lambda: client.push(payload) or 1),  # type: ignore[func-returns-value]
                rate(many),
                rate(lambda: sum(client.push_batch(batch))),
            )
        row("asyncio", *asyncio.run(async_rates(daemon.socket, payload, batch)))
    finally:
        daemon.close()
    with capsys.disabled():
        print("\nPython, durable, 256 bytes, 1 connection, records/s:")
        print("\n".join(rows))


async def async_rates(path: str, payload: bytes, batch: List[bytes]) -> List[float]:
    rates = []
    async with AsyncClient(path) as client, AsyncProducer(path, in_flight=256) as producer:

        async def one() -> int:
            await client.push(payload)
            return 1

        async def many() -> int:
            for _ in range(2048):
                await producer.send(payload, lambda outcome: None)
            return 2048

        async def batched() -> int:
            return sum(await client.push_batch(batch))

        for push in (one, many, batched):
            start = time.perf_counter()
            count = 0
            while time.perf_counter() < start + BENCH_SECONDS:
                count += await push()
            rates.append(count / (time.perf_counter() - start))
    return rates
