"""Variables of a container by which the loader or the C library of a program opens files.

A command enters a container through programs of the node, which get the container's variables, but for these:
they are set behind them, as arguments, which each user of the node can read. Whole names count, because any
other one may be a secret's, LD_SDK_KEY or LANGCHAIN_API_KEY for instance.
"""

import os

DEFAULT_FOLDERS = "/bin:/usr/bin"
"""Without PATH."""
LOADER = "LIBRARY_PATH PRELOAD AUDIT DEBUG DEBUG_OUTPUT PROFILE PROFILE_OUTPUT BIND_NOT BIND_NOW WARN VERBOSE"
SELDOM = "ASSUME_KERNEL DYNAMIC_WEAK HWCAP_MASK ORIGIN_PATH POINTER_GUARD PREFER_MAP_32BIT_EXEC SHOW_AUXV"
TRACING = "TRACE_LOADED_OBJECTS TRACE_PRELINKING USE_LOAD_BIAS"
LOCALE = (
    "ADDRESS ALL COLLATE CTYPE IDENTIFICATION MEASUREMENT MESSAGES MONETARY NAME NUMERIC PAPER TELEPHONE TIME"
)
LOADER_VARIABLES = {
    *("LD_" + name for name in (LOADER + " " + SELDOM + " " + TRACING).split()),
    *("GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH", "NLSPATH"),
}
LOCALE_VARIABLES = {"LANG", "LANGUAGE", *("LC_" + name for name in LOCALE.split())}


def loads_files(name: str, value: str) -> bool:
    """Whether a program outside of the container must not have this variable."""
    return name in LOADER_VARIABLES or (name in LOCALE_VARIABLES and "/" in value)


def has_setter(pid: int, path: str) -> bool:
    """Whether a container has the program `env`, which sets them; images of one program have none.

    Apptainer gives each container an LD_LIBRARY_PATH: without `env` a command goes without it. A link counts,
    wherever it leads: here it would be followed outside of the container.
    """
    folders = (folder.lstrip("/") for folder in path.split(":") if folder.startswith("/"))
    return any(os.path.lexists("/proc/{}/root/{}/env".format(pid, folder)) for folder in folders)
