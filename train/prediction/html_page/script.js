"use strict";
// Filters and sorts the cards. The view is in the address, so that it can be kept and sent on.
(() => {
  // So many more are shown when the end of the page is near.
  const step = 500;
  const list = document.getElementById("cards");
  const filter = document.getElementById("filter");
  const sort = document.getElementById("sort");
  const status = document.getElementById("status");
  const more = document.getElementById("more");
  // Most cards of a large page are still text, in groups.
  const groups = Array.from(list.querySelectorAll("noscript"));
  const cards = [];
  const byName = new Intl.Collator("en", { numeric: true });
  const orders = {
    "": () => 0,
    name: (a, b) => byName.compare(a.name, b.name),
    smallest: (a, b) => a.size - b.size,
    largest: (a, b) => b.size - a.size,
    surest: (a, b) => b.top - a.top,
    unsurest: (a, b) => a.top - b.top,
  };
  let wanted = "";
  let room = step;
  let chosen = [];

  function take(elements) {
    for (const element of elements) {
      cards.push({
        element,
        place: cards.length,
        unfolded: "",
        details: element.querySelector("details"),
        name: element.querySelector("h2").textContent,
        text: Array.from(
          element.querySelectorAll("h2, .name, .empty b"), (part) => part.textContent,
        ).join("\n").toLowerCase(),
        size: Number(element.dataset.size),
        top: Number(element.dataset.top),
      });
    }
  }

  function takeGroup() {
    const group = groups.shift();
    const holder = document.createElement("template");
    holder.innerHTML = group.textContent;
    group.remove();
    take(holder.content.children);
  }

  function takeAll() {
    while (groups.length > 0) takeGroup();
  }

  function show() {
    wanted = filter.value.trim().toLowerCase();
    // What is looked for, or comes first, may be in any group.
    if (wanted !== "" || sort.value !== "") takeAll();
    const compare = orders[sort.value];
    chosen = cards.filter(({ text }) => text.includes(wanted));
    chosen.sort((a, b) => compare(a, b) || a.place - b.place);
    room = step;
    list.replaceChildren();
    fill(0);
  }

  // Shows the chosen cards from a place on, as far as there is room for them.
  function fill(start) {
    while (groups.length > 0 && chosen.length < room) extend();
    const added = chosen.slice(start, room);
    for (const card of added) {
      // What was looked for is not left hidden in a folded list.
      if (card.details && card.unfolded !== wanted) {
        card.details.open =
          wanted !== "" && card.details.textContent.toLowerCase().includes(wanted);
      }
      card.unfolded = wanted;
    }
    list.append(...added.map(({ element }) => element));
    tell();
  }

  // Takes in one more group where all cards are chosen, in their own order.
  function extend() {
    takeGroup();
    chosen = cards.slice();
  }

  function tell() {
    const total = Number(list.dataset.number);
    const number = groups.length > 0 ? total : chosen.length;
    const words = number === total
      ? number.toLocaleString("en")
      : `${number.toLocaleString("en")} of ${total.toLocaleString("en")}`;
    const shown = Math.min(room, number);
    status.textContent = shown === number
      ? `${words} shown`
      : `${shown.toLocaleString("en")} of ${words} shown`;
    more.hidden = shown === number;
  }

  function showMore() {
    const start = Math.min(room, chosen.length);
    room += step;
    fill(start);
  }

  function keep() {
    const view = new URLSearchParams();
    if (filter.value) view.set("filter", filter.value);
    if (sort.value) view.set("sort", sort.value);
    try {
      history.replaceState(null, "", `#${view}`);
    } catch {
      // Where the browser keeps no history, the view is not kept either.
    }
    show();
  }

  function restore() {
    // A link within the page leaves the view as it is.
    if (document.getElementById(location.hash.slice(1)) === null) {
      const view = new URLSearchParams(location.hash.slice(1));
      filter.value = view.get("filter") ?? "";
      sort.value = view.get("sort") ?? "";
      if (sort.selectedIndex < 0) sort.value = "";
    }
    show();
  }

  take(Array.from(list.children).filter((element) => element.localName === "li"));
  document.getElementById("controls").hidden = false;
  document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("reset").addEventListener("click", () => {
    filter.value = "";
    sort.value = "";
    keep();
    filter.focus();
  });
  filter.addEventListener("input", keep);
  sort.addEventListener("change", keep);
  addEventListener("hashchange", restore);
  more.querySelector("button").addEventListener("click", showMore);
  new IntersectionObserver((seen) => {
    if (seen.some((one) => one.isIntersecting)) showMore();
  }, { rootMargin: "50%" }).observe(more);
  restore();
})();
