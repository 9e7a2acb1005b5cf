"""LoginSet, RestApi, Accounting and Token: what a cluster has besides slurmctld and workers."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from redbox_hosting.api.fields import (
    HOST,
    ConfigMapKeyRef,
    ExternalDaemon,
    IntOrPercent,
    JwtKeyFields,
    Name,
    ObjectRef,
    SecretKeyRef,
    SlurmName,
)
from redbox_hosting.api.pod_schemas import ContainerFields, PodTemplate, ServiceFields
from redbox_hosting.api.status import AccountingStatus, LoginSetStatus, RestApiStatus, TokenStatus
from redbox_kube.controller.kube_object import KubeObject
from redbox_kube.schemas.openapi import rule
from redbox_kube.status.models import KubeModel

LONGEST_CONF = 65_536
LIFETIME = r"^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,9}s)?$"
SQL_NAME = r"^[A-Za-z0-9_.-]+$"
FIXED_SIZE = rule("self == oldSelf", "size is immutable: expand the claim data-NAME-database-0 itself")


class LoginStrategyType(StrEnum):
    """How login pods are replaced."""

    RECREATE = "Recreate"
    ROLLING_UPDATE = "RollingUpdate"


class RollingLogins(KubeModel):
    """Accepted for compatibility."""

    max_surge: IntOrPercent | None = Field(None, description="Accepted for compatibility.")
    max_unavailable: IntOrPercent | None = Field(None, description="Accepted for compatibility.")


class LoginStrategy(KubeModel):
    """How login pods are replaced."""

    type: LoginStrategyType = Field(
        LoginStrategyType.ROLLING_UPDATE, description="Recreate: all together. RollingUpdate: in turn."
    )
    rolling_update: RollingLogins | None = Field(
        None, description="Accepted for compatibility: pods are replaced one by one."
    )


class UserCaRef(KubeModel):
    """Authorities of users' SSH certificates, in a ConfigMap."""

    name: Name = Field(description="A ConfigMap with their public keys, under the key trusted_user_ca_keys.")
    group: SlurmName | None = Field(
        None, description="Certificates are accepted for members of this Unix group only. Left out: for all."
    )


class RedboxLoginFields(KubeModel):
    """Fields that other operators of Slurm do not have."""

    authorized_keys_ref: ObjectRef | None = Field(
        None,
        description="A ConfigMap with users' public keys: each key of it is a user's name. Besides, "
        "~/.ssh/authorized_keys of each user is read.",
    )
    trusted_user_ca_keys: str | None = Field(
        None,
        max_length=LONGEST_CONF,
        description="Public keys of authorities whose SSH certificates are accepted, such as red-box's.",
    )
    trusted_user_ca_keys_ref: UserCaRef | None = Field(
        None,
        description="The same in a ConfigMap, read at each login. root never logs in by one of these.",
    )


class LoginSetSpec(KubeModel):
    """Pods that users log in to with ssh."""

    controller_ref: ObjectRef = Field(description="The Controller of this namespace.")
    replicas: int | None = Field(None, ge=0, le=100, description="How many pods.")
    login: ContainerFields = Field({}, description="The container of sshd, as in a pod.")
    initconf: ContainerFields = Field(
        {}, description="A container, as in a pod. Refused in a condition: no such container exists."
    )
    template: PodTemplate = Field({}, description="A login pod, as in a pod.")
    root_ssh_authorized_keys: str | None = Field(
        None, max_length=LONGEST_CONF, description="Public keys that may log in as root."
    )
    extra_sshd_config: str | None = Field(None, max_length=LONGEST_CONF, description="Lines for sshd_config.")
    sssd_conf_ref: SecretKeyRef | None = Field(
        None, description="sssd.conf. Left out: the users of the Controller."
    )
    strategy: LoginStrategy = Field(LoginStrategy(), description="How pods are replaced.")
    service: ServiceFields = Field({}, description="The Service of sshd, as in a pod's Service.")
    redbox: RedboxLoginFields = Field(
        RedboxLoginFields(), description="Fields that other operators of Slurm do not have."
    )


class RedboxRestApiFields(KubeModel):
    """Fields that other operators of Slurm do not have."""

    tls_secret_ref: ObjectRef | None = Field(
        None,
        description="A Secret with tls.crt and tls.key, as cert-manager makes it. Left out: the operator "
        "issues a certificate of the cluster's own authority.",
    )


