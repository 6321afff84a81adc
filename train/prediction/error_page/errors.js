"use strict";
// Filters the cards by name, label, loss and whether the label is outside the set.
(() => {
  const field = (identifier) => document.getElementById(identifier);
  const [name, label, loss, outside, status] =
    ["name", "label", "loss", "outside", "status"].map(field);
  const cards = Array.from(field("cards").children, (element) => ({
    element,
    name: element.querySelector("h3").textContent.toLowerCase(),
    label: element.dataset.label,
    predicted: element.dataset.predicted,
    loss: Number(element.dataset.loss),
    outside: element.dataset.outside === "yes",
  }));
  // Set by a button of the table of confusions, until another filter is used.
  let predicted = "";

  function show() {
    const wanted = name.value.trim().toLowerCase();
    const least = loss.value === "" ? -Infinity : Number(loss.value);
    let shown = 0;
    for (const card of cards) {
      // A class that is not known has no loss.
      const seen = card.name.includes(wanted)
        && (label.value === "" || card.label === label.value)
        && (predicted === "" || card.predicted === predicted)
        && (loss.value === "" || card.loss >= least)
        && (!outside.checked || card.outside);
      card.element.hidden = !seen;
      shown += seen;
    }
    const all = cards.length.toLocaleString("en");
    status.textContent = shown === cards.length
      ? `${all} shown` : `${shown.toLocaleString("en")} of ${all} shown`;
  }

  function reset() {
    name.value = label.value = loss.value = predicted = "";
    outside.checked = false;
    show();
  }

  field("controls").hidden = false;
  field("controls").addEventListener("submit", (event) => event.preventDefault());
  field("controls").addEventListener("input", () => { predicted = ""; show(); });
  field("reset").addEventListener("click", () => { reset(); name.focus(); });
  for (const element of document.querySelectorAll(".only-script")) element.hidden = false;
  for (const button of document.querySelectorAll("button.pair")) {
    const { label: of, predicted: as } = button.dataset;
    button.hidden = !cards.some((card) => card.label === of && card.predicted === as);
    button.addEventListener("click", () => {
      reset();
      label.value = of;
      predicted = as;
      show();
      label.focus();
    });
  }
  show();
})();
