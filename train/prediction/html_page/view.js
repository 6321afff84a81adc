// Filters and sorts the cards, and finds classes on other pages. The view is in the address, so that
// it can be kept and sent on.
const filter = document.getElementById("filter");
const sort = document.getElementById("sort");
const showOnly = document.getElementById("show");
const shownLine = document.getElementById("status");
const elsewhere = document.getElementById("elsewhere");
// If there are several pages, only the cards of this one are filtered and sorted.
const where = shownLine.dataset.where ?? "";
const cards = Array.from(list.children, (element, place) => ({
  element,
  place,
  marking: markings[place],
  lists: Array.from(element.querySelectorAll("details")),
  name: element.querySelector("h2").textContent,
  text: Array.from(
    element.querySelectorAll("h2, figcaption, .name, .node, .empty b"), (part) => part.textContent,
  ).join("\n").toLowerCase(),
  size: Number(element.dataset.size),
  top: Number(element.dataset.top),
}));
const byName = new Intl.Collator("en", { numeric: true });
const orders = {
  "": () => 0,
  name: (a, b) => byName.compare(a.name, b.name),
  smallest: (a, b) => a.size - b.size,
  largest: (a, b) => b.size - a.size,
  surest: (a, b) => b.top - a.top,
  unsurest: (a, b) => a.top - b.top,
};
// The pages of each class: how many sets have it, and the first, previous, next and last page.
const places = Array.from(classes.options).filter(({ dataset }) => dataset.pages).map((option) => ({
  name: option.value,
  text: option.value.toLowerCase(),
  sets: Number(option.dataset.sets),
  pages: option.dataset.pages.split(" ").map(Number),
}));
let filtered = "";
let sorted = "";

function view() {
  const chosen = new URLSearchParams();
  if (filter.value) chosen.set("filter", filter.value);
  if (sort.value) chosen.set("sort", sort.value);
  if (showOnly.value) chosen.set("show", showOnly.value);
  return `#${chosen}`;
}

function show() {
  const wanted = filter.value.trim().toLowerCase();
  const isShown = { "": () => true, marked: (has) => has, unmarked: (has) => !has }[showOnly.value];
  for (const { element, lists, text, marking } of cards) {
    element.hidden = !text.includes(wanted) || !isShown(marks.has(marking.key));
    // What was looked for is not left hidden in a folded list.
    for (const one of wanted === filtered ? [] : lists) {
      one.open = wanted !== "" && one.textContent.toLowerCase().includes(wanted);
    }
  }
  filtered = wanted;
  if (sort.value !== sorted) {
    const compare = orders[sort.value];
    cards.sort((a, b) => compare(a, b) || a.place - b.place);
    list.append(...cards.map(({ element }) => element));
    sorted = sort.value;
  }
  const shown = cards.filter(({ element }) => !element.hidden).length;
  shownLine.textContent = shown === cards.length
    ? `${cards.length.toLocaleString("en")} shown${where}`
    : `${shown.toLocaleString("en")} of ${cards.length.toLocaleString("en")} shown${where}`;
  for (const link of document.querySelectorAll("main > nav a")) link.hash = view();
  showElsewhere(wanted);
  reachCard();
}

function showElsewhere(wanted) {
  if (!elsewhere) return;
  elsewhere.hidden = wanted === "";
  if (elsewhere.hidden) return;
  const found = places.filter(({ text }) => text.includes(wanted));
  const pages = (place) => found.map((one) => one.pages[place]).filter(Boolean);
  const [first, previous] = [Math.min(...pages(0)), Math.max(0, ...pages(1))];
  const [next, last] = [Math.min(...pages(2)), Math.max(0, ...pages(3))];
  const link = (words, page) => {
    const { first, before, after } = elsewhere.dataset;
    const to = document.createElement("a");
    to.href = page === 1 ? first : `${before}${page}${after}`;
    to.hash = view();
    to.textContent = `${words}: page ${page.toLocaleString("en")}`;
    return to;
  };
  const links = [];
  if (previous && first < previous) links.push(link("First", first));
  if (previous) links.push(link("Previous", previous));
  if (Number.isFinite(next)) links.push(link("Next", next));
  if (Number.isFinite(next) && last > next) links.push(link("Last", last));
  const told = document.createElement("span");
  const text = filter.value.trim();
  told.textContent = found.length === 0
    ? `No set on any page has a class with “${text}”`
    : found.length === 1
      ? `${found[0].name}, in sets on all pages: ${found[0].sets.toLocaleString("en")}`
      : `${found.length.toLocaleString("en")} classes with “${text}” are in sets`;
  if (found.length && !links.length) told.textContent += ", on this page only";
  elsewhere.replaceChildren(told, ...links);
}

function keepView() {
  try {
    history.replaceState(null, "", view());
  } catch {
    // If the browser keeps no history, the view is not kept either.
  }
  show();
}

function takeView() {
  // A link within the page leaves the view as it is.
  if (document.getElementById(location.hash.slice(1)) === null) {
    const chosen = new URLSearchParams(location.hash.slice(1));
    filter.value = chosen.get("filter") ?? "";
    for (const [field, name] of [[sort, "sort"], [showOnly, "show"]]) {
      field.value = chosen.get(name) ?? "";
      if (field.selectedIndex < 0) field.value = "";
    }
  }
  show();
}

document.getElementById("controls").hidden = false;
document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
document.getElementById("reset").addEventListener("click", () => {
  for (const field of [filter, sort, showOnly]) field.value = "";
  keepView();
  filter.focus();
});
filter.addEventListener("input", keepView);
sort.addEventListener("change", keepView);
showOnly.addEventListener("change", keepView);
addEventListener("hashchange", takeView);

// Paper has no lists that open.
let opened = [];
addEventListener("beforeprint", () => {
  opened = Array.from(list.querySelectorAll("details:not([open])"));
  for (const details of opened) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of opened) details.open = false;
});
