// Marks: which class is right for an example, as a person sees it. The browser keeps them for all
// pages of these sets, and they are saved as a table and loaded from one.
const list = document.getElementById("cards");
const classes = document.getElementById("classes");
const said = document.getElementById("said");
const columns = JSON.parse(list.dataset.columns);
// An example is known by its group, if it is an observation, or by its first cell.
const groupPlace = columns.indexOf("group");
const NONE = "none of these";
const UNSURE = "cannot tell";
const ANOTHER = "another class…";
// A longer list takes long to make; the classes after these are found by their names.
const MOST_CHOICES = 50;

// What tables call the classes, by their names, and the other way round.
const labels = new Map();
const names = new Map();
for (const option of classes.options) {
  const label = labelIn(option, option.value);
  if (!labels.has(option.value)) labels.set(option.value, label);
  names.set(label, option.value);
}

// Each mark has the rows of its example, and a label or, without one, the words of the mark.
const marks = new Map();
const kept = `topk_jax marks ${list.dataset.digest} `;
let isKept = true;
const markings = Array.from(list.children, addMarking);

function keyOf(row) {
  return row[groupPlace] || row[0];
}

function labelIn(element, name) {
  return element.dataset.label === undefined ? name : JSON.parse(element.dataset.label);
}

function nameOf({ label, words }) {
  return words || (names.get(label) ?? label);
}

function keepMark(key, mark) {
  if (mark === undefined) marks.delete(key);
  else marks.set(key, mark);
  try {
    if (mark === undefined) localStorage.removeItem(kept + key);
    else localStorage.setItem(kept + key, JSON.stringify(mark));
  } catch {
    isKept = false;
  }
}

function takeKept() {
  marks.clear();
  try {
    for (let place = 0; place < localStorage.length; place++) {
      const name = localStorage.key(place);
      if (name.startsWith(kept)) {
        marks.set(name.slice(kept.length), JSON.parse(localStorage.getItem(name)));
      }
    }
  } catch {
    isKept = false;
  }
  for (const marking of markings) marking.show();
}

function tell(text) {
  const where = "where" in document.getElementById("status").dataset ? " on all pages" : "";
  const parts = [text, `${marks.size.toLocaleString("en")} marked${where}`];
  if (!isKept) parts.push("this browser does not keep marks: save them before you leave");
  said.textContent = parts.filter(Boolean).join("; ");
  document.getElementById("save").disabled = marks.size === 0;
  document.getElementById("clear").disabled = marks.size === 0;
}

