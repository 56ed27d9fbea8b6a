"""The one thing that pyproject.toml cannot say: compiled parts that are built where they can be, and missed nowhere."""

import sys
from typing import Any

import setuptools
from setuptools import Distribution, Extension, setup

READS_PYPROJECT = 77  # the first setuptools that knows a license by its short name


def compiled(module: str) -> Extension:
    source = f"src/{module.replace('.', '/')}.c"
    return Extension(module, [source], extra_compile_args=["-O2"], optional=True)


class PartsOnly(Distribution):
    """For `python setup.py build_ext --inplace` with the setuptools that a virtual environment of Python 3.11 has."""

    def parse_config_files(self, *_files: Any, **_options: Any) -> None:
        self.package_dir = {"": "src"}


PARTS = [compiled("inferometer.wire._reader"), compiled("inferometer.router._relay")]
IS_OLD = int(setuptools.__version__.partition(".")[0]) < READS_PYPROJECT and "build_ext" in sys.argv
setup(
    distclass=PartsOnly if IS_OLD else Distribution, ext_modules=PARTS if sys.platform.startswith("linux") else []
)
