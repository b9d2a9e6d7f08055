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
  for (const one of document.querySelectorAll("[data-zh]")) {
    one.dataset.en ??= one.textContent;
    one.textContent = inLanguage([one.dataset.en, one.dataset.zh]);
  }
  for (const one of document.querySelectorAll("[data-label-zh]")) {
    one.dataset.labelEn ??= one.getAttribute("aria-label");
    one.setAttribute("aria-label", inLanguage([one.dataset.labelEn, one.dataset.labelZh]));
  }
  for (const one of drawn) one.view.signal("zh", zh()).runAsync();
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
