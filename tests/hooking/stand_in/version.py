import os

__version__ = os.environ.get("STAND_IN_VERSION", "1.5.0")
