// The dashboard's script. Pages are complete without it; it adds actions, live figures and the keyboard.
//
// What a page says with attributes:
//   data-live="id"           replaced while the page is open, by the same element of a newer version of the page
//   data-live-from="path"    asked for newer versions instead of the page; data-live-end: nothing more is expected to change
//   time[datetime]           shown as an age, with the exact time as its title
//   button[data-action]      sends a request to the API: data-method, data-path, data-body; data-confirm asks before
//                            data-reason asks for a reason, which goes into the query; data-show shows the
//                            response; data-next is the page to go to afterwards
//   button[data-bulk]        acts on the selected rows, or on all that match; data-noun of [data-filter] says what they are
//                            data-path starts an operation, data-chosen is the rest of the filter of selected rows;
//                            data-one is called for each selected row
//   [data-list]              a list with its buttons and its pages; data-any-state is the same list with events in any state
//   button[data-copy]        copies the text of the element with that id
//   button[data-copy-from]   copies what that path answers
//   table[data-rows]         rows can be walked with j and k

const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
const root = document.documentElement;
const namespace = root.dataset.namespace;

const REFRESH_MS = 5000;
const PROGRESS_MS = 500;

// ---- Requests

// What the API answered when it refused a request. `errors` has the fields that are wrong.
class Refusal extends Error {
  constructor(response, problem) {
    super(problem?.detail || problem?.title || `${response.status} ${response.statusText}`);
    this.errors = problem?.errors ?? [];
  }
}

// Sends a request to the API. A body that is a text is sent as it is: numbers keep their digits.
async function call(method, path, body, headers = {}) {
  const sent = { Accept: "application/json", ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (namespace) sent["Waybill-Namespace"] = namespace;
  const response = await fetch(path, { method, headers: sent, body: textOf(body) });
  const text = await response.text();
  let answer = null;
  try { answer = text ? JSON.parse(text) : null; } catch { /* no JSON: the status says enough */ }
  if (response.ok) return answer;
  throw new Refusal(response, answer);
}

const textOf = (body) => (body === undefined || typeof body === "string" ? body : JSON.stringify(body));

// Returns the address of a page in the namespace that the viewer looks at.
function inNamespace(path) {
  return namespace ? `${path}${path.includes("?") ? "&" : "?"}namespace=${encodeURIComponent(namespace)}` : path;
}

function curlOf(method, path, body, headers = {}) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const parts = ["curl", "-X", method, quoted(location.origin + path)];
  if (root.dataset.keys === "required") parts.push("-H", '"Authorization: Bearer $WAYBILL_KEY"');
  if (namespace) parts.push("-H", quoted(`Waybill-Namespace: ${namespace}`));
  for (const [name, value] of Object.entries(headers)) parts.push("-H", quoted(`${name}: ${value}`));
  if (body !== undefined) parts.push("-H", quoted("Content-Type: application/json"), "-d", quoted(textOf(body)));
  return parts.join(" ");
}

function notify(text, isBad = false) {
  const notice = document.createElement("div");
  notice.className = isBad ? "notice bad" : "notice";
  notice.textContent = text;
  notice.addEventListener("click", () => notice.remove());
  $(".notices").append(notice);
  setTimeout(() => notice.remove(), isBad ? 12000 : 5000);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    notify("Copied");
  } catch {
    // Without TLS browsers refuse the clipboard; the text can be selected by hand.
    const dialog = openDialog("Copy", (content) => {
      const area = document.createElement("textarea");
      area.value = text;
      area.readOnly = true;
      content.append(area);
      setTimeout(() => area.select());
    });
    dialog.addEventListener("close", () => dialog.remove());
  }
}

async function copyFrom(path) {
  const response = await fetch(path);
  if (response.ok) await copy(await response.text());
  else notify(`${response.status} ${response.statusText}`, true);
}

// ---- Dialogs

