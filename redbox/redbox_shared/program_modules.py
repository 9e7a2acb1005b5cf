"""The modules that a program is made of, imported without garbage collections.

They are some 100,000 objects, of which none is garbage: collections in between look at all of them again and
again, which is a tenth of a start.
"""

import gc
from importlib import import_module
from types import ModuleType


def import_program(name: str) -> ModuleType:
    """Import this module and all that it imports."""
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.enable()
