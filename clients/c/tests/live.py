"""The C client against the daemon that was built: LIVE-PROGRAM. The daemon is killed and started again while records are pushed; every
record that was reported acked has to arrive."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

KILLS = 5
RECORDS = 20_000
LIMIT_SECONDS = 120

program = sys.argv[1]
weir = os.environ.get("WEIR_BIN") or str(pathlib.Path(__file__).resolve().parents[3] / "bin" / "weir")


def start(data, sink):
    process = subprocess.Popen([weir, "run", "--data-dir", str(data), "--admin", "", "--sink", sink, "--log-level", "error"])
    until(lambda: subprocess.run([weir, "health", "--socket", str(data / "weir.sock")], capture_output=True).returncode == 0)
    return process


def until(done):
    limit = time.monotonic() + LIMIT_SECONDS
    while not done():
        if time.monotonic() > limit:
            raise SystemExit("gave up waiting")
        time.sleep(0.01)


def backlog(data):
    out = subprocess.run([weir, "status", "--json", "--admin-socket", str(data / "admin.sock")], capture_output=True, check=True)
    return json.loads(out.stdout)["backlog_records"]


def ledger(folder):
    data = folder / "data"
    acked_file = folder / "acked"
    daemon = start(data, "file")
    with open(acked_file, "wb") as out:
        producer = subprocess.Popen([program, str(data / "weir.sock"), "ledger", str(RECORDS)], stdout=out)
    acked = lambda: acked_file.read_bytes().count(b"\n")
    for kill in range(1, KILLS + 1):
        until(lambda: acked() >= RECORDS * kill // (KILLS + 1))
        daemon.kill()
        daemon.wait()
        daemon = start(data, "file")
    if producer.wait(LIMIT_SECONDS) != 0:
        raise SystemExit("the producer failed")
    until(lambda: backlog(data) == 0)
    daemon.terminate()
    daemon.wait()
    with open(data / "delivered.jsonl") as lines:
        arrived = {json.loads(line)["payload"] for line in lines}
    numbers = acked_file.read_text().split()
    lost = [n for n in numbers if f"c record {n}" not in arrived]
    print(f"ledger: {KILLS} kills, {len(numbers)} acked, {len(arrived)} delivered, {len(lost)} lost")
    if lost or len(numbers) < RECORDS:
        raise SystemExit(f"lost: {lost[:5]}")


def bench(folder):
    daemon = start(folder / "bench", "discard")
    subprocess.run([program, str(folder / "bench" / "weir.sock"), "bench", "0.6"], check=True)
    daemon.terminate()
    daemon.wait()


folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-c-"))
try:
    ledger(folder)
    bench(folder)
finally:
    shutil.rmtree(folder)
