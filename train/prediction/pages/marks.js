// Marks: which class is right for an example, as a person sees it. The browser keeps them for this
// page; they are saved as a table and loaded from one.
const [NONE, UNSURE] = ["none of these", "cannot tell"];
const labelIn = (element, name) =>
  "label" in element.dataset ? JSON.parse(element.dataset.label) : name;
// What pages call the classes, by what tables call them.
const names = new Map(
  Array.from(field("classes").options, (option) => [labelIn(option, option.value), option.value]),
);
// Each mark has a label, or the words of the mark. It is of the group, if the example is an
// observation, or else of what comes first in its row.
const marks = new Map();
const keyOf = (row) => row.group || Object.values(row)[0];
const kept = `topk_jax marks ${list.dataset.digest}`;
let isKept = true;
const markings = cards.map(addMarking);
const columns = Object.keys(markings[0]?.rows[0] ?? {});

function tell(text) {
  const parts = [text, `${count(marks.size)} marked`];
  if (!isKept) parts.push("this browser does not keep marks: save them before you leave");
  field("said").textContent = parts.filter(Boolean).join("; ");
  field("save").disabled = field("clear").disabled = marks.size === 0;
}

function takeKept() {
  marks.clear();
  try {
    for (const [key, mark] of JSON.parse(localStorage.getItem(kept) ?? "[]")) marks.set(key, mark);
  } catch {
    isKept = false;
  }
  showMarks("");
}

function keepMarks() {
  try {
    if (marks.size) localStorage.setItem(kept, JSON.stringify([...marks]));
    else localStorage.removeItem(kept);
  } catch {
    isKept = false;
  }
}

function showMarks(text) {
  for (const { show } of markings) show();
  tell(text);
}

// The fields of a card.
function addMarking(card) {
  const rows = JSON.parse(card.dataset.rows);
  const [key, title] = [keyOf(rows[0]), titleOf(card)];
  const members = Array.from(card.querySelectorAll(".set li, .empty b"), (element) => {
    const name = (element.querySelector(".name") ?? element).textContent;
    return { element, label: labelIn(element, name) };
  });
  card.querySelector(".words").append(field("marking").content.cloneNode(true));
  const [input, unknown, written] = ["input", ".unknown", ".marked"].map(
    (part) => card.querySelector(`.marking ${part}`),
  );
  const buttons = Array.from(card.querySelectorAll(".marking button"));
  input.ariaLabel = `Right class of ${title}`;

  function show() {
    const { label = "", mark: words = "" } = marks.get(key) ?? {};
    const name = names.get(label) ?? label;
    for (const button of buttons) button.ariaPressed = String(button.textContent === words);
    input.value = name;
    unknown.hidden = !label || names.has(label);
    written.textContent = name || words ? `Marked: ${name || words}` : "";
    card.classList.toggle("has-mark", marks.has(key));
    for (const one of members) one.element.classList.toggle("right", one.label === label);
  }

  function mark({ label = "", mark: words = "" }) {
    if (label || words) marks.set(key, { label, mark: words });
    else marks.delete(key);
    keepMarks();
    show();
    tell(`${title}: ${names.get(label) || label || words || "not marked"}`);
  }

  // What is marked already is marked no more.
  function toggle(chosen) {
    const has = marks.get(key);
    mark(has && (chosen.mark ? has.mark === chosen.mark : has.label === chosen.label) ? {} : chosen);
  }

  for (const button of buttons) {
    button.addEventListener("click", () => toggle({ mark: button.textContent }));
  }
  input.addEventListener("change", () => {
    const written = input.value.trim();
    const is = ([, name]) => name.toLowerCase() === written.toLowerCase();
    const [label] = Array.from(names).find(([, name]) => name === written)
      ?? Array.from(names).find(is) ?? [written];
    mark({ label });
  });
  card.addEventListener("click", ({ target }) => {
    const member = members.find(({ element }) => element.contains(target));
    if (member && getSelection().isCollapsed) toggle(member);
  });
  return { card, key, rows, members, input, show, mark };
}

function saveMarks() {
  const [first, ...further] = columns;
  const rows = markings.filter(({ key }) => marks.has(key)).flatMap(({ key, rows }) => {
    const { label, mark } = marks.get(key);
    return rows.map((row) => [row[first], label, ...further.map((name) => row[name]), mark]);
  });
  const link = document.createElement("a");
  const content = toCsv([[first, "label", ...further, "mark"], ...rows]);
  link.href = URL.createObjectURL(new Blob([content], { type: "text/csv" }));
  link.download = field("save").dataset.file;
  link.click();
  URL.revokeObjectURL(link.href);
}

async function loadMarks(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const encoding = bytes[0] === 0xff && bytes[1] === 0xfe ? "utf-16le" : "utf-8";
  let text;
  try {
    text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    return tell(`${file.name} is not a text in UTF-8`);
  }
  const [header = [], ...rows] = fromCsv(text);
  for (const name of [columns[0], "label"]) {
    if (!header.includes(name)) return tell(`${file.name} has no column ${name}`);
  }
  const found = new Map();
  const twice = new Set();
  for (const row of rows) {
    const cell = (name) => row[header.indexOf(name)] ?? "";
    const label = cell("label");
    const mark = label ? "" : cell("mark");
    if (!label && mark !== NONE && mark !== UNSURE) continue;
    const key = keyOf(Object.fromEntries(columns.map((name) => [name, cell(name)])));
    const before = found.get(key) ?? { label, mark };
    if (before.label !== label || before.mark !== mark) twice.add(key);
    found.set(key, before);
  }
  const here = markings.filter(({ key }) => found.has(key));
  for (const { key } of here) marks.set(key, found.get(key));
  keepMarks();
  const parts = [`${here.length} loaded`];
  if (here.length < found.size) parts.push(`${found.size - here.length} are not on this page`);
  if (twice.size) parts.push(`with two labels, of which the first is taken: ${[...twice].join(", ")}`);
  showMarks(parts.join("; "));
}

field("save").addEventListener("click", saveMarks);
field("load").addEventListener("click", () => field("file").click());
field("file").addEventListener("change", async ({ target }) => {
  await loadMarks(target.files[0]);
  // The same file can be chosen again.
  target.value = "";
});
field("clear").addEventListener("click", () => {
  if (!confirm(`Remove all ${marks.size} marks?`)) return;
  marks.clear();
  keepMarks();
  showMarks("all marks are removed");
});
// The same page may be open a second time.
addEventListener("storage", ({ key }) => {
  if (key === null || key === kept) takeKept();
});
addEventListener("beforeunload", (event) => {
  if (!isKept && marks.size) event.preventDefault();
});
takeKept();
