"""The verdict, with stand-in packages in the place of the frameworks: what is broken, too new, or not there is named."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from align_hooks.cli import app
from align_hooks.doctor import examination
from align_hooks.doctor.examination import Examination, drivers, examine
from align_hooks.errors import AlignHooksError
from align_hooks.ms_side.catalogue import HOOKS as MS_HOOKS
from align_hooks.proof.kept import KeptProof
from align_hooks.report.examination import judged, report
from align_hooks.torch_side.catalogue import HOOKS as TORCH_HOOKS
from invoked import invoke
from started import scrubbed, write
from worded import on_terminal

USUAL = [hook for hook in TORCH_HOOKS if hook.variant in ("", "gpt.gpt_model:GPTModel")]
"""What the doctor looks for in Megatron-LM: the hooks of a GPTModel."""
LAUNCH = Path(__file__).parents[2] / "launch"
CPU = {"ALIGN_HOOKS_DEVICE": "cpu"}
LLAMA = "--normalization RMSNorm --swiglu --disable-bias-linear --position-embedding-type rope"
SCRIPT = f"torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 2 --hidden-size 64 --lr 1e-3 {LLAMA}"
VERSIONS = {
    "torch/version.py": "__version__ = '2.13.0'",
    "torch/__init__.py": "from .version import __version__\nclass cuda:\n    is_available = staticmethod(lambda: False)",
    "megatron/core/package_info.py": "__version__ = '0.16.0'",
    "megatron/core/datasets/helpers_cpp.py": "",
    "mindspore/version.py": "version = '2.9.0'",
    "mindspore/__init__.py": "class hal:\n    is_available = staticmethod(lambda kind: False)",
    "mindformers/__init__.py": "__version__ = '1.9.0'",
}
Made = Callable[..., Mapping[str, str]]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """An environment in which stand-in packages, made from the catalogues, are found before the real ones."""

    def make(changed: Mapping[str, str] | None = None, without: tuple[str, ...] = ()) -> Mapping[str, str]:
        root, targets = tmp_path / "packages", {}
        for hook in (*TORCH_HOOKS, *MS_HOOKS):
            targets.setdefault(f"{hook.trigger.replace('.', '/')}", []).extend(hook.targets)
        packages = {name for name in targets if any(other.startswith(f"{name}/") for other in targets)}
        paths = {name: f"{name}/__init__.py" if name in packages else f"{name}.py" for name in targets}
        files = {paths[name]: _module(of_file) for name, of_file in targets.items() if f"{name}/__init__.py" not in VERSIONS}
        files |= VERSIONS | (changed or {})
        for name, text in files.items():
            if not name.startswith(without or ("nothing",)):
                for folder in write(root, text, name).parents[: len(Path(name).parts) - 1]:
                    (folder / "__init__.py").touch()
        for package in without:
            if not (root / package).exists():
                write(root, f"raise ModuleNotFoundError('no {package}', name='{package.replace('/', '.')}')", f"{package}/__init__.py")
        return scrubbed(PYTHONPATH=str(root))

    return make


WIDTH = 80


def lines(examination: Examination, *, everything: bool = False) -> list[str]:
    """What a terminal shows."""
    return on_terminal(report(examination, everything=everything), WIDTH).splitlines()


def _module(targets: list[str]) -> str:
    """A module that has these functions and methods."""
    owners: dict[str, list[str]] = {}
    for target in targets:
        owner, _, name = target.rpartition(".")
        owners.setdefault(owner, []).append(name)
    text = [f"def {name}(): ..." for name in owners.pop("", [])]
    for owner, names in owners.items():
        text += [f"class {owner}:", *(f"    def {name}(self): ..." for name in names)]
    return "\n".join(text)


def examined(environment: Mapping[str, str], given: str | None = None, **variables: str) -> Examination:
    return examine(given, {**environment, **variables})


def test_ready(made: Made) -> None:
    examination = examined(made(), **CPU, CUDA_DEVICE_MAX_CONNECTIONS="1")
    assert (examination.problems, examination.exit_code, examination.ready) == ((), 0, ["Megatron-LM", "MindFormers"])
    assert (judged(examination).word, judged(examination).text) == ("ready", "Megatron-LM and MindFormers")
    text = "\n".join(lines(examination))
    found = f"{len(USUAL)} of {len(USUAL)} patch points found"
    assert all(part in text for part in (found, "megatron-core 0.16.0", "  CUDA_DEVICE_MAX_CONNECTIONS=1")), text
    assert all(len(line) <= WIDTH or not line.strip().count(" ") > 1 for line in text.splitlines())  # but for a path


@pytest.mark.slow
def test_no_accelerator_and_no_rehearsal(made: Made) -> None:
    examination = examined(made())
    assert examination.problems == ("no accelerator is seen; train where there is one, or set ALIGN_HOOKS_DEVICE=cpu for a rehearsal",)
    assert examination.exit_code == 1 and "no ALIGN_HOOKS_* is set" in "\n".join(lines(examination))


def test_a_checkout_whose_data_helper_is_not_compiled(made: Made, tmp_path: Path) -> None:
    environment = made()
    (tmp_path / "packages/megatron/core/datasets/helpers_cpp.py").unlink()
    problem = next(one for one in examined(environment, **CPU, PATH="/nowhere").problems if "helper" in one)
    assert "its data helper (helpers_cpp) is not compiled, and make, g++" in problem
    assert problem.endswith(f"then make -C {tmp_path}/packages/megatron/core/datasets")


def test_an_accelerator_is_listed_with_its_memory(made: Made) -> None:
    torch = VERSIONS["torch/__init__.py"].replace("False", "True") + (
        "\n    device_count = staticmethod(lambda: 1)\n    mem_get_info = staticmethod(lambda index: (70 * 10**9, 80 * 10**9))"
        "\n    get_device_name = staticmethod(lambda index: 'H100')"
    )
    examination = examined(made({"torch/__init__.py": torch}))
    assert examination.problems == ()
    assert "  cuda:0 H100, 70.0 of 80.0 GB free" in lines(examination)


def test_a_version_that_was_not_tried(made: Made) -> None:
    examination = examined(made({"megatron/core/package_info.py": "__version__ = '0.42.0'"}), **CPU)
    assert examination.ready == ["MindFormers"]
    assert examination.problems == tuple(  # a line a range of versions, not one a hook
        f"megatron-core: hooks were proven on megatron-core {supports}, found 0.42.0; install a version in that range"
        for supports in (">=0.12,<=0.20.0", ">=0.12,<0.17")
    )


ENDED = "looking at it ended with no word, exit code 7"
NOWHERE = "mindformers: importing mindformers ends with ModuleNotFoundError: No module named 'nowhere_to_be_found'"


@pytest.mark.parametrize(
    ("changed", "problem"),
    [({"mindformers/__init__.py": "import nowhere_to_be_found"}, NOWHERE), ({"mindspore/__init__.py": "import os\nos._exit(7)"}, ENDED)],
    ids=["it cannot be imported", "it ends the process"],
)
@pytest.mark.slow
def test_a_framework_that_is_broken(changed: dict[str, str], problem: str, made: Made) -> None:
    examination = examined(made(changed), **CPU)
    assert (examination.problems, examination.ready) == ((f"MindFormers: {problem}",), ["Megatron-LM"])


@pytest.mark.slow
def test_a_side_that_is_not_installed_stands_in_nobodys_way(made: Made) -> None:
    examination = examined(made(without=("mindformers", "mindspore")), **CPU)
    assert (examination.problems, examination.ready) == ((), ["Megatron-LM"])
    assert "MindFormers: not installed here" in lines(examination)


@pytest.mark.slow
def test_a_wheel_without_the_training_package_asks_for_a_checkout(made: Made) -> None:
    assert examined(made(without=("megatron/training",)), **CPU).problems == (
        "megatron-core 0.16.0 comes without megatron.training; name the script of a Megatron-LM checkout, "
        "align-hooks doctor Megatron-LM/pretrain_gpt.py, or put the checkout on PYTHONPATH",
    )


def test_a_patch_point_that_is_not_there_is_named_with_its_hook(made: Made) -> None:
    changed = {"megatron/core/optimizer/clip_grads.py": "", "megatron/training/arguments.py": ""}
    examination = examined(made(changed), **CPU)
    (problem,) = examination.problems  # clip_grads is only asked for with norms
    assert problem == "hook 'arguments': megatron.training.arguments has no parse_args; run with a version inside >=0.12,<=0.20.0"
    assert "missing: arguments, norm" in "\n".join(lines(examination))
    everything = " ".join(" ".join(lines(examination, everything=True)).split())
    assert "norm: megatron.core.optimizer.clip_grads.get_grad_norm_fp32: not in its module, not asked for" in everything


def test_nothing_is_installed(made: Made) -> None:
    examination = examined(made(without=("mindformers", "mindspore", "torch", "megatron/core")), **CPU)
    missing = {"Megatron-LM: megatron-core is not installed", "MindFormers: mindformers is not installed"}
    assert examination.ready == [] and missing <= set(examination.problems)


def test_only_the_side_that_is_to_be_run_counts(made: Made, tmp_path: Path) -> None:
    environment = made(without=("mindformers", "mindspore"))
    yaml = write(tmp_path, "model:\n  model_config:\n    type: LlamaConfig\n    hidden_size: 64\n", "llama.yaml")
    assert examined(environment, str(yaml), **CPU).problems[0] == "MindFormers: mindspore is not installed"
    examination = examined(environment, SCRIPT, **CPU)
    assert (examination.problems, examination.ready) == ((), ["Megatron-LM"])


IMPORTED = {"Megatron-LM": "torch", "MindFormers": "mindformers"}
IMPORTS = {
    "import mindformers": ["MindFormers"],
    "from megatron.training import pretrain": ["Megatron-LM"],
    "import torch, mindspore": ["Megatron-LM", "MindFormers"],
    "import anything": ["Megatron-LM", "MindFormers"],
}


@pytest.mark.parametrize(("script", "looked"), IMPORTS.items())
@pytest.mark.slow
def test_only_the_framework_that_a_script_imports_is_looked_at(made: Made, tmp_path: Path, script: str, looked: list[str]) -> None:
    said = {name: VERSIONS[f"{name}/__init__.py"] for name in IMPORTED.values()}
    traces = {f"{name}/__init__.py": f"{text}\nopen('{tmp_path}/{name}', 'w')" for name, text in said.items()}
    examination = examined(made(traces), str(write(tmp_path, script, "train.py")), **CPU)
    assert [framework.title for framework in examination.frameworks] == looked
    assert [title for title, name in IMPORTED.items() if (tmp_path / name).exists()] == looked


def test_a_script_brings_its_own_framework(made: Made, tmp_path: Path) -> None:
    """As python does, which puts a script's folder first; a launch script's too, from where it lies."""
    environment = made()
    checkout = tmp_path / "packages"
    (checkout / "pretrain_gpt.py").write_text("")
    launch = write(tmp_path, SCRIPT.replace("pretrain_gpt.py", "../packages/pretrain_gpt.py"), "launch/train.sh")
    for given in (checkout / "pretrain_gpt.py", launch):
        examination = examined({**environment, "PYTHONPATH": ""}, str(given), **CPU)
        assert examination.frameworks[0].packages["megatron-core"]["place"] == str(checkout / "megatron" / "core")
        assert examination.problems == ()


def test_a_script_that_lies_elsewhere_is_told(made: Made, tmp_path: Path) -> None:
    examination = examined(made(), str(write(tmp_path, SCRIPT, "train.sh")), **CPU)
    assert examination.notes == (
        "pretrain_gpt.py does not lie here, so the packages are those of this folder, or installed: be where train.sh starts it",
    )
    assert "  note: pretrain_gpt.py does not lie here" in "\n".join(lines(examination))


@pytest.mark.slow
def test_nothing_is_written_where_one_stands(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And modules that lie there are found first, as those beside a script are."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    writes = VERSIONS["mindformers/__init__.py"] + "\nopen('left', 'w')"
    examination = examined(made({"mindformers/__init__.py": writes}), **CPU)
    assert (examination.problems, list(here.iterdir())) == ((), [])
    monkeypatch.chdir(tmp_path / "packages")
    examination = examined({**made(), "PYTHONPATH": ""}, **CPU)
    assert examination.frameworks[0].packages["megatron-core"]["place"] == str(tmp_path / "packages" / "megatron" / "core")


def test_variables_that_cannot_be_read(made: Made) -> None:
    examination = examined(made(), **CPU, ALIGN_HOOKS_GRADEINTS="0", ALIGN_HOOKS_SEED="zero")
    assert examination.problems == (
        "ALIGN_HOOKS_GRADEINTS: no such variable; did you mean ALIGN_HOOKS_GRADIENTS?",
        "ALIGN_HOOKS_SEED='zero': is not an integer from 1 to 4294967295 (Megatron refuses 0)",
    )
    printed = "\n".join(lines(examination))
    assert "ALIGN_HOOKS_GRADEINTS=0  see above" in printed and "nothing would be attached" not in printed
    assert examined(made(), **CPU, RANK="3").problems == ("the launcher's variables say rank 3 of 1; set WORLD_SIZE, or unset RANK",)


def test_an_interpreter_without_align_hooks(made: Made, tmp_path: Path) -> None:
    bare = write(tmp_path, f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n', "bare")
    bare.chmod(0o755)
    examination = examine(None, {**made(), **CPU}, python=str(bare))
    assert examination.problems == (f"{bare} has no align_hooks: install it there too, as it was here",)
    gone = examine(None, {**made(), **CPU}, python=str(tmp_path / "gone"))
    assert gone.problems[0] == "Megatron-LM: the interpreter cannot be started: No such file or directory"


@pytest.mark.parametrize(("given", "code"), [("nowhere.py", 2), ("nowhere.yaml", 2), (".", 3)])
def test_what_cannot_be_read_is_an_error_before_anything_is_imported(given: str, code: int) -> None:
    with pytest.raises(AlignHooksError) as refused:
        examine(given, {})
    assert refused.value.exit_code == code


def test_the_command_and_its_json(made: Made, tmp_path: Path) -> None:
    out = tmp_path / "doctor.json"
    environment = {**made(), **CPU}
    removed = dict.fromkeys(name for name in os.environ if name.startswith("ALIGN_HOOKS_"))
    ended = invoke(app, ["doctor", "--json", str(out)], env={**environment, **removed})
    assert ended.exit_code == 0, ended.output
    assert "ready: Megatron-LM and MindFormers" in ended.stdout
    report = json.loads(out.read_text())
    hooks = {framework["side"]: len(framework["hooks"]) for framework in report["frameworks"]}
    usual = [hook for hook in MS_HOOKS if hook.variant != "PyNative"]  # that of no file is not known to train
    assert (report["exit_code"], hooks) == (0, {"torch": len(USUAL), "ms": len(usual)})


FOLDERS = {
    "by cd": 'HERE=$(cd "$(dirname "$0")" && pwd)\n@$HERE/../packages/pretrain_gpt.py',
    "by readlink": '@$(dirname $(readlink -f "$0"))/../packages/pretrain_gpt.py',
    "by BASH_SOURCE": "HERE=$(cd $(dirname ${BASH_SOURCE[0]}); pwd)\nROOT=$(dirname $HERE)\n@${ROOT}/packages/pretrain_gpt.py",
    "after cd": 'cd "$(dirname "$0")"\ncd ../packages\n(cd /tmp; ls)\n@pretrain_gpt.py',
}


@pytest.mark.parametrize("case", FOLDERS)
@pytest.mark.slow
def test_a_script_that_is_named_from_the_launch_scripts_folder_brings_its_framework(case: str, made: Made, tmp_path: Path) -> None:
    environment = made({"pretrain_gpt.py": "import megatron"})
    before, _, program = FOLDERS[case].partition("@")
    launch = write(tmp_path, before + SCRIPT.replace("pretrain_gpt.py", program), "scripts/train.sh")
    examination = examined({**environment, "PYTHONPATH": ""}, str(launch), **CPU)
    assert examination.frameworks[0].packages["megatron-core"]["place"] == str(tmp_path / "packages" / "megatron" / "core")
    assert (examination.problems, examination.notes) == ((), ())


@pytest.mark.parametrize(
    ("before", "program", "why"),
    [("", "$MEGATRON/pretrain_gpt.py", "put MEGATRON=... before the command"), ("cd $(cat where)", "pretrain_gpt.py", "$(cat where)")],
)
@pytest.mark.slow
def test_a_script_whose_path_cannot_be_told_is_not_judged_by_another_version(
    before: str, program: str, why: str, made: Made, tmp_path: Path
) -> None:
    script = write(tmp_path, f"{before}\n{SCRIPT.replace('pretrain_gpt.py', program)}", "train.sh")
    (problem,) = examined(made(), str(script), **CPU).problems
    assert problem.startswith("which pretrain_gpt.py train.sh starts cannot be told") and why in problem


@pytest.mark.parametrize("start", ["python mf/run_mindformer.py", "cd mf; python run_mindformer.py"])
@pytest.mark.parametrize(("option", "files"), [("--config", ["{}/llama.yaml"]), ("--register_path", ["mf/llama.yaml", "{}/own/x"])])
@pytest.mark.slow
def test_mindformers_takes_paths_from_the_folder_of_its_script(
    start: str, option: str, files: list[str], made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``run_mindformer.py`` joins its own folder with them, whatever directory it is started in (1.3 to 2.1)."""
    monkeypatch.chdir(tmp_path)
    environment = made()
    ready = {}
    for place in (".", "mf"):
        for name in ["mf/run_mindformer.py", *(file.format(place) for file in files)]:
            write(tmp_path, (LAUNCH / "llama.yaml").read_text() if name.endswith("yaml") else "import mindformers", name)
        (tmp_path / "train.sh").write_text(f"{start} --config llama.yaml" + " --register_path own" * (option != "--config"))
        ready[place] = [line for line in examined(environment, "train.sh", **CPU).problems if "run_mindformer.py" in line]
    (problem,) = ready["."]
    assert option in problem and f"MindFormers looks for {tmp_path}/mf/" in problem
    assert ready["mf"] == []


def test_what_was_proven_here_is_said(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    said = KeptProof("proven", "bash train.sh", "2026-11-01", "NVIDIA H200", {"megatron-core": "0.1"})
    monkeypatch.setattr(examination, "last", lambda prefix: said)
    (note,) = (each for each in examined(made(), **CPU).notes if "prove" in each)
    assert note.startswith(
        "align-hooks prove said here on 2026-11-01: proven, on NVIDIA H200, of bash train.sh; since then megatron-core 0.1 ->"
    )


def test_drivers_are_told_by_their_files(tmp_path: Path) -> None:
    assert list(drivers(tmp_path)) == []
    for file, text in {
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n",
        "usr/local/Ascend/driver/version.info": "Version=24.1.rc3\nascendhal_version=7.35.23\n",
        "usr/local/Ascend/ascend-toolkit/latest/version.cfg": "# version\nno number\n",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(text)
    assert list(drivers(tmp_path)) == ["NVIDIA driver 550.54.15", "Ascend driver 24.1.rc3", "CANN of an unknown version"]
