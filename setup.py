"""The one thing that pyproject.toml cannot say: compiled parts that are built where they can be, and missed nowhere."""

import sys

from setuptools import Extension, setup


def compiled(module: str) -> Extension:
    source = f"src/{module.replace('.', '/')}.c"
    return Extension(module, [source], extra_compile_args=["-O2"], optional=True)


PARTS = [compiled("inferometer.wire._reader"), compiled("inferometer.router._relay")]
setup(ext_modules=PARTS if sys.platform.startswith("linux") else [])
