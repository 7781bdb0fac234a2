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

// Yours: returns the result, or throws what went wrong.
async function work(payload) {
  await sleep(1000 * (payload.seconds ?? 0));
  if (payload.photo === undefined) throw new Error("there is no photo");
  return { resized: payload.photo };
}

// Repeats a call until it is answered; every call of a worker may be repeated. `fetch` keeps its connections open.
async function call(path, body) {
  const post = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  for (let pause = 100; ; pause = Math.min(2 * pause, 10_000)) {
    try {
      const response = await fetch(server + path, { ...post, signal: AbortSignal.timeout(90_000) });
      const answer = await response.json();
      // 429: too busy; 503: without its database.
      if (![429, 503].includes(response.status)) return { status: response.status, answer };
      pause = Math.max(pause, 1000 * Number(response.headers.get("Retry-After")));
    } catch { /* the connection was lost; the next call opens another */ }
    if (stopping) process.exit(); // whatever is held comes back when its lease ends
    await sleep(pause * (0.5 + Math.random() / 2));
  }
}

// Does the work of one event, and returns how it ended.
async function handle(event) {
  const settlement = { event_id: event.id, lease_id: event.lease_id };
  if (stopping) return { ...settlement, action: "release" }; // for another worker
  return work(event.payload).then(
    (result) => ({ ...settlement, action: "complete", result }),
    (error) => ({ ...settlement, action: "fail", error_message: String(error) }),
  );
}

async function handleAll(events) {
  const extend = ({ id, lease_id }) => call(`/events/${id}/heartbeat`, { worker_id, lease_id, lease_seconds });
  const beating = setInterval(() => events.forEach(extend), (1000 * lease_seconds) / 3);
  const settlements = [];
  for (const event of events) settlements.push(await handle(event));
  clearInterval(beating);
  return settlements;
}

let settlements = [];
while (settlements.length > 0 || !stopping) {
  const request = { worker_id, settlements };
  // The key: a call that is repeated gets the same events again.
  if (!stopping) request.claim = { tags, max, wait_seconds: 10, lease_seconds, idempotency_key: randomUUID() };
  const { status, answer } = await call("/events/settle", request);
  if (status !== 200) throw new Error(`${status}: ${JSON.stringify(answer)}`);
  // Not accepted: the lease was lost, and the work is somebody else's.
  for (const { event_id, entry, problem } of answer.results) console.log(event_id, entry ?? problem);
  if (answer.claim_problem) await sleep(1000);
  settlements = await handleAll(answer.events);
}
process.exit();
