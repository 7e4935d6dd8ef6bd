// What the page offers to other scripts and to its tests, and its start.
function begin() {
  at("title").textContent = run.title;
  at("headline").textContent = `${run.headline} · ${queries.length} queries × ${keys.length} keys`;
  at("warnings").hidden = run.warnings.length === 0;
  at("warnings").append(...run.warnings.map((line) => element("li", line, "warning")));
  at("notes").hidden = run.notes.length === 0;
  at("notes").append(...run.notes.map((line) => element("li", line, "quiet")));
  const facts = [...run.settings, ...run.provenance];
  for (const [name, value] of facts) at("facts").append(element("dt", name), element("dd", value));
  at("layer").replaceChildren(...run.layers.flatMap(({ heads, name }, layer) => {
    const option = element("option", name);
    option.value = String(layer);
    return heads.length > 0 ? [option] : [];
  }));
  at("layer-field").hidden = at("layer").options.length < 2;
  fillHeads();
  at("head-field").hidden = run.layers.every(({ heads }) => heads.length < 2);
  at("colours").value = state.scale;
  strips = makeStrips({
    row: (i) => select(i, state.column),
    column: (j) => select(state.row, j),
    token: (i) => select(i, i),
  });
  setTheme(darkByChoice.matches ? "dark" : "light");
  wire();
  showHead();
}

/**
 * Compute cells of any head: attnscopeCells(layer, head, rows, columns) takes two lists of the
 * same length, the query and the key of each cell, and promises for each
 * {omega, scaled, weight, seen}. omega and scaled are null in heads stored as 8-bit weights.
 */
window.attnscopeCells = (layer, head, rows, columns) =>
  ask("cells", layer, head, { rows, columns });

/**
 * Say where a cell lies on the screen, in CSS pixels of the window: {left, top, width, height}.
 */
window.attnscopeCellBox = (row, column) => {
  const edge = canvas.getBoundingClientRect();
  return {
    left: edge.left + box.left + (column - state.view.column0) * box.wide,
    top: edge.top + box.top + (row - state.view.row0) * box.high,
    width: box.wide,
    height: box.high,
  };
};

/** Say whether cells are computed in a worker (true) or in the page's own thread. */
window.attnscopeInWorker = () => inWorker;

begin();
