"""Pods of Kubernetes' own NodeConformance cases, many cases in each; what they have to show is in the tests.

The cases are those of Kubernetes 1.34, in test/e2e/common/node and test/e2e/common/storage. Their images are
replaced by the tests' own, with busybox.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.e2e.harness.slurm_pods import FOREVER, container, manifest, on_slurm
from tests.e2e.harness.slurmjobs import new_name

Object = dict[str, Any]
PREFIX = new_name()  # what a killed run has left is not looked at
CONFIG = f"{PREFIX}-config"
SECRET = f"{PREFIX}-secret"
SIZES: Object = {
    "requests": {"cpu": "250m", "memory": "32Mi"},
    "limits": {"cpu": "1250m", "memory": "64Mi"},
}
SMALL: Object = {"requests": {"memory": "16Mi"}}
STARTS = "count=$(cat /count/starts 2>/dev/null); count=$((${count:-0} + 1)); echo $count > /count/starts; "
AT_COUNT = [{"name": "count", "mountPath": "/count"}]
COUNTS: Object = {"volumes": [{"name": "count", "emptyDir": {}}]}
ALIASES = [{"ip": "123.45.67.89", "hostnames": ["foo", "bar"]}]
SERVED, ABSENT, CONNECTED, HOOKED = 18101, 18102, 18103, 18104


def name_of(pod: str) -> str:
    return f"{PREFIX}-{pod}"


def pods() -> list[Object]:
    """All of them, and what they refer to."""
    data = {"data-1": "value-1", "data-2": "value-2"}
    names = {"data_1": "value-1", "data_2": "value-2"}
    return [
        manifest("ConfigMap", CONFIG, data=data, binaryData={"dump.bin": "3q2+7w=="}),
        manifest("ConfigMap", f"{CONFIG}-names", data=names),
        manifest("Secret", SECRET, stringData=data),
        manifest("Secret", f"{SECRET}-names", stringData=names),
        *(manifest("Pod", name_of(name), spec=spec, metadata=METADATA) for name, spec in SPECS.items()),
    ]


METADATA: Object = {"labels": {"cluster": "rack-22"}, "annotations": {"builder": 'bar "quoted"'}}


# ---------------------------------------------------------------------------------------------- values


def field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def resource(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"resourceFieldRef": {"resource": path}}}


def chosen(name: str, kind: str, source: str) -> Object:
    return {"name": name, "valueFrom": {kind: {"name": source, "key": "data-1"}}}


ENV = [
    chosen("CONFIG_DATA_1", "configMapKeyRef", CONFIG),
    chosen("SECRET_DATA", "secretKeyRef", SECRET),
    field("POD_NAME", "metadata.name"),
    field("POD_NAMESPACE", "metadata.namespace"),
    field("POD_UID", "metadata.uid"),
    field("POD_IP", "status.podIP"),
    field("HOST_IP", "status.hostIP"),
    resource("CPU_LIMIT", "limits.cpu"),
    resource("MEMORY_LIMIT", "limits.memory"),
    resource("CPU_REQUEST", "requests.cpu"),
    resource("MEMORY_REQUEST", "requests.memory"),
    {"name": "FOO", "value": "foo-value"},
    {"name": "BAR", "value": "bar-value"},
    {"name": "FOOBAR", "value": "$(FOO);;$(BAR)"},
]
FROM = [
    {"configMapRef": {"name": f"{CONFIG}-names"}},
    {"prefix": "p_", "configMapRef": {"name": f"{CONFIG}-names"}},
    {"prefix": "s_", "secretRef": {"name": f"{SECRET}-names"}},
]
SUBSTITUTED = [{"name": "TEST_VAR", "value": "test-value"}]
VARIABLES = on_slurm(container("env", env=ENV, envFrom=FROM, resources=SIZES))
ARGUMENTS = on_slurm(
    container('TEST_VAR=wrong echo "$(TEST_VAR)"', "in-command", env=SUBSTITUTED),
    {
        **container("", "in-args", env=SUBSTITUTED),
        "command": ["sh", "-c"],
        "args": ['TEST_VAR=wrong echo "$(TEST_VAR)"'],
    },
)

# ---------------------------------------------------------------------------------------------- files

ITEMS = [{"key": "data-2", "path": "path/to/data-2"}]
ITEMS_0400 = [{**ITEMS[0], "mode": 0o400}]
NAME_ITEM: Object = {"path": "podname", "fieldRef": {"fieldPath": "metadata.name"}}


def amount(path: str) -> Object:
    return {"path": path.replace(".", "_"), "resourceFieldRef": {"containerName": "main", "resource": path}}


AMOUNTS = [amount(f"{kind}.{what}") for kind in ("limits", "requests") for what in ("cpu", "memory")]
OF_POD: list[Object] = [
    NAME_ITEM,
    {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
    {"path": "annotations", "fieldRef": {"fieldPath": "metadata.annotations"}},
    *AMOUNTS,
]
KINDS: Mapping[str, Mapping[str, Object]] = {
    # By the folder that a volume is mounted at.
    "plain": {"configMap": {"name": CONFIG}, "secret": {"secretName": SECRET}},
    "mode": {
        "configMap": {"name": CONFIG, "defaultMode": 0o400},
        "secret": {"secretName": SECRET, "defaultMode": 0o400},
        "downwardAPI": {"items": [NAME_ITEM], "defaultMode": 0o400},
    },
    "mapped": {
        "configMap": {"name": CONFIG, "items": ITEMS},
        "secret": {"secretName": SECRET, "items": ITEMS},
        "downwardAPI": {"items": OF_POD},
    },
    "item": {
        "configMap": {"name": CONFIG, "items": ITEMS_0400},
        "secret": {"secretName": SECRET, "items": ITEMS_0400},
        "downwardAPI": {"items": [{**NAME_ITEM, "mode": 0o400}]},
    },
    "optional": {
        "configMap": {"name": "never", "optional": True},
        "secret": {"secretName": "never", "optional": True},
    },
}


def projected(kind: str, source: Object) -> Object:
    """The same volume as the one source of a projected one, whose mode is the volume's."""
    inner = {("name" if key == "secretName" else key): value for key, value in source.items()}
    mode = inner.pop("defaultMode", None)
    return {"sources": [{kind: inner}], **({} if mode is None else {"defaultMode": mode})}


