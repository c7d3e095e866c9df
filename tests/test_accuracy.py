"""The labels of real repositories are well formed, and the script that scores against them counts right."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from accuracy import score

REPOSITORIES: list[dict[str, Any]] = json.loads(score.LABELS.read_text(encoding="utf-8"))
FILES = [(repository, file) for repository in REPOSITORIES for file in repository["files"]]
LABELS = [(file["path"], label) for _, file in FILES for label in file["labels"]]
VERSION = re.compile(r"\d+\.\d+")
DEVELOPMENT = {
    "pytorch/examples",
    "karpathy/nanoGPT",
    "milesial/Pytorch-UNet",
    "ultralytics/yolov5",
    "huggingface/pytorch-image-models",
}


def test_each_repository_stands_there_once_with_its_commit_and_set() -> None:
    for repository in REPOSITORIES:
        assert set(repository) == {"repository", "commit", "set", "target", "files"}
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", repository["repository"])
        assert re.fullmatch(r"[0-9a-f]{40}", repository["commit"])
        assert VERSION.fullmatch(repository["target"])
        assert repository["set"] in score.SETS
    names = Counter(repository["repository"] for repository in REPOSITORIES)
    assert max(names.values()) == 1
    assert {r["repository"] for r in REPOSITORIES if r["set"] == "development"} == DEVELOPMENT


def test_each_file_stands_there_once_under_a_path_inside_its_repository() -> None:
    for _, file in FILES:
        assert set(file) - {"target"} == {"path", "kind", "labels"}
        assert file["kind"] in ("train", "eval", "model", "util")
        assert VERSION.fullmatch(file.get("target", "2.0"))
        path = PurePosixPath(file["path"])
        assert path.suffix == ".py"
        assert not path.is_absolute()
        assert ".." not in path.parts
    assert max(Counter((r["repository"], f["path"]) for r, f in FILES).values()) == 1


def test_each_label_names_a_line_a_core_rule_and_a_verdict() -> None:
    for path, label in LABELS:
        assert set(label) == {"line", "code", "verdict", "why"}, path
        assert isinstance(label["line"], int), path
        assert label["line"] > 0, path
        assert label["code"] in score.CODES, path
        assert label["verdict"] in ("flag", "silent", "either"), path
    for _, file in FILES:
        places = Counter((label["line"], label["code"]) for label in file["labels"])
        assert not places or max(places.values()) == 1, file["path"]


def test_reasons_are_a_few_words_and_hold_no_code() -> None:
    for path, label in LABELS:
        why = label["why"]
        assert 1 <= len(why.split()) <= 20, (path, why)
        assert not re.search(r"[\n\[\]{}`=]|\w\([^)\s]", why), (path, why)


def test_development_set_holds_the_files_that_accuracy_is_promised_on() -> None:
    kinds = Counter(file["kind"] for repository, file in FILES if repository["set"] == "development")
    assert kinds["train"] + kinds["eval"] >= 12
    assert kinds["model"] >= 8


def test_few_labels_leave_the_verdict_open() -> None:
    verdicts = Counter(label["verdict"] for _, label in LABELS)
    assert verdicts["either"] <= 0.03 * verdicts.total()


# The scorer, on a project of one training script

TRAIN = """\
import torch
from torch import nn


def train(model: nn.Module, loader: torch.utils.data.DataLoader, optimizer):
    total = 0.0
    for images, labels in loader:
        images = images.cuda()
        loss = nn.functional.cross_entropy(model(images), labels.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        total += loss.item()
        seen = loss.tolist()
    start = torch.zeros(8).cuda()
    return total, seen, start, torch.ones(8).cuda()
"""
SYNC, OTHER_SYNC, KEPT_ZEROS, START, END = 13, 14, 12, 15, 16


def repository(labels: list[tuple[int, str, str]], **changes: str) -> dict[str, Any]:
    rows = [{"line": line, "code": code, "verdict": verdict, "why": "for a test"} for line, code, verdict in labels]
    file = {"path": "train.py", "kind": "train", "labels": rows}
    return {
        "repository": "someone/tiny",
        "commit": "0" * 40,
        "set": "development",
        "target": "2.0",
        "files": [file],
        **changes,
    }


@pytest.fixture
def checkouts(tmp_path: Path) -> Path:
    folder = tmp_path / "checkouts" / "tiny"
    folder.mkdir(parents=True)
    folder.joinpath("train.py").write_text(TRAIN)
    folder.joinpath("unlabelled.py").write_text(TRAIN)
    return folder.parent


def run(checkouts: Path, *repositories: dict[str, Any]) -> int:
    labels = checkouts.parent / "labels.json"
    labels.write_text(json.dumps(repositories))
    return score.main([str(checkouts), "--labels", str(labels)])


ALL_RIGHT = [
    (SYNC, "TL101", "flag"),
    (OTHER_SYNC, "TL101", "flag"),
    (KEPT_ZEROS, "TL405", "flag"),
    (START, "TL201", "flag"),
    (END, "TL201", "flag"),
    (8, "TL101", "silent"),
]


def test_findings_that_all_have_their_label_pass(checkouts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(checkouts, repository(ALL_RIGHT)) == 0
    output = capsys.readouterr().out
    assert "someone/tiny" not in output
    assert re.search(r"^TL101 +2 +0 +0 +1\.000 +1\.000$", output, re.MULTILINE)
    assert re.search(r"^all +5 +0 +0 +1\.000 +1\.000$", output, re.MULTILINE)


def test_finding_without_a_label_is_false(checkouts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(checkouts, repository(ALL_RIGHT[1:])) == 1
    output = capsys.readouterr().out
    assert f"false  someone/tiny train.py:{SYNC} TL101  (no label)" in output
    assert re.search(r"^TL101 +1 +1 +0 +0\.500 +1\.000$", output, re.MULTILINE)


def test_finding_on_a_silent_label_is_false_and_gives_the_reason(
    checkouts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(checkouts, repository([(SYNC, "TL101", "silent"), *ALL_RIGHT[1:]])) == 1
    assert f"false  someone/tiny train.py:{SYNC} TL101  for a test" in capsys.readouterr().out


def test_label_without_a_finding_is_missed(checkouts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(checkouts, repository([*ALL_RIGHT, (9, "TL101", "flag")])) == 1
    output = capsys.readouterr().out
    assert "missed someone/tiny train.py:9 TL101  for a test" in output
    assert re.search(r"^all +5 +0 +1 +1\.000 +0\.833$", output, re.MULTILINE)


def test_disputable_places_count_for_neither_side(checkouts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = [(SYNC, "TL101", "either"), *ALL_RIGHT[1:], (9, "TL101", "either")]
    assert run(checkouts, repository(labels)) == 0
    assert re.search(r"^all +4 +0 +0 +1\.000 +1\.000$", capsys.readouterr().out, re.MULTILINE)


def test_only_the_development_set_decides_the_status(checkouts: Path) -> None:
    assert run(checkouts, repository(ALL_RIGHT[1:], set="held-out")) == 0


def test_missing_checkout_of_the_development_set_is_an_error(
    checkouts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = repository(ALL_RIGHT, repository="someone/absent")
    assert run(checkouts, repository(ALL_RIGHT), absent) == 2
    assert "someone/absent" in capsys.readouterr().err
    assert run(checkouts, repository(ALL_RIGHT), absent | {"set": "held-out"}) == 0


def test_labelled_file_that_is_not_there_is_an_error(checkouts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkouts / "tiny" / "train.py").unlink()
    assert run(checkouts, repository(ALL_RIGHT)) == 2
    assert "train.py is missing" in capsys.readouterr().err
