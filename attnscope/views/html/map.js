// The heat map: labels, cells, marks, all on one canvas. It only draws; page.js says what.
const canvas = at("canvas");
const SMALL = '12px system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif';
const LARGEST_CELL = 72;
const palette = new Uint8Array(256 * 3).map((_, i) => parseInt(run.palette.substr(2 * i, 2), 16));

let printing = false;
const colour = (name) => {
  const value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
  return value.trim();
};

// Which of the 256 colours a weight has, by the scale that was chosen.
function shadeOf(weight, scale, top) {
  if (scale === "root") return Math.round(255 * Math.sqrt(weight));
  if (scale === "strongest") return Math.round(255 * Math.min(1, top > 0 ? weight / top : 0));
  return Math.round(255 * weight);
}

const paint = (shade) => `rgb(${palette[3 * shade]} ${palette[3 * shade + 1]} ${palette[3 * shade + 2]})`;

function pattern(context, dense) {
  const size = dense ? 4 : 6;
  const tile = document.createElement("canvas");
  tile.width = size;
  tile.height = size;
  const stripes = tile.getContext("2d");
  stripes.strokeStyle = colour("stripe");
  stripes.lineWidth = 1;
  stripes.beginPath();
  for (const shift of [-size, 0, size]) {
    stripes.moveTo(shift, size);
    stripes.lineTo(shift + size, 0);
  }
  stripes.stroke();
  return context.createPattern(tile, "repeat");
}

// Where everything goes, for a window of rows and columns, in CSS pixels.
function layOut(view, labels) {
  const context = canvas.getContext("2d");
  context.font = FONT;
  const room = Math.max(240, at("map").clientWidth);
  const narrow = room < 560;
  const left = 12 + widest(context, labels.rows, view.row0, view.rows, Math.min(150, room * 0.26));
  const limit = narrow ? 76 : 110;
  const longest = widest(context, labels.columns, view.column0, view.columns, limit);
  const flat = longest + 8 <= Math.min(LARGEST_CELL, (room - left) / view.columns);
  const slanted = !flat && !narrow;
  const over = slanted ? Math.ceil(longest * 0.71) : 0;
  const top = flat ? 26 : 14 + (slanted ? over : longest);
  const free = room - left - over - 4;
  const tidy = (size) => (size >= 4 ? Math.floor(size) : size);
  const wide = tidy(clamp(free / view.columns, 0.01, LARGEST_CELL));
  // a tall map is cut at about a screen, so that its columns can still be told apart
  const high = tidy(clamp(Math.max(free, 720) / view.rows, 0.01, wide));
  return {
    room, left, top, longest, flat, slanted, wide, high,
    width: wide * view.columns,
    height: high * view.rows,
  };
}

// Draw the cells' colours, one pixel each, then enlarge them without smoothing.
let lastImage = null; // a selection changes no cell: the picture is kept until something does
function cellImage(map, scale, marks) {
  const name = [scale, ...marks.hidden, ...marks.nan].join();
  if (lastImage && lastImage.map === map && lastImage.name === name) return lastImage;
  lastImage = { map, name, ...makeImage(map, scale, marks) };
  return lastImage;
}

