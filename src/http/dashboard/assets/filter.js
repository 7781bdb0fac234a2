// Completion of the filter line: the names of conditions, and the values that there are.
//
// A list below the field shows what the word before the caret may become. Arrow keys choose, Enter and Tab take what is
// chosen, Escape closes the list. As long as nothing is chosen, Enter sends the line as it is.

const FILTER_NAMES = ["status:", "tag:", "type:", "worker:", "correlation:", "key:", "since:", "until:", "id:", "text:", "label.", "payload."];
const STATUSES = ["PENDING", "PROCESSING", "COMPLETED", "FAILED", "CANCELLED"];
const AGES = ["15m", "1h", "24h", "7d"];
const SHOWN_VALUES = 8;

// Returns what a page of the API lists, or nothing if it is not for this reader. It is asked once.
const known = {};
function listOf(path, field, name) {
  known[path] ??= call("GET", path).then((page) => page[field].map((row) => row[name]), () => []);
  return known[path];
}

const VALUES = {
  status: async () => STATUSES,
  since: async () => AGES,
  until: async () => AGES,
  tag: () => listOf("/tags?limit=200", "tags", "tag"),
  type: () => listOf("/event-types?limit=200", "event_types", "name"),
  worker: () => listOf("/workers?limit=200", "workers", "worker_id"),
};

const asWord = (value) => (/[\s"\\]/.test(value) ? `"${value.replace(/["\\]/g, "\\$&")}"` : value);

// Returns what the word before the caret may become. A word with quotes is left alone.
async function completionsOf(text) {
  const [, sign, word] = /(?:^|\s)(-?)(\S*)$/.exec(text) ?? ["", "", ""];
  if (text.split('"').length % 2 === 0 || word.includes('"') || word === "") return [];
  const [name, value] = word.split(/:(.*)/s);
  if (value === undefined) {
    return FILTER_NAMES.filter((known) => known.startsWith(word.toLowerCase())).map((known) => ({ label: sign + known, whole: sign + known }));
  }
  const values = await (VALUES[name.toLowerCase()]?.() ?? []);
  const found = values.filter((known) => known.toLowerCase().includes(value.toLowerCase()) && known !== value);
  return found.slice(0, SHOWN_VALUES).map((known) => ({ label: known, whole: `${sign}${name}:${asWord(known)} ` }));
}

function completeFilter(input, number) {
  const list = document.createElement("ul");
  list.id = `completion-${number}`;
  list.className = "completion";
  list.hidden = true;
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Completions");
  input.setAttribute("role", "combobox");
  input.setAttribute("aria-autocomplete", "list");
  input.setAttribute("aria-controls", list.id);
  input.after(list);
  let shown = [];
  let at = -1;
  const before = () => input.value.slice(0, input.selectionStart);
  const draw = () => {
    list.hidden = shown.length === 0;
    input.setAttribute("aria-expanded", String(shown.length > 0));
    list.replaceChildren(...shown.map(({ label, whole }, index) => {
      const item = document.createElement("li");
      item.id = `${list.id}-${index}`;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(index === at));
      item.textContent = label;
      // The field keeps the focus.
      item.addEventListener("mousedown", (event) => { event.preventDefault(); take(whole); });
      return item;
    }));
    if (at >= 0) input.setAttribute("aria-activedescendant", `${list.id}-${at}`);
    else input.removeAttribute("aria-activedescendant");
  };
  const show = async () => {
    const text = before();
    const found = await completionsOf(text);
    // Somebody may have gone on while the values were fetched.
    if (text !== before() || document.activeElement !== input) return;
    [shown, at] = [found, -1];
    draw();
  };
  const hide = () => { shown = []; at = -1; draw(); };
  const take = (whole) => {
    const [text, rest] = [before(), input.value.slice(input.selectionStart)];
    const start = text.slice(0, text.length - /\S*$/.exec(text)[0].length);
    input.value = start + whole + rest.trimStart();
    input.setSelectionRange((start + whole).length, (start + whole).length);
    show();
  };
  input.addEventListener("input", show);
  input.addEventListener("blur", hide);
  input.addEventListener("keydown", (event) => {
    if (shown.length === 0) return;
    if (event.key === "ArrowDown") at = Math.min(at + 1, shown.length - 1);
    else if (event.key === "ArrowUp") at = Math.max(at - 1, -1);
    else if ((event.key === "Enter" || event.key === "Tab") && at >= 0) take(shown[at].whole);
    else if (event.key === "Escape") hide();
    else return;
    event.preventDefault();
    event.stopPropagation();
    draw();
  });
  draw();
}

$$("#filter, .search input[name=q]").forEach(completeFilter);
