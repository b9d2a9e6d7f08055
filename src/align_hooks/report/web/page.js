// What the page does: switches the language, draws plots from its own data, sorts and filters the table, follows deep links.
// Text of a record only ever becomes text: textContent, never markup.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  root.classList.remove("no-js");
  const $ = (id) => document.getElementById(id);
  const zh = () => root.lang === "zh";
  const say = (english, chinese) => (zh() ? chinese : english);
  const drawn = [];

  // Rows of the table, from columns: names once, numbers that JSON has no word for as strings.
  const float = (value) => (typeof value === "string" ? Number(value.replace("inf", "Infinity")) : value);
  const tensors = data.tensors && data.tensors.name.map((name, i) => {
    const one = { name: data.tensors.names[name], stage: data.tensors.stage[i], step: data.tensors.step[i] };
    for (const key of ["error", "limit", "excess", "scale", "direction"]) one[key] = float(data.tensors[key][i]);
    return Object.assign(one, { eps: one.error / data.eps, out: !(one.excess <= 1) });
  });

  // ---- language: from the address (?lang=zh), what was chosen last, or what the browser prefers

  const stored = () => { try { return localStorage.getItem("align_hooks.lang"); } catch { return null; } };
  const asked = new URLSearchParams(location.search).get("lang") || stored() || (navigator.language || "en").slice(0, 2);

  function speak(language) {
    root.lang = language === "zh" ? "zh" : "en";
    const button = $("language");
    button.textContent = say("中文", "English");
    button.lang = say("zh", "en-x-switch");
    button.setAttribute("aria-label", say("切换到中文", "Switch to English"));
    for (const option of document.querySelectorAll("option[data-zh]")) {
      option.dataset.en ??= option.textContent;
      option.textContent = say(option.dataset.en, option.dataset.zh);
    }
    for (const one of drawn) one.view.signal("zh", zh()).runAsync();
    if (tensors) { heads(); rows(); }
  }
  $("language").addEventListener("click", () => {
    speak(zh() ? "en" : "zh");
    try { localStorage.setItem("align_hooks.lang", root.lang); } catch { /* a page from a file may have no storage */ }
  });

  // ---- numbers

  const number = (value) => {
    if (value === null || value === undefined) return "";
    if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "-∞";
    if (value === 0) return "0";
    return Math.abs(value) >= 1e-3 && Math.abs(value) < 1e6 ? Number(value.toPrecision(3)).toString() : value.toExponential(2);
  };
  const exact = (value) => (value === null || value === undefined ? "–" : typeof value === "string" ? value : Number(value.toPrecision(9)).toString());
  const times = (one) => (Number.isFinite(one.excess) ? `${number(one.excess)} ×` : Number.isFinite(one.error) ? say("any is too much", "须逐位相等") : say("not finite", "非有限值"));
  const short = (excess) => (!Number.isFinite(excess) ? "≠" : excess >= 1000 ? excess.toExponential(1).replace("+", "") : excess >= 10 ? excess.toFixed(0) : excess.toFixed(1));
  const finite = (value) => (typeof value === "number" && Number.isFinite(value) ? value : null);

  // ---- plots

  const options = { ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: tip };

  function tip(handler, event, item, value) {
    let box = document.querySelector(".vega-tip");
    if (!value || !value.name) { if (box) box.hidden = true; return; }
    if (!box) { box = document.createElement("div"); box.className = "vega-tip"; box.setAttribute("role", "tooltip"); document.body.append(box); }
    box.textContent = `${value.name}\n${say("step ", "第")}${value.step}${say(` (iteration ${value.step + 1})`, `步（iteration ${value.step + 1}）`)}\n${say("error", "误差")} ${number(value.error)}, ${say("limit", "限值")} ${number(value.limit)}: ${times(value)}`;
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
    return [...kept].sort((one, other) => one - other).map((i) => copy(part[i]));
  }

  // Where the axis of differences turns logarithmic, and its labels: the ends, the limit, zero.
  function differences(rows) {
    const limits = rows.map((row) => row.limit).filter((value) => value > 0), apart = rows.map((row) => row.d).filter((value) => value !== null);
    const [low, high] = [Math.min(0, ...spread(apart)), Math.max(0, ...spread(apart))];
    const limit = limits.length ? limits.reduce((one, other) => Math.max(one, other)) : 0;
    const ends = [low, high].filter((value) => Math.abs(value) > 3 * limit);
    return { small: (limit || Math.max(-low, high) || 1e-6) / 3, ticks: [...ends, -limit, 0, limit] };
  }
  const spread = (values) => values.length ? [values.reduce((one, other) => Math.min(one, other)), values.reduce((one, other) => Math.max(one, other))] : [];

  const minus = (value) => (value === null ? null : -value);

  async function plot(one) {
    const figure = $(one.id), canvas = figure.querySelector(".canvas"), readout = figure.querySelector(".readout");
    const [from, to] = [figure.querySelector(".from"), figure.querySelector(".to")];
    const rows = one.x.map((x, i) => ({
      x, a: finite(one.a[i]), b: finite(one.b[i]), d: finite(one.d[i]), limit: finite(one.limit[i]), noise: finite(one.noise[i]),
      below: minus(finite(one.limit[i])), quiet: minus(finite(one.noise[i])),
    }));
    const ends = [one.x[0], one.x[one.x.length - 1]];
    if (ends[0] === ends[1]) { ends[0] -= 1; ends[1] += 1; }
    const pad = one.names ? 0.7 : 0;
    const extent = [ends[0] - pad, ends[1] + pad];
    const positive = (value) => (value === null || value <= 0 ? null : value);
    if (one.names) for (const row of rows) { row.a = positive(row.a); row.b = positive(row.b); row.d = row.d === null ? null : Math.max(row.d, 1e-9); row.limit = positive(row.limit); }
    const view = await draw(canvas, data.specs[one.spec], inSight(rows, extent), { ...differences(rows), zh: zh(), extent, starts: one.starts, labels: one.labels });
    let at = null;
    const read = (x) => {
      if (x === null) return;
      at = nearest(one.x, x);
      if (one.x[at] !== x) view.signal("hover", one.x[at]).runAsync();
      const where = one.names ? one.names[at] : say(`step ${one.x[at]} (iteration ${one.x[at] + 1})`, `第${one.x[at]}步（iteration ${one.x[at] + 1}）`);
      const parts = one.single ? [exact(one.a[at])] : [
        say("reference ", "标杆 ") + exact(one.a[at]), say("candidate ", "待测 ") + exact(one.b[at]), say("difference ", "差 ") + number(float(one.d[at])),
      ];
      if (one.limit[at] !== undefined) parts.push(say("limit ", "限值 ") + number(float(one.limit[at])));
      if (one.noise[at] !== undefined) parts.push(say("noise ", "噪声 ") + number(float(one.noise[at])));
      readout.textContent = `${where}: ${parts.join(", ")}`;
    };
    const zoom = (domain) => {
      view.signal("domain", domain).data("rows", inSight(rows, domain ?? extent)).runAsync();
      from.value = domain ? Math.ceil(domain[0]) : ends[0];
      to.value = domain ? Math.floor(domain[1]) : ends[1];
    };
    [from.value, to.value] = ends;
    let dragged = null;
    view.addSignalListener("hover", (_, x) => read(x));
    view.addSignalListener("zoomed", (_, range) => { dragged = range; });
    view.addSignalListener("drag", (_, range) => {
      if (range !== null || dragged === null) return;
      const sorted = [...dragged].sort((one, other) => one - other);
      dragged = null;
      if (sorted[1] - sorted[0] > (extent[1] - extent[0]) / 500) zoom(sorted);
    });
    canvas.addEventListener("dblclick", () => zoom(null));
    for (const input of [from, to]) input.addEventListener("change", () => {
      const within = (input, end) => Math.max(ends[0], Math.min(ends[1], input.value === "" ? end : Number(input.value)));
      const [low, high] = [within(from, ends[0]), within(to, ends[1])].sort((one, other) => one - other);
      zoom(low < high ? [low - pad, high + pad] : null);
    });
    figure.querySelector(".reset").addEventListener("click", () => zoom(null));
    canvas.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
      if (move === undefined) return;
      event.preventDefault();
      at = Math.max(0, Math.min(one.x.length - 1, (at ?? (move > 0 ? -1 : one.x.length)) + move));
      const domain = view.signal("domain"), x = one.x[at];
      if (domain && (x < domain[0] || x > domain[1])) { const half = (domain[1] - domain[0]) / 2; zoom([x - half, x + half]); }
      view.signal("hover", x).runAsync();
      read(x);
    });
  }

  // ---- the picture of layers and kinds

  async function picturing() {
    const chosen = () => data.pictures[document.querySelector("input[name=picture]:checked").value];
    const cells = (it) => it.cells.map(([column, row, at, bin, star]) => {
      const one = tensors[at];
      return { ...one, column: it.columns[column], row: it.rows[row], bin, star, fill: `var(--bin-${bin})`, text: short(one.excess), told: `${one.name}, ${times(one)}` };
    });
    const it = chosen();
    const picture = await draw($("picture").querySelector(".canvas"), data.specs.picture, cells(it), { zh: zh(), columns: it.columns, rows: it.rows });
    for (const input of document.querySelectorAll("input[name=picture]")) input.addEventListener("change", () => {
      const it = chosen();
      picture.signal("columns", it.columns).signal("rows", it.rows).data("cells", cells(it)).runAsync();
    });
    picture.addEventListener("click", (_, item) => {
      if (!item || !item.datum || !item.datum.name) return;
      $("filter").value = item.datum.name;
      $("of-stage").value = String(chosen().stage); $("only-out").checked = false;
      shown = FIRST; rows(); $("tensors").scrollIntoView();
    });
  }

  // ---- the table of tensors

  const FIRST = 50;
  const columns = [
    ["name", "tensor", "张量"], ["excess", "error / limit", "误差/限值"], ["error", "error", "误差"], ["limit", "limit", "限值"],
    ["stage", "stage", "阶段"], ["step", "step", "步"], ["eps", "error in eps", "误差(eps)"], ["scale", "best scale", "最佳比例"],
    ["direction", "error left at it", "该比例下的剩余误差"],
  ];
  let shown = FIRST, order = { by: "excess", down: true };

  function heads() {
    const line = document.createElement("tr");
    for (const [key, english, chinese] of columns) {
      const cell = document.createElement("th"), button = document.createElement("button");
      cell.scope = "col";
      if (key !== "name" && key !== "stage") cell.className = "number";
      button.type = "button";
      button.textContent = say(english, chinese) + (order.by === key ? (order.down ? " ▾" : " ▴") : "");
      cell.setAttribute("aria-sort", order.by === key ? (order.down ? "descending" : "ascending") : "none");
      button.dataset.key = key;
      button.addEventListener("click", () => {
        order = { by: key, down: order.by === key ? !order.down : key !== "name" && key !== "stage" };
        heads(); rows();
        document.querySelector(`#tensor-table button[data-key=${key}]`).focus();
      });
      cell.append(button);
      line.append(cell);
    }
    document.querySelector("#tensor-table thead").replaceChildren(line);
  }

  function compared(one, other) {
    const [a, b] = [one[order.by], other[order.by]];
    if (a === b) return 0;
    if (a === null) return 1;
    if (b === null) return -1;
    const far = (x) => (Number.isNaN(x) ? Infinity : x);  // what is no number is as far out as can be
    const less = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : far(a) === far(b) ? 0 : far(a) - far(b);
    return order.down ? -less : less;
  }

  function rows() {
    const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean), stage = $("of-stage").value, out = $("only-out").checked;
    const found = tensors.filter((one) => (stage === "" || one.stage === Number(stage)) && (!out || one.out) && words.every((word) => one.name.toLowerCase().includes(word)));
    found.sort(compared);
    const body = document.createDocumentFragment();
    for (const one of found.slice(0, shown)) {
      const line = document.createElement("tr");
      if (one.out) line.className = "out";
      for (const [key] of columns) {
        const cell = document.createElement(key === "name" ? "th" : "td");
        if (key === "name") { cell.scope = "row"; const code = document.createElement("code"); const link = document.createElement("a"); link.href = "#tensor=" + encodeURIComponent(one.name); for (const part of one.name.split(/(?<=\.)/)) link.append(part, document.createElement("wbr")); code.append(link); cell.append(code); }
        else if (key === "stage") cell.textContent = say(data.stages[one.stage][0], data.stages[one.stage][1]);
        else { cell.className = key === "excess" && one.out ? "number out" : "number"; cell.textContent = key === "scale" && one.scale !== null ? Number(one.scale.toPrecision(6)).toString() : number(one[key]); }
        line.append(cell);
      }
      body.append(line);
    }
    document.querySelector("#tensor-table tbody").replaceChildren(body);
    const part = Math.min(shown, found.length);
    $("count").textContent = say(`${part} of ${found.length} shown, ${tensors.length} in all`, `显示${part}/${found.length}行，共${tensors.length}行`);
    $("more").hidden = found.length <= shown;
  }

  if (tensors) {
    for (const [id, event] of [["filter", "input"], ["of-stage", "change"], ["only-out", "change"]]) $(id).addEventListener(event, () => { shown = FIRST; rows(); });
    $("more").addEventListener("click", () => { shown += 500; rows(); });
  }

  // ---- deep links: a stage opens, a tensor is filtered for

  function follow() {
    let hash = location.hash.slice(1);
    try { hash = decodeURIComponent(hash); } catch { /* an address that somebody broke */ }
    if (hash.startsWith("tensor=") && tensors) {
      $("filter").value = hash.slice(7); $("of-stage").value = ""; $("only-out").checked = false;
      shown = FIRST; rows(); $("tensors").scrollIntoView();
    } else if (hash) {
      const aim = $(hash);
      if (aim) { if (aim.tagName === "DETAILS") aim.open = true; aim.scrollIntoView(); }
    }
  }
  addEventListener("hashchange", follow);
  addEventListener("click", (event) => {  // the address that is open already: no hash changes
    const link = event.target.closest?.('a[href^="#"]');
    if (link && link.hash === location.hash) follow();
  });

  // ---- the rest

  const different = $("only-different");
  const narrow = () => $("configurations").closest("section").classList.toggle("only-different", different.checked);
  if (different) { different.checked = true; narrow(); different.addEventListener("change", narrow); }
  for (const button of document.querySelectorAll("button.copy")) button.addEventListener("click", async () => {
    const text = [...$(button.dataset.of).childNodes].map((node) => node.lang && node.lang !== root.lang ? "" : node.textContent).join("");
    try { await navigator.clipboard.writeText(text); } catch { getSelection().selectAllChildren($(button.dataset.of)); document.execCommand("copy"); }
    button.textContent = say("copied", "已复制");
  });
  addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details.stage")) if (!one.classList.contains("not-compared")) one.open = true; });

  // What is in sight is drawn first, the rest when there is time.
  speak(asked);
  follow();
  const waiting = new Map(data.pictures.length ? [[$("picture"), picturing]] : []);
  for (const one of data.plots) waiting.set($(one.id), () => plot(one));
  const start = async (figure) => {
    const it = waiting.get(figure);
    waiting.delete(figure);
    if (it) await it();
  };
  const idle = window.requestIdleCallback ?? ((run) => setTimeout(run, 1));
  const near = (figure) => { const box = figure.getBoundingClientRect(); return box.top < innerHeight && box.bottom > 0; };
  (async () => {
    for (const figure of [...waiting.keys()].filter(near)) await start(figure);
    if (location.hash) follow();
    root.dataset.ready = String(Math.round(performance.now()));
    const rest = async () => {
      const [next] = [...waiting.keys()].filter(near).concat([...waiting.keys()]);
      if (!next) { root.dataset.drawn = String(Math.round(performance.now())); return; }
      await start(next);
      idle(rest);
    };
    idle(rest);
  })();
})();
