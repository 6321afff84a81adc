// Sorts and filters the cards; keys.
const byName = new Intl.Collator("en", { numeric: true });
const by = (name, sign) => (a, b) => sign * (a.dataset[name] - b.dataset[name]);
const orders = {
  "": () => 0,
  name: (a, b) => byName.compare(
    a.querySelector("h2").textContent, b.querySelector("h2").textContent,
  ),
  smallest: by("size", 1),
  largest: by("size", -1),
  surest: by("top", -1),
  unsurest: by("top", 1),
};
let [filtered, sorted] = ["", ""];

followFields(() => {
  const only = field("show").value;
  const wanted = filterCards(
    (card) => only === "" || (only === "marked") === card.classList.contains("has-mark"),
  );
  if (wanted !== filtered) {
    // What is looked for is not left hidden in a folded list.
    for (const one of list.querySelectorAll("details")) {
      one.open = wanted !== "" && one.textContent.toLowerCase().includes(wanted);
    }
    filtered = wanted;
  }
  if (field("sort").value !== sorted) {
    sorted = field("sort").value;
    list.append(...[...cards].sort(orders[sorted]));
  }
});

function step(by) {
  const seen = Array.from(list.querySelectorAll(".card:not([hidden])"));
  const here = seen.indexOf(document.activeElement.closest(".card"));
  seen[here < 0 ? 0 : here + by]?.firstElementChild.focus();
}

const anywhere = {
  j: () => step(1),
  k: () => step(-1),
  "/": () => { field("controls").open = true; field("filter").select(); },
  "?": () => { field("controls").open = true; field("keys").open = !field("keys").open; },
};
const onCard = {
  0: ({ mark }) => mark({ mark: NONE }),
  c: ({ mark }) => mark({ mark: UNSURE }),
  x: ({ mark }) => mark({}),
  o: ({ input }) => input.select(),
};
for (let place = 0; place < 9; place++) {
  onCard[place + 1] = ({ mark, members }) => members[place] && mark(members[place]);
}
// On the card itself; other elements on it have these keys for themselves.
const onArticle = {
  ArrowDown: () => step(1),
  ArrowRight: () => step(1),
  ArrowUp: () => step(-1),
  ArrowLeft: () => step(-1),
  Enter: onCard[1],
};

document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
  const card = target.closest(".card");
  const marking = markings.find((one) => one.card === card);
  if (target.matches("input, select")) {
    // What is being written on a card is dropped.
    if (key === "Escape") marking?.show();
    if (key === "Enter" || (key === "Escape" && card)) {
      (card ?? list.querySelector(".card:not([hidden])"))?.firstElementChild.focus();
    }
    return;
  }
  const act = anywhere[key] ?? (card && onCard[key])
    ?? (target.matches("article") ? onArticle[key] : undefined);
  if (!act) return;
  event.preventDefault();
  act(marking);
});
