// The plots: drawn by Vega from the page's own data, read out, zoomed.

const options = { ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: tip };

const when = (step) => say("step.iteration", { step, iteration: step + 1 });

function tip(handler, event, item, value) {
  let box = document.querySelector(".vega-tip");
  if (!value || !value.name) { if (box) box.hidden = true; return; }
  if (!box) { box = document.createElement("div"); box.className = "vega-tip"; box.setAttribute("role", "tooltip"); document.body.append(box); }
  box.textContent = [value.name, when(value.step), say("page.error_beside_limit", { error: number(value.error), limit: number(value.limit), times: times(value) })].join("\n");
  box.hidden = false;
  box.style.left = Math.max(4, Math.min(event.clientX + 12, innerWidth - box.offsetWidth - 8)) + "px";
  box.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8)) + "px";
}

// A specification with its rows and the first values of its signals.
async function draw(where, spec, rows, values) {
  const own = structuredClone(spec);
  own.data[0].values = rows;
  own.description = where.getAttribute("aria-label") ?? "";
  for (const scale of own.scales) if (scale.domain.fields) {
    const known = scale.domain.fields.filter((field) => rows.some((row) => row[field] !== null));
    if (known.length) scale.domain.fields = known; else scale.domain = [1, 10];
  }
  for (const signal of own.signals) if (signal.name in values) signal.value = values[signal.name];
  const made = await vegaEmbed(where, own, options);
  drawn.push(made);
  return made.view;
}

function nearest(list, x) {
  let low = 0, high = list.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (list[middle] > x) high = middle; else low = middle; }
  return Math.abs(list[low] - x) <= Math.abs(list[high] - x) ? low : high;
}

// The rows of a part of the axis and one on either side; of thousands the extremes of each small stretch, which is all that is seen.
const MOST = 1500, STRETCHES = 250;
function inSight(rows, [low, high]) {
  const first = Math.max(0, rows.findIndex((row) => row.x >= low) - 1);
  const after = rows.findIndex((row) => row.x > high);
  const part = rows.slice(first, after < 0 ? rows.length : after + 1);
  const copy = (row) => ({ ...row });  // a plot marks the rows that it was handed, and keeps the order of those that it knows
  if (part.length <= MOST) return part.map(copy);
  const keys = ["a", "b", "d", "limit", "noise"].filter((key) => part.some((row) => row[key] !== null));
  const kept = new Set([0, part.length - 1]), size = Math.ceil(part.length / STRETCHES);
  for (let start = 0; start < part.length; start += size) {
    const end = Math.min(start + size, part.length);
    for (const key of keys) {
      let least = start, most = start;
      for (let i = start; i < end; i++) {
        if ((part[i][key] === null) !== (part[Math.max(i - 1, 0)][key] === null)) kept.add(i).add(i - 1);
        if (part[i][key] === null) continue;
        if (part[least][key] === null || part[i][key] < part[least][key]) least = i;
        if (part[most][key] === null || part[i][key] > part[most][key]) most = i;
      }
      kept.add(least).add(most);
    }
    let furthest = -1;  // beyond its own limit, which need not be where the difference is largest
    for (let i = start; i < end; i++) if (part[i].limit > 0 && part[i].d !== null && (furthest < 0 || Math.abs(part[i].d) / part[i].limit > Math.abs(part[furthest].d) / part[furthest].limit)) furthest = i;
    if (furthest >= 0) kept.add(furthest);
  }
  return [...kept].sort((a, b) => a - b).map((i) => copy(part[i]));
}

const minus = (value) => (value === null ? null : -value);
const positive = (value) => (value === null || value <= 0 ? null : value);

// The rows of a plot; norms stand on a logarithmic scale, where zero has no place and what is equal to the bit stands at the foot.
function linesOf(series) {
  return series.x.map((x, i) => {
    const [a, b, d, limit, noise] = [series.a, series.b, series.d, series.limit, series.noise].map((values) => finite(values[i]));
    if (series.names) return { x, a: positive(a), b: positive(b), d: d === null ? null : Math.max(d, 1e-9), limit: positive(limit), noise };
    return { x, a, b, d, limit, noise, below: minus(limit), quiet: minus(noise) };
  });
}

