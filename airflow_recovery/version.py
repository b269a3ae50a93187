"""The version of this package: of the wheel, and of what a driver was shipped."""

__version__ = "0.1.0"
