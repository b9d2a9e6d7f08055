// The page itself: its language, its addresses, what is copied and printed, and when what is drawn.

// ---- language: from the address (?lang=zh), what was chosen last, or what the browser prefers

const stored = () => { try { return localStorage.getItem("align_hooks.lang"); } catch { return null; } };
const asked = new URLSearchParams(location.search).get("lang") || stored() || (navigator.language || "en").slice(0, 2);

const languages = document.querySelectorAll("#language button");

function speak(language) {
  root.lang = language === "zh" ? "zh" : "en";
  for (const button of languages) button.setAttribute("aria-pressed", String(button.dataset.language === root.lang));
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
for (const button of languages) button.addEventListener("click", () => {
  speak(button.dataset.language);
  try { localStorage.setItem("align_hooks.lang", root.lang); } catch { /* a page from a file may have no storage */ }
});

// ---- deep links: a stage opens, a tensor is filtered for

function follow() {
  let hash = location.hash.slice(1);
  try { hash = decodeURIComponent(hash); } catch { /* an address that somebody broke */ }
  if (hash.startsWith("tensor=") && tensors) rowsOf(hash.slice(7));
  else reveal($(hash));
}
addEventListener("hashchange", follow);
addEventListener("click", (event) => {  // the address that is open already: no hash changes
  const link = event.target.closest?.('a[href^="#"]');
  if (link && link.hash === location.hash) follow();
});

// ---- words that are explained: the browser opens what explains them, and here it is put beside its word

document.addEventListener("beforetoggle", (event) => {
  const word = document.activeElement?.closest(".term");
  if (event.newState !== "open" || word?.getAttribute("popovertarget") !== event.target.id) return;
  const box = word.getBoundingClientRect(), wide = Math.min(544, innerWidth - 32);
  Object.assign(event.target.style, { margin: "0", inset: "auto", left: `${Math.max(16, Math.min(box.left, innerWidth - wide - 16))}px` });
  Object.assign(event.target.style, box.top < innerHeight / 2 ? { top: `${box.bottom + 6}px` } : { bottom: `${innerHeight - box.top + 6}px` });
}, true);
for (const link of document.querySelectorAll(".about a")) link.addEventListener("click", () => link.closest(".about").hidePopover?.());

// ---- what is copied and printed

for (const button of document.querySelectorAll("button.copy")) button.addEventListener("click", async () => {
  const code = button.parentElement.querySelector("code");
  try { await navigator.clipboard.writeText(code.textContent); } catch { getSelection().selectAllChildren(code); document.execCommand("copy"); }
  button.textContent = say("page.copied");
});
const opened = [];
addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details.printed")) if (!fold.open) { fold.open = true; opened.push(fold); }
});
addEventListener("afterprint", () => { for (const fold of opened.splice(0)) fold.open = false; });

// A page of a job that runs is read again, unless a reader looks at something.
const paused = $("paused");
const again = () => setTimeout(() => (paused.checked ? again() : location.reload()), 1000 * paused.dataset.every);
if (paused) again();

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
