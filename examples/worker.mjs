// A complete worker. WAYBILL_URL, TAGS, BATCH and LEASE (seconds) may be set in the environment.
import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const server = process.env.WAYBILL_URL ?? "http://127.0.0.1:8080";
const tags = (process.env.TAGS ?? "images").split(",");
const max = Number(process.env.BATCH ?? 5);
const lease_seconds = Number(process.env.LEASE ?? 60);
const worker_id = `${hostname()}:${process.pid}`;
let stopping = false;
process.on("SIGTERM", () => { stopping = true; });

// Yours: returns the result, or throws what went wrong. Long work should end early if `signal` is aborted.
async function work(payload, signal) {
  await sleep(1000 * (payload.seconds ?? 0), undefined, { signal });
  if (payload.photo === undefined) throw new Error("there is no photo");
  return { resized: payload.photo };
}

// Returns the status, the answer and the seconds to wait at least before another try. `fetch` keeps connections open.
async function post(path, body, timeoutSeconds) {
  const request = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  try {
    const response = await fetch(server + path, { ...request, signal: AbortSignal.timeout(1000 * timeoutSeconds) });
    const retryAfter = Number(response.headers.get("Retry-After")) || 0;
    return { status: response.status, answer: await response.json(), retryAfter };
  } catch (error) { // the connection was lost; every call of a worker may be repeated
    return { status: 0, answer: { detail: String(error), retryable: true }, retryAfter: 0 };
  }
}

// A claimed event, and how the work on it ended.
class Job {
  settlement = null;
  isLost = false;
  stop = new AbortController();
  constructor(event) { this.event = event; }

  async run() {
    const { id: event_id, lease_id, payload } = this.event;
    const ended = stopping || this.stop.signal.aborted
      ? { action: "release" } // for another worker; a cancelled event is CANCELLED
      : await work(payload, this.stop.signal).then(
        (result) => ({ action: "complete", result }),
        (error) => ({ action: "fail", error_message: String(error) }),
      );
    if (!this.isLost) this.settlement = { event_id, lease_id, ...ended };
  }

  async extendLease() {
    if (this.isLost) return;
    const { id, lease_id } = this.event;
    const beat = { worker_id, lease_id, lease_seconds };
    const { status, answer } = await post(`/events/${id}/heartbeat`, beat, lease_seconds / 3);
    if (status >= 400 && !answer.retryable) this.isLost = true; // otherwise the next beat may succeed
    if (this.isLost || answer.cancel_requested) this.stop.abort();
  }
}

// The key: a claim that is repeated gets the same events again.
const newClaim = () => ({ tags, max, wait_seconds: 10, lease_seconds, idempotency_key: randomUUID() });

let [claim, jobs, pause] = [newClaim(), [], 0.1];
while (jobs.length > 0 || !stopping) {
  const request = { worker_id, settlements: jobs.map((job) => job.settlement) };
  if (!stopping) request.claim = claim;
  const { status, answer, retryAfter } = await post("/events/settle", request, 90);
  const { results = [], events = [] } = answer;
  const problem = status === 200 ? answer.claim_problem : answer;
  for (const result of results) console.log(result.event_id, result.entry ?? result.problem);
  // Refused: if it may be sent again, it goes with the next call; otherwise the work is somebody else's.
  if (status === 200) jobs = jobs.filter((_, i) => !results[i].accepted && results[i].problem.retryable);
  // Whatever is held comes back when its lease ends.
  if (problem && !problem.retryable) throw new Error(`${status}: ${JSON.stringify(problem)}`);
  if (!problem) claim = newClaim();
  const isTrouble = problem || jobs.length > 0;
  if (isTrouble && events.length === 0) await sleep(1000 * Math.max(retryAfter, pause * (0.5 + Math.random() / 2)));
  pause = isTrouble ? Math.min(2 * pause, 10) : 0.1;
  const newJobs = events.map((event) => new Job(event));
  jobs.push(...newJobs);
  const beating = setInterval(() => jobs.forEach((job) => job.extendLease()), (1000 * lease_seconds) / 3);
  for (const job of newJobs) await job.run();
  clearInterval(beating);
  jobs = jobs.filter((job) => job.settlement);
}
process.exit();
