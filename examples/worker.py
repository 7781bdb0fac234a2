#!/usr/bin/env python3
"""A complete worker. WAYBILL_URL, TAGS and LEASE (seconds) may be set in the environment."""
import http.client, json, os, random, signal, socket, sys, threading, time
from urllib.parse import urlencode, urlsplit

SERVER = urlsplit(os.environ.get("WAYBILL_URL", "http://127.0.0.1:8080")).netloc
TAGS, LEASE = os.environ.get("TAGS", "images"), int(os.environ.get("LEASE", "60"))
WORKER = f"{socket.gethostname()}:{os.getpid()}"
stopping = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopping.set())

def work(payload):
    """Yours: returns the result, or raises what went wrong."""
    time.sleep(payload.get("seconds", 0))
    return {"resized": payload["photo"]}

class Server:
    def __init__(self):
        self.connection = http.client.HTTPConnection(SERVER, timeout=90)  # stays open between calls

    def call(self, method, path, body=None):
        """Repeats a call until it is answered; every call of a worker may be repeated."""
        pause = 0.1
        while True:
            try:
                self.connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
                response = self.connection.getresponse()
                answer = json.loads(response.read() or "null")
                if response.status not in (429, 503):  # too busy, or without its database
                    return response.status, answer
                pause = max(pause, float(response.headers.get("Retry-After", 0)))
            except (OSError, http.client.HTTPException):
                self.connection.close()  # the next call opens another
            if stopping.wait(random.uniform(pause / 2, pause)):
                sys.exit()  # whatever is held comes back when its lease ends
            pause = min(pause * 2, 10)

def handle(server, event):
    path, claim = f"/events/{event['id']}", {"worker_id": WORKER, "lease_id": event["lease_id"]}
    done = threading.Event()
    def extend_lease(own=Server()):
        while not done.wait(LEASE / 3):
            own.call("POST", f"{path}/heartbeat", claim | {"lease": LEASE})
    threading.Thread(target=extend_lease, daemon=True).start()
    try:
        verb, report = "complete", {"result": work(event["payload"])}
    except Exception as error:
        verb, report = "fail", {"error_message": repr(error)}
    done.set()
    status, answer = server.call("POST", f"{path}/{verb}", claim | report)
    print(verb, event["id"], status, flush=True)  # 409: the lease was lost, and the work is somebody else's

server = Server()
query = urlencode({"tags": TAGS, "worker_id": WORKER, "wait": 10, "lease": LEASE})
while not stopping.is_set():
    status, event = server.call("GET", f"/events/subscribe?{query}")
    if status == 200:
        handle(server, event)
    elif status != 204:
        sys.exit(f"{status}: {event}")
