#!/usr/bin/env python3
"""A client of `biv serve` that needs nothing but Python's own library (docs/serve.md).

    biv serve & python3 examples/client.py

makes a machine, runs a command in it, writes it into a file, and ends it, and prints the events of all that.
"""

import base64
import http.client
import json
import os
import socket
import sys
import tempfile
import threading


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Failed(Exception):
    """The server refuses a request, or a job has failed."""


class Server:
    """The server at a socket: by default that of this user."""

    def __init__(self, path=None):
        runtime = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
        self.path = path or os.path.join(runtime, "bivouac", ".serve")

    def open(self, method, path, body=None):
        """Sends a request; its answer, of which the head has come."""
        connection = Connection(self.path)
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        if answer.status >= 400:
            raise Failed(json.loads(answer.read())["error"])
        return answer

    def ask(self, method, path, body=None):
        """Sends a request; the value that it is answered with."""
        text = self.open(method, path, body).read()
        return json.loads(text) if text else None

    def lines(self, method, path, body=None):
        """Sends a request that is answered by a stream; its values, as they come."""
        answer = self.open(method, path, body)
        return (json.loads(line) for line in answer)

    def job(self, path, body=None):
        """Begins a job and waits for its end; its result."""
        job = self.ask("POST", path, body)
        while job["state"] == "running":
            job = self.ask("GET", f"/v1/jobs/{job['id']}?wait=60")
        if job["state"] == "failed":
            raise Failed(job["error"])
        return job["result"]

    def run(self, name, args, **more):
        """Runs a command in a domain; its status and what it has written to standard output."""
        output, status = b"", None
        for line in self.lines("POST", f"/v1/domains/{name}/exec", {"args": args, **more}):
            if line.get("stream") == "stdout":
                coded = line.get("base64")
                output += base64.b64decode(coded) if coded else line["log"].encode()
            status = line.get("status", status)
        return status, output


def main():
    server = Server(sys.argv[1] if len(sys.argv) > 1 else None)
    # What happens after the head of the answer has come is in it.
    events = server.lines("GET", "/v1/events")

    def follow(name):
        for event in events:
            if event["domain"] == name:
                print("event:", event["event"], flush=True)
            if (event["domain"], event["event"]) == (name, "removed"):
                return

    spec = {"version": 1, "machine": {"memory": "128M"}, "root": "busybox",
            "process": {"args": ["sleep", "1000"]}}
    name = server.job("/v1/domains", spec)["domain"]
    follower = threading.Thread(target=follow, args=(name,))
    follower.start()
    try:
        running = [one["name"] for one in server.ask("GET", "/v1/domains")]
        print("listed:", name in running)
        status, output = server.run(name, ["wc", "-c"], input="typed")
        print("exec:", status, output.decode().strip())
        with tempfile.TemporaryDirectory() as directory:
            file = os.path.join(directory, "snapshot")
            written = server.job(f"/v1/domains/{name}/snapshot", {"file": file, "compress": True})
            print("snapshot:", written["file"] == os.path.getsize(file))
        server.job(f"/v1/domains/{name}/stop", {"time": 30})
    finally:
        server.ask("DELETE", f"/v1/domains/{name}?force=true")
        follower.join()


if __name__ == "__main__":
    main()
