# Counts its answers: a thread for each connection, an event loop in another, and a child on a pipe.
import asyncio, http.server, subprocess, sys, threading, time

answered, lock = 0, threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 4096

    def log_message(self, *_):
        pass

    def do_GET(self):
        global answered
        with lock:
            answered += 1
            page = str(answered).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)


async def tick():
    ticks = 0
    while True:
        await asyncio.sleep(0.01)
        ticks += 1
        if ticks % 10 == 0:
            print("loop", ticks, flush=True)


def ask_child():
    echo = "import sys\nfor line in sys.stdin: print(int(line) + 1, flush=True)"
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", echo], stdin=pipe, stdout=pipe, text=True)
    number = 0
    while True:
        child.stdin.write(f"{number}\n")
        child.stdin.flush()
        heard = int(child.stdout.readline())
        if heard != number + 1:
            print("wrong", heard, flush=True)
        number = heard
        if number % 10 == 0:
            print("child", number, flush=True)
        time.sleep(0.01)


server = http.server.ThreadingHTTPServer(("0.0.0.0", 80), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
threading.Thread(target=ask_child, daemon=True).start()
asyncio.run(tick())
