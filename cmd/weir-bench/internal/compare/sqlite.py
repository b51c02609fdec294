"""A queue on SQLite, as weir-bench measures it: DIR THREADS INSERTS-A-TRANSACTION BYTES SECONDS.

Prints a line for each transaction: nanoseconds and records.
"""

import os
import sqlite3
import sys
import threading
import time

directory, threads, inserts, size, seconds = sys.argv[1], *map(float, sys.argv[2:])
path = os.path.join(directory, "queue.db")


def connect():
    db = sqlite3.connect(path, timeout=60, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    return db


db = connect()
db.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, payload BLOB NOT NULL)")
db.close()
until = time.monotonic() + seconds
results = []


def produce():
    db = connect()
    rows = [(b"x" * int(size),)] * int(inserts)
    took = []
    while time.monotonic() < until:
        began = time.monotonic_ns()
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO queue (payload) VALUES (?)", rows)
        db.execute("COMMIT")
        took.append(time.monotonic_ns() - began)
    results.append(took)


workers = [threading.Thread(target=produce) for _ in range(int(threads))]
for w in workers:
    w.start()
for w in workers:
    w.join()
for took in results:
    for ns in took:
        print(ns, int(inserts))
