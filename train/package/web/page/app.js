// The page: it takes photographs, and shows their sets.
import { Classifier } from "./classifier.js";

// Classes of a set that are shown before it is opened.
const SEEN = 5;
const at = (id) => document.getElementById(id);
const waiting = [];
let isWorking = false;

/** Says what is wrong on a line of its own; the names of files and classes are only texts. */
function complain(text) {
  at("trouble").textContent += `${at("trouble").hidden ? "" : "\n"}${text}`;
  at("trouble").hidden = false;
}

function forget() {
  at("trouble").textContent = "";
  at("trouble").hidden = true;
}

function percent(probability) {
  if (probability > 0 && probability < 0.001) return "< 0.1%";
  if (probability >= 0.9995 && probability < 1) return "> 99.9%";
  return `${(100 * probability).toFixed(1)}%`;
}

/** An element with a class, and texts or elements in it. */
function element(tag, kind, ...inside) {
  const made = document.createElement(tag);
  made.className = kind;
  made.append(...inside);
  return made;
}

function list(kind, members) {
  const rows = members.map(({ name, probability, classes = 1 }) => {
    const bar = element("span", "bar");
    bar.style.setProperty("--share", probability.toFixed(4));
    const title = element("span", "name", classes > 1 ? `${name} (${classes} classes)` : name);
    return element("li", "", title, " ", element("span", "probability", percent(probability)), bar);
  });
  return element("ol", kind, ...rows);
}

/** The card of a photograph: its picture, its name and its set. */
function card(title, { picture, note, set, names, likeliest, none }) {
  picture.alt = title;
  if (Math.max(picture.naturalWidth, picture.naturalHeight) < 100) picture.className = "small";
  let size = set.length === 1 ? "1 class" : `${set.length} classes`;
  if (none) size = set.length === 0 ? "none of these classes" : `${size}, may be none of these`;
  const words = [element("h2", "", title), element("p", "size", size)];
  if (names.length > 0) words.push(list("set names", names));
  if (set.length === 0) {
    const { name, probability } = likeliest;
    words.push(element("p", "empty", `The likeliest class is ${name}, ${percent(probability)}.`));
  } else {
    const seen = names.length > 0 ? 0 : SEEN;
    const [few, others] = [set.slice(0, seen), set.slice(seen)];
    if (few.length > 0) words.push(list("set", few));
    if (others.length > 0) {
      const more = few.length > 0 ? `and ${others.length} more` : "its classes";
      words.push(element("details", "", element("summary", "", more), list("set", others)));
    }
  }
  if (note) words.push(element("p", "note", note));
  const inside = [element("div", "picture", picture), element("div", "words", ...words)];
  return element("li", "card", element("article", "", ...inside));
}

function show(described) {
  at("rule").textContent = described.rule.in_words;
  const { data_set: data, network, classes, attribution } = described;
  const facts = [`Data: ${data}`, `network: ${network}`, `${classes.length} classes`];
  at("facts").textContent = `${[...facts, ...(attribution ? [attribution] : [])].join("; ")}.`;
}

async function work(classifier) {
  if (isWorking) return;
  isWorking = true;
  document.body.dataset.state = "working";
  const started = performance.now();
  while (waiting.length > 0) {
    const file = waiting.shift();
    at("state").textContent = `${waiting.length + 1} to do …`;
    // So that the browser can paint.
    await new Promise((resolve) => setTimeout(resolve));
    try {
      at("cards").prepend(card(file.name, await classifier.answer(file)));
    } catch (error) {
      complain(`${file.name}: ${error.message}`);
    }
  }
  at("remove").hidden = at("cards").children.length === 0;
  at("state").textContent = `Done in ${((performance.now() - started) / 1000).toFixed(2)} s.`;
  // On a phone, what was asked with can fill the window.
  const said = at("trouble").hidden ? at("cards").firstElementChild : at("trouble");
  said?.scrollIntoView({ block: "nearest" });
  document.body.dataset.state = "ready";
  isWorking = false;
}

function listen(give) {
  for (const field of [at("files"), at("camera")]) {
    field.addEventListener("change", () => {
      give([...field.files]);
      // So that the same file can be chosen again.
      field.value = "";
    });
  }
  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      // The browser would open the file in place of the page.
      event.preventDefault();
      at("drop").classList.toggle("over", kind === "dragover");
      if (kind === "drop") give([...event.dataTransfer.files]);
    });
  }
  document.addEventListener("paste", (event) => give([...event.clipboardData.files]));
  at("remove").addEventListener("click", () => {
    for (const picture of document.images) URL.revokeObjectURL(picture.src);
    at("cards").replaceChildren();
    at("remove").hidden = true;
    forget();
  });
}

const loaded = Classifier.load(show);
listen(async (files) => {
  // Without a classifier, the page goes on saying so.
  const classifier = await loaded.catch(() => null);
  if (classifier === null || files.length === 0) return;
  forget();
  waiting.push(...files);
  await work(classifier);
});
try {
  await loaded;
  if (!isWorking) {
    at("state").textContent = "The classifier is ready.";
    document.body.dataset.state = "ready";
  }
  await navigator.serviceWorker?.register("offline.js");
  await navigator.serviceWorker?.ready;
  at("offline").hidden = !navigator.serviceWorker;
} catch (error) {
  // Private windows keep nothing: the page works, with a network.
  if (document.body.dataset.state === "loading") {
    at("state").textContent = "";
    document.body.dataset.state = "trouble";
    complain(`The classifier cannot be loaded: ${error.message}`);
  }
}
