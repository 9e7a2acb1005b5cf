"""Variables of a container that no program outside of it may have: by them its loader or C library opens files.

A command enters a container through programs of the node, which get the container's variables. These few are set
behind them, as arguments, which each user of the node can read. So only they are: whole names, because any
other one may be a secret's, LD_SDK_KEY or LANGCHAIN_API_KEY for instance.
"""

LOADER_VARIABLES = frozenset(
    "LD_ASSUME_KERNEL LD_AUDIT LD_BIND_NOT LD_BIND_NOW LD_DEBUG LD_DEBUG_OUTPUT LD_DYNAMIC_WEAK LD_HWCAP_MASK "
    "LD_LIBRARY_PATH LD_ORIGIN_PATH LD_POINTER_GUARD LD_PREFER_MAP_32BIT_EXEC LD_PRELOAD LD_PROFILE "
    "LD_PROFILE_OUTPUT LD_SHOW_AUXV LD_TRACE_LOADED_OBJECTS LD_TRACE_PRELINKING LD_USE_LOAD_BIAS LD_VERBOSE "
    "LD_WARN GCONV_PATH GLIBC_TUNABLES LOCPATH NLSPATH".split()
)
LOCALE_VARIABLES = frozenset(
    "LANG LANGUAGE LC_ADDRESS LC_ALL LC_COLLATE LC_CTYPE LC_IDENTIFICATION LC_MEASUREMENT LC_MESSAGES "
    "LC_MONETARY LC_NAME LC_NUMERIC LC_PAPER LC_TELEPHONE LC_TIME".split()
)


def loads_files(name: str, value: str) -> bool:
    """Whether a program outside of the container must not have this variable."""
    return name in LOADER_VARIABLES or (name in LOCALE_VARIABLES and "/" in value)
