"""All that a pipeline keeps: one directory for each.

<root>/<name>/
  pipeline.json     which file it is of, and where it has checkpoints elsewhere
  status.json       how far it is, or was
  schemas.json      schemas that were found out once, and hold from then on
  beginnings.json   where queries begin that have no checkpoint yet, if that depends on when they ask
  checkpoints/      Spark's, one for each query, with the state of aggregations and joins
  spark.log         what Spark has to say
  lock              held by the process that runs it
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipelines.definition.errors import PipelineError
from tidelog.pipelines.runner.checkpoint_places import local_path
from tidelog.pipelines.runner.lock import Lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ENVIRONMENT: Final = "TIDELOG_PIPELINES_DIR"


def default_root(environment: Mapping[str, str]) -> Path:
    """In the place for what programs of this user want to find again."""
    named = environment.get("XDG_STATE_HOME", "")
    home = Path(named) if named.startswith("/") else Path.home() / ".local" / "state"
    return home / "tidelog" / "pipelines"


class PipelineDirectory:
    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.path = (root / name).absolute()
        self.log_file = self.path / "spark.log"
        self._lock = Lock(self.path / "lock")

    def checkpoint(self, query: str, elsewhere: str | None) -> str:
        """`elsewhere` is where the user wants them: a path, or an address such as hdfs://..."""
        base = str(self.path / "checkpoints") if elsewhere is None else elsewhere.rstrip("/") + f"/{self.name}"
        return f"{base}/{query}"

    def claim(self, file: Path, elsewhere: Iterable[str] = ()) -> None:
        """Two pipelines of one name would mix up their checkpoints. `elsewhere` is where those are that are not here:
        known until all is forgotten, as the file may name another place by then."""
        known = self._read("pipeline.json")
        owner = known.get("file")
        if isinstance(owner, str) and Path(owner) != file.absolute() and Path(owner).exists():
            raise PipelineError(
                f"there is a pipeline {self.name!r} already, {owner}: give this one another name, or reset that one"
            )
        places = list(dict.fromkeys((*known.get("checkpoints", ()), *elsewhere)))
        self._write("pipeline.json", {"file": str(file.absolute()), "name": self.name, "checkpoints": places})

    def file(self) -> str | None:
        file = self._read("pipeline.json").get("file")
        return str(file) if file is not None else None

    def checkpoints_elsewhere(self) -> list[Path]:
        """PipelineError names those that cannot be removed from here."""
        places = {str(each): local_path(each) for each in self._read("pipeline.json").get("checkpoints", ())}
        far = [place for place, path in places.items() if path is None]
        if far:
            raise PipelineError(
                f"{self.name} has checkpoints that are not removed from here: delete {', '.join(far)} yourself, and "
                f"then {self.path}"
            )
        return [path for path in places.values() if path is not None]

    def status(self) -> dict[str, Any]:
        return self._read("status.json")

    def save_status(self, status: Mapping[str, Any]) -> None:
        self._write("status.json", status)

    def schemas(self) -> dict[str, Any]:
        return self._read("schemas.json")

    def save_schemas(self, schemas: Mapping[str, Any]) -> None:
        self._write("schemas.json", schemas)

    def beginnings(self) -> dict[str, Any]:
        return self._read("beginnings.json")

    def save_beginnings(self, beginnings: Mapping[str, Any]) -> None:
        self._write("beginnings.json", beginnings)

    def exists(self) -> bool:
        return (self.path / "pipeline.json").exists()

    def runner_pid(self) -> int | None:
        """The process that runs the pipeline now, if one does."""
        return self._lock.holder()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """For as long as this lasts nobody else runs or resets the pipeline."""
        with self._lock.held(self.name, "name another with --dir"):
            yield

    @contextlib.contextmanager
    def locked_elsewhere(self, checkpoints: Iterable[Path]) -> Iterator[None]:
        """Nor does anybody with another directory, who would write to the same checkpoints. No query has a name that
        begins with a dot."""
        with contextlib.ExitStack() as held:
            for place in sorted({path.parent for path in checkpoints}):
                held.enter_context(Lock(place / ".lock").held(self.name, "set `checkpoint` to another place"))
            yield

    def forget(self) -> None:
        """All but the lock, which whoever calls this holds. First what only this directory tells of."""
        for path in self.checkpoints_elsewhere():
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                continue  # its query never began
            except OSError as error:
                raise PipelineError(f"{path} cannot be removed ({error.strerror})") from error
        for path in self.path.iterdir():
            if path.name == self._lock.file.name:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _read(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise PipelineError(f"{self.path / name} cannot be read ({error}): repair or remove it") from None
        return found if isinstance(found, dict) else {}

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        """Whole or not at all."""
        try:
            handle, temporary = tempfile.mkstemp(dir=self.path, prefix=f".{name}.")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(content, file, ensure_ascii=False)
                Path(temporary).replace(self.path / name)
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise PipelineError(f"{self.path / name} cannot be written ({error.strerror})") from error


def known_pipelines(root: Path) -> list[PipelineDirectory]:
    if not root.is_dir():
        return []
    found = [PipelineDirectory(root, path.name) for path in sorted(root.iterdir()) if path.is_dir()]
    return [each for each in found if each.exists()]