function makeImage(map, scale, marks) {
  const { values, width, height, strongest } = map;
  const cells = document.createElement("canvas");
  const hidden = document.createElement("canvas");
  for (const one of [cells, hidden]) {
    one.width = width;
    one.height = height;
  }
  const context = cells.getContext("2d");
  const mask = hidden.getContext("2d");
  const image = context.createImageData(width, height);
  const veil = mask.createImageData(width, height);
  for (let i = 0; i < values.length; i += 1) {
    const weight = values[i];
    let [colours, start] = [marks.nan, 0];
    if (weight < 0) {
      colours = marks.hidden;
      veil.data[4 * i + 3] = 255;
    } else if (!Number.isNaN(weight)) {
      [colours, start] = [palette, 3 * clamp(shadeOf(weight, scale, strongest), 0, 255)];
    }
    for (let part = 0; part < 3; part += 1) image.data[4 * i + part] = colours[start + part];
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  mask.putImageData(veil, 0, 0);
  return { cells, hidden };
}

function rgbOf(name) {
  const hex = colour(name).replace("#", "");
  return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

function drawCells(context, box, map, scale, dpr) {
  const marks = { hidden: rgbOf("hidden"), nan: rgbOf("nan") };
  const { cells, hidden } = cellImage(map, scale, marks);
  context.imageSmoothingEnabled = false;
  context.drawImage(cells, box.left, box.top, box.width, box.height);
  const veil = document.createElement("canvas");
  veil.width = Math.max(1, Math.round(box.width * dpr));
  veil.height = Math.max(1, Math.round(box.height * dpr));
  const striped = veil.getContext("2d");
  striped.imageSmoothingEnabled = false;
  striped.drawImage(hidden, 0, 0, veil.width, veil.height);
  striped.globalCompositeOperation = "source-in";
  striped.scale(dpr, dpr);
  striped.fillStyle = pattern(striped, box.wide < 8);
  striped.fillRect(0, 0, box.width, box.height);
  context.drawImage(veil, box.left, box.top, box.width, box.height);
}

function drawGrid(context, box, view) {
  if (box.wide < 18 || box.high < 18) return;
  context.fillStyle = colour("paper");
  for (let j = 1; j < view.columns; j += 1) {
    context.fillRect(box.left + j * box.wide - 0.5, box.top, 1, box.height);
  }
  for (let i = 1; i < view.rows; i += 1) {
    context.fillRect(box.left, box.top + i * box.high - 0.5, box.width, 1);
  }
}

// The weight itself where there is room for it, and a cross where it is no number.
function drawNumbers(context, box, view, map, scale, rounded) {
  if (map.width !== view.columns || map.height !== view.rows) return;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = SMALL;
  const room = box.wide >= 40 && box.high >= 22;
  for (let i = 0; i < view.rows; i += 1) {
    for (let j = 0; j < view.columns; j += 1) {
      const weight = map.values[i * view.columns + j];
      const x = box.left + (j + 0.5) * box.wide;
      const y = box.top + (i + 0.5) * box.high;
      if (Number.isNaN(weight) && box.wide >= 8 && box.high >= 8) {
        context.fillStyle = "#ffffff";
        context.fillText(room ? "NaN" : "×", x, y);
      } else if (weight >= 0 && room) {
        const shade = 3 * clamp(shadeOf(weight, scale, map.strongest), 0, 255);
        const [red, green, blue] = palette.subarray(shade, shade + 3);
        const light = 0.299 * red + 0.587 * green + 0.114 * blue > 120;
        context.fillStyle = light ? "#17181c" : "#f4f4f6";
        context.fillText((rounded ? "≈" : "") + weight.toFixed(2), x, y);
      }
    }
  }
}

function frame(context, x, y, width, height, line) {
  context.lineWidth = line;
  context.strokeRect(x, y, width, height);
}

function drawMarks(context, box, view, chosen) {
  const row = chosen.row - view.row0;
  const column = chosen.column - view.column0;
  const inRows = row >= 0 && row < view.rows;
  const inColumns = column >= 0 && column < view.columns;
  context.strokeStyle = colour("accent");
  const y = box.top + row * box.high;
  const x = box.left + column * box.wide;
  if (inRows) frame(context, box.left - 1, y - 0.5, box.width + 2, box.high + 1, 1.5);
  if (inColumns) frame(context, x - 0.5, box.top - 1, box.wide + 1, box.height + 2, 1.5);
  if (inRows && inColumns && box.wide >= 5) {
    context.strokeStyle = "#ffffff";
    frame(context, x + 1.5, y + 1.5, box.wide - 3, box.high - 3, 1.5);
  }
}

// What a map shows: two maps with one name are the same but for their resolution.
const nameOf = ({ layer, head, view }) =>
  [layer, head, view.row0, view.rows, view.column0, view.columns].join();

function drawAll(state, box, map) {
  const dpr = printing ? 3 : window.devicePixelRatio || 1;
  const width = Math.ceil(Math.max(box.left + box.width + 4, box.room));
  const height = Math.ceil(box.top + box.height + 6);
  canvas.width = Math.round(width * dpr);
  canvas.height = Math.round(height * dpr);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(dpr, 0, 0, dpr, 0, 0);
  context.clearRect(0, 0, width, height);
  const chosen = { row: state.row, column: state.column };
  if (map) {
    const fresh = map.name === nameOf(state);
    context.globalAlpha = fresh ? 1 : 0.35; // pale: an older picture, until the new one is computed
    drawCells(context, box, map, state.scale, dpr);
    context.globalAlpha = 1;
    drawGrid(context, box, state.view);
    if (fresh) drawNumbers(context, box, state.view, map, state.scale, state.rounded);
  }
  drawLabels(context, box, state.view, state.labels, chosen);
  drawMarks(context, box, state.view, chosen);
}

// The scale below the map: its colours, and weights at their places.
function drawLegend(state, map) {
  const ramp = at("ramp-canvas");
  ramp.width = 256;
  ramp.height = 1;
  const context = ramp.getContext("2d");
  for (let shade = 0; shade < 256; shade += 1) {
    context.fillStyle = paint(shade);
    context.fillRect(shade, 0, 1, 1);
  }
  const top = state.scale === "strongest" && map ? map.strongest : 1;
  const places = state.scale === "root" ? [0, 0.05, 0.25, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1];
  at("ticks").replaceChildren(...places.map((part) => {
    const tick = element("span", top === 1 ? String(part) : String(Number((part * top).toPrecision(2))));
    tick.style.left = `${100 * (state.scale === "root" ? Math.sqrt(part) : part)}%`;
    return tick;
  }));
  for (const [name, mark] of [["hidden", "hidden"], ["nan", "nan"]]) {
    const sample = at(`sample-${name}`);
    sample.width = 22;
    sample.height = 14;
    const paper = sample.getContext("2d");
    paper.fillStyle = colour(mark);
    paper.fillRect(0, 0, 22, 14);
    paper.fillStyle = name === "hidden" ? pattern(paper, false) : "#ffffff";
    if (name === "hidden") paper.fillRect(0, 0, 22, 14);
    else paper.fillText("×", 8, 11);
  }
}
