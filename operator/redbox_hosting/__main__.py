"""Starts `redbox-hosting`. The commands are in `cli`."""

from redbox_kube.runtime.program import run


def main() -> None:
    run("hosting", extra="operator")


if __name__ == "__main__":
    main()
