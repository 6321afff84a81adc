"use strict";
// Filters and sorts the cards. The view is in the address, so that it can be kept and sent on.
(() => {
  const list = document.getElementById("cards");
  const filter = document.getElementById("filter");
  const sort = document.getElementById("sort");
  const status = document.getElementById("status");
  // Where there are several pages, only the cards of this one are filtered and sorted.
  const where = status.dataset.where ?? "";
  const cards = Array.from(list.children, (element, place) => ({
    element,
    place,
    details: element.querySelector("details"),
    name: element.querySelector("h2").textContent,
    text: Array.from(
      element.querySelectorAll("h2, .name, .empty b"), (part) => part.textContent,
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
  let filtered = "";
  let sorted = "";

  function show() {
    const wanted = filter.value.trim().toLowerCase();
    if (wanted !== filtered) {
      for (const { element, details, text } of cards) {
        element.hidden = !text.includes(wanted);
        // What was looked for is not left hidden in a folded list.
        if (details) {
          details.open = wanted !== "" && details.textContent.toLowerCase().includes(wanted);
        }
      }
      filtered = wanted;
    }
    if (sort.value !== sorted) {
      const compare = orders[sort.value];
      cards.sort((a, b) => compare(a, b) || a.place - b.place);
      list.append(...cards.map(({ element }) => element));
      sorted = sort.value;
    }
    const shown = cards.filter(({ element }) => !element.hidden).length;
    status.textContent = shown === cards.length
      ? `${cards.length.toLocaleString("en")} shown${where}`
      : `${shown.toLocaleString("en")} of ${cards.length.toLocaleString("en")} shown${where}`;
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

  function take() {
    // A link within the page leaves the view as it is.
    if (document.getElementById(location.hash.slice(1)) === null) {
      const view = new URLSearchParams(location.hash.slice(1));
      filter.value = view.get("filter") ?? "";
      sort.value = view.get("sort") ?? "";
      if (sort.selectedIndex < 0) sort.value = "";
    }
    show();
  }

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
  addEventListener("hashchange", take);
  take();
})();
