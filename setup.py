"""Maps the four top-level folders onto the import package `batchspec`. All other settings: pyproject.toml."""

from setuptools import find_packages, setup

ROOMS = ("spec", "engine", "traces", "replay")

setup(
    package_dir={f"batchspec.{room}": room for room in ROOMS},
    packages=[
        f"batchspec.{name}"
        for name in find_packages(include=[f"{room}{sub}" for room in ROOMS for sub in ("", ".*")])
    ],
)
