"""Problems of a login node, each with its level and words of its finding."""

from __future__ import annotations

import datetime as dt

from redbox.server.certificates import make_authority
from redbox.setup.checks.findings import Level
from redbox.setup.checks.machine import PORT_IN_USE
from tests.redbox.callers.factories import jwks, rsa_key
from tests.redbox.setup.factories import (
    ALICE_OF_PHYSICS,
    BY_URL,
    SSHD,
    Change,
    account,
    answer,
    both,
    certificate,
    cluster,
    configure,
    controllers,
    good_ssh,
    move_clock,
    remove,
    rule,
    set_file,
    set_host,
    slurm_says,
)
from tests.redbox.setup.fakes import (
    MEMBERS,
    NOW,
    PROCESSES,
    REDBOX,
    SLURM_CONFIG,
    SUDO_LIST,
    refuses,
)

NOTE, WARNING, FAULT = Level.NOTE, Level.WARNING, Level.FAULT
MAY_EXEC, ONLY_EXEC = ["submit", "exec"], {"enabled": True, "roles": ["exec"]}


PROBLEMS: dict[str, tuple[Change, Level, str]] = {
    # what a server left
    "an agent without a server": (
        answer("/usr/bin/ps -e", 0, PROCESSES.replace("702     701", "702       1")),
        WARNING,
        "process 702 of alice is an agent whose server has ended",
    ),
    "processes that cannot be seen": (
        answer("/usr/bin/ps -e", None),
        WARNING,
        "orphaned agents were not searched for",
    ),
    # accounts and groups
    "no account": (lambda host: host.accounts.pop("redbox"), FAULT, "no account redbox"),
    "the account is root": (account("redbox", 0, 0), FAULT, "root under another name"),
    "the account is a member": (account("redbox", REDBOX, MEMBERS), FAULT, "is in the group redbox-users"),
    "the account is powerful": (account("redbox", REDBOX, 42), FAULT, "is in the group docker"),
    "no group": (lambda host: host.groups.pop("redbox-users"), FAULT, "no group redbox-users"),
    # files
    "settings of somebody": (
        set_file("/etc/redbox/redbox.yaml", uid=2001),
        FAULT,
        "they could run jobs as any user",
    ),
    "settings for all": (
        set_file("/etc/redbox/redbox.yaml", mode=0o666),
        FAULT,
        "can write /etc/redbox/redbox.yaml",
    ),
    "a directory above": (
        set_file("/etc/redbox", mode=0o775),
        FAULT,
        "users other than root can write /etc/redbox:",
    ),
    "a link to elsewhere": (
        both(
            set_file("/home/alice/redbox.yaml", uid=2001),
            lambda host: host.links.update({"/etc/redbox/redbox.yaml": "/home/alice/redbox.yaml"}),
        ),
        FAULT,
        "can write /home/alice/redbox.yaml",
    ),
    "keys of somebody": (
        set_file("/etc/redbox/prod.jwks.json", uid=2001),
        FAULT,
        "can write /etc/redbox/prod.jwks.json",
    ),
    "a readable mark secret": (
        set_file("/var/lib/redbox/mark.secret", mode=0o644),
        FAULT,
        "it is a secret, and other users can read it",
    ),
    "no mark secret": (remove("/var/lib/redbox/mark.secret"), FAULT, "mark.secret is missing"),
    "a foreign mark secret": (
        set_file("/var/lib/redbox/mark.secret", uid=2001),
        FAULT,
        "belongs to uid 2001",
    ),
    "a made-up mark secret": (
        set_file("/var/lib/redbox/mark.secret", content=b"hunter2"),
        FAULT,
        "is not a mark secret",
    ),
    "a readable key": (set_file("/etc/redbox/tls/server.key", mode=0o640), FAULT, "server.key has mode 0640"),
    "a readable CA key": (set_file("/etc/redbox/tls/ca.key", mode=0o644), FAULT, "ca.key has mode 0644"),
    "readable tokens": (
        set_file("/var/lib/redbox/tokens.json", mode=0o644, uid=REDBOX),
        FAULT,
        "tokens.json has mode 0644",
    ),
    # journal and port
    "no journal": (remove("/var/lib/redbox"), FAULT, "no directory /var/lib/redbox for the journal"),
    "an open journal": (set_file("/var/lib/redbox", mode=0o755), FAULT, "other users can read the journal"),
    "a journal on NFS": (
        set_file(
            "/proc/self/mountinfo", content=b"1 0 8:1 / / rw - ext4 a rw\n2 1 0:9 / /var rw - nfs4 b rw\n"
        ),
        FAULT,
        "network file system (nfs4)",
    ),
    "a full disk": (set_host(free=1024), WARNING, "has 0 MiB left"),
    "a port in use": (set_host(listening=PORT_IN_USE), FAULT, "cannot listen on 0.0.0.0, port 8443: in use"),
    "a port in use by red-box": (
        set_host(listening=PORT_IN_USE, running=True, serving=True),
        NOTE,
        "in use by the red-box that runs here",
    ),
    "a port that is not allowed": (set_host(listening="Permission denied"), FAULT, "Permission denied"),
    # the agent and sudo
    "an agent of others": (
        set_host(agent=["/usr may be written by others than root: chown root /usr; chmod go-w /usr"]),
        FAULT,
        "/usr may be written by others than root",
    ),
    "no agent.conf": (remove("/etc/redbox/agent.conf"), WARNING, "no /etc/redbox/agent.conf"),
    "agent.conf of others": (
        set_file("/etc/redbox/agent.conf", mode=0o664),
        FAULT,
        "can write /etc/redbox/agent.conf",
    ),
    "agent.conf is stricter": (
        set_file("/etc/redbox/agent.conf", content=b"min_uid = 2000\npath = /usr/bin\n"),
        NOTE,
        "agents refuse uids below 2000, while mapping.min_uid is 1000",
    ),
    "no sudoers": (remove("/etc/sudoers.d/redbox"), FAULT, "there is no /etc/sudoers.d/redbox"),
    "other sudoers": (
        set_file("/etc/sudoers.d/redbox", content=b"redbox ALL = (ALL) NOPASSWD: ALL\n"),
        FAULT,
        "differs from the rule that red-box needs",
    ),
    "sudoers that log": (
        set_file("/etc/sudoers.d/redbox", content=SUDO_LIST.splitlines()[-1].strip().encode()),
        FAULT,
        "differs from the rule that red-box needs",
    ),
    "sudoers with a flaw": (
        answer("/usr/sbin/visudo -c", 1, "", "/etc/sudoers.d/x:3:1: syntax error"),
        FAULT,
        "syntax error",
    ),
    "sudoers that sudo does not read": (
        answer(
            "/usr/sbin/visudo -c", 0, "/etc/sudoers: parsed OK\n", "visudo: /etc/sudoers.d is world writable"
        ),
        FAULT,
        "/etc/sudoers.d is world writable",
    ),
    "sudoers of others": (
        set_file("/etc/sudoers.d/redbox", mode=0o664),
        FAULT,
        "can write /etc/sudoers.d/redbox",
    ),
    "a second right": (
        answer("/usr/bin/sudo -n -l -U redbox", 0, SUDO_LIST + "    (root) NOPASSWD: /usr/bin/systemctl\n"),
        FAULT,
        "more than red-box needs: (root) NOPASSWD: /usr/bin/systemctl",
    ),
    "any arguments": (
        answer("/usr/bin/sudo -n -l -U redbox", 0, SUDO_LIST.replace(' ""', "")),
        FAULT,
        "more than red-box needs",
    ),
    "as anybody": (
        answer("/usr/bin/sudo -n -l -U redbox", 0, SUDO_LIST.replace("%redbox-users", "ALL")),
        FAULT,
        "more than red-box needs: (ALL)",
    ),
    "no right": (
        answer("/usr/bin/sudo -n -l -U redbox", 1, "User redbox is not allowed to run sudo on login.\n"),
        FAULT,
        "sudo allows redbox nothing",
    ),
    # ssh
    "ssh: no host key": (
        both(good_ssh, remove("/etc/redbox/known_hosts")),
        FAULT,
        "has no host key of login",
    ),
    "ssh: a readable CA": (
        both(good_ssh, set_file("/etc/redbox/ssh-ca.key", mode=0o644)),
        FAULT,
        "ssh-ca.key has mode 0644",
    ),
    "ssh: the CA counts for root": (
        both(good_ssh, answer(f"{SSHD} -T -C user=root", 0, "trustedusercakeys /etc/redbox/ssh-ca.pub\n")),
        FAULT,
        "trusts a CA for user certificates for root too",
    ),
    "ssh: sshd is elsewhere": (both(good_ssh, remove(SSHD)), NOTE, "sshd was not checked"),
    "ssh: sshd says nothing": (
        both(good_ssh, answer(f"{SSHD} -T -C user=root", 255, "", "no hostkeys")),
        WARNING,
        "did not print its settings: no hostkeys",
    ),
    # TLS
    "no certificate": (remove("/etc/redbox/tls/server.crt"), FAULT, "server.crt cannot be read"),
    "a certificate that is not one": (set_file("/etc/redbox/tls/server.crt", content=b"x"), FAULT, "PEM"),
    "another's key": (
        set_file("/etc/redbox/tls/server.key", content=make_authority("y", NOW).key),
        FAULT,
        "is not the key of",
    ),
    "a certificate that ended": (move_clock(days=398), FAULT, "expired on 2027-10-23"),
    "a certificate that ends soon": (move_clock(days=380), WARNING, "expires on 2027-10-23"),
    "a certificate of tomorrow": (
        certificate(now=NOW + dt.timedelta(days=1)),
        FAULT,
        "is not valid before 2026-09-22",
    ),
    "a certificate without names": (certificate(names=[]), FAULT, "no subjectAltName"),
    # callers
    "no keys": (remove("/etc/redbox/prod.jwks.json"), FAULT, "tokens of cluster prod get a 503"),
    "keys that are none": (
        set_file("/etc/redbox/prod.jwks.json", content=b"{}"),
        FAULT,
        "is not a valid key set for cluster prod",
    ),
    "keys out of reach": (
        both(BY_URL, set_host(fetched=refuses("connection refused"))),
        FAULT,
        "cannot be fetched: connection refused",
    ),
    "a cloned cluster": (
        configure(callers={"clusters": [cluster(), cluster(name="test")]}),
        FAULT,
        "prod, test share a signing key",
    ),
    "an audience to guess": (
        configure(callers={"clusters": [cluster(audience="redbox.dev/hpc1")]}),
        WARNING,
        "is not of the form redbox.dev/<name>/<random>",
    ),
    "clocks apart": (
        both(BY_URL, set_host(fetched=jwks(a=rsa_key()), their_clock=NOW + dt.timedelta(seconds=95))),
        FAULT,
        "are 95 s apart, more than callers.leeway allows",
    ),
    "clocks a little apart": (
        both(BY_URL, set_host(fetched=jwks(a=rsa_key()), their_clock=NOW - dt.timedelta(seconds=15))),
        WARNING,
        "are 15 s apart",
    ),
    "a readable reviewer": (
        both(
            configure(
                callers={
                    "clusters": [
                        cluster(token_review={"server": "https://k", "token_file": "/etc/redbox/reviewer"})
                    ]
                }
            ),
            set_file("/etc/redbox/reviewer", mode=0o644, uid=REDBOX),
        ),
        FAULT,
        "reviewer has mode 0644",
    ),
    # rules
    "no rules": (configure(mapping={"rules": []}), NOTE, "no rule allows a service account to submit"),
    "no clusters": (
        configure(callers={"clusters": []}, mapping={"rules": []}),
        NOTE,
        "no Kubernetes cluster is configured",
    ),
    "a template": (
        rule(user="{namespace}", allowed_users=["alice"]),
        WARNING,
        "rule 1 derives the user from {namespace}: anyone who can create",
    ),
    "no role volumes": (
        configure(mapping={"rules": [controllers("redbox-operator", "redbox-resourced")]}),
        NOTE,
        "redbox-resourced of cluster prod does not have the role volumes",
    ),
    "a role volumes that comes too late": (
        configure(
            mapping={
                "rules": [
                    controllers("redbox-operator", "redbox-resourced"),
                    controllers("redbox-resourced", roles=("operator", "reader", "volumes")),
                ]
            }
        ),
        WARNING,
        "redbox-resourced of cluster prod does not get the role volumes: rule 1 matches it first",
    ),
    "exec is off": (rule(roles=MAY_EXEC), NOTE, "rule 1 gives the role exec, and sessions are off"),
    "exec for no caller": (configure(exec=ONLY_EXEC), WARNING, "the role exec, and no rule gives it"),
    "exec for all": (
        configure(exec={"enabled": True}, mapping={"rules": [{**ALICE_OF_PHYSICS, "roles": MAY_EXEC}]}),
        NOTE,
        "every caller with the role submit may enter jobs",
    ),
    "a pattern for all": (rule(namespaces="^.*$"), WARNING, "rule 1 matches every namespace of cluster prod"),
    "an unknown user": (rule(user="eve"), FAULT, "rule 1 names user eve, who does not exist on this host"),
    "a daemon": (rule(user="daemon"), FAULT, "user daemon, whose uid 2 is below min_uid"),
    "no member": (rule(user="bob"), FAULT, "user bob, who is not in the group redbox-users"),
    "no such group": (
        rule(user="{namespace}", allowed_group="staff"),
        FAULT,
        "rule 1 names group staff, which does not exist",
    ),
    # Slurm
    "no sbatch": (lambda host: host.tools.remove("sbatch"), FAULT, "sbatch is in none of /usr/bin"),
    "no scontrol": (lambda host: host.tools.remove("scontrol"), FAULT, "scontrol is in none of"),
    "slurmctld is away": (
        answer("/usr/bin/scontrol show config", 1, "", "Unable to contact slurm controller"),
        FAULT,
        "slurmctld does not answer: Unable to contact",
    ),
    "old Slurm": (slurm_says("24.11.5", "19.05.8"), FAULT, "older than 20.11"),
    "untested newer Slurm": (
        slurm_says("24.11.5", "27.11.1"),
        WARNING,
        "Slurm 27.11.1 is newer than the releases that red-box was tested with: 22.05, 24.11, 26.05",
    ),
    "untested older Slurm": (
        slurm_says("24.11.5", "21.08.8"),
        WARNING,
        "Slurm 21.08.8 is older than",
    ),
    "Slurm between tested ones": (
        slurm_says("24.11.5", "25.05.3"),
        NOTE,
        "Slurm 25.05.3 itself was not tested: red-box was tested with 22.05, 24.11, 26.05",
    ),
    "private jobs": (slurm_says("= none", "= jobs,usage"), WARNING, "PrivateData hides jobs"),
    "private nodes": (slurm_says("= none", "= nodes"), WARNING, "PrivateData hides nodes or partitions"),
    "stored environment": (
        slurm_says("job_comment", "job_comment,job_env"),
        WARNING,
        "stores the secrets of jobs",
    ),
    "no limits": (slurm_says("= ALL", "= NO"), NOTE, "EnforcePartLimits is off"),
    "no accounting": (
        slurm_says("accounting_storage/slurmdbd", "(null)"),
        WARNING,
        "Slurm keeps no accounting",
    ),
    "no accounting and no memory": (
        answer(
            "/usr/bin/scontrol show config",
            0,
            SLURM_CONFIG.replace("accounting_storage/slurmdbd", "(null)").replace("300 sec", "10 sec"),
        ),
        FAULT,
        "MinJobAge is 10 s and there is no accounting",
    ),
    "sacct is silent": (answer("/usr/bin/sacct --helpformat", 1), FAULT, "sacct does not answer"),
    "slurmdbd is away": (
        answer("/usr/bin/sacct --allocations", 1, "", "Connection refused"),
        FAULT,
        "sacct does not answer: Connection refused",
    ),
    "an older sacct": (
        answer("/usr/bin/sacct --helpformat", 0, "JobID JobIDRaw UID State ExitCode Submit Start End"),
        NOTE,
        "sacct has no field SubmitLine before Slurm 21.08",
    ),
    "a useless sacct": (
        answer("/usr/bin/sacct --helpformat", 0, "JobID"),
        FAULT,
        "sacct has no field End, ExitCode",
    ),
    "a private database": (
        answer("/usr/bin/sacctmgr --readonly show configuration", 0, "PrivateData            = jobs,users\n"),
        WARNING,
        "slurmdbd's PrivateData hides jobs",
    ),
    "a federation": (
        answer("/usr/bin/scontrol show federation", 0, "Federation: fed1\nSelf: hpc1:..."),
        FAULT,
        "is in the federation fed1",
    ),
}
