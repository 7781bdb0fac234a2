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

def work(payload, stop):
    """Yours: returns the result, or raises what went wrong. Long work should end early if `stop` is set."""
    if stop.wait(payload.get("seconds", 0)):
        raise InterruptedError("the work was stopped")
    return {"resized": payload["photo"]}

class Server:
    def __init__(self, timeout):
        self.connection = http.client.HTTPConnection(SERVER, timeout=timeout)  # stays open between calls

    def post(self, path, body):
        """Returns the status, the answer and the seconds to wait at least before another try."""
        try:
            self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = self.connection.getresponse()
            return response.status, json.loads(response.read()), float(response.headers.get("Retry-After", 0))
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.connection.close()  # the next call opens another; every call of a worker may be repeated
            return 0, {"detail": repr(error), "retryable": True}, 0

class Job:
    """A claimed event, and how the work on it ended."""
    def __init__(self, event):
        self.event, self.settlement, self.is_lost, self.stop = event, None, False, threading.Event()

    def run(self):
        settlement = {"event_id": self.event["id"], "lease_id": self.event["lease_id"]}
        try:
            if stopping.is_set() or self.stop.is_set():
                settlement["action"] = "release"  # for another worker; a cancelled event is CANCELLED
            else:
                settlement |= {"result": work(self.event["payload"], self.stop), "action": "complete"}
        except Exception as error:
            settlement |= {"error_message": repr(error), "action": "fail"}
        self.settlement = None if self.is_lost else settlement

    def extend_lease(self, server):
        beat = {"worker_id": WORKER, "lease_id": self.event["lease_id"], "lease_seconds": LEASE}
        status, answer, _ = server.post(f"/events/{self.event['id']}/heartbeat", beat)
        self.is_lost = status >= 400 and not answer["retryable"]  # otherwise the next beat may succeed
        if self.is_lost or answer.get("cancel_requested"):
            self.stop.set()

def extend_leases(jobs, done):
    server = Server(LEASE / 3)
    while not done.wait(LEASE / 3):
        for job in (job for job in jobs if not job.is_lost):
            job.extend_lease(server)

def new_claim():  # the key: a claim that is repeated gets the same events again
    key = str(uuid.uuid4())
    return {"tags": TAGS, "max": BATCH, "wait_seconds": 10, "lease_seconds": LEASE, "idempotency_key": key}

server, claim, jobs, pause = Server(90), new_claim(), [], 0.1
while jobs or not stopping.is_set():
    request = {"worker_id": WORKER, "settlements": [job.settlement for job in jobs]}
    if not stopping.is_set():
        request["claim"] = claim
    status, answer, retry_after = server.post("/events/settle", request)
    problem = answer.get("claim_problem") if status == 200 else answer
    if status == 200:
        for result in answer["results"]:
            print(result["event_id"], result.get("entry", result.get("problem")), flush=True)
        # Refused: if it may be sent again, it goes with the next call; otherwise the work is somebody else's.
        jobs = [job for job, result in zip(jobs, answer["results"])
                if not result["accepted"] and result["problem"]["retryable"]]
    if problem and not problem["retryable"]:
        sys.exit(f"{status}: {problem}")  # whatever is held comes back when its lease ends
    claim = claim if problem else new_claim()
    if problem or jobs and not answer["events"]:
        time.sleep(max(retry_after, random.uniform(pause / 2, pause)))
    pause = min(pause * 2, 10) if problem or jobs else 0.1
    new_jobs, done = [Job(event) for event in answer.get("events", [])], threading.Event()
    jobs += new_jobs
    threading.Thread(target=extend_leases, args=(jobs, done), daemon=True).start()
    for job in new_jobs:
        job.run()
    done.set()
    jobs = [job for job in jobs if job.settlement]
