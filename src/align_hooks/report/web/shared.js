// What all parts of a page share: its data, its language, and how it writes numbers.
// The parts are one script: the frame puts them together, in this order: shared, plots, table, page.
// Text of a record only ever becomes text: textContent, never markup.

const data = JSON.parse(document.getElementById("page-data").textContent);
const root = document.documentElement;
root.classList.remove("no-js");
const $ = (id) => document.getElementById(id);
const zh = () => root.lang === "zh";
const inLanguage = ([english, chinese]) => (zh() ? chinese : english);
// A message by its id, a literal: the frame hands over the words of every id that it reads here. Numbers come as they are to be written.
const say = (id, values = {}) => inLanguage(data.words[id]).replace(/\{(\w+)\}/g, (_, name) => values[name]);
const drawn = [];
// Opens whatever an element is folded in, and goes there.
const reveal = (element) => {
  for (let fold = element?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  element?.scrollIntoView();
};

// Rows of the table, from columns: names once, numbers that JSON has no word for as strings.
const float = (value) => (typeof value === "string" ? Number(value.replace("inf", "Infinity")) : value);
const tensors = data.tensors && data.tensors.name.map((name, i) => {
  const tensor = { name: data.tensors.names[name], stage: data.tensors.stage[i], step: data.tensors.step[i] };
  for (const key of ["error", "limit", "limit_ratio", "scale", "direction"]) tensor[key] = float(data.tensors[key][i]);
  return Object.assign(tensor, { eps: tensor.error / data.eps, out: !(tensor.limit_ratio <= 1) });
});

// ---- numbers

const number = (value) => {
  if (value === null || value === undefined) return "";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "-∞";
  if (value === 0) return "0";
  return Math.abs(value) >= 1e-3 && Math.abs(value) < 1e6 ? Number(value.toPrecision(3)).toString() : value.toExponential(2);
};
const exact = (value) => (value === null || value === undefined ? "–" : typeof value === "string" ? value : Number(value.toPrecision(9)).toString());
const times = (tensor) => (Number.isFinite(tensor.limit_ratio) ? `${number(tensor.limit_ratio)} ×` : Number.isFinite(tensor.error) ? say("page.any_is_too_much") : Number.isNaN(tensor.error) ? say("page.not_finite") : say("page.on_one_side"));
const short = (limit_ratio) => (!Number.isFinite(limit_ratio) ? "≠" : limit_ratio >= 1000 ? limit_ratio.toExponential(1).replace("+", "") : limit_ratio >= 10 ? limit_ratio.toFixed(0) : limit_ratio.toFixed(1));
const finite = (value) => (typeof value === "number" && Number.isFinite(value) ? value : null);
