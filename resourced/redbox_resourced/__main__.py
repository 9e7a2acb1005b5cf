"""Starts the program `redbox-resourced`, or says which extra it lacks. What it can do is in `cli`."""

import sys


def main() -> None:
    """Run the command line; without the extra `resourced` there is none."""
    try:
        from redbox_resourced.cli import app
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "redbox_resourced":
            raise
        cure = "install what red-box's wheel needs for it: pip install 'WHEEL[resourced]'"
        sys.exit(f"redbox-resourced: {missing.name} is not installed: {cure}")
    app()


if __name__ == "__main__":
    main()