def volume_rows() -> list[tuple[str, Object]]:
    """The path of each volume, and the volume without its name."""
    rows: list[tuple[str, Object]] = []
    for form, kinds in KINDS.items():
        for kind, source in kinds.items():
            short = {"configMap": "config", "downwardAPI": "fields"}.get(kind, kind)
            rows.append((f"/{short}/{form}", {kind: source}))
            rows.append((f"/projected/{short}/{form}", {"projected": projected(kind, source)}))
    rows.append(("/config/twice", {"configMap": {"name": CONFIG}}))
    rows.append(("/secret/twice", {"secret": {"secretName": SECRET}}))
    sources = [
        {"secret": {"name": SECRET, "items": [{"key": "data-1", "path": "secret"}]}},
        {"configMap": {"name": CONFIG, "items": [{"key": "data-1", "path": "config"}]}},
        {"downwardAPI": {"items": OF_POD}},
    ]
    rows.append(("/combined", {"projected": {"sources": sources}}))
    return rows


SHOW_FILES = """
cd /
for file in $(busybox find -L config secret fields projected combined -type f \
    ! -path '*/..*' ! -name dump.bin); do
    echo "/$file $(busybox stat -Lc %a "$file") $(busybox tr '\\n' '~' < "$file")"
done
echo "optional $(busybox find -L config/optional secret/optional -type f | busybox wc -l)"
busybox xxd -p /config/plain/dump.bin
"""


def files() -> Object:
    rows = volume_rows()
    volumes = [{"name": f"volume-{number}", **row} for number, (_, row) in enumerate(rows)]
    mounts = [{"name": f"volume-{number}", "mountPath": path} for number, (path, _) in enumerate(rows)]
    return on_slurm(container(SHOW_FILES, volumeMounts=mounts, resources=SIZES), volumes=volumes)


