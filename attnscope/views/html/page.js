// What is selected, and what happens on a click, a key, a wheel.
const state = {
  layer: run.layers.findIndex((layer) => layer.heads.length > 0),
  head: 0,
  row: 0,
  column: 0,
  view: { row0: 0, rows: queries.length, column0: 0, columns: keys.length },
  scale: "linear",
  scaleChosen: keys.length <= 32, // long rows are faint: their scale is chosen by what is in them
  rounded: false,
  labels: { rows: queries, columns: keys },
};
state.head = run.layers[state.layer].heads[0];
state.row = clamp(run.selected ?? queries.length - 1, 0, queries.length - 1);
state.column = crossed ? 0 : clamp(state.row, 0, keys.length - 1);
let box = null; // where the map lies on the canvas
let map = null; // the weights it shows
let strips = [];
let tableFrom = 0;
let turn = 0; // counts selections, so that an answer which comes too late is dropped

const query = (kind, details) => ask(kind, state.layer, state.head, details);

function redraw() {
  if (!box) return;
  drawAll(state, box, map);
  drawLegend(state, map);
}

function noteOf() {
  const { view } = state;
  const whole = view.rows === queries.length && view.columns === keys.length;
  const parts = [];
  if (!whole) {
    parts.push(`Queries ${view.row0} to ${view.row0 + view.rows - 1} of ${queries.length}, keys `
      + `${view.column0} to ${view.column0 + view.columns - 1} of ${keys.length}.`);
  }
  if (map && (map.width < view.columns || map.height < view.rows)) {
    parts.push("There are more cells than pixels: each pixel shows the largest weight under it. "
      + "Zoom in to see every cell.");
  }
  if (state.rounded) parts.push("This head is stored as 8-bit weights: ≈, rounded to 1/255.");
  return parts.join(" ");
}

async function drawMapNow() {
  box = layOut(state.view, state.labels);
  const dpr = window.devicePixelRatio || 1;
  const { view } = state;
  const wanted = {
    ...view,
    height: clamp(Math.floor(box.height * dpr), 1, view.rows),
    width: clamp(Math.floor(box.width * dpr), 1, view.columns),
  };
  const name = nameOf(state);
  redraw();
  canvas.setAttribute("aria-busy", "true");
  // a finger moves the map once it is zoomed, and else the page
  canvas.style.touchAction = view.rows < queries.length ? "none" : "";
  const values = await query("map", wanted);
  if (!values) return;
  let strongest = 0;
  let bad = false;
  let hidden = false;
  for (const weight of values) {
    if (weight > strongest) strongest = weight;
    bad = bad || Number.isNaN(weight);
    hidden = hidden || weight < 0;
  }
  if (!state.scaleChosen) {
    state.scaleChosen = true;
    state.scale = strongest < 0.5 ? "strongest" : "root";
    at("colours").value = state.scale;
    showSelected();
  }
  map = { name, values, height: wanted.height, width: wanted.width, strongest };
  at("sample-nan-field").hidden = !bad;
  at("sample-hidden-field").hidden = !hidden;
  at("map-note").textContent = noteOf();
  redraw();
  canvas.setAttribute("aria-busy", "false");
}

async function showSelected() {
  turn += 1;
  const mine = turn;
  const [cells, row, column] = await Promise.all([
    query("cells", { rows: [state.row], columns: [state.column] }),
    query("row", { row: state.row, most: MOST_LISTED }),
    query("column", { column: state.column, most: MOST_LISTED }),
  ]);
  if (mine !== turn) return;
  const lines = cellLines(state, state.row, state.column, cells[0]);
  fillPairs(at("cell"), lines);
  at("cell-live").textContent = lines.map(([name, value]) => `${name} ${value}`).join(", ");
  const choose = { row: (i) => select(i, state.column), column: (j) => select(state.row, j) };
  showRow(state, row, choose);
  showColumn(state, column, choose);
  tintStrips(strips, state, row.all, map ? map.strongest : 1);
}

async function fillTable() {
  const to = Math.min(tableFrom + TABLE_ROWS, queries.length);
  const [from, layer, head] = [tableFrom, state.layer, state.head];
  const lines = await query("table", { from, to, most: 5 });
  if (from !== tableFrom || layer !== state.layer || head !== state.head) return;
  showTable(state, from, lines);
}

function reveal() {
  const { view } = state;
  view.row0 = clamp(view.row0, state.row - view.rows + 1, state.row);
  view.column0 = clamp(view.column0, state.column - view.columns + 1, state.column);
}

function select(row, column) {
  const { row0, column0 } = state.view;
  state.row = clamp(row, 0, queries.length - 1);
  state.column = clamp(column, 0, keys.length - 1);
  reveal();
  if (row0 !== state.view.row0 || column0 !== state.view.column0) drawMapNow();
  else redraw();
  showSelected();
}

function fillHeads() {
  at("head").replaceChildren(...run.layers[state.layer].heads.map((head) => {
    const option = element("option", String(head));
    option.value = String(head);
    return option;
  }));
}

function showHead() {
  const layer = run.layers[state.layer];
  at("layer").value = String(state.layer);
  at("head").value = String(state.head);
  at("agreement").textContent = layer.agreement;
  at("agreement").className = layer.agrees ? "good" : layer.agrees === null ? "quiet" : "bad";
  const name = load(state.layer, state.head);
  state.rounded = forms.get(name) === "bytes";
  canvas.setAttribute("aria-label",
    `Heat map of layer ${layer.name}, head ${state.head}: ${queries.length} queries by `
    + `${keys.length} keys`);
  drawMapNow();
  showSelected();
  fillTable();
}

function stepHead(by) {
  const { heads } = run.layers[state.layer];
  const next = heads.indexOf(state.head) + by;
  state.head = heads[(next + heads.length) % heads.length];
  showHead();
}

// Zoom by a factor, keeping what lies under (or near) a row and a column where it is.
function zoom(factor, row = state.row, column = state.column) {
  const { view } = state;
  const resize = (start, size, total, middle) => {
    const next = clamp(Math.round(size * factor), Math.min(4, total), total);
    const from = Math.round(middle - ((middle - start) * next) / size);
    return [clamp(from, 0, total - next), next];
  };
  [view.row0, view.rows] = resize(view.row0, view.rows, queries.length, row);
  [view.column0, view.columns] = resize(view.column0, view.columns, keys.length, column);
  drawMapNow();
}

function fit() {
  Object.assign(state.view, { row0: 0, rows: queries.length, column0: 0, columns: keys.length });
  drawMapNow();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  at("theme").textContent = theme === "dark" ? "Light" : "Dark";
  redraw();
  if (strips.length) showSelected();
}

const darkByChoice = matchMedia("(prefers-color-scheme: dark)");
const themeNow = () => document.documentElement.dataset.theme;