function openDialog(title, fill, actions = [], dismiss = "Close") {
  const dialog = document.createElement("dialog");
  const heading = document.createElement("h2");
  heading.textContent = title;
  heading.id = "dialog-title";
  dialog.setAttribute("aria-labelledby", heading.id);
  const content = document.createElement("div");
  const row = document.createElement("div");
  row.className = "actions";
  dialog.append(heading, content, row);
  fill(content, dialog);
  for (const { label, kind, run } of [...actions, { label: dismiss, run: () => dialog.close() }]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    if (kind) button.className = kind;
    button.addEventListener("click", () => run(dialog, button));
    row.append(button);
  }
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

function paragraph(text, className) {
  const element = document.createElement("p");
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

// ---- Actions on one thing

function requestOf(button) {
  const { method = "POST", path, body } = button.dataset;
  return { method, path, body: body ? JSON.parse(body) : undefined };
}

// Asks for a reason, if a button wants one. Returns a function that returns it.
function askReason(content, button) {
  return button.dataset.reason ? reasonIn(content) : () => "";
}

function reasonIn(content) {
  const input = labelled(content, "Reason, for the log", { type: "text", name: "reason", maxLength: 255, autocomplete: "off" });
  return () => input.value.trim();
}

function withReason({ method, path, body }, reason) {
  if (!reason) return { method, path, body };
  return { method, path: `${path}${path.includes("?") ? "&" : "?"}reason=${encodeURIComponent(reason)}`, body };
}

async function runAction(button) {
  let reason;
  const request = () => withReason(requestOf(button), reason());
  const goOn = () => (button.dataset.next ? location.assign(button.dataset.next) : refresh(true));
  const send = async (dialog, pressed) => {
    const { method, path, body } = request();
    pressed.disabled = true;
    try {
      const answer = await call(method, path, body);
      dialog?.close();
      if (button.dataset.show !== undefined) return showAnswer(button.textContent.trim(), answer, goOn);
      notify(button.dataset.done || "Done");
      await goOn();
    } catch (error) {
      pressed.disabled = false;
      notify(error.message, true);
    }
    return undefined;
  };
  openDialog(button.textContent.trim(), (content) => {
    content.append(paragraph(button.dataset.confirm || "Are you sure?"));
    reason = askReason(content, button);
  }, [
    { label: "Copy as curl", run: () => { const { method, path, body } = request(); copy(curlOf(method, path, body)); } },
    { label: button.textContent.trim(), kind: button.classList.contains("danger") ? "danger" : "primary", run: send },
  ], "Back");
}

// Shows the fields of a response. The page goes on when the dialog is closed.
function showAnswer(title, answer, then) {
  const dialog = openDialog(title, (content) => {
    const list = document.createElement("dl");
    list.className = "facts answer";
    for (const [name, value] of Object.entries(answer ?? {})) {
      const [term, text] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = name;
      text.textContent = value === null ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);
      list.append(term, text);
    }
    content.append(list);
  });
  dialog.addEventListener("close", then);
}

// ---- Bulk: preview, confirmation, progress, stop

const selected = () => $$("input[data-select]:checked").map((box) => Number(box.value));
const allMatch = () => $("input[data-all-match]")?.checked ?? false;
const nounOfList = () => $("[data-filter]")?.dataset.noun ?? "events";

function clearSelection() {
  for (const box of $$("input[data-select], input[data-select-all], input[data-all-match]")) box.checked = false;
  showBulk();
}

// A button that would have nothing to act on is switched off.
function showBulk() {
  const [isAll, isSome] = [allMatch(), selected().length > 0];
  for (const button of $$("button[data-bulk]")) {
    button.disabled = isAll ? !button.dataset.path : !isSome;
    button.title = !button.disabled ? "" : isAll ? `${button.dataset.verb} is for selected ${nounOfList()} only` : `Select ${nounOfList()} first, or all that match`;
  }
}

async function runBulk(button) {
  const { verb, path } = button.dataset;
  const noun = nounOfList();
  const isAll = allMatch();
  const ids = selected();
  if (!path) return bulkOneByOne(button, ids);
  const filter = isAll ? JSON.parse($("[data-filter]").dataset.filter) : { ...JSON.parse(button.dataset.chosen ?? "{}"), ids };
  let preview;
  try {
    preview = await call("POST", path, { filter, dry_run: true });
  } catch (error) {
    return notify(error.message, true);
  }
  const number = `${preview.matched.toLocaleString("en")}${preview.matched_is_exact ? "" : "+"}`;
  const title = `${verb} ${number} ${preview.matched === 1 ? noun.replace(/ies$/, "y").replace(/s$/, "") : noun}`;
  let reason, perSecond;
  const bodyOf = () => {
    const body = { filter };
    if (reason()) body.reason = reason();
    if (perSecond?.value) body.per_second = Number(perSecond.value);
    return body;
  };
  const start = async (dialog, pressed) => {
    pressed.disabled = true;
    try {
      const operation = await call("POST", path, bodyOf());
      dialog.close();
      clearSelection();
      watchOperation(title, operation);
    } catch (error) {
      pressed.disabled = false;
      notify(error.message, true);
    }
  };
  return openDialog(title, (content) => {
    const which = isAll ? `${noun} that match` : `${ids.length} selected ${noun}`;
    if (preview.matched === 0) return content.append(paragraph(`None of the ${which} can be changed in this way.`));
    content.append(paragraph(`${verb} applies to ${number} of the ${which}. Those that have moved on by then are left out.`));
    if (isAll && Object.keys(filter).length === 0) content.append(paragraph(`There is no filter: these are all ${noun} that can be changed.`, "error"));
    content.append(sampleOf(preview));
    reason = reasonIn(content);
    if (isAll) perSecond = labelled(content, "At most per second (500 unless you say)", { type: "number", name: "per_second", min: 0.1, max: 10000, step: "any" });
    return undefined;
  }, preview.matched === 0 ? [] : [
    { label: "Copy as curl", run: () => copy(curlOf("POST", path, bodyOf())) },
    { label: title, kind: button.classList.contains("danger") ? "danger" : "primary", run: start },
  ], preview.matched === 0 ? "Close" : "Back");
}

// Returns the first rows of a preview, which are the oldest.
function sampleOf(preview) {
  const list = document.createElement("ul");
  list.className = "sample";
  for (const row of preview.sample.slice(0, 5)) {
    const item = document.createElement("li");
    item.dir = "auto";
    item.textContent = `${row.id} ${row.title ?? ""} (${ageOf(new Date(row.created_at) - Date.now())} old)`;
    list.append(item);
  }
  if (preview.matched > list.childElementCount) list.append(Object.assign(document.createElement("li"), { textContent: "and newer ones" }));
  return list;
}

function labelled(content, text, properties) {
  const label = document.createElement("label");
  const input = Object.assign(document.createElement("input"), properties);
  label.append(text, input);
  content.append(label);
  return input;
}

// Asks once, and sends a request for each row.
function bulkOneByOne(button, ids) {
  const { verb, one } = button.dataset;
  const noun = nounOfList();
  const named = noun[0].toUpperCase() + noun.slice(1);
  const title = `${verb} ${ids.length} ${noun}`;
  let reason;
  openDialog(title, (content) => {
    content.append(paragraph(`${named} ${ids.slice(0, 20).join(", ")}${ids.length > 20 ? " …" : ""}`));
    reason = askReason(content, button);
  }, [{ label: title, kind: button.classList.contains("danger") ? "danger" : "primary", run: async (dialog) => {
    const why = reason();
    dialog.close();
    let done = 0;
    for (const id of ids) {
      try {
        const { method, path, body } = withReason({ method: "POST", path: one.replace("{id}", id) }, why);
        await call(method, path, body);
        done += 1;
      } catch (error) {
        notify(`${id}: ${error.message}`, true);
      }
    }
    notify(`${verb}: ${done} of ${ids.length} ${noun}`);
    clearSelection();
    await refresh(true);
  } }], "Back");
}

function linkTo(href, text) {
  return Object.assign(document.createElement("a"), { href, textContent: text });
}

// Returns a line above the list that stays after the dialog is closed, with links to what was done.
function outcomeLine(linkToOperation) {
  const line = paragraph("", "outcome");
  const said = document.createElement("span");
  line.append(said, " ", linkToOperation);
  const list = $("[data-list]");
  if (list?.dataset.anyState) line.append(" · ", linkTo(list.dataset.anyState, "The same filter in any state"));
  if (list) list.before(line);
  return said;
}

function watchOperation(title, operation) {
  const bar = document.createElement("progress");
  bar.setAttribute("aria-label", `${title}: progress`);
  const text = paragraph("Starting …");
  text.setAttribute("role", "status");
  const link = () => linkTo(inNamespace(`/ui/operations/${operation.id}`), `Operation ${operation.id}`);
  const outcome = outcomeLine(link());
  let isOpen = true;
  const dialog = openDialog(title, (content) => {
    const more = paragraph("");
    more.append(link());
    content.append(bar, text, more);
  }, [
    { label: "Stop", kind: "danger", run: async (_, pressed) => {
      pressed.disabled = true;
      try { await call("POST", `/operations/${operation.id}/cancel`); } catch (error) { notify(error.message, true); }
    } },
  ]);
  dialog.addEventListener("close", () => { isOpen = false; });
  const look = async () => {
    try {
      const present = await call("GET", `/operations/${operation.id}`);
      const { status, matched, done, skipped, failed } = present;
      const isRunning = status === "RUNNING";
      bar.max = Math.max(matched, 1);
      bar.value = isRunning ? done + skipped + failed : bar.max;
      text.textContent = `${status}: ${done.toLocaleString("en")} of ${matched.toLocaleString("en")} done, ${skipped} skipped, ${failed} failed`;
      outcome.textContent = `${title}: ${text.textContent}.`;
      if (!isRunning) {
        $("button.danger", dialog)?.remove();
        return refresh(isOpen || !isBusy($("[data-list]")));
      }
    } catch (error) {
      text.textContent = error.message;
    }
    setTimeout(look, PROGRESS_MS);
    return undefined;
  };
  look();
}

// ---- Live figures: nothing moves under the pointer, and nothing is fetched by a tab in the background
//
// A page asks for itself every few seconds. A stream of the log would tell sooner, but then a busy queue would make every
// open list ask every second, and browsers allow six connections to a server for all of its tabs together.

let isPaused = sessionStorage.getItem("waybill-paused") === "true";

function showLive(state) {
  const live = $(".live");
  if (!live) return;
  live.dataset.state = state;
  live.textContent = { on: "live", paused: "paused", off: "no connection", over: "finished" }[state];
  live.setAttribute("aria-pressed", String(state === "paused"));
}

// Whether nothing more is expected to change.
let isOver = false;
const liveState = () => (isPaused ? "paused" : isOver ? "over" : "on");
// What the server sent for each place: the script changes the times in it.
const sent = new WeakMap();

// Shows the newest version of what may change. What is in use is left alone, unless the reader has asked for it.
async function refresh(isAskedFor = false) {
  const places = $$("[data-live]");
  const list = isAskedFor ? $("[data-list]") : null;
  if (places.length === 0 && !list) return undefined;
  try {
    const from = $("[data-live-from]")?.dataset.liveFrom ?? location.href;
    const response = await fetch(from, { headers: { Accept: "text/html" } });
    if (response.redirected && new URL(response.url).pathname === "/login") return location.reload();
    if (!response.ok) throw new Error(response.statusText);
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    let isComplete = true;
    if (list) replaceList(list, $("[data-list]", page));
    for (const place of places.filter((place) => place.isConnected && !list?.contains(place))) {
      const fresh = page.querySelector(`[data-live="${CSS.escape(place.dataset.live)}"]`);
      if (fresh && !renew(place, fresh, isAskedFor)) isComplete = false;
    }
    isOver = isComplete && $("[data-live-end]", page) !== null;
    showAges();
    showLive(liveState());
  } catch {
    showLive("off");
  }
  return undefined;
}

// Whether somebody points at a place, or has the focus there.
const isBusy = (place) => place.matches(":hover") || place.contains(document.activeElement);

const isTyping = () => document.activeElement.matches("input:not([type=checkbox]), textarea, select");

// Shows what is new in one place. Returns false if it must wait, because the place is in use.
function renew(place, fresh, isAskedFor) {
  const button = $(".new-rows");
  if (place.tagName === "TBODY") {
    if (isAskedFor) replaceRows(place, fresh);
    else renewRows(place, fresh, button);
  } else if (place.tagName === fresh.tagName) {
    if (sent.get(place) === fresh.innerHTML) return true;
    if (isBusy(place) && !isAskedFor) return false;
    replaceContent(place, fresh);
  } else if (button) {
    // The list is no longer empty.
    button.hidden = false;
    button.textContent = `${$$("tr[data-id]", fresh).length} new, show`;
  } else if (!isBusy(place) && !isTyping()) location.reload();
  return true;
}

// Folds that are open stay open, and a focus that was inside stays inside.
function replaceContent(place, fresh) {
  sent.set(place, fresh.innerHTML);
  const [old, next] = [$$("details", place), $$("details", fresh)];
  next.forEach((fold, at) => {
    const same = fold.id ? $(`#${CSS.escape(fold.id)}`, place) : old.length === next.length ? old[at] : null;
    if (same) fold.open = same.open || (fold.id !== "" && fold.open);
  });
  const hadFocus = place.contains(document.activeElement);
  place.replaceChildren(...fresh.childNodes);
  if (hadFocus) $("a, button, summary", place)?.focus({ preventScroll: true });
}

// Rows that are shown change in place, and those that have left the list are crossed out. New ones wait behind a button.
function renewRows(place, fresh, button) {
  const next = new Map($$("tr[data-id]", fresh).map((row) => [row.dataset.id, row]));
  const shown = $$("tr[data-id]", place);
  // Rows at the end may only have been pushed to the next page.
  const last = next.size === 0 ? shown.length : shown.findLastIndex((row) => next.has(row.dataset.id));
  shown.forEach((present, at) => {
    const row = next.get(present.dataset.id);
    next.delete(present.dataset.id);
    present.classList.toggle("gone", !row && at < last);
    if (row && !isBusy(present) && !$("input:checked", present) && present.innerHTML !== row.innerHTML) present.replaceChildren(...row.childNodes);
  });
  if (!button) return;
  button.hidden = next.size === 0;
  button.textContent = `${next.size} new, show`;
}

// Shows a list as it is now, with its buttons and the link to its next page. What is selected stays so.
function replaceList(list, fresh) {
  if (!fresh) return;
  const chosen = new Set($$("input[data-select]:checked", list).map((box) => box.value));
  const isAll = allMatch();
  list.replaceChildren(...fresh.childNodes);
  for (const box of $$("input[data-select]", list)) box.checked = chosen.has(box.value);
  for (const box of $$("input[data-all-match]", list)) box.checked = isAll;
  for (const place of $$("[data-live]", list)) sent.set(place, place.innerHTML);
  showBulk();
}

// Shows the rows as they are now. What is selected stays so.
function replaceRows(place, fresh) {
  const chosen = new Set($$("input[data-select]:checked", place).map((box) => box.value));
  place.replaceChildren(...(fresh.tagName === "TBODY" ? fresh.childNodes : []));
  for (const box of $$("input[data-select]", place)) box.checked = chosen.has(box.value);
  if ($(".new-rows")) $(".new-rows").hidden = true;
}

async function showNewRows() {
  if (!$("tbody[data-live], [data-list]")) return location.reload();
  await refresh(true);
  return $("tbody[data-live] a")?.focus({ preventScroll: true });
}

const refreshIfSeen = () => { if (!document.hidden && !isPaused && !isOver && !$("dialog[open]")) refresh(); };

function keepLive() {
  isOver = $("[data-live-end]") !== null;
  // A page without anything that is renewed, such as a form, does not claim to be live.
  if ($(".live")) $(".live").hidden = $("[data-live]") === null;
  showLive(liveState());
  setInterval(refreshIfSeen, REFRESH_MS);
  document.addEventListener("visibilitychange", refreshIfSeen);
}

// ---- Times

function ageOf(milliseconds) {
  const seconds = Math.abs(milliseconds) / 1000;
  const steps = [[60, 1, "s"], [3600, 60, "min"], [86400, 3600, "h"], [Infinity, 86400, "d"]];
  const [, unit, name] = steps.find(([limit]) => seconds < limit);
  return `${milliseconds > 0 ? "in " : ""}${Math.floor(seconds / unit)} ${name}`;
}

function showAges() {
  for (const time of $$("time[datetime]:not([data-exact])")) {
    time.title = time.getAttribute("datetime");
    time.textContent = ageOf(new Date(time.getAttribute("datetime")) - Date.now());
  }
}

// ---- The keyboard

// Pages that are reached by g and a letter.
const PAGES = { o: "/", e: "/ui/events", w: "/ui/workers", t: "/ui/tags", s: "/ui/subscriptions", d: "/ui/dead-letters" };

const SHORTCUTS = [
  ["/", "search"], ["j k", "next and previous row"], ["Enter", "open the row"], ["x", "select the row"],
  ["g o", "overview"], ["g e", "events"], ["g w", "workers"], ["g t", "tags"], ["g s", "subscriptions"],
  ["g d", "dead letters"], ["p", "pause or go on"], ["Ctrl K", "commands"], ["?", "this help"], ["Esc", "close"],
];

function showHelp() {
  openDialog("Keyboard", (content) => {
    const table = document.createElement("table");
    for (const [keys, meaning] of SHORTCUTS) {
      const row = table.insertRow();
      const cell = row.insertCell();
      for (const key of keys.split(" ")) {
        const kbd = document.createElement("kbd");
        kbd.textContent = key;
        cell.append(kbd, " ");
      }
      row.insertCell().textContent = meaning;
    }
    content.append(table);
  });
}

function moveRow(step) {
  const rows = $$("table[data-rows] tbody tr[data-id]");
  if (rows.length === 0) return;
  const at = rows.findIndex((row) => row.classList.contains("current"));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
  rows[at]?.classList.remove("current");
  next.classList.add("current");
  $("a", next)?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

function openPalette() {
  const go = (href) => () => { location.href = href; };
  const commands = $$(".rail nav a").map((link) => ({ label: link.textContent.trim(), run: go(link.href) }));
  if (root.dataset.mayPublish !== undefined) commands.push({ label: "Publish an event", run: go(inNamespace("/ui/publish")) });
  commands.push({ label: "Switch between light and dark", run: toggleTheme }, { label: "Pause or go on", run: togglePause });
  openDialog("Go to", (content, dialog) => {
    dialog.classList.add("palette");
    const input = document.createElement("input");
    input.type = "search";
    input.setAttribute("aria-label", "a page, an event's id, or a filter");
    input.placeholder = "a page, an event's id, or a filter such as status:FAILED";
    const list = document.createElement("ul");
    list.id = "palette-list";
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Places to go to");
    input.setAttribute("role", "combobox");
    input.setAttribute("aria-expanded", "true");
    input.setAttribute("aria-controls", list.id);
    let at = 0;
    let shown = [];
    const show = () => {
      const text = input.value.trim();
      shown = commands.filter(({ label }) => label.toLowerCase().includes(text.toLowerCase()));
      if (/^\d+$/.test(text)) shown.unshift({ label: `Event ${text}`, run: go(inNamespace(`/ui/events/${text}`)) });
      else if (text) shown.push({ label: `Events: ${text}`, run: go(inNamespace(`/ui/events?q=${encodeURIComponent(text)}`)) });
      at = Math.min(at, shown.length - 1);
      list.replaceChildren(...shown.map(({ label, run }, index) => {
        const item = document.createElement("li");
        item.id = `palette-${index}`;
        item.setAttribute("role", "option");
        item.setAttribute("aria-selected", String(index === at));
        item.textContent = label;
        item.addEventListener("click", () => { dialog.close(); run(); });
        return item;
      }));
      input.setAttribute("aria-activedescendant", `palette-${at}`);
    };
    input.addEventListener("input", () => { at = 0; show(); });
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") at = Math.min(at + 1, shown.length - 1);
      else if (event.key === "ArrowUp") at = Math.max(at - 1, 0);
      else if (event.key !== "Enter") return;
      event.preventDefault();
      if (event.key !== "Enter") return show();
      const command = shown[at];
      if (command) { dialog.close(); command.run(); }
      return undefined;
    });
    content.append(input, list);
    show();
    setTimeout(() => input.focus());
  });
}

