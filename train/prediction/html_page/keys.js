// Keys. Of the cards, one is reached by Tab; letters and arrows lead from it to the others.
const help = document.getElementById("help");
let reached = null;

function articleOf(card) {
  return card.querySelector("article");
}

// Makes a card the one that Tab reaches: by default the last one, if it can be seen, or the first.
function reachCard(card = reached) {
  const wanted = card && !card.hidden ? card : list.querySelector(".card:not([hidden])");
  if (reached) articleOf(reached).tabIndex = -1;
  if (wanted) articleOf(wanted).tabIndex = 0;
  reached = wanted;
}

function focusCard(card) {
  if (!card) return;
  articleOf(card).focus({ preventScroll: true });
  card.scrollIntoView({ block: "nearest" });
}

function step(by) {
  const seen = Array.from(list.querySelectorAll(".card:not([hidden])"));
  const here = seen.indexOf(document.activeElement.closest(".card"));
  focusCard(here < 0 ? reached : seen[here + by]);
}

const anywhere = {
  j: () => step(1),
  k: () => step(-1),
  n: () => document.querySelector("a[rel=next]")?.click(),
  p: () => document.querySelector("a[rel=prev]")?.click(),
  "/": () => filter.select(),
  "?": () => help.showModal(),
};
const onCard = {
  0: ({ mark }) => mark("", NONE),
  c: ({ mark }) => mark("", UNSURE),
  x: ({ mark }) => mark(""),
  o: ({ askAnother }) => askAnother(),
};
for (let place = 0; place < 9; place++) {
  onCard[place + 1] = ({ markMember }) => markMember(place);
}
// On the card itself; other elements on it have these keys for themselves.
const onArticle = {
  ArrowDown: () => step(1),
  ArrowRight: () => step(1),
  ArrowUp: () => step(-1),
  ArrowLeft: () => step(-1),
  Enter: ({ markMember }) => markMember(0),
};

document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing || help.open) return;
  const card = target.closest(".card");
  const marking = markings.find((one) => one.card === card);
  if (target.matches("input, select")) {
    if (key === "Escape" && card) {
      // What is written there is dropped.
      marking.show();
      focusCard(card);
    } else if (key === "Enter" && target.matches("input")) {
      focusCard(card ?? list.querySelector(".card:not([hidden])"));
    }
    return;
  }
  const act = anywhere[key] ?? (card && onCard[key])
    ?? (target === (card && articleOf(card)) ? onArticle[key] : undefined);
  if (!act) return;
  event.preventDefault();
  act(marking);
});
list.addEventListener("focusin", ({ target }) => reachCard(target.closest(".card")));
for (const { element } of cards) {
  const article = articleOf(element);
  article.tabIndex = -1;
  article.ariaLabel = element.querySelector("h2").lastChild.textContent;
}
document.getElementById("keys").addEventListener("click", () => help.showModal());
takeView();
