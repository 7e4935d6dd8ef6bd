"""attnscope shows what attention does, number by number."""

__version__ = "0.1.0"