SHOW_EMPTY = """
for medium in disk memory; do
    echo "$medium $(busybox stat -c %a /$medium)"
    for mode in 644 666 777; do
        echo content > /$medium/$mode; busybox chmod $mode /$medium/$mode
        echo "$medium $(busybox stat -c %a /$medium/$mode) $(cat /$medium/$mode)"
    done
done
echo "type $(busybox stat -f -c %T /memory)"
"""
EMPTY = on_slurm(
    container(
        SHOW_EMPTY, volumeMounts=[{"name": name, "mountPath": f"/{name}"} for name in ("disk", "memory")]
    ),
    volumes=[{"name": "disk", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}}],
)
SUB_PATHS: list[Object] = [
    {"name": "config", "mountPath": "/sub/config", "subPath": "data-1"},
    {"name": "config", "mountPath": "/etc/passwd", "subPath": "data-1"},
    {"name": "secret", "mountPath": "/sub/secret", "subPath": "data-1"},
    {"name": "fields", "mountPath": "/sub/fields", "subPath": "podname"},
    {"name": "projected", "mountPath": "/sub/projected", "subPath": "data-1"},
    {"name": "disk", "mountPath": "/sub/disk", "subPathExpr": "$(POD_NAME)"},
    {"name": "disk", "mountPath": "/disk"},
]
SUB_PATH = on_slurm(
    container(
        'for name in config secret fields projected; do echo "$name $(cat /sub/$name)"; done\n'
        'echo "file $(cat /etc/passwd)"\n: > /sub/disk/written; echo "disk $(ls /disk/"$POD_NAME")"',
        env=[field("POD_NAME", "metadata.name")],
        volumeMounts=SUB_PATHS,
    ),
    volumes=[
        {"name": "config", "configMap": {"name": CONFIG}},
        {"name": "secret", "secret": {"secretName": SECRET}},
        {"name": "fields", "downwardAPI": {"items": [NAME_ITEM]}},
        {"name": "projected", "projected": {"sources": [{"configMap": {"name": CONFIG}}]}},
        {"name": "disk", "emptyDir": {}},
    ],
)


def leaving_sub_path(value: str) -> Object:
    mounts = [{"name": "disk", "mountPath": "/data", "subPathExpr": "$(PLACE)"}]
    main = container("true", env=[{"name": "PLACE", "value": value}], volumeMounts=mounts)
    return on_slurm(main, volumes=[{"name": "disk", "emptyDir": {}}])


# ---------------------------------------------------------------------------------------------- life

ON_ERROR = {"terminationMessagePolicy": "FallbackToLogsOnError", "resources": SMALL}
OWN_PATH = {"terminationMessagePath": "/dev/termination-custom-log", "resources": SMALL}
MESSAGES = on_slurm(
    container("echo DONE", "empty", **ON_ERROR),
    container("echo no; printf OK > /dev/termination-log", "from-file", **ON_ERROR),
    container("printf DONE; exit 1", "from-log", **ON_ERROR),
    container("printf DONE > /dev/termination-custom-log", "own-path", **OWN_PATH),
)
EXITS_TWICE = f"{STARTS} echo $count; [ $count -gt 1 ] || exit 1; [ $count -gt 2 ] || exit 0; {FOREVER}"


def exiting(policy: str, script: str) -> Object:
    return on_slurm(container(script, volumeMounts=AT_COUNT), restartPolicy=policy, **COUNTS)


def initialized(policy: str, *scripts: str, main: str = "true") -> Object:
    init = [
        container(script, f"init{number}", volumeMounts=AT_COUNT)
        for number, script in enumerate(scripts, start=1)
    ]
    return on_slurm(container(main, "run1"), initContainers=init, restartPolicy=policy, **COUNTS)


