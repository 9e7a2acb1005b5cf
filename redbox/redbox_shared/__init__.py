"""Facts that several parts of Red Box agree on: standard library only, so that the companion can import it.

`argparse`, `dataclasses` and `importlib.metadata` are not imported here: see `redbox_companion`.
"""
