"""Push the lines of a file into weir, and with --follow those that are still to come.

    python tail.py [--follow] [--socket PATH] FILE

It ends once every line is on stable storage. A line that has no definite answer is pushed again, so it may arrive twice.
"""

import argparse
import random
import sys
import time
from typing import BinaryIO, Iterator, List

import weir

LINES = 500
"""In one batch; a daemon takes 1024 by default."""
BATCH_BYTES = 1 << 20
POLL_SECONDS = 0.2
MAX_PAUSE_SECONDS = 5.0


def batches(file: BinaryIO, follow: bool) -> Iterator[List[bytes]]:
    """Yield runs of lines without their ends. A last line without one is complete only if nothing is to come."""
    lines: List[bytes] = []
    size = 0
    partial = b""
    while True:
        part = file.readline()
        partial += part
        ended = not part
        if partial.endswith(b"\n") or (ended and not follow):
            line = partial.rstrip(b"\r\n")
            partial = b""
            if line:
                lines.append(line)
                size += len(line)
        if lines and (ended or len(lines) >= LINES or size >= BATCH_BYTES):
            yield lines
            lines, size = [], 0
        if ended and not follow:
            return
        if ended:
            time.sleep(POLL_SECONDS)


def push(client: weir.Client, lines: List[bytes]) -> None:
    """Push until every line is acked. RefusedError: one of them never will be."""
    pause = 0.05
    while True:
        try:
            acked = client.push_batch(lines)
            lines = [line for line, ok in zip(lines, acked) if not ok]
            if not lines:
                return
        except weir.RefusedError:
            raise
        except weir.WeirError as error:
            print(error, file=sys.stderr)
        time.sleep(pause * random.uniform(0.5, 1))
        pause = min(2 * pause, MAX_PAUSE_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description="push the lines of a file into weir")
    parser.add_argument("--follow", action="store_true", help="wait for more lines at the end of the file")
    parser.add_argument("--socket", help="path of the daemon's socket (default from WEIR_SOCKET)")
    parser.add_argument("file")
    args = parser.parse_args()
    with open(args.file, "rb") as file, weir.Client(args.socket) as client:
        for lines in batches(file, args.follow):
            push(client, lines)


if __name__ == "__main__":
    main()
