// The page: it takes photographs or drawings, and shows their sets.
import { card, element, row } from "./cards.js";
import { Classifier } from "./classifier.js";
import { listen } from "./drawing.js";
import { Refused } from "./steps.js";
import { fill, inCases } from "./words.js";

const at = (name) => document.getElementById(name);
const read = async (address) => (await fetch(address, { cache: "no-cache" })).json();
const [words, described] = await Promise.all([read("words.json"), read("classifier.json")]);
const takesDrawings = described.images.shape[3] === 1;

// The examples that are shown, and those that wait.
const shown = [];
const waiting = [];
let isWorking = false;

function say(name, text) {
  at(name).textContent = text;
}

function show() {
  document.documentElement.lang = words.language;
  const kind = takesDrawings ? "drawings" : "images";
  say("title", words[`title_${kind}`]);
  document.title = words[`title_${kind}`];
  const { promised, in_words: inWords, calibrated_on: calibratedOn } = described.rule;
  const ofCoverage = described.outputs?.none_of_these ? words.promise_or_new : words.promise;
  // Another promise than that of a coverage is in the words of the rule.
  const ofRule = calibratedOn ? inWords : words.no_promise;
  say("promise", promised ? fill(ofCoverage, inCases(promised)) : ofRule);
  say("private", words.private);
  for (const name of ["take", "draw", "about"]) say(`${name}-words`, words[name]);
  for (const name of ["drop", "choose"]) say(`${name}-words`, words[`${name}_${kind}`]);
  for (const name of ["ask", "clear", "remove"]) say(name, words[name]);
  at("canvas").setAttribute("aria-label", words.canvas);
  say("rule", inWords);
  const facts = {
    data_set: described.data_set,
    network: described.network,
    classes: described.classes.length.toLocaleString(),
    rule: described.rule.rule,
    attribution: described.attribution,
  };
  for (const [name, value] of Object.entries(facts)) {
    if (!value) continue;
    const pair = [element("dt", "", words[`fact_${name}`]), element("dd", "", String(value))];
    at("facts").append(element("div", "", "", ...pair));
  }
  at("give-images").hidden = false;
  at("draw").hidden = !takesDrawings;
}

/** Adds a line: each of several files may have its own. */
function trouble(text) {
  const before = at("trouble").textContent;
  say("trouble", before ? `${before}\n${text}` : text);
  at("trouble").hidden = false;
}

function clearTrouble() {
  say("trouble", "");
  at("trouble").hidden = true;
}

function picture(blob, name) {
  const image = new Image();
  image.alt = fill(words.photograph_of, { name });
  image.src = URL.createObjectURL(blob);
  if (takesDrawings) image.className = "small";
  return image;
}

function remove() {
  for (const image of document.querySelectorAll("#cards img")) URL.revokeObjectURL(image.src);
  at("cards").replaceChildren();
  shown.length = 0;
  clearTrouble();
  say("state", words.ready);
  showTogether();
}

/** The classes in all sets, for several photographs of one thing. */
function showTogether() {
  at("remove").hidden = shown.length === 0;
  at("together").hidden = takesDrawings || shown.length < 2;
  if (at("together").hidden) return;
  const [first, ...others] = shown.map((one) => one.set);
  const common = first.filter(({ index }) => others.every((set) => set.some((one) => one.index === index)));
  const mean = ({ index }) =>
    shown.reduce((sum, one) => sum + one.set.find((other) => other.index === index).probability, 0) /
    shown.length;
  const members = common.map((one) => ({ ...one, probability: mean(one) }));
  members.sort((one, other) => other.probability - one.probability);
  say("together-words", fill(words.together, { number: shown.length }));
  // Each set may miss: the errors add up.
  const missed = 1 - (described.rule.promised ?? 0);
  const promised = 1 - shown.length * missed;
  let promise = promised > 0.5 ? fill(words.together_promise, inCases(promised)) : words.together_no_promise;
  if (members.length === 0) promise = words.together_nothing;
  say("together-promise", promise);
  at("in-all").replaceChildren(...members.map(row));
}

async function work(classifier) {
  if (isWorking) return;
  isWorking = true;
  document.body.dataset.state = "working";
  const started = performance.now();
  while (waiting.length > 0) {
    const { example, name } = waiting.shift();
    say("state", fill(words.working, { left: waiting.length + 1 }));
    // So that the browser can paint.
    await new Promise((resolve) => setTimeout(resolve));
    try {
      const answer = await classifier.answer(example);
      shown.push(answer);
      at("cards").prepend(card(words, name, answer, picture(example, name)));
    } catch (error) {
      const is = error instanceof Refused;
      const text = is ? words[error.word] : words.nothing_computed;
      trouble(fill(text, { name, error: error.message, ...(is ? error.values : {}) }));
    }
  }
  showTogether();
  const seconds = (performance.now() - started) / 1000;
  say("state", fill(words.done, { seconds: seconds.toFixed(2) }));
  // On a phone, what was asked with can fill the window.
  const said = at("trouble").hidden ? at("cards").firstElementChild : at("trouble");
  said?.scrollIntoView({ block: "nearest" });
  document.body.dataset.seconds = seconds;
  document.body.dataset.state = "ready";
  isWorking = false;
}

function listenToFiles(give) {
  const drop = at("drop");
  const images = (files) => Array.from(files, (file) => ({ example: file, name: file.name }));
  for (const field of [at("files"), at("camera")]) {
    field.addEventListener("change", () => {
      give(images(field.files));
      // So that the same file can be chosen again.
      field.value = "";
    });
  }
  for (const kind of ["dragenter", "dragover"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  document.addEventListener("dragleave", () => drop.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    give(images(event.dataTransfer.files));
  });
  document.addEventListener("paste", (event) => give(images(event.clipboardData.files)));
}

show();
document.body.dataset.state = "loading";
const loaded = Classifier.load(described, (done, all) => {
  const inMegabytes = (bytes) => (bytes / 1e6).toFixed(1);
  say("state", fill(words.loading, { done: inMegabytes(done), all: inMegabytes(all) }));
});
const give = async (examples) => {
  // Without a classifier, the page goes on saying so.
  if (examples.length === 0 || document.body.dataset.state === "trouble") return;
  clearTrouble();
  waiting.push(...examples);
  work(await loaded);
};
at("remove").addEventListener("click", remove);
listenToFiles(give);
if (takesDrawings) {
  listen(at("canvas"), at("ask"), at("clear"), (blob, number) =>
    give([{ example: blob, name: fill(words.drawing, { number }) }]),
  );
}
try {
  await loaded;
  if (!isWorking && shown.length === 0) {
    say("state", words.ready);
    document.body.dataset.state = "ready";
  }
} catch (error) {
  trouble(fill(words.nothing_loaded, { error: error.message }));
  document.body.dataset.state = "trouble";
}
if (document.body.dataset.state !== "trouble" && "serviceWorker" in navigator) {
  try {
    await navigator.serviceWorker.register("offline.js");
    await navigator.serviceWorker.ready;
    say("offline", words.offline);
  } catch {
    // Private windows keep nothing: the page works, with a network.
  }
}
