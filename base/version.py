"""The version of Congreve, as its packages name it to others."""

__version__ = "0.2.0"
