// The words along the rows and columns of the map.
const FONT = '13px system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif';
const ROOM_FOR_LABEL = 14; // from this many pixels on, each row can have its label

// A text cut to a width, with an ellipsis, never inside a character as a reader counts them.
const segmenter = typeof Intl.Segmenter === "function" ? new Intl.Segmenter() : null;
const cutCache = new Map();
function cut(context, text, width) {
  const name = `${context.font}|${Math.floor(width)}|${text}`;
  if (cutCache.has(name)) return cutCache.get(name);
  if (cutCache.size > 20000) cutCache.clear();
  let shown = text;
  if (context.measureText(text).width > width) {
    const start = text.slice(0, 200);
    const letters = segmenter ? [...segmenter.segment(start)].map((one) => one.segment) : [...start];
    let most = letters.length;
    const short = () => `${letters.slice(0, most).join("")}…`;
    while (most > 1 && context.measureText(short()).width > width) most -= 1;
    shown = short();
  }
  cutCache.set(name, shown);
  return shown;
}

function widest(context, labels, from, count, limit) {
  let width = 0;
  // a thousand labels tell the width of all well enough, and quickly
  const step = Math.max(1, Math.ceil(count / 1000));
  for (let i = from; i < from + count; i += step) {
    width = Math.max(width, context.measureText(labels[i].slice(0, 60)).width);
  }
  return Math.min(Math.ceil(1.1 * width), limit); // the selected one is bold, and wider
}

// Every label where it fits; else every second, fifth, … and always the selected one.
function stepFor(size) {
  if (size >= ROOM_FOR_LABEL) return 1;
  const least = ROOM_FOR_LABEL / size;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= least);
}

function labelled(from, count, size, chosen) {
  const step = stepFor(size);
  const gap = ROOM_FOR_LABEL / size;
  const places = [];
  for (let i = Math.ceil(from / step) * step; i < from + count; i += step) {
    if (i === chosen || Math.abs(i - chosen) >= gap) places.push(i);
  }
  if (chosen >= from && chosen < from + count && !places.includes(chosen)) places.push(chosen);
  return places;
}

function write(context, text, x, y, turn, align) {
  context.save();
  context.translate(x, y);
  context.rotate(turn);
  context.textAlign = align;
  context.fillText(text, 0, 0);
  context.restore();
}

function drawLabels(context, box, view, labels, chosen) {
  context.textBaseline = "middle";
  context.direction = "ltr";
  const style = (mine) => {
    context.font = mine ? `600 ${FONT}` : FONT;
    context.fillStyle = colour(mine ? "accent" : "ink");
  };
  for (const i of labelled(view.row0, view.rows, box.high, chosen.row)) {
    style(i === chosen.row);
    const y = box.top + (i - view.row0 + 0.5) * box.high;
    write(context, cut(context, labels.rows[i], box.left - 10), box.left - 8, y, 0, "right");
  }
  for (const j of labelled(view.column0, view.columns, box.wide, chosen.column)) {
    style(j === chosen.column);
    const x = box.left + (j - view.column0 + 0.5) * box.wide;
    const room = box.flat ? box.wide - 4 : box.longest;
    const text = cut(context, labels.columns[j], room);
    if (box.flat) write(context, text, x, box.top - 13, 0, "center");
    else write(context, text, x, box.top - 7, box.slanted ? -Math.PI / 4 : -Math.PI / 2, "left");
  }
}
