"""A doctor for PyTorch training machines and jobs."""

__version__ = "0.1.0"
