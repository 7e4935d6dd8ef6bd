// The side of the page: the selected cell, the lists of the selected tokens, tokens as words.
const MOST_LISTED = 12;
const MOST_CHIPS = 3000; // more words than this are found by search, not by reading
const TABLE_ROWS = 50;

const place = (word, i) => `${word} (${i})`;
const about = (value, rounded) => (rounded ? `≈ ${number(value)}` : number(value));

// The lines of a cell: for the hover, the card and, read aloud, the live region.
function cellLines(state, i, j, cell) {
  const lines = [
    ["query", place(queries[i], i)],
    ["key", place(keys[j], j)],
  ];
  if (!state.rounded) {
    lines.push(["ω = q·k", number(cell.omega)], ["scaled", number(cell.scaled)]);
  }
  if (cell.seen) lines.push(["weight", about(cell.weight, state.rounded)]);
  else lines.push(["weight", Number.isNaN(cell.weight) ? "NaN" : "0, hidden by the mask"]);
  if (state.rounded) lines.push(["", "≈, rounded to 1/255; ω is not stored"]);
  return lines;
}

function fillPairs(target, lines) {
  const list = element("dl");
  for (const [name, value] of lines) {
    list.append(element("dt", name));
    const said = element("dd", value);
    said.dir = "auto";
    list.append(said);
  }
  target.replaceChildren(list);
}

// A full bar is a weight of 1, or, where all are faint, the strongest of them.
function fullBar(listed) {
  const most = listed.weights.reduce((top, weight) => (weight > top ? weight : top), 0);
  return most > 0 && most < 0.25 ? most : 1;
}

function fullNote(listed, state) {
  const full = fullBar(listed);
  return full === 1 ? [] : [`A full bar is ${about(full, state.rounded)}.`];
}

function bar(weight, full) {
  const track = element("span", undefined, "track");
  const filled = element("span", undefined, Number.isNaN(weight) ? "fill unknown" : "fill");
  filled.style.width = `${100 * clamp(Number.isNaN(weight) ? 1 : weight / full, 0, 1)}%`;
  track.append(filled);
  return track;
}

function barList(target, listed, labels, state, choose) {
  const full = fullBar(listed);
  target.replaceChildren(...listed.places.map((where, n) => {
    const line = element("li");
    const button = element("button", undefined, "line");
    button.type = "button";
    const word = element("span", labels[where], "word");
    word.dir = "auto";
    button.title = place(labels[where], where);
    button.append(word, element("span", String(where), "where"), bar(listed.weights[n], full));
    button.append(element("span", about(listed.weights[n], state.rounded), "weight"));
    button.addEventListener("click", () => choose(where));
    line.append(button);
    return line;
  }));
}

function showRow(state, answer, choose) {
  at("row-title").textContent = `${place(queries[state.row], state.row)} attends to`;
  const more = answer.seen - answer.places.length;
  const notes = [];
  if (answer.blind) notes.push("This query may see no key: every weight is 0.");
  else if (more > 0) notes.push(`The strongest ${answer.places.length} of ${answer.seen} keys.`);
  if (answer.sink !== null && !answer.blind) {
    notes.push(`The sink takes ${about(answer.sink, state.rounded)}.`);
  }
  notes.push(...fullNote(answer, state));
  if (state.rounded) notes.push("≈, rounded to 1/255.");
  at("row-note").textContent = notes.join(" ");
  barList(at("row-list"), answer, keys, state, choose.column);
}

function showColumn(state, answer, choose) {
  at("column-title").textContent = `Who attends to ${place(keys[state.column], state.column)}`;
  const more = answer.seen - answer.places.length;
  const notes = [];
  if (answer.seen === 0) notes.push("No query may see this key.");
  else if (more > 0) notes.push(`The strongest ${answer.places.length} of ${answer.seen} queries.`);
  notes.push(...fullNote(answer, state));
  if (state.rounded) notes.push("≈, rounded to 1/255.");
  at("column-note").textContent = notes.join(" ");
  barList(at("column-list"), answer, queries, state, choose.row);
}