ROOTS = on_slurm(
    container(
        "echo text > /file && echo written", "read-only", securityContext={"readOnlyRootFilesystem": True}
    ),
    container(
        "echo text > /file && cat /file", "writable", securityContext={"readOnlyRootFilesystem": False}
    ),
    container(
        "busybox ip link add dummy0 type dummy && echo privileged; busybox grep -E 'NoNewPrivs|Seccomp:' "
        "/proc/self/status",
        "unprivileged",
        securityContext={
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    ),
    container("cat /etc/hosts; echo 'Hello World'", "hosts"),
    hostAliases=ALIASES,
)


def every_second(**handler: Any) -> Object:
    return {"periodSeconds": 1, "failureThreshold": 1, **handler}


def served(port: int, path: str = "/healthy") -> Object:
    """With the time that a server needs to come up."""
    return every_second(httpGet={"port": port, "path": path}, failureThreshold=20)


HEALTH = every_second(exec={"command": ["cat", "/tmp/health"]})
HEALTHY = f"echo ok > /tmp/health; {FOREVER}"
SICKENS = "echo ok > /tmp/health; sleep 2; busybox rm -f /tmp/health; sleep 600"


def server(port: int) -> str:
    files = "busybox mkdir -p /www; for file in healthy started stopped; do echo ok > /www/$file; done"
    return f"{files}; exec busybox httpd -f -vv -p {port} -h /www"


def probed(name: str, script: str, **probes: Object) -> Object:
    return container(script, name, resources=SMALL, **probes)


PROBES = on_slurm(
    probed("file", HEALTHY, livenessProbe={**HEALTH, "failureThreshold": 20}),
    probed("file-gone", SICKENS, livenessProbe=HEALTH),
    probed("http", server(SERVED), livenessProbe=served(SERVED)),
    probed("http-fails", server(ABSENT), livenessProbe={**served(ABSENT, "/sick"), "failureThreshold": 2}),
    probed(
        "tcp",
        server(CONNECTED),
        livenessProbe=every_second(tcpSocket={"port": CONNECTED}, failureThreshold=20),
    ),
    probed("never-ready", FOREVER, readinessProbe=every_second(exec={"command": ["cat", "/none"]})),
    probed(
        "starts-late",
        f"sleep 4; {HEALTHY}",
        startupProbe={**HEALTH, "failureThreshold": 60},
        livenessProbe={**HEALTH, "failureThreshold": 3, "timeoutSeconds": 10},
    ),
    probed("never-starts", FOREVER, startupProbe=every_second(exec={"command": ["cat", "/none"]})),
    probed("hangs", FOREVER, livenessProbe=every_second(exec={"command": ["sleep", "60"]})),
    restartPolicy="Always",
    terminationGracePeriodSeconds=1,
)
DELAY_S = 3
DELAYED = on_slurm(
    container(
        FOREVER,
        readinessProbe={"exec": {"command": ["cat", "/etc/hosts"]}, "initialDelaySeconds": DELAY_S},
    )
)
SERVER = container(
    server(HOOKED), "server", resources=SMALL, restartPolicy="Always", startupProbe=served(HOOKED)
)
HOOKS = on_slurm(
    container(
        "while [ ! -e /count/started ]; do sleep 0.2; done; echo started",
        "exec",
        resources=SMALL,
        volumeMounts=AT_COUNT,
        lifecycle={"postStart": {"exec": {"command": ["sh", "-c", ": > /count/started"]}}},
    ),
    container(
        FOREVER,
        "http",
        resources=SMALL,
        lifecycle={
            "postStart": {"httpGet": {"port": HOOKED, "path": "/started"}},
            "preStop": {"httpGet": {"port": HOOKED, "path": "/stopped"}},
        },
    ),
    container(
        FOREVER,
        "exec-at-end",
        resources=SMALL,
        lifecycle={"preStop": {"exec": {"command": ["sh", "-c", "echo stopped >> /proc/1/fd/1"]}}},
    ),
    initContainers=[SERVER],
    **COUNTS,
)
SPECS: Mapping[str, Object] = {
    "always": exiting("Always", EXITS_TWICE),
    "init-failing": initialized("Always", f"{STARTS} echo $count; exit 1", "true", main=FOREVER),
    "probes": PROBES,
    "hooks": HOOKS,
    "variables": VARIABLES,
    "arguments": ARGUMENTS,
    "files": files(),
    "empty": EMPTY,
    "sub-path": SUB_PATH,
    "back-step": leaving_sub_path(".."),
    "absolute": leaving_sub_path("/tmp"),
    "messages": MESSAGES,
    "on-failure": exiting("OnFailure", f"{STARTS} [ $count -gt 1 ]"),
    "never": exiting("Never", "exit 1"),
    "init-always": initialized("Always", "true", "true", main=FOREVER),
    "init-never": initialized("Never", "true", "true"),
    "init-failed": initialized("Never", "exit 1", "true"),
    "roots": ROOTS,
    "delayed": DELAYED,
    "no-limit": on_slurm(container("env", env=[resource("CPU_LIMIT", "limits.cpu")])),
}