let prefix = null;

function onKey(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    return $("dialog.palette") ? undefined : openPalette();
  }
  const isOpen = Boolean($("dialog[open]"));
  if (event.key === "Escape" && !isOpen && isTyping()) document.activeElement.blur();
  if (isOpen || isTyping() || event.ctrlKey || event.metaKey || event.altKey) return undefined;
  if (prefix === "g" && PAGES[event.key]) { location.href = inNamespace(PAGES[event.key]); return undefined; }
  prefix = event.key === "g" ? "g" : null;
  const current = $("tr.current");
  const keys = {
    "/": () => ($("#filter") ?? $(".search input")).focus(), j: () => moveRow(1), k: () => moveRow(-1), "?": showHelp,
    x: () => $("input[type=checkbox]", current ?? document.createElement("tr"))?.click(),
    p: () => togglePause(),
  };
  if (!keys[event.key]) return undefined;
  event.preventDefault();
  return keys[event.key]();
}

function togglePause() {
  isPaused = !isPaused;
  sessionStorage.setItem("waybill-paused", String(isPaused));
  showLive(liveState());
  if (!isPaused) refresh();
}

// ---- Beginning

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.action !== undefined) runAction(button);
  else if (button.dataset.bulk !== undefined) runBulk(button);
  else if (button.dataset.copy) copy($(`#${CSS.escape(button.dataset.copy)}`).textContent);
  else if (button.dataset.copyFrom) copyFrom(button.dataset.copyFrom);
  else if (button.dataset.curl !== undefined) { const { method, path, body } = requestOf(button); copy(curlOf(method, path, body)); }
  else if (button.classList.contains("new-rows")) showNewRows();
  else if (button.dataset.theme !== undefined) toggleTheme();
  else if (button.dataset.help !== undefined) showHelp();
  else if (button.classList.contains("live")) togglePause();
});

function toggleTheme() {
  const isDark = getComputedStyle(root).colorScheme === "dark";
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("waybill-theme", root.dataset.theme);
}

document.addEventListener("change", (event) => {
  if (event.target.matches("input[data-select-all]")) {
    for (const box of $$("input[data-select]")) box.checked = event.target.checked;
  }
  if (event.target.matches("input[type=checkbox]")) showBulk();
  if (event.target.matches("select[data-goto]")) location.href = event.target.value;
});
document.addEventListener("keydown", onKey);
for (const place of $$("[data-live]")) sent.set(place, place.innerHTML);
showBulk();
// A browser may bring back what was selected, when it shows a page again.
addEventListener("pageshow", showBulk);
showAges();
keepLive();
