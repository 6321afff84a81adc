// Filters by label, by prediction, and by whether the label is outside the set.
function show() {
  const chosen = (name, card) => ["", card.dataset[name]].includes(field(name).value);
  filterCards((card) => chosen("label", card) && chosen("predicted", card)
    && (!field("outside").checked || "outside" in card.dataset));
}

followFields(show);
for (const button of document.querySelectorAll(".pair")) {
  const { label, predicted } = button.dataset;
  button.hidden = !cards.some(
    ({ dataset }) => dataset.label === label && dataset.predicted === predicted,
  );
  button.addEventListener("click", () => {
    field("fields").reset();
    field("label").value = label;
    field("predicted").value = predicted;
    field("controls").open = true;
    field("label").focus();
  });
}
