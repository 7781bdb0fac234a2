// Forms that send a request to the API, for people who may do so.
//
// What a form says with attributes:
//   form[data-form]         sends data-method (POST) to data-path; data-if-match is the version that it changes
//   [name="a.b"]            becomes {"a": {"b": …}}
//   data-kind               how the text of a field becomes JSON: text (default), number, boolean, json (sent as it
//                           is written, so numbers keep their digits), lines and commas (lists of texts), time
//   input[data-item]        boxes of one name, of which those that are checked become a list of their values
//   data-stored             the JSON that is sent if the field was not changed
//   data-in                 path: the field fills its {name} of data-path; query: it becomes a parameter
//   data-empty              what an empty field becomes: omit (default), null or text (an empty text)
//   [data-error-of="a.b"]   where the reason is shown if the API refuses the field
//   data-next               the page to go to afterwards; {id} and {name} are those of the response
//   data-secret             the field of the response that is shown once, for the person to keep
//   button[data-form-curl]  copies the request as a command for the shell
//   data-null-if-empty      an object that becomes null if none of its fields has a value
//   data-check-path         where the fields data-check-fields and [data-check-field] are checked while somebody writes;
//                           [data-check-result] shows the outcome
//   button[data-fill]       fills the field with that id with the text of the element data-from

const FORM_KINDS = {
  text: (text) => JSON.stringify(text),
  number: (text) => text.trim(),
  boolean: (text) => text,
  json: (text) => text.trim(),
  lines: (text) => JSON.stringify(text.split("\n").map((line) => line.trim()).filter(Boolean)),
  time: (text) => JSON.stringify(new Date(text).toISOString()),
  commas: (text) => JSON.stringify(text.split(",").map((part) => part.trim()).filter(Boolean)),
};

const isListOf = (kind) => kind === "lines" || kind === "commas";

// Returns the JSON text of a field, or undefined if it is left out.
function jsonOfField(field) {
  const { kind = "text", empty = "omit" } = field.dataset;
  if (field.dataset.item !== undefined) {
    return JSON.stringify($$(`[name="${field.name}"]:checked`, field.form).map((box) => box.value));
  }
  if (field.type === "checkbox") return String(field.checked);
  if (field.dataset.stored !== undefined && field.value === field.defaultValue) return field.dataset.stored;
  const text = field.multiple ? [...field.selectedOptions].map((option) => option.value).join(",") : field.value;
  if (text.trim() === "") return { omit: undefined, null: "null", text: isListOf(kind) ? "[]" : '""' }[empty];
  return FORM_KINDS[kind](text);
}

// Returns the JSON texts of a form's fields, as a tree. Throws the field that is no JSON.
function treeOfForm(form) {
  const tree = {};
  for (const field of $$("[name]:not([data-in])", form)) {
    const json = field.disabled ? undefined : jsonOfField(field);
    if (json === undefined) continue;
    try { JSON.parse(json); } catch (error) { throw { field: field.name, reason: error.message }; }
    const path = field.name.split(".");
    const last = path.pop();
    let at = tree;
    for (const step of path) at = (at[step] ??= {});
    at[last] = json;
  }
  const { nullIfEmpty } = form.dataset;
  if (nullIfEmpty) tree[nullIfEmpty] ??= "null";
  return tree;
}

const jsonOfTree = (tree) => (typeof tree === "string" ? tree
  : `{${Object.entries(tree).map(([name, value]) => `${JSON.stringify(name)}:${jsonOfTree(value)}`).join(",")}}`);

// Returns the path of a form, with the fields that belong there.
function pathOfForm(form) {
  let { path } = form.dataset;
  const query = new URLSearchParams();
  for (const field of $$("[data-in]", form)) {
    const text = field.type === "checkbox" ? (field.checked ? "true" : "") : field.value.trim();
    if (field.dataset.in === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(text));
    else if (text) query.set(field.name, text);
  }
  return query.size > 0 ? `${path}?${query}` : path;
}

function requestOfForm(form) {
  const { method = "POST", ifMatch } = form.dataset;
  const path = pathOfForm(form);
  return { method, path, body: jsonOfTree(treeOfForm(form)), headers: ifMatch ? { "If-Match": ifMatch } : {} };
}

// Shows the reasons beside their fields, and those of no field in a notice.
function showErrors(form, errors, focuses = true) {
  for (const place of $$("[data-error-of]", form)) place.textContent = "";
  for (const field of $$("[aria-invalid]", form)) field.removeAttribute("aria-invalid");
  for (const { field: name, reason } of errors) {
    const isOwn = (own) => name === own || name.startsWith(`${own}.`) || name.startsWith(`${own}[`);
    const place = $$("[data-error-of]", form).find((place) => isOwn(place.dataset.errorOf));
    const field = $$("[name]", form).find((field) => isOwn(field.name));
    field?.setAttribute("aria-invalid", "true");
    if (place) place.textContent = `${name}: ${reason}`;
    else notify(`${name}: ${reason}`, true);
  }
  if (focuses) $("[aria-invalid]", form)?.focus();
}

