"""The one thing that pyproject.toml cannot say: a compiled reader that is built where it can be, and missed nowhere."""

import sys

from setuptools import Extension, setup

READER = Extension(
    "inferometer.wire._reader", ["src/inferometer/wire/_reader.c"], extra_compile_args=["-O2"], optional=True
)

setup(ext_modules=[READER] if sys.platform.startswith("linux") else [])
