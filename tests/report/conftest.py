"""Comparisons to report, and a headless Chromium to read the pages with."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

import drifting
from align_hooks import open_run
from align_hooks.checklist.result import Checklist, check
from align_hooks.comparison.control_band.watching import JobWatch
from align_hooks.comparison.health import Health, health
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.verdict import ComparisonResult
from align_hooks.record.inventory import inventory, not_whole
from align_hooks.report import check as check_report
from align_hooks.report import watch as watch_report
from align_hooks.report.comparison_page import comparison_page
from align_hooks.report.html import page
from checklist.exercises import OLD, megatron, mindformers
from synthetic import STEPS, Synthetic, batch, row, tensors

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
KINDS = {"input_layernorm": (4,), "self_attn.q_proj": (6, 4), "self_attn.k_proj": (4, 4), "self_attn.v_proj": (4, 4)}
KINDS |= {"self_attn.o_proj": (4, 6), "post_attention_layernorm": (4,)}
KINDS |= {"mlp.gate_proj": (5, 4), "mlp.up_proj": (5, 4), "mlp.down_proj": (4, 5)}
FAULT = "model.layers.2.self_attn.q_proj.weight"
"""The tensor whose gradient is off in the pair that diverges."""
EVERY_BLOCK = {"callCount": True, "detailed": True}
WAIT = 300_000
"""Milliseconds: a page that hangs ends the test; a slow machine does not."""
Page: TypeAlias = Any
"""A page of Playwright."""
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">{{7*7}}"
"""What a name in a record might try."""


@pytest.fixture(scope="package", autouse=True)
def unsynced() -> Iterator[None]:
    """Small runs, none of which has to outlive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


def model(layers: int, steps: int = STEPS) -> Synthetic:
    """A Llama of so many small layers; batches, weights and gradients of the first steps, rows of all."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (10, 4)}
    for layer in range(layers):
        shapes |= {f"model.layers.{layer}.{kind}.weight": shape for kind, shape in KINDS.items()}
    shapes |= {"model.norm.weight": (4,), "lm_head.weight": (10, 4)}
    losses = [9.0 / (1 + step / 500) for step in range(steps)]
    return Synthetic(
        settings=dict.fromkeys(("batches", "local_norms", "gradients", "weights"), "0"),
        shapes=shapes,
        rows=[row(step, loss=loss, objective_loss=loss) for step, loss in enumerate(losses)],
        batches={0: batch(0)},
        weights={0: tensors(100, shapes)},
        gradients={0: tensors(200, shapes)},
        model={"model_type": "llama", "num_hidden_layers": layers, "rms_norm_eps": 1e-5},
    )


def rounded(run: Synthetic, size: float = 2e-7) -> Synthetic:
    """The other side of a run, apart by rounding in its gradients, norms and later losses."""
    candidate, random = deepcopy(run), np.random.default_rng(3)
    for name, tensor in candidate.gradients[0].items():
        candidate.gradients[0][name] = tensor * (1 + size * random.standard_normal(tensor.shape)).astype(np.float32)
    for line in candidate.rows[1:]:
        line["loss"] *= 1 + size * float(random.standard_normal())
        line["objective_loss"] = line["loss"]
    return candidate


def planted(run: Synthetic, name: str, error: float = 1e-3) -> Synthetic:
    """The other side with one gradient further off than rounding leaves it."""
    candidate, random = rounded(run), np.random.default_rng(4)
    tensor = candidate.gradients[0][name]
    candidate.gradients[0][name] = tensor * (1 + error * random.standard_normal(tensor.shape)).astype(np.float32)
    return candidate


def renamed(run: Synthetic, name: str) -> Synthetic:
    """The run with another name for the first layer's query."""
    for part in (run.shapes, run.weights[0], run.gradients[0]):
        part[name] = part.pop("model.layers.0.self_attn.q_proj.weight")
    run.norms, run.optimizer = {}, {}
    run.__post_init__()
    return run


