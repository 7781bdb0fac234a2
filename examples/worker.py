#!/usr/bin/env python3
"""A complete worker. WAYBILL_URL, TAGS, BATCH and LEASE (seconds) may be set in the environment."""
import http.client, json, os, random, signal, socket, sys, threading, time, uuid
from urllib.parse import urlsplit

SERVER = urlsplit(os.environ.get("WAYBILL_URL", "http://127.0.0.1:8080")).netloc
TAGS = os.environ.get("TAGS", "images").split(",")
BATCH, LEASE = int(os.environ.get("BATCH", "5")), float(os.environ.get("LEASE", "60"))
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

    def call(self, path, body):
        """Repeats a call until it is answered; every call of a worker may be repeated."""
        pause = 0.1
        while True:
            try:
                self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
                response = self.connection.getresponse()
                answer = json.loads(response.read())
                if response.status not in (429, 503):  # too busy, or without its database
                    return response.status, answer
                pause = max(pause, float(response.headers.get("Retry-After", 0)))
            except (OSError, http.client.HTTPException):
                self.connection.close()  # the next call opens another
            if stopping.wait(random.uniform(pause / 2, pause)):
                sys.exit()  # whatever is held comes back when its lease ends
            pause = min(pause * 2, 10)

def extend_leases(events, done):
    server = Server()
    while not done.wait(LEASE / 3):
        for event in events:
            beat = {"worker_id": WORKER, "lease_id": event["lease_id"], "lease_seconds": LEASE}
            server.call(f"/events/{event['id']}/heartbeat", beat)

def handle(event):
    """Does the work of one event, and returns how it ended."""
    settlement = {"event_id": event["id"], "lease_id": event["lease_id"]}
    if stopping.is_set():
        return settlement | {"action": "release"}  # for another worker
    try:
        return settlement | {"action": "complete", "result": work(event["payload"])}
    except Exception as error:
        return settlement | {"action": "fail", "error_message": repr(error)}

server, settlements = Server(), []
while settlements or not stopping.is_set():
    request = {"worker_id": WORKER, "settlements": settlements}
    if not stopping.is_set():  # the key: a call that is repeated gets the same events again
        request["claim"] = {"tags": TAGS, "max": BATCH, "wait_seconds": 10, "lease_seconds": LEASE,
                            "idempotency_key": str(uuid.uuid4())}
    status, answer = server.call("/events/settle", request)
    if status != 200:
        sys.exit(f"{status}: {answer}")
    for result in answer["results"]:  # not accepted: the lease was lost, and the work is somebody else's
        print(result["event_id"], result.get("entry", result.get("problem")), flush=True)
    if "claim_problem" in answer:
        stopping.wait(1)
    done = threading.Event()
    threading.Thread(target=extend_leases, args=(answer["events"], done), daemon=True).start()
    settlements = [handle(event) for event in answer["events"]]
    done.set()
