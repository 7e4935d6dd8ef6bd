// Pointer, wheel, keyboard, search and the controls: what each does to the state.
// What lies under a pointer: a cell, a row's label, a column's label, or nothing.
function under(event) {
  if (!box) return null;
  const edge = canvas.getBoundingClientRect();
  const x = event.clientX - edge.left - box.left;
  const y = event.clientY - edge.top - box.top;
  const { view } = state;
  const row = view.row0 + Math.floor(y / box.high);
  const column = view.column0 + Math.floor(x / box.wide);
  const inRows = y >= 0 && row < view.row0 + view.rows;
  const inColumns = x >= 0 && column < view.column0 + view.columns;
  if (inRows && inColumns) return { row, column };
  if (inRows && x < 0) return { row };
  if (inColumns && y < 0) return { column };
  return null;
}

function placeTip(x, y) {
  const tip = at("tip");
  tip.hidden = false;
  const room = at("map").clientWidth;
  tip.style.left = `${clamp(x + 14, 0, Math.max(0, room - tip.offsetWidth))}px`;
  tip.style.top = `${y + 16}px`;
}

let hovered = null;
async function hover(event) {
  const target = under(event);
  hovered = target;
  if (!target) {
    at("tip").hidden = true;
    return;
  }
  const edge = at("map").getBoundingClientRect();
  const [x, y] = [event.clientX - edge.left, event.clientY - edge.top];
  let lines;
  if (target.row === undefined) lines = [["key", place(keys[target.column], target.column)]];
  else if (target.column === undefined) lines = [["query", place(queries[target.row], target.row)]];
  else {
    const cells = await query("cells", { rows: [target.row], columns: [target.column] });
    if (hovered !== target) return;
    lines = cellLines(state, target.row, target.column, cells[0]);
  }
  fillPairs(at("tip"), lines);
  placeTip(x, y);
}

function choose(target) {
  if (!target) return;
  if (target.row === undefined && !crossed) select(target.column, target.column);
  else select(target.row ?? state.row, target.column ?? state.column);
}

let drag = null;
canvas.addEventListener("pointerdown", (event) => {
  drag = { x: event.clientX, y: event.clientY, view: { ...state.view }, moved: false };
});
window.addEventListener("pointercancel", () => { drag = null; });
window.addEventListener("pointerup", (event) => {
  if (drag && !drag.moved && event.target === canvas) choose(under(event));
  drag = null;
});
canvas.addEventListener("pointermove", (event) => {
  if (!drag || !box || event.buttons === 0) {
    hover(event);
    return;
  }
  const { view } = state;
  const down = Math.round((drag.y - event.clientY) / box.high);
  const right = Math.round((drag.x - event.clientX) / box.wide);
  if (Math.hypot(drag.x - event.clientX, drag.y - event.clientY) > 4) drag.moved = true;
  const row0 = clamp(drag.view.row0 + down, 0, queries.length - view.rows);
  const column0 = clamp(drag.view.column0 + right, 0, keys.length - view.columns);
  if (!drag.moved || (row0 === view.row0 && column0 === view.column0)) return;
  at("tip").hidden = true;
  Object.assign(view, { row0, column0 });
  drawMapNow();
});
canvas.addEventListener("pointerleave", () => {
  hovered = null;
  at("tip").hidden = true;
});
// A plain wheel scrolls the page, until the map was clicked; with Ctrl it always zooms the map.
canvas.addEventListener("wheel", (event) => {
  const target = under(event);
  if (!target || !(event.ctrlKey || event.metaKey || document.activeElement === canvas)) return;
  event.preventDefault();
  zoom(event.deltaY > 0 ? 1.25 : 0.8, target.row, target.column);
}, { passive: false });

canvas.addEventListener("keydown", (event) => {
  const { row, column, view } = state;
  const ends = event.ctrlKey || event.metaKey;
  const moves = {
    ArrowUp: () => select(row - 1, column),
    ArrowDown: () => select(row + 1, column),
    ArrowLeft: () => select(row, column - 1),
    ArrowRight: () => select(row, column + 1),
    Home: () => select(ends ? 0 : row, 0),
    End: () => select(ends ? queries.length - 1 : row, keys.length - 1),
    PageUp: () => select(row - Math.max(1, Math.floor(view.rows / 2)), column),
    PageDown: () => select(row + Math.max(1, Math.floor(view.rows / 2)), column),
    // go on to the key under the cursor: what does that token attend to?
    Enter: () => (crossed ? showSelected() : select(column, column)),
    "+": () => zoom(0.5),
    "=": () => zoom(0.5),
    "-": () => zoom(2),
    0: fit,
    Escape: () => { at("tip").hidden = true; },
  };
  const act = moves[event.key];
  if (!act || (ends && !["Home", "End"].includes(event.key))) return;
  event.preventDefault();
  act();
});

// Search: each Enter goes on to the next token that holds these letters, or to a position.
function findNext(forward) {
  const words = at("find").value.trim().toLowerCase();
  const matches = (labels) => labels.flatMap((label, i) =>
    (label.toLowerCase().includes(words) || String(i) === words ? [i] : []));
  if (!words) {
    at("found").textContent = "";
    return;
  }
  let places = matches(queries).map((i) => ["row", i]);
  if (crossed) places = [...places, ...matches(keys).map((j) => ["column", j])];
  if (places.length === 0) {
    at("found").textContent = "no such token";
    return;
  }
  const sameWords = findNext.words === words;
  findNext.words = words;
  findNext.at = sameWords ? (findNext.at + forward + places.length) % places.length : 0;
  const [axis, where] = places[findNext.at];
  at("found").textContent = `${findNext.at + 1} of ${places.length}`;
  if (axis === "column") select(state.row, where);
  else select(where, crossed ? state.column : where);
}

function wire() {
  at("layer").addEventListener("change", (event) => {
    state.layer = Number(event.target.value);
    const { heads } = run.layers[state.layer];
    if (!heads.includes(state.head)) [state.head] = heads;
    fillHeads();
    showHead();
  });
  at("head").addEventListener("change", (event) => {
    state.head = Number(event.target.value);
    showHead();
  });
  at("head-back").addEventListener("click", () => stepHead(-1));
  at("head-next").addEventListener("click", () => stepHead(1));
  at("colours").addEventListener("change", (event) => {
    state.scale = event.target.value;
    state.scaleChosen = true;
    redraw();
    showSelected();
  });
  at("zoom-in").addEventListener("click", () => zoom(0.5));
  at("zoom-out").addEventListener("click", () => zoom(2));
  at("zoom-fit").addEventListener("click", fit);
  at("find").addEventListener("input", () => findNext(1));
  at("find").addEventListener("keydown", (event) => {
    if (event.key === "Enter") findNext(event.shiftKey ? -1 : 1);
  });
  at("theme").addEventListener("click", () => setTheme(themeNow() === "dark" ? "light" : "dark"));
  darkByChoice.addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
  const turnTable = (by) => {
    tableFrom = clamp(tableFrom + by, 0, queries.length - 1);
    fillTable();
  };
  at("table-back").addEventListener("click", () => turnTable(-TABLE_ROWS));
  at("table-next").addEventListener("click", () => turnTable(TABLE_ROWS));
  new ResizeObserver(() => drawMapNow()).observe(at("map"));
}

// Paper is white: print in light colours and fine pixels, then put everything back.
let themeBefore = null;
window.addEventListener("beforeprint", () => {
  themeBefore = themeNow();
  printing = true;
  setTheme("light");
});
window.addEventListener("afterprint", () => {
  printing = false;
  setTheme(themeBefore);
});
