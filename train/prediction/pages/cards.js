"use strict";
// The cards of a page, and the fields that say which of them are shown.
const field = (identifier) => document.getElementById(identifier);
const list = field("cards");
const cards = Array.from(list.children);
const texts = new Map(cards.map((card) => [card, Array.from(
  card.querySelectorAll(".folder, .title, figcaption, .name, .node, .empty b"),
  (part) => part.textContent,
).join("\n").toLowerCase()]));
const titleOf = (card) => card.querySelector(".title").textContent;
const count = (number) => number.toLocaleString("en");

// Shows the cards that have the wanted text and pass a test.
function filterCards(passes) {
  const wanted = field("filter").value.trim().toLowerCase();
  for (const card of cards) card.hidden = !(texts.get(card).includes(wanted) && passes(card));
  const shown = cards.filter((card) => !card.hidden).length;
  field("status").textContent = shown === cards.length
    ? `${count(shown)} shown` : `${count(shown)} of ${count(cards.length)} shown`;
  return wanted;
}

// Calls a function now and whenever a field changes.
function followFields(show) {
  field("controls").hidden = false;
  // On a phone, the first card is more important.
  field("controls").open = innerWidth > 544;
  field("fields").addEventListener("submit", (event) => event.preventDefault());
  field("fields").addEventListener("input", show);
  // The fields change after this event.
  field("fields").addEventListener("reset", () => setTimeout(show));
  show();
}
