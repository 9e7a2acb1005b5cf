"""Kubernetes' own NodeConformance cases that a container's log shows: pod, container, lines.

`{name}`, `{uid}` and `{host_ip}` are the pod's.
"""

from __future__ import annotations

Lines = tuple[str, ...]


def both(path: str, rest: str) -> Lines:
    """Of a plain volume and of the same one in a projected volume."""
    return (f"{path} {rest}", f"/projected{path} {rest}")


AMOUNTS = {"limits_cpu": 2, "limits_memory": 1 << 26, "requests_cpu": 1, "requests_memory": 1 << 25}
LOGGED: dict[str, tuple[str, str, Lines]] = {
    "ConfigMap should be consumable via environment variable": (
        "variables",
        "main",
        ("CONFIG_DATA_1=value-1",),
    ),
    "ConfigMap should be consumable via the environment": (
        "variables",
        "main",
        ("data_1=value-1", "data_2=value-2", "p_data_1=value-1", "p_data_2=value-2"),
    ),
    "Secrets should be consumable from pods in env vars": ("variables", "main", ("SECRET_DATA=value-1",)),
    "Secrets should be consumable via the environment": (
        "variables",
        "main",
        ("s_data_1=value-1", "s_data_2=value-2"),
    ),
    "Downward API should provide pod name, namespace and IP address as env vars": (
        "variables",
        "main",
        ("POD_NAME={name}", "POD_NAMESPACE=alice", "POD_IP={host_ip}"),
    ),
    "Downward API should provide host IP as an env var": ("variables", "main", ("HOST_IP={host_ip}",)),
    "Downward API should provide pod UID as env vars": ("variables", "main", ("POD_UID={uid}",)),
    "Downward API should provide container's limits.cpu/memory and requests.cpu/memory as env vars": (
        "variables",
        "main",
        ("CPU_LIMIT=2", "MEMORY_LIMIT=67108864", "CPU_REQUEST=1", "MEMORY_REQUEST=33554432"),
    ),
    "Variable Expansion should allow composing env vars into new env vars": (
        "variables",
        "main",
        ("FOOBAR=foo-value;;bar-value",),
    ),
    "Variable Expansion should allow substituting values in a container's command": (
        "arguments",
        "in-command",
        ("test-value",),
    ),
    "Variable Expansion should allow substituting values in a container's args": (
        "arguments",
        "in-args",
        ("test-value",),
    ),
    "Variable Expansion should allow substituting values in a volume subpath": (
        "sub-path",
        "main",
        ("disk written",),
    ),
    "ConfigMap should be consumable from pods in volume": (
        "files",
        "main",
        both("/config/plain/data-1", "644 value-1"),
    ),
    "ConfigMap should be consumable from pods in volume with defaultMode set": (
        "files",
        "main",
        both("/config/mode/data-1", "400 value-1"),
    ),
    "ConfigMap should be consumable from pods in volume with mappings": (
        "files",
        "main",
        both("/config/mapped/path/to/data-2", "644 value-2"),
    ),
    "ConfigMap should be consumable from pods in volume with mappings and Item mode set": (
        "files",
        "main",
        both("/config/item/path/to/data-2", "400 value-2"),
    ),
    "ConfigMap should be consumable in multiple volumes in the same pod": (
        "files",
        "main",
        ("/config/plain/data-1 644 value-1", "/config/twice/data-1 644 value-1"),
    ),
    "ConfigMap binary data should be reflected in volume": ("files", "main", ("deadbeef",)),
    "Secrets should be consumable from pods in volume": (
        "files",
        "main",
        both("/secret/plain/data-1", "644 value-1"),
    ),
    "Secrets should be consumable from pods in volume with defaultMode set": (
        "files",
        "main",
        both("/secret/mode/data-1", "400 value-1"),
    ),
    "Secrets should be consumable from pods in volume with mappings": (
        "files",
        "main",
        both("/secret/mapped/path/to/data-2", "644 value-2"),
    ),
    "Secrets should be consumable from pods in volume with mappings and Item Mode set": (
        "files",
        "main",
        both("/secret/item/path/to/data-2", "400 value-2"),
    ),
    "Secrets should be consumable in multiple volumes in a pod": (
        "files",
        "main",
        ("/secret/plain/data-1 644 value-1", "/secret/twice/data-1 644 value-1"),
    ),
    "ConfigMap and Secrets that are optional and missing are empty volumes": (
        "files",
        "main",
        ("optional 0",),
    ),
    "Downward API volume should provide podname only": (
        "files",
        "main",
        both("/fields/mapped/podname", "644 {name}"),
    ),
    "Downward API volume should set DefaultMode on files": (
        "files",
        "main",
        both("/fields/mode/podname", "400 {name}"),
    ),
    "Downward API volume should set mode on item file": (
        "files",
        "main",
        both("/fields/item/podname", "400 {name}"),
    ),
    "Downward API volume should provide container's cpu and memory limit and request": (
        "files",
        "main",
        tuple(
            line for name, value in AMOUNTS.items() for line in both(f"/fields/mapped/{name}", f"644 {value}")
        ),
    ),
    "Downward API volume should provide labels and annotations": (
        "files",
        "main",
        (
            '/fields/mapped/labels 644 cluster="rack-22"',
            '/fields/mapped/annotations 644 builder="bar \\"quoted\\""',
        ),
    ),
    "Projected combined should project all components that make up the projection API": (
        "files",
        "main",
        ("/combined/secret 644 value-1", "/combined/config 644 value-1", "/combined/podname 644 {name}"),
    ),
    "EmptyDir volumes should support (non-root,*,default)": (
        "empty",
        "main",
        ("disk 777", "disk 644 content", "disk 666 content", "disk 777 content"),
    ),
    "EmptyDir volumes should support (non-root,*,tmpfs)": (
        "empty",
        "main",
        ("memory 777", "memory 644 content", "memory 666 content", "memory 777 content", "type tmpfs"),
    ),
    "Subpath Atomic writer volumes should support subpaths": (
        "sub-path",
        "main",
        ("config value-1", "secret value-1", "fields {name}", "projected value-1"),
    ),
    "Subpath Atomic writer volumes with mountPath of existing file": (
        "sub-path",
        "main",
        ("file value-1",),
    ),
    "Kubelet should print the output to logs": ("roots", "hosts", ("Hello World",)),
    "Kubelet should write entries to /etc/hosts": ("roots", "hosts", ("123.45.67.89\tfoo\tbar",)),
    "Security Context should run the container with writable rootfs when readOnlyRootFilesystem=false": (
        "roots",
        "writable",
        ("text",),
    ),
    "Security Context should not allow privilege escalation when false": (
        "roots",
        "unprivileged",
        ("NoNewPrivs:\t1",),
    ),
    "Security Context should support seccomp runtime/default": ("roots", "unprivileged", ("Seccomp:\t2",)),
    "Container Lifecycle Hook should execute poststart exec hook properly": ("hooks", "exec", ("started",)),
}
