"""An endpoint for weir's raw format that keeps each record once: receiver.py ADDRESS FILE.

A record counts as received when its line is on stable storage; only then is it answered with 200. What comes
again under the same Idempotency-Key is answered with 200 and not kept.
"""

import base64
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Store:
    def __init__(self, path):
        self.lock = threading.Lock()
        self.seen = set()
        self.file = open(path, "a+b")
        self.file.seek(0)
        text = b""
        for text in self.file:
            try:
                self.seen.add(json.loads(text)["key"])
            except ValueError:
                pass  # torn by a crash: it was never answered
        if text and not text.endswith(b"\n"):
            self.file.write(b"\n")

    def keep(self, key, body):
        with self.lock:
            if key in self.seen:
                return
            line = {"key": key, "body": base64.b64encode(body).decode()}
            self.file.write(json.dumps(line).encode() + b"\n")
            self.file.flush()
            try:
                os.fdatasync(self.file.fileno())
            except OSError:
                os._exit(1)  # what a failed sync left behind is not known: start again from the file
            self.seen.add(key)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            self.server.store.keep(self.headers["Idempotency-Key"], body)
            status = 200
        except OSError:
            status = 503  # weir sends it again
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    server = ThreadingHTTPServer((host, int(port)), Handler)
    server.store = Store(sys.argv[2])
    print("receiving", flush=True)
    server.serve_forever()


main()
