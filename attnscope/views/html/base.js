// The data of the page, the way to the worker, and how numbers and words are written.
const run = JSON.parse(document.getElementById("run").textContent);
const queries = run.queries;
const crossed = run.keys !== null;
const keys = crossed ? run.keys : run.queries;
const MOST_LOADED = 6; // heads that the worker keeps ready

const at = (id) => document.getElementById(id);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

// An element with words in it: always as text, never as markup.
function element(tag, words, className) {
  const made = document.createElement(tag);
  if (words !== undefined) made.textContent = words;
  if (className) made.className = className;
  return made;
}

// A number with the page's decimals; what would round to 0 gets an exponent, as in the tables.
function number(value, precision = run.precision) {
  if (value === null || value === undefined) return "not stored";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  let text;
  if (size >= 1e6) text = value.toExponential(precision);
  else if (size > 0 && size < 0.5 * 10 ** -precision) {
    text = value.toExponential(Math.max(1, precision - 2));
  } else text = (value + 0).toFixed(precision);
  return text.replace("-", "−");
}

const parse = (id) => JSON.parse(at(id).textContent);

function recordOf(layer, head) {
  const record = parse(`head-${layer}-${head}`);
  for (const part of ["key", "mask", "bias"]) if (record[part]) record[part] = parse(record[part]);
  const { queries: rows, keys: columns, width, scale, softcap } = run.layers[layer];
  return { ...record, queries: rows, keys: columns, width, scale, softcap };
}

// The worker's code in this thread, in short slices, where no worker can be made.
function makeLocal(receive) {
  const scope = { postMessage: (data) => setTimeout(() => receive({ data }), 0) };
  startWorker(scope, 12);
  return (data) => setTimeout(() => scope.onmessage({ data }), 0);
}

function makeWorker(receive, failed) {
  const source = `(${startWorker.toString()})(self, 60);`;
  const worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  worker.onmessage = receive;
  worker.onerror = failed;
  return (data) => worker.postMessage(data);
}

const waiting = new Map();
const loaded = []; // names of the heads that the worker has, the latest last
const forms = new Map(); // how each of them is stored
let messages = 0;
let inWorker = true;
let post = null;

function receive({ data }) {
  const answer = waiting.get(data.id);
  waiting.delete(data.id);
  if (!answer) return;
  if (data.error) answer.reject(new Error(data.error));
  else answer.resolve(data.value);
}

// A browser may refuse the worker at once or a moment later; what was asked is asked again.
function useLocal() {
  if (!inWorker) return;
  inWorker = false;
  post = makeLocal(receive);
  loaded.length = 0;
  const open = [...waiting.values()];
  waiting.clear();
  for (const { question, resolve, reject } of open) ask(...question).then(resolve, reject);
}

try {
  post = makeWorker(receive, useLocal);
} catch (error) {
  useLocal();
}

function load(layer, head) {
  const name = `${layer}-${head}`;
  const place = loaded.indexOf(name);
  if (place >= 0) {
    loaded.splice(place, 1);
  } else {
    const record = recordOf(layer, head);
    forms.set(name, record.form);
    post({ kind: "load", name, record });
  }
  loaded.push(name);
  if (loaded.length > MOST_LOADED) post({ kind: "drop", name: loaded.shift() });
  return name;
}

// Ask the worker about a head; the promise gives null for a map that a newer one overtook.
function ask(kind, layer, head, details) {
  const name = load(layer, head);
  messages += 1;
  const id = messages;
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject, question: [kind, layer, head, details] });
    post({ kind, id, name, ...details });
  });
}