// What a plot shows at one place, in words.
function readOut(series, at) {
  const where = series.names ? series.names[at] : when(series.x[at]);
  if (series.single) return say("page.read_out", { where, values: exact(series.a[at]) });
  const [d, limit, noise] = [series.d, series.limit, series.noise].map((values) => ((values[at] ?? null) === null ? null : number(float(values[at]))));
  const parts = [say("page.value_of_reference", { value: exact(series.a[at]) }), say("page.value_of_candidate", { value: exact(series.b[at]) })];
  if (d !== null) parts.push(say("page.value_of_difference", { value: d }));
  if (limit !== null) parts.push(say("page.value_of_limit", { value: limit }));
  if (noise !== null) parts.push(say("page.value_of_noise", { value: noise }));
  return say("page.read_out", { where, values: parts.join(say("separator.terms")) });
}

async function plot(series) {
  const figure = $(series.id), canvas = figure.querySelector(".canvas"), readout = figure.querySelector(".readout");
  const rows = linesOf(series), ends = [series.x[0], series.x[series.x.length - 1]];
  if (ends[0] === ends[1]) { ends[0] -= 1; ends[1] += 1; }
  const pad = series.names ? 0.7 : 0, extent = [ends[0] - pad, ends[1] + pad];
  const first = { ...series.axis, zh: zh(), extent, starts: series.starts, labels: series.labels };
  const view = await draw(canvas, data.specs[series.spec], inSight(rows, extent), first);
  const zoom = zooming(figure, view, rows, ends, extent);
  let at = null;
  const read = (x) => {
    if (x === null) return;
    at = nearest(series.x, x);
    if (series.x[at] !== x) view.signal("hover", series.x[at]).runAsync();
    readout.textContent = readOut(series, at);
  };
  view.addSignalListener("hover", (_, x) => read(x));
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    at = Math.max(0, Math.min(series.x.length - 1, (at ?? (move > 0 ? -1 : series.x.length)) + move));
    const domain = view.signal("domain"), x = series.x[at];
    if (domain && (x < domain[0] || x > domain[1])) { const half = (domain[1] - domain[0]) / 2; zoom([x - half, x + half]); }
    view.signal("hover", x).runAsync();
    read(x);
  });
}

// Zooming by dragging, by numbers and by a button; returns what zooms to a domain, or with null to the whole.
function zooming(figure, view, rows, ends, extent) {
  const [from, to] = [figure.querySelector(".from"), figure.querySelector(".to")];
  [from.value, to.value] = ends;
  const zoom = (domain) => {
    view.signal("domain", domain).data("rows", inSight(rows, domain ?? extent)).runAsync();
    from.value = domain ? Math.ceil(domain[0]) : ends[0];
    to.value = domain ? Math.floor(domain[1]) : ends[1];
  };
  let dragged = null;
  view.addSignalListener("zoomed", (_, range) => { dragged = range; });
  view.addSignalListener("drag", (_, range) => {
    if (range !== null || dragged === null) return;
    const sorted = [...dragged].sort((a, b) => a - b);
    dragged = null;
    if (sorted[1] - sorted[0] > (extent[1] - extent[0]) / 500) zoom(sorted);
  });
  figure.querySelector(".canvas").addEventListener("dblclick", () => zoom(null));
  figure.querySelector(".reset").addEventListener("click", () => zoom(null));
  const within = (input, end) => Math.max(ends[0], Math.min(ends[1], input.value === "" ? end : Number(input.value)));
  for (const input of [from, to]) input.addEventListener("change", () => {
    const [low, high] = [within(from, ends[0]), within(to, ends[1])].sort((a, b) => a - b);
    zoom(low < high ? [low + extent[0] - ends[0], high + extent[1] - ends[1]] : null);
  });
  return zoom;
}

// ---- the picture of layers and kinds

async function picturing() {
  const chosen = () => data.pictures[document.querySelector("input[name=picture]:checked").value];
  const cells = (it) => it.cells.map(([column, row, at, bin, star]) => {
    const tensor = tensors[at];
    return { ...tensor, column: it.columns[column], row: it.rows[row], bin, star, fill: `var(--bin-${bin})`, text: short(tensor.limit_ratio), told: say("page.told_of_cell", { name: tensor.name, times: times(tensor) }) };
  });
  const it = chosen();
  const picture = await draw($("picture").querySelector(".canvas"), data.specs.picture, cells(it), { zh: zh(), columns: it.columns, rows: it.rows });
  for (const input of document.querySelectorAll("input[name=picture]")) input.addEventListener("change", () => {
    const it = chosen();
    picture.signal("columns", it.columns).signal("rows", it.rows).data("cells", cells(it)).runAsync();
  });
  picture.addEventListener("click", (_, item) => {
    if (!item || !item.datum || !item.datum.name) return;
    rowsOf(item.datum.name, chosen().stage);
  });
}