class RestApiSpec(KubeModel):
    """slurmrestd for users. The operator has its own."""

    controller_ref: ObjectRef = Field(description="The Controller of this namespace.")
    replicas: int | None = Field(None, ge=0, le=100, description="How many pods.")
    slurmrestd: ContainerFields = Field({}, description="The container slurmrestd, as in a pod.")
    template: PodTemplate = Field({}, description="A pod of slurmrestd, as in a pod.")
    service: ServiceFields = Field({}, description="The Service of slurmrestd, as in a pod's Service.")
    redbox: RedboxRestApiFields = Field(
        RedboxRestApiFields(), description="Fields that other operators of Slurm do not have."
    )


class StorageConfig(KubeModel):
    """The database of slurmdbd."""

    host: str = Field(min_length=1, max_length=253, pattern=HOST, description="The database's host.")
    port: int = Field(3306, ge=1, le=65535, description="Its port.")
    database: str = Field(
        "slurm_acct_db", min_length=1, max_length=64, pattern=SQL_NAME, description="The database."
    )
    username: str = Field(
        "slurm", min_length=1, max_length=80, pattern=SQL_NAME, description="The database's user."
    )
    password_key_ref: SecretKeyRef = Field(description="The password.")


class ManagedDatabase(KubeModel):
    """A MariaDB that the operator runs."""

    enabled: bool = Field(default=False, description="Run MariaDB; then storageConfig is left out.")
    image: str | None = Field(None, max_length=1024, pattern=r"^[^\s]+$", description="The image of MariaDB.")
    storage_class_name: str | None = Field(None, max_length=253, description="The class of its claim.")
    size: str = Field(
        "8Gi",
        max_length=20,
        pattern=r"^[0-9]+(Mi|Gi|Ti|M|G|T)?$",
        json_schema_extra={"x-kubernetes-validations": [FIXED_SIZE]},
        description="The size of its claim.",
    )


class RedboxAccountingFields(KubeModel):
    """Fields that other operators of Slurm do not have."""

    database: ManagedDatabase = Field(ManagedDatabase(), description="A database that the operator runs.")


class AccountingSpec(JwtKeyFields):
    """slurmdbd, for one or more clusters."""

    slurm_key_ref: SecretKeyRef | None = Field(
        None, description="The key that Slurm's daemons share. Left out: that of the Controller."
    )
    jwks_key_ref: ConfigMapKeyRef | None = Field(
        None, description="Public keys (JWKS) of another issuer of tokens."
    )
    external: bool = Field(
        default=False, description="slurmdbd runs elsewhere; then externalConfig says where."
    )
    external_config: ExternalDaemon | None = Field(None, description="The slurmdbd that runs elsewhere.")
    slurmdbd: ContainerFields = Field({}, description="The container slurmdbd, as in a pod.")
    template: PodTemplate = Field({}, description="The pod of slurmdbd, as in a pod.")
    extra_conf: str | None = Field(
        None,
        max_length=LONGEST_CONF,
        description="Lines for slurmdbd.conf. A key that loads code, or that the operator relies on, is "
        "refused in a condition.",
    )
    service: ServiceFields = Field({}, description="The Service of slurmdbd, as in a pod's Service.")
    storage_config: StorageConfig | None = Field(None, description="A database that runs elsewhere.")
    redbox: RedboxAccountingFields = Field(
        RedboxAccountingFields(), description="Fields that other operators of Slurm do not have."
    )


class TokenSpec(JwtKeyFields):
    """A JSON web token of one user, in a Secret."""

    controller_ref: ObjectRef | None = Field(
        None, description="The Controller whose list of users applies. Left out: the only one."
    )
    username: SlurmName = Field(description="The user. The Controller's spec.redbox.tokens.users lists them.")
    lifetime: str = Field(
        "15m", max_length=24, pattern=LIFETIME, description="How long the token is valid, such as 1h30m."
    )
    refresh: bool = Field(
        default=True, description="Renew it when 80 % of its time is over. false: it ends, and stays."
    )
    secret_ref: SecretKeyRef | None = Field(
        None, description="Where to write it. Left out: NAME-jwt-USERNAME, key SLURM_JWT."
    )


class LoginSet(KubeObject):
    """A LoginSet as stored at the API server."""

    spec: LoginSetSpec
    status: LoginSetStatus = LoginSetStatus()


class RestApi(KubeObject):
    """A RestApi as stored at the API server."""

    spec: RestApiSpec
    status: RestApiStatus = RestApiStatus()


class Accounting(KubeObject):
    """An Accounting as stored at the API server."""

    spec: AccountingSpec
    status: AccountingStatus = AccountingStatus()


class Token(KubeObject):
    """A Token as stored at the API server."""

    spec: TokenSpec
    status: TokenStatus = TokenStatus()
