"""The trial store: finished work, unfinished work under claims, and data sets.

Layout under the root, a folder or ``s3://bucket/prefix``::

    trials/<trial>/spec.json                      created first
                   claims/0001.json ...           one file an attempt, see claims
                   last-<step>.pt + .json         newest checkpoint (see training.checkpoint)
                   best-<step>.pt + .json         best by validation
                   curve.parquet, log.txt
                   done.json                      created last: the training is finished
                   evaluations/<evaluation>/spec.json, result.json (created last)
    datasets/dataset=/configuration=/split=/      see data.schema

Two primitives carry everything: ``create`` (fails if the path exists) and ``write``
(replaces).  Both are whole or not at all on every store: on a local file system by
:mod:`raise_model.atomic_write`; on S3 a PUT is whole by itself, and create is a PUT with
``If-None-Match: *``.
"""

import contextlib
import errno
import json
import os
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import fsspec

from raise_model import atomic_write, claims
from raise_model.errors import StoreAway, UserError, cure_of
from raise_model.specs import EvaluationSpec, TrialSpec

T = TypeVar("T")
PATIENT_ATTEMPTS = 20
"""Of a request to S3, with pauses of up to 20 s: two to three minutes."""
_AWAY = ("EndpointConnectionError", "HTTPClientError", "ConnectionClosedError",
         "ResponseStreamingError", "ResponseParserError", "ClientPayloadError")  # fmt: skip
"""Errors of S3 clients that are no OSError; by name: the clients are not installed everywhere."""
_TROUBLE = (None, errno.EIO, errno.EREMOTEIO, errno.EBUSY)
"""Of their OSErrors: no answer, and what s3fs makes of 500 and 503."""
_LOST_RACE = ("PreconditionFailed", "ConditionalRequestConflict")
WRITTEN_ONCE = ("spec.json", "done.json", "result.json")
"""Files that never change once they are there."""


def _local_root(root: str) -> Path | None:
    """The folder of a local root, None for S3; other schemes are refused."""
    scheme = urlsplit(root).scheme
    if scheme in ("", "file"):
        return Path(root.removeprefix("file://")).expanduser().absolute()
    if scheme == "s3" and urlsplit(root).netloc:
        return None
    if scheme == "s3":
        raise UserError(f"store {root} names no bucket; write it as s3://BUCKET/FOLDER")
    raise UserError(f"store {root}: {scheme}:// is not supported; use a folder, file:// or s3://")