Pairs = Callable[..., ComparisonResult]


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Compare two runs given as data, with ``noise`` too."""

    def compare_them(reference: Synthetic, candidate: Synthetic, noise: Synthetic | None = None, name: str = "run") -> ComparisonResult:
        folder = tmp_path_factory.mktemp("pair")
        sides = [open_run(run.write(folder / f"{side}_{name}")) for side, run in (("reference", reference), ("candidate", candidate))]
        return compare(*sides, noise=[open_run(noise.write(folder / "noise"))] if noise else ())

    return compare_them


@pytest.fixture(scope="session")
def diverged(compared: Pairs) -> ComparisonResult:
    """Four layers, a fault in one gradient, noise measured."""
    reference = model(4, 40)
    return compared(reference, planted(reference, FAULT), rounded(reference, 3e-7))


@pytest.fixture(scope="session")
def aligned(compared: Pairs) -> ComparisonResult:
    """Four layers that agree."""
    reference = model(4, 40)
    return compared(reference, rounded(reference))


@pytest.fixture(scope="session")
def large(compared: Pairs) -> ComparisonResult:
    """2,001 tensors and 5,000 steps, with a fault in the middle."""
    reference = model(222, 5000)
    return compared(reference, planted(reference, "model.layers.111.mlp.down_proj.weight"), rounded(reference, 3e-7))


@pytest.fixture(scope="session")
def hostile(compared: Pairs) -> ComparisonResult:
    """Names, settings and paths that try to be markup, script and template."""
    bad = f"model.layers.0.{HOSTILE}.weight"
    reference = renamed(model(1, 12), bad)
    reference.model |= {HOSTILE: HOSTILE}
    candidate = planted(reference, bad)
    candidate.model |= {HOSTILE: "other " + HOSTILE, "rms_norm_eps": 1e-6}
    return compared(reference, candidate, name="<img src=x onerror=alert(1)>")


def healthy(run: Synthetic, path: Path) -> Health:
    """What ``show`` shows of a run."""
    recorded = open_run(run.write(path))
    return health(recorded, inventory(recorded), [*not_whole(recorded)])


@pytest.fixture(scope="session")
def text(diverged: ComparisonResult) -> str:
    return comparison_page(diverged, "1.2.3")


def checked() -> Checklist:
    """A check of a pair that differs in the epsilon of the norms and in the schedule."""
    reference = megatron(OLD, {"norm-epsilon": "1e-6", "lr-decay-style": "cosine"})
    return check(reference, mindformers(OLD, {"lr_schedule.type": "CosineWithWarmUpLR", "lr_schedule.warmup_steps": 3}))


@pytest.fixture(scope="session")
def check_text() -> str:
    return page(check_report.document(checked(), everything=True), "1.2.3")


@pytest.fixture(scope="session")
def watch_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a job that runs and has left the band."""
    folder, hard = tmp_path_factory.mktemp("watch"), drifting.hardness(1)
    runs = [drifting.recorded(folder / str(number), drifting.differences(number, hard=hard)) for number in range(3)]
    watch = JobWatch(runs[0], runs[1:])
    for one in drifting.recorded(folder / "job", drifting.differences(3, hard=hard) + 0.1).rows[:300]:
        watch.see(one)
    return page(watch_report.document(watch, "runs/candidate", None, every=3600), "1.2.3")


@dataclass
class Opened:
    """A page in a browser, its messages to the console and its requests of the network; ``session`` speaks DevTools' protocol."""

    page: Page
    session: Any = None
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong and nothing was fetched; shows what did."""
        assert self.messages == []
        assert self.requests == []
        return True


Open = Callable[..., Opened]


def drawn(opened: Opened) -> Page:
    """The page, every plot drawn."""
    opened.page.wait_for_selector("html[data-drawn]", state="attached", timeout=WAIT)
    return opened.page


@pytest.fixture
def whole(opened: Open, text: str) -> Page:
    """The page of the pair that diverged, every plot drawn."""
    return drawn(opened(text))


def assert_inert(opened: Opened) -> None:
    """No script of a hostile record ran, and none of its elements is there."""
    assert opened.page.title() != "owned"
    assert opened.page.locator("img").count() == 0
    assert opened.page.locator("script:not([type])").count() == 2


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Open a page, given as text, and wait until it says that it is ready."""
    contexts = []

    def open_it(text: str, address: str = "", width: int = 1280, height: int = 800, counted: bool = False, **options: Any) -> Opened:
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": height}, **{"locale": "en-US", **options})
        context.set_default_timeout(WAIT)
        contexts.append(context)
        page = context.new_page()
        result = Opened(page)
        page.on("console", lambda message: result.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: result.messages.append(f"error: {error}"))
        page.on("request", lambda request: result.requests.append(request.url) if request.url != page.url.partition("#")[0] else None)
        if counted:
            result.session = context.new_cdp_session(page)
            for command in ("Performance.enable", "Profiler.enable"):
                result.session.send(command, {})
            result.session.send("Profiler.startPreciseCoverage", EVERY_BLOCK)
        page.goto(path.as_uri() + address)
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready]", state="attached", timeout=WAIT)
        result.requests[:] = [url for url in result.requests if not url.startswith(path.as_uri())]
        return result

    yield open_it
    for context in contexts:
        context.close()
