"""Starts `redbox-resourced`, or names the extra that is not installed. The commands are in `cli`."""

import sys


def main() -> None:
    """Run the command line, if the extra `resourced` is installed."""
    try:
        from redbox_resourced.cli import app
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "redbox_resourced":
            raise
        fix = "install red-box's wheel with this extra: pip install 'WHEEL[resourced]'"
        sys.exit(f"redbox-resourced: {missing.name} is not installed: {fix}")
    app()


if __name__ == "__main__":
    main()