// The text as words to click: one strip, or two where keys are another text.
function makeStrips(choose) {
  const strips = crossed
    ? [["Queries", queries, choose.row], ["Keys", keys, choose.column]]
    : [["Tokens", keys, choose.token]];
  return strips.map(([title, labels, pick]) => {
    const card = element("div", undefined, "card");
    const strip = element("div", undefined, "strip");
    card.append(element("h2", title), strip);
    at("strips").append(card);
    if (labels.length > MOST_CHIPS) {
      strip.append(element("p", `${labels.length} tokens: find one by its word or position.`));
      return { chips: [], labels };
    }
    const chips = labels.map((word, i) => {
      const chip = element("button", word, "chip");
      chip.type = "button";
      chip.title = place(word, i);
      chip.dir = "auto";
      // one stop for the tab key in each strip: the arrows go on from there
      chip.tabIndex = i === 0 ? 0 : -1;
      chip.addEventListener("click", () => pick(i));
      return chip;
    });
    strip.addEventListener("keydown", (event) => {
      const here = chips.indexOf(event.target);
      const moves = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: chips.length - 1 };
      const next = chips[moves[event.key]];
      if (!next) return;
      event.preventDefault();
      next.focus();
    });
    strip.append(...chips);
    return { chips, labels };
  });
}

// Colour each key's word by its weight for the selected query, and frame the selected ones.
function tintStrips(strips, state, weights, top) {
  const keyStrip = strips[strips.length - 1];
  keyStrip.chips.forEach((chip, j) => {
    const weight = weights[j];
    const seen = weight >= 0;
    const shade = seen ? clamp(shadeOf(weight, state.scale, top), 0, 255) : 0;
    const [red, green, blue] = palette.subarray(3 * shade, 3 * shade + 3);
    const light = 0.299 * red + 0.587 * green + 0.114 * blue > 120;
    chip.style.backgroundColor = seen ? paint(shade) : "";
    chip.style.color = seen ? (light ? "#17181c" : "#f4f4f6") : "";
    chip.classList.toggle("unseen", weight < 0);
    chip.classList.toggle("bad", Number.isNaN(weight));
  });
  const frames = crossed ? [[strips[0], state.row], [strips[1], state.column]]
    : [[strips[0], state.row]];
  for (const [strip, where] of frames) {
    strip.chips.forEach((chip, i) => {
      chip.setAttribute("aria-pressed", String(i === where));
      chip.tabIndex = i === where ? 0 : -1;
    });
  }
}

function showTable(state, from, lines) {
  const body = lines.map((line, n) => {
    const row = element("tr");
    const head = element("th", place(queries[from + n], from + n));
    head.scope = "row";
    row.append(head);
    line.places.forEach((where, k) => {
      row.append(element("td", `${place(keys[where], where)} ${about(line.weights[k], state.rounded)}`));
    });
    const missing = 5 - line.places.length;
    if (missing > 0) {
      const rest = element("td", line.seen === 0 ? "may see no key" : "");
      rest.colSpan = missing;
      row.append(rest);
    }
    return row;
  });
  const header = element("tr");
  for (const name of ["query", "strongest key", "second", "third", "fourth", "fifth"]) {
    const cell = element("th", name);
    cell.scope = "col";
    header.append(cell);
  }
  const table = at("table");
  table.tHead.replaceChildren(header);
  table.tBodies[0].replaceChildren(...body);
  table.caption.textContent = `Layer ${run.layers[state.layer].name}, head ${state.head}: the strongest keys of `
    + `each query, with their weights${state.rounded ? " (≈, rounded to 1/255)" : ""}`;
  const last = from + lines.length;
  at("table-place").textContent = `Queries ${from} to ${last - 1} of ${queries.length}`;
  at("table-pages").hidden = queries.length <= TABLE_ROWS;
  at("table-back").disabled = from === 0;
  at("table-next").disabled = last >= queries.length;
}