class Store:
    """Reads and writes whole small files under one root.  Paths are relative, with ``/``.

    Where S3 does not answer, every method raises :class:`~raise_model.errors.StoreAway`.
    """

    def __init__(self, root: str, *, patient: bool = False) -> None:
        """:param patient: wait minutes for S3 to come back, as long work does; else seconds."""
        self._patient = patient
        self._folder = _local_root(root)
        self.root = str(self._folder) if self._folder else root.rstrip("/")
        self.claim_watch = claims.ClaimWatch()
        self._written_once: dict[str, bytes] = {}
        """What was read of files that never change; of S3 alone, where asking takes long."""

    @cached_property
    def filesystem(self) -> fsspec.AbstractFileSystem:
        """File system of the root, for streaming large files; take paths from :meth:`path`."""
        if self._folder:
            return fsspec.filesystem("file")
        retries = {"mode": "standard", "total_max_attempts": PATIENT_ATTEMPTS}
        try:
            # Listings are never cached: another process's claims must be seen at once.
            return fsspec.filesystem(
                "s3", use_listings_cache=False, skip_instance_cache=True,
                config_kwargs={"retries": retries} if self._patient else None,
            )  # fmt: skip
        except ImportError as error:
            raise UserError(
                f"store {self.root}: s3:// needs s3fs; install raise-rpm[cluster]"
            ) from error

    def path(self, path: str = "") -> str:
        """Absolute form of a path, as :attr:`filesystem` takes it."""
        return f"{self.root}/{path}".rstrip("/")

    def read(self, path: str) -> bytes:
        """:raises FileNotFoundError: if there is no such file."""
        if self._folder:
            return (self._folder / path).read_bytes()
        if path in self._written_once:
            return self._written_once[path]
        with self._asked():
            data = self.filesystem.cat_file(self.path(path))
        assert isinstance(data, bytes)
        if path.endswith(WRITTEN_ONCE):
            self._written_once[path] = data
        return data

    def exists(self, path: str) -> bool:
        if self._folder:
            return (self._folder / path).exists()
        if path.endswith(WRITTEN_ONCE):
            # Whoever asks reads it next.
            try:
                self.read(path)
            except FileNotFoundError:
                return False
            return True
        with self._asked():
            return self.filesystem.exists(self.path(path))

    def list(self, folder: str) -> Sequence[str]:
        """Names in a folder, sorted; empty where there is none."""
        if self._folder:
            try:
                names = os.listdir(self._folder / folder)
            except (FileNotFoundError, NotADirectoryError):
                return []
        else:
            try:
                with self._asked():
                    found = self.filesystem.ls(self.path(folder), detail=False)
            except FileNotFoundError:
                return []
            names = [name.rstrip("/").rsplit("/", 1)[-1] for name in found]
        return sorted(name for name in names if not name.startswith(atomic_write.TEMPORARY))

    def create(self, path: str, data: bytes) -> None:
        """:raises FileExistsError: if the path exists, which is then left as it is."""
        if self._folder:
            atomic_write.create(self._folder / path, data)
            return
        try:
            with self._asked():
                self.filesystem.pipe_file(self.path(path), data, mode="create")
        except FileExistsError:
            # Of a request whose answer was lost, and that was sent again.
            if self.read(path) != data:
                raise

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Create or replace.  ``durable`` waits until the disk has it (local stores)."""
        if self._folder:
            atomic_write.replace(self._folder / path, data, durable=durable)
            return
        self._written_once.pop(path, None)
        with self._asked():
            self.filesystem.pipe_file(self.path(path), data)

    def delete(self, path: str) -> None:
        """Delete a file; one that is not there is no error."""
        if self._folder:
            (self._folder / path).unlink(missing_ok=True)
            return
        self._written_once.pop(path, None)
        with contextlib.suppress(FileNotFoundError), self._asked():
            self.filesystem.rm_file(self.path(path))

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        """Give the errors of S3 clients names that callers know."""
        try:
            yield
        except (FileNotFoundError, FileExistsError, PermissionError):
            raise
        except Exception as error:
            if isinstance(error, OSError):
                # S3 answers a lost race with 412 or 409; s3fs passes them on as OSError.
                cause = repr(error.__cause__)
                if error.errno == errno.EEXIST or any(code in cause for code in _LOST_RACE):
                    raise FileExistsError(self.root) from error
                is_away = error.errno in _TROUBLE
            else:
                is_away = type(error).__name__ in _AWAY
            if not is_away:
                raise
            reason = " ".join(str(error).split())[:200]
            raise StoreAway(
                f"store {self.root} does not answer ({reason}); what is done is kept: run the "
                "same again when it is back"
            ) from error

    def read_json(self, path: str) -> Any:
        return json.loads(self.read(path))

    def create_json(self, path: str, value: Any) -> None:
        self.create(path, _to_json(value))

    def write_json(self, path: str, value: Any, *, durable: bool = True) -> None:
        self.write(path, _to_json(value), durable=durable)

    def probe(self) -> None:
        """Write, read and delete a small file, which nobody must be able to create twice.

        :raises UserError: if that fails; it names the root and the reason.
        """
        path = f".probe-{uuid.uuid4().hex}"
        try:
            self.create(path, b"probe")
            if self.read(path) != b"probe":
                raise OSError("what was written is not what was read")
            try:
                self.create(path, b"again")
            except FileExistsError:
                self.delete(path)
            else:
                # Two runs would train the same trial.
                self.delete(path)
                raise OSError("it creates a file that exists (an S3 store without If-None-Match?)")
        except Exception as error:  # S3 clients have errors of their own
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())
            raise UserError(
                f"store {self.root} cannot be written from {socket.gethostname()}: {reason}; "
                f"{cure_of(error) or 'choose another store'}"
            ) from error

    def trial(self, trial: TrialSpec | str) -> "TrialFolder":
        """Folder of a trial, by spec or by name; it need not exist yet."""
        name = trial if isinstance(trial, str) else trial.name
        return TrialFolder(self, name, self.claim_watch)

    def trials(self) -> Sequence["TrialFolder"]:
        """Every trial of the store, in order of name."""
        names = self.list("trials")
        return [self.trial(name) for name in names if self.exists(f"trials/{name}/spec.json")]


def check_exists(store: Store) -> None:
    """:raises UserError: if a store that is only read is no folder, or has no object on S3."""
    if store.root.startswith("s3://"):
        if not store.list(""):
            raise UserError(f"store {store.root} has nothing; name another with --store")
    elif not Path(store.root).is_dir():
        why = "is no folder" if Path(store.root).exists() else "does not exist"
        raise UserError(f"store {store.root} {why}; name another with --store")


def _to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _parsed(store: Store, path: str, parse: Callable[[Any], T]) -> T:
    try:
        return parse(store.read_json(path))
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(
            f"{store.path(path)} is damaged ({' '.join(reason.split())[:160]}), or of another "
            "version of raise-rpm; restore it, or move its folder away"
        ) from error


class TrialFolder:
    """One trial in the store."""

    def __init__(self, store: Store, name: str, watch: claims.ClaimWatch) -> None:
        self.store = store
        self.name = name
        self.path = f"trials/{name}"
        self._watch = watch

    def file(self, name: str) -> str:
        """Path of a file of this trial, relative to the store's root."""
        return f"{self.path}/{name}"

    def spec(self) -> TrialSpec:
        """:raises FileNotFoundError: if the trial was never begun.
        :raises UserError: if it is damaged.
        """
        spec = _parsed(self.store, self.file("spec.json"), TrialSpec.from_json)
        if spec.name != self.name:
            raise UserError(
                f"{self.store.path(self.file('spec.json'))} is the spec of {spec.name}, not of its "
                "folder; restore it, or move the folder away"
            )
        return spec

    def put_spec(self, spec: TrialSpec) -> None:
        """Write the spec, once; a folder that holds another one is an error."""
        try:
            self.store.create_json(self.file("spec.json"), spec.to_json())
        except FileExistsError:
            if self.spec().fingerprint != spec.fingerprint:
                raise UserError(
                    f"{self.store.path(self.path)} holds another spec than {self.name}; "
                    "move that folder away"
                ) from None

    @property
    def is_done(self) -> bool:
        return self.store.exists(self.file("done.json"))

    def done(self) -> dict[str, Any]:
        """What the finished training recorded.

        :raises UserError: if it is damaged.
        """
        return _parsed(
            self.store,
            self.file("done.json"),
            lambda value: {**value, "best_step": value["best_step"]},
        )

    def holder(self) -> dict[str, Any] | None:
        """The newest claim if its owner lives, else None."""
        return claims.holder(self.store, self.file("claims"), self._watch)

    def outwait(self, on_wait: Callable[[str], None]) -> None:
        """Wait until it is known whether the owner of the newest claim lives.

        See :func:`raise_model.claims.outwait`.
        """
        claims.outwait(self.store, self.file("claims"), self._watch, on_wait)

    def give_back(self, pid: int) -> None:
        """Release the newest claim for its process, one of this machine that was killed.

        Other machines cannot see that it is gone and would wait for
        :data:`~raise_model.claims.STALE_SECONDS`.
        """
        claims.give_back(self.store, self.file("claims"), pid)

    def claim(self) -> AbstractContextManager[claims.Claim]:
        """Own the trial for the time of the block.

        :raises Held: if a living owner has it.
        """
        return claims.owned(self.store, self.file("claims"), self._watch, self.name)

    def evaluation(self, spec: EvaluationSpec | str) -> "EvaluationFolder":
        return EvaluationFolder(self, spec if isinstance(spec, str) else spec.name)

    def evaluations(self) -> Sequence["EvaluationFolder"]:
        """Every finished evaluation, in order of name."""
        folders = [self.evaluation(name) for name in self.store.list(self.file("evaluations"))]
        return [folder for folder in folders if folder.is_done]


class EvaluationFolder:
    """One evaluation of one trial."""

    def __init__(self, trial: TrialFolder, name: str) -> None:
        self.trial = trial
        self.name = name
        self._path = trial.file(f"evaluations/{name}")

    @property
    def is_done(self) -> bool:
        return self.trial.store.exists(f"{self._path}/result.json")

    def spec(self) -> EvaluationSpec:
        """:raises UserError: if it is damaged."""
        return _parsed(self.trial.store, f"{self._path}/spec.json", EvaluationSpec.from_json)

    def result(self) -> dict[str, Any]:
        """:raises UserError: if it is damaged."""
        return _parsed(self.trial.store, f"{self._path}/result.json", dict)

    def create_result(self, spec: EvaluationSpec, result: Mapping[str, Any]) -> None:
        """Write spec and result, the result last; a result that is there stays."""
        self.trial.store.write_json(f"{self._path}/spec.json", spec.to_json())
        with contextlib.suppress(FileExistsError):
            self.trial.store.create_json(f"{self._path}/result.json", dict(result))
