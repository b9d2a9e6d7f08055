// The page itself: its language, its addresses, what is copied and printed, and when what is drawn.

// ---- language: from the address (?lang=zh), what was chosen last, or what the browser prefers

const stored = () => { try { return localStorage.getItem("align_hooks.lang"); } catch { return null; } };
const asked = new URLSearchParams(location.search).get("lang") || stored() || (navigator.language || "en").slice(0, 2);

function speak(language) {
  root.lang = language === "zh" ? "zh" : "en";
  const button = $("language");
  button.textContent = say("page.other_language");
  button.lang = zh() ? "en-x-switch" : "zh";
  button.setAttribute("aria-label", say("page.switch_language"));
  for (const element of document.querySelectorAll("[data-zh]")) {
    element.dataset.en ??= element.textContent;
    element.textContent = inLanguage([element.dataset.en, element.dataset.zh]);
  }
  for (const element of document.querySelectorAll("[data-label-zh]")) {
    element.dataset.labelEn ??= element.getAttribute("aria-label");
    element.setAttribute("aria-label", inLanguage([element.dataset.labelEn, element.dataset.labelZh]));
  }
  for (const { view } of drawn) view.signal("zh", zh()).runAsync();
  if (tensors) { heads(); rows(); }
}
$("language").addEventListener("click", () => {
  speak(zh() ? "en" : "zh");
  try { localStorage.setItem("align_hooks.lang", root.lang); } catch { /* a page from a file may have no storage */ }
});

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
  button.textContent = say("page.copied");
});
addEventListener("beforeprint", () => { for (const stage of document.querySelectorAll("details.stage")) if (!stage.classList.contains("not-compared")) stage.open = true; });

// What is in sight is drawn first, the rest when there is time.
speak(asked);
follow();
const waiting = new Map(data.pictures.length ? [[$("picture"), picturing]] : []);
for (const series of data.plots) waiting.set($(series.id), () => plot(series));
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
