// Sets as a person reads them.
import { fill } from "./words.js";

const SEEN = 5;

export function percent(probability) {
  if (probability > 0 && probability < 0.001) return "< 0.1%";
  if (probability >= 0.9995 && probability < 1) return "> 99.9%";
  return `${(100 * probability).toFixed(1)}%`;
}

/** An element with a class, a text and further elements. */
export function element(tag, kind = "", text = "", ...inside) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  if (text) made.textContent = text;
  made.append(...inside);
  return made;
}

export function row({ name, probability }) {
  const bar = element("span", "bar");
  bar.style.setProperty("--share", probability.toFixed(4));
  return element(
    "li",
    "",
    "",
    element("span", "name", name),
    " ",
    element("span", "probability", percent(probability)),
    bar,
  );
}

export function list(members) {
  return element("ol", "set", "", ...members.map(row));
}

function size(words, { set, none }) {
  const classes =
    set.length === 1 ? words.classes_one : fill(words.classes, { number: set.length });
  if (set.length === 0) return none ? words.none_of_these : words.empty;
  return none ? fill(words.or_none_of_these, { classes }) : classes;
}

/** The card of an example: its picture, if it has one, its name and its set. */
export function card(words, title, answer, picture) {
  const inside = [element("h2", "", title), element("p", "size", size(words, answer))];
  if (answer.set.length === 0) {
    const { name, probability } = answer.likeliest;
    const text = answer.none
      ? words.none_words
      : fill(words.empty_words, { name, probability: percent(probability) });
    inside.push(element("p", "empty", text));
  } else {
    const few = answer.set.length <= SEEN + 1 ? answer.set : answer.set.slice(0, SEEN);
    inside.push(list(few));
    if (few.length < answer.set.length) {
      const number = answer.set.length - SEEN;
      const more = element("summary", "", fill(words.more, { number }));
      inside.push(element("details", "", "", more, list(answer.set.slice(SEEN))));
    }
  }
  const article = element("article", "", "", element("div", "words", "", ...inside));
  if (picture) article.prepend(element("div", "picture", "", picture));
  return element("li", "card", "", article);
}
