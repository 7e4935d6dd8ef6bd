// Computes cells of a head. This function runs in a worker made of its own source, or, where no
// worker can be made, in the page itself; it therefore uses nothing from outside.
// `scope` is the worker's global, or an object like it. `slice` is how long, in milliseconds, it
// may compute before it lets other messages through.
function startWorker(scope, slice) {
  const HIDDEN = -1;
  const MOST_KEPT = 1 << 24; // numbers kept of rows already computed: 64 MB
  const models = new Map();
  let newestMap = 0;

  function bytesOf(text) {
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
    return bytes;
  }

  // Numbers are stored little-endian, whatever this machine is.
  function numbersOf(text, double) {
    const bytes = bytesOf(text);
    const view = new DataView(bytes.buffer);
    const numbers = double ? new Float64Array(bytes.length / 8) : new Float32Array(bytes.length / 4);
    for (let i = 0; i < numbers.length; i += 1) {
      numbers[i] = double ? view.getFloat64(8 * i, true) : view.getFloat32(4 * i, true);
    }
    return numbers;
  }

  function bitsOf(text, columns) {
    const bytes = bytesOf(text);
    return (i, j) => {
      const place = i * columns + j;
      return ((bytes[Math.floor(place / 8)] >> (place % 8)) & 1) === 1;
    };
  }

  function sightOf(mask, columns) {
    if (mask.kind === "none") return () => true;
    if (mask.kind === "causal") return (i, j) => j <= i + mask.offset;
    return bitsOf(mask.data, columns);
  }

  function biasOf(bias, double) {
    if (!bias) return null;
    const numbers = numbersOf(bias.data, double);
    const down = bias.rows > 1 ? bias.columns : 0;
    const right = bias.columns > 1 ? 1 : 0;
    return (i, j) => numbers[i * down + j * right];
  }

  // weight = exp(softcap(scale · q·k) + bias − logsumexp). Sums are in double precision; each step
  // is rounded as the run's own numbers are.
  function vectorCells(record, sees) {
    const round = record.double ? (x) => x : Math.fround;
    const { width, scale, softcap } = record;
    const query = numbersOf(record.query, record.double);
    const key = numbersOf(record.key.data, record.double);
    const sums = numbersOf(record.logsumexp, record.double);
    const bias = biasOf(record.bias, record.double);
    const omegaAt = (i, j) => {
      let sum = 0;
      for (let d = 0, a = i * width, b = j * width; d < width; d += 1) sum += query[a + d] * key[b + d];
      return round(sum);
    };
    const scaledOf = (omega, i, j) => {
      let scaled = round(omega * scale);
      if (softcap !== null) scaled = round(softcap * Math.tanh(scaled / softcap));
      return bias ? round(scaled + bias(i, j)) : scaled;
    };
    // a sum of float32 may be a last digit off: never let a weight pass 1 by it
    const weightOf = (scaled, i) => round(Math.min(1, Math.exp(scaled - sums[i])));
    return {
      sums,
      weight: (i, j) => (sees(i, j) ? weightOf(scaledOf(omegaAt(i, j), i, j), i) : 0),
      cell: (i, j) => {
        const omega = omegaAt(i, j);
        const scaled = scaledOf(omega, i, j);
        return { omega, scaled, weight: sees(i, j) ? weightOf(scaled, i) : 0 };
      },
    };
  }

  function storedCells(record) {
    const [omegas, scaled, weights] = ["omegas", "scaled", "weights"].map((name) =>
      numbersOf(record[name], record.double));
    return {
      weight: (i, j) => weights[i * record.keys + j],
      cell: (i, j) => {
        const place = i * record.keys + j;
        return { omega: omegas[place], scaled: scaled[place], weight: weights[place] };
      },
    };
  }

  function byteCells(record) {
    const bytes = bytesOf(record.bytes);
    const bad = record.bad ? bitsOf(record.bad, record.keys) : () => false;
    const weight = (i, j) => (bad(i, j) ? NaN : bytes[i * record.keys + j] / 255);
    return { weight, cell: (i, j) => ({ omega: null, scaled: null, weight: weight(i, j) }) };
  }

  function makeModel(record) {
    const sees = sightOf(record.mask, record.keys);
    const forms = { vectors: vectorCells, cells: storedCells, bytes: byteCells };
    const cells = forms[record.form](record, sees);
    const kept = new Map();
    // The weights of a row, −1 where hidden. A NaN is shown even where hidden.
    const row = (i) => {
      let weights = kept.get(i);
      if (weights) return weights;
      weights = new Float32Array(record.keys);
      for (let j = 0; j < record.keys; j += 1) {
        const weight = sees(i, j) ? cells.weight(i, j) : HIDDEN;
        weights[j] = weight;
      }
      if ((kept.size + 1) * record.keys > MOST_KEPT) kept.clear();
      kept.set(i, weights);
      return weights;
    };
    const blind = (i) => {
      for (let j = 0; j < record.keys; j += 1) if (sees(i, j)) return false;
      return true;
    };
    return { ...cells, record, sees, row, blind };
  }

  function strongest(weights, most) {
    const order = [];
    for (let j = 0; j < weights.length; j += 1) if (weights[j] !== HIDDEN) order.push(j);
    // a NaN first, so that it is not overlooked; equal weights in order of place
    const rank = (j) => (Number.isNaN(weights[j]) ? Infinity : weights[j]);
    order.sort((a, b) => (rank(a) === rank(b) ? a - b : rank(b) - rank(a)));
    return { places: order.slice(0, most), seen: order.length };
  }

  function list(weights, most) {
    const { places, seen } = strongest(weights, most);
    return { places, seen, weights: places.map((place) => weights[place]) };
  }

  function columnOf(model, j) {
    const weights = new Float32Array(model.record.queries);
    for (let i = 0; i < weights.length; i += 1) {
      weights[i] = model.sees(i, j) ? model.weight(i, j) : HIDDEN;
    }
    return weights;
  }

  function sinkOf(model, i) {
    const { sink } = model.record;
    if (sink === null || !model.sums) return null;
    return Math.exp(sink - model.sums[i]);
  }

  // Fill the map rows by rows, the largest weight of each block of cells; a NaN wins over all.
  function fill(model, wanted, values, y) {
    const { row0, rows, column0, columns, height, width } = wanted;
    const from = row0 + Math.floor((y * rows) / height);
    const to = Math.max(from + 1, row0 + Math.floor(((y + 1) * rows) / height));
    const line = values.subarray(y * width, (y + 1) * width).fill(HIDDEN);
    for (let i = from; i < to; i += 1) {
      const weights = model.row(i);
      for (let j = 0; j < columns; j += 1) {
        const x = Math.floor((j * width) / columns);
        const weight = weights[column0 + j];
        if (Number.isNaN(weight) || weight > line[x]) line[x] = weight;
      }
    }
  }

  function drawMap(id, model, wanted) {
    newestMap = id;
    const values = new Float32Array(wanted.height * wanted.width);
    let y = 0;
    const step = () => {
      if (newestMap !== id) return scope.postMessage({ id, value: null });
      const end = Date.now() + slice;
      while (y < wanted.height && Date.now() < end) {
        fill(model, wanted, values, y);
        y += 1;
      }
      if (y < wanted.height) return setTimeout(step, 0);
      return scope.postMessage({ id, value: values });
    };
    step();
  }

  const answers = {
    cells: (model, { rows, columns }) =>
      rows.map((i, n) => ({ ...model.cell(i, columns[n]), seen: model.sees(i, columns[n]) })),
    row: (model, { row, most }) => {
      const weights = Float32Array.from(model.row(row));
      return { ...list(weights, most), all: weights, blind: model.blind(row), sink: sinkOf(model, row) };
    },
    column: (model, { column, most }) => list(columnOf(model, column), most),
    table: (model, { from, to, most }) => {
      const lines = [];
      for (let i = from; i < to; i += 1) lines.push(list(model.row(i), most));
      return lines;
    },
  };

  scope.onmessage = ({ data }) => {
    const { id, kind, name } = data;
    try {
      if (kind === "load") {
        models.set(name, makeModel(data.record));
      } else if (kind === "drop") {
        models.delete(name);
      } else if (kind === "map") {
        drawMap(id, models.get(name), data);
      } else {
        scope.postMessage({ id, value: answers[kind](models.get(name), data) });
      }
    } catch (error) {
      scope.postMessage({ id, error: String(error) });
    }
  };
}
