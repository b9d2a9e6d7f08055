// The table of tensors: sorted by its heads, filtered by name, stage and limit, some rows at a time.

const FIRST = 12;
const columns = [
  ["name", () => say("page.tensor")], ["limit_ratio", () => say("page.error_over_limit")], ["error", () => say("page.error")],
  ["limit", () => say("page.limit")], ["stage", () => say("page.stage")], ["step", () => say("page.step")],
  ["eps", () => say("page.error_in_eps")], ["scale", () => say("page.best_scale")], ["direction", () => say("page.error_left")],
];
let shown = FIRST, order = { by: "limit_ratio", down: true };

function heads() {
  const line = document.createElement("tr");
  for (const [key, head] of columns) {
    const cell = document.createElement("th"), button = document.createElement("button");
    cell.scope = "col";
    if (key !== "name" && key !== "stage") cell.className = "number";
    button.type = "button";
    button.textContent = head() + (order.by === key ? (order.down ? " ▾" : " ▴") : "");
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

function compared(tensor, other) {
  const [a, b] = [tensor[order.by], other[order.by]];
  if (a === b) return 0;
  if (a === null) return 1;
  if (b === null) return -1;
  const far = (x) => (Number.isNaN(x) ? Infinity : x);  // what is no number is as far out as can be
  const less = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : far(a) === far(b) ? 0 : far(a) - far(b);
  return order.down ? -less : less;
}

function cellOf(tensor, key) {
  const cell = document.createElement(key === "name" ? "th" : "td");
  if (key === "stage") { cell.textContent = inLanguage(data.stages[tensor.stage]); return cell; }
  if (key !== "name") {
    cell.className = key === "limit_ratio" && tensor.out ? "number out" : "number";
    cell.textContent = key === "scale" && tensor.scale !== null ? Number(tensor.scale.toPrecision(6)).toString() : number(tensor[key]);
    return cell;
  }
  const code = document.createElement("code"), link = document.createElement("a");
  cell.scope = "row";
  link.href = "#tensor=" + encodeURIComponent(tensor.name);
  for (const part of tensor.name.split(/(?<=\.)/)) link.append(part, document.createElement("wbr"));
  code.append(link);
  cell.append(code);
  return cell;
}

function rows() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean), stage = $("of-stage").value, out = $("only-out").checked;
  const matching = tensors.filter((tensor) => (stage === "" || tensor.stage === Number(stage)) && (!out || tensor.out) && words.every((word) => tensor.name.toLowerCase().includes(word)));
  matching.sort(compared);
  const body = document.createDocumentFragment();
  for (const tensor of matching.slice(0, shown)) {
    const line = document.createElement("tr");
    if (tensor.out) line.className = "out";
    for (const [key] of columns) line.append(cellOf(tensor, key));
    body.append(line);
  }
  document.querySelector("#tensor-table tbody").replaceChildren(body);
  const part = Math.min(shown, matching.length);
  $("count").textContent = say("page.rows_shown", { shown: part, matching: matching.length, all: tensors.length });
  $("more").hidden = matching.length <= shown;
}

// The rows of a tensor, of one stage or of all.
function rowsOf(name, stage = "") {
  $("filter").value = name;
  $("of-stage").value = String(stage);
  $("only-out").checked = false;
  shown = FIRST;
  rows();
  reveal($("tensors"));
}

if (tensors) {
  for (const [id, event] of [["filter", "input"], ["of-stage", "change"], ["only-out", "change"]]) $(id).addEventListener(event, () => { shown = FIRST; rows(); });
  $("more").addEventListener("click", () => { shown += 500; rows(); });
}