// Runs something with the request of a form, unless a field is no JSON.
function withRequestOfForm(form, run) {
  let request;
  try { request = requestOfForm(form); } catch (error) {
    if (!error.field) throw error;
    return showErrors(form, [error]);
  }
  return run(request);
}

async function sendForm(form, { method, path, body, headers }) {
  const buttons = $$("button", form);
  for (const button of buttons) button.disabled = true;
  try {
    const answer = await call(method, path, body, headers);
    showErrors(form, []);
    const secret = answer?.[form.dataset.secret];
    if (secret) showSecret(secret, () => goOn(form, answer));
    else goOn(form, answer);
  } catch (error) {
    if (!(error instanceof Refusal) || error.errors.length === 0) notify(error.message, true);
    else showErrors(form, error.errors);
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

function goOn(form, answer) {
  const fill = (path) => path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(answer?.[name] ?? ""));
  if (form.dataset.next) location.href = inNamespace(fill(form.dataset.next));
  else location.reload();
}

// Shows a secret that nobody can read again. The page goes on when the dialog is closed.
function showSecret(secret, then) {
  const dialog = openDialog("Keep this secret", (content) => {
    const text = document.createElement("pre");
    text.className = "text secret";
    text.textContent = secret;
    content.append(paragraph("It is shown only now. Keep it where secrets are kept."), text);
  }, [{ label: "Copy", kind: "primary", run: () => copy(secret) }]);
  dialog.addEventListener("close", then);
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.form === undefined) return;
  event.preventDefault();
  withRequestOfForm(form, (request) => sendForm(form, request));
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-form-curl]");
  if (!button) return;
  withRequestOfForm(button.form, ({ method, path, body, headers }) => copy(curlOf(method, path, body, headers)));
});

// ---- Checks while somebody writes

const CHECK_MS = 400;
const CHECKED_CHARS = 20000;
let checkTimer;
let checkTurn = 0;

async function checkForm(form) {
  const turn = ++checkTurn;
  const result = $("[data-check-result]", form);
  const extra = $("[data-check-field]", form);
  if (extra.value.trim() === "") return result.replaceChildren();
  try {
    const tree = treeOfForm(form);
    const checked = { [extra.dataset.checkField]: /^\d+$/.test(extra.value.trim()) ? extra.value.trim() : JSON.stringify(extra.value) };
    for (const name of form.dataset.checkFields.split(",")) if (name in tree) checked[name] = tree[name];
    const answer = await call("POST", form.dataset.checkPath, jsonOfTree(checked));
    if (turn !== checkTurn) return undefined;
    showErrors(form, [], false);
    return result.replaceChildren(...outcomeOfCheck(answer));
  } catch (error) {
    if (turn !== checkTurn) return undefined;
    const errors = error.field ? [error] : error.errors ?? [];
    showErrors(form, errors, false);
    const text = errors.map(({ field, reason }) => `${field}: ${reason}`).join("; ") || error.message;
    return result.replaceChildren(paragraph(text, "error"));
  }
}

// Returns what a check found: whether it matches, and the body that would be sent.
function outcomeOfCheck({ matches, reason, content_type, body, body_error, redacted, hidden }) {
  const state = document.createElement("span");
  state.className = matches ? "state good" : "state warning";
  state.textContent = matches ? "matches" : `does not match: ${reason}`;
  const line = paragraph("");
  line.append(state);
  const parts = [line];
  if (redacted && !hidden) parts.push(paragraph("Parts of the payload are redacted, for the filter and the template, too.", "muted"));
  if (hidden) parts.push(paragraph("The payload and the body are hidden: the key has no scope reveal.", "muted"));
  if (body_error) parts.push(paragraph(`transform: ${body_error}`, "error"));
  if (body !== null) {
    const text = document.createElement("pre");
    text.className = "text";
    text.tabIndex = 0;
    text.textContent = body.length > CHECKED_CHARS ? `${body.slice(0, CHECKED_CHARS)} …` : body;
    parts.push(paragraph(content_type, "muted"), text);
  }
  return parts;
}

document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-check-path]");
  if (!form) return;
  clearTimeout(checkTimer);
  checkTimer = setTimeout(() => checkForm(form), CHECK_MS);
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-check], button[data-fill]");
  if (!button) return;
  const { check, fill, from } = button.dataset;
  if (check !== undefined) checkForm(button.form);
  else document.getElementById(fill).value = document.getElementById(from).textContent;
});
