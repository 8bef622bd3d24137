"""Compiles the record codec when the package is built or installed for editing, if that can be done here.

Everything works without it, only slower: where Cython, a C compiler or Python's headers are missing, the package is
built without the compiled modules and a warning says so. TIDELOG_BUILD_PURE=1 leaves them out on purpose, and
TIDELOG_BUILD_COMPILED=1 makes their absence an error.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULES = ("_columns", "_rows")
FOLDER = Path("src/tidelog/records")
INSTALLED_FOLDER = "tidelog/records"
FLAGS = ["-O3", "-g0", "-fno-strict-aliasing"]


class CodecBuildHook(BuildHookInterface):  # type: ignore[type-arg] # the plain class in older releases
    """Its name is hatchling's choice: the hook that a project brings itself."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or os.environ.get("TIDELOG_BUILD_PURE", "") not in {"", "0"}:
            return
        self._scratch = Path(tempfile.mkdtemp(prefix="tidelog-build-"))
        try:
            built = compile_modules(Path(self.root), self._scratch)
        except Exception as error:
            if os.environ.get("TIDELOG_BUILD_COMPILED", "") not in {"", "0"}:
                raise
            self.app.display_warning(f"records will be read and written by Python alone, slower: {error!r}")
            return
        if version == "editable":
            # Beside the sources, where an editable installation looks for modules.
            for module in built:
                place_whole(module, Path(self.root, FOLDER, module.name))
        else:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"].update({str(module): f"{INSTALLED_FOLDER}/{module.name}" for module in built})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del version, build_data, artifact_path
        if hasattr(self, "_scratch"):
            shutil.rmtree(self._scratch, ignore_errors=True)


def compile_modules(root: Path, scratch: Path) -> list[Path]:
    """The files of the compiled modules, all of them. Whatever it is that is missing is raised."""
    from Cython.Build import cythonize  # noqa: PLC0415 - may not be there
    from setuptools import Distribution, Extension  # noqa: PLC0415 - same
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415 - same

    extensions = [
        Extension(f"tidelog.records.{name}", [str(root / FOLDER / f"{name}.pyx")], extra_compile_args=FLAGS)
        for name in MODULES
    ]
    modules = cythonize(
        extensions, build_dir=str(scratch / "c"), include_path=[str(root / "src")], language_level=3, quiet=True
    )
    command = build_ext(Distribution({"name": "tidelog", "ext_modules": modules}))
    command.build_lib = str(scratch / "lib")
    command.build_temp = str(scratch / "temp")
    command.ensure_finalized()
    command.run()
    return [Path(command.get_ext_fullpath(extension.name)) for extension in modules]


def place_whole(source: Path, target: Path) -> None:
    """Never half there, and never written into: a program that runs may have the old one mapped."""
    partial = target.with_name(f"{target.name}.partial")
    shutil.copyfile(source, partial)
    partial.replace(target)