// The controls of a card.
function addMarking(card) {
  const rows = JSON.parse(card.dataset.rows);
  const key = keyOf(rows[0]);
  const members = Array.from(card.querySelectorAll(".set li, .empty b"), (element) => {
    const name = (element.querySelector(".name") ?? element).textContent;
    return { element, name, label: labelIn(element, name) };
  });
  const title = card.querySelector("h2").lastChild.textContent;
  const choice = document.createElement("select");
  choice.ariaLabel = `Right class of ${title}`;
  choice.add(new Option("not marked", ""));
  members.slice(0, MOST_CHOICES).forEach(({ name }, place) => {
    choice.add(new Option(`${place + 1}. ${name}`, String(place)));
  });
  for (const words of [NONE, UNSURE, ANOTHER]) choice.add(new Option(words, words));
  const other = document.createElement("input");
  other.setAttribute("list", "classes");
  other.ariaLabel = `Another class of ${title}`;
  other.placeholder = "name of a class";
  other.autocomplete = "off";
  other.spellcheck = false;
  const unknown = document.createElement("p");
  unknown.className = "unknown";
  unknown.textContent = "This is not a class of the classifier.";
  const written = document.createElement("p");
  written.className = "marked";
  const marking = document.createElement("div");
  marking.className = "marking";
  const caption = document.createElement("span");
  caption.textContent = "Right class";
  caption.ariaHidden = "true";
  marking.append(caption, choice, other, unknown, written);
  card.querySelector(".words").append(marking);

  let isShowing = false;
  function show() {
    // To hide a field in which something is written may report that it changed.
    isShowing = true;
    // The table that a mark was loaded from may have fewer rows.
    if (marks.has(key) && marks.get(key).rows.length !== rows.length) {
      keepMark(key, { ...marks.get(key), rows });
    }
    const mark = marks.get(key);
    const place = mark && !mark.words ? members.findIndex(({ label }) => label === mark.label) : -1;
    const isListed = place >= 0 && place < MOST_CHOICES;
    const isOther = mark !== undefined && !mark.words && !isListed;
    choice.value = !mark ? "" : mark.words || (isListed ? String(place) : ANOTHER);
    other.hidden = !isOther;
    other.value = isOther ? nameOf(mark) : "";
    unknown.hidden = !(isOther && "all" in classes.dataset && !names.has(mark.label));
    written.textContent = mark ? `Marked: ${nameOf(mark)}` : "";
    card.classList.toggle("has-mark", mark !== undefined);
    members.forEach(({ element }, index) => element.classList.toggle("right", index === place));
    isShowing = false;
  }

  function mark(label, words = "") {
    keepMark(key, label || words ? { rows, label, words } : undefined);
    show();
    const chosen = marks.get(key);
    tell(`${title}: ${chosen ? nameOf(chosen) : "not marked"}`);
  }

  function markMember(place) {
    if (place < members.length) mark(members[place].label);
  }

  function askAnother() {
    choice.value = ANOTHER;
    other.hidden = false;
    other.focus();
  }

  choice.addEventListener("change", () => {
    if (choice.value === ANOTHER) askAnother();
    else if (choice.value === NONE || choice.value === UNSURE) mark("", choice.value);
    else if (choice.value === "") mark("");
    else markMember(Number(choice.value));
  });
  other.addEventListener("change", () => {
    if (isShowing) return;
    const name = other.value.trim();
    const same = (one) => one.toLowerCase() === name.toLowerCase();
    mark(labels.get(name) ?? labels.get(Array.from(labels.keys()).find(same)) ?? name);
  });
  // An unfinished name is no mark.
  other.addEventListener("blur", show);
  card.addEventListener("click", (event) => {
    const place = members.findIndex(({ element }) => element.contains(event.target));
    if (place >= 0 && getSelection().isCollapsed) markMember(place);
  });
  return { card, key, show, mark, markMember, askAnother };
}

function saveMarks() {
  const byKey = new Intl.Collator("en", { numeric: true });
  const rows = Array.from(marks)
    .sort(([one], [other]) => byKey.compare(one, other))
    .flatMap(([, { rows, label, words }]) => rows.map(
      ([first, ...further]) => [first, label, ...further, words],
    ));
  const [first, ...further] = columns;
  const content = toCsv([[first, "label", ...further, "mark"], ...rows]);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type: "text/csv" }));
  link.download = document.getElementById("save").dataset.file;
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
    const [label, words] = [cell("label"), cell("label") ? "" : cell("mark")];
    const cells = columns.map(cell);
    const key = keyOf(cells);
    if (!key || !(label || words === NONE || words === UNSURE)) continue;
    const mark = found.get(key);
    if (mark === undefined) found.set(key, { rows: [cells], label, words });
    else if (mark.label === label && mark.words === words) mark.rows.push(cells);
    else twice.add(key);
  }
  for (const [key, mark] of found) keepMark(key, mark);
  for (const marking of markings) marking.show();
  const here = markings.filter(({ key }) => found.has(key)).length;
  const parts = [`${found.size} loaded, ${here} of them on this page`];
  if (twice.size) parts.push(`with two labels, of which the first is taken: ${[...twice].join(", ")}`);
  tell(parts.join("; "));
}

document.getElementById("save").addEventListener("click", saveMarks);
document.getElementById("load").addEventListener("click", () => {
  document.getElementById("file").click();
});
document.getElementById("file").addEventListener("change", async ({ target }) => {
  await loadMarks(target.files[0]);
  // The same file can be chosen again.
  target.value = "";
});
document.getElementById("clear").addEventListener("click", () => {
  if (!confirm(`Remove all ${marks.size} marks, on every page?`)) return;
  for (const key of [...marks.keys()]) keepMark(key);
  for (const marking of markings) marking.show();
  tell("all marks are removed");
});
// Another page of these sets may be open beside this one.
addEventListener("storage", ({ key }) => {
  if (key !== null && !key.startsWith(kept)) return;
  takeKept();
  tell("");
});
addEventListener("beforeunload", (event) => {
  if (!isKept && marks.size) event.preventDefault();
});
takeKept();
tell("");
