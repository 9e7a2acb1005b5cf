"""To which addresses the operator connects for a SlurmEndpoint.

Users of its namespace write that address, and the operator's network reaches what theirs may not. So each
address is judged when a connection to it begins, after its name has been resolved: never a loopback or
link-local one, of a cloud's metadata, or of the API server's Service; and where an administrator lists
networks, only these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

IN_IPV6 = tuple(map(IPv6Network, ("64:ff9b::/96", "::/96")))
"""IPv6 addresses whose last 32 bits are an IPv4 address, beside those that `ipaddress` reads."""
METADATA = frozenset(
    map(ip_address, ("168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"))
)
"""Of clouds, beside 169.254.0.0/16."""
API_SERVER_VARIABLE = "KUBERNETES_SERVICE_HOST"


@dataclass(frozen=True, slots=True)
class EndpointAddresses:
    """The rule."""

    networks: tuple[Network, ...] = ()
    """Empty: all but those that are refused."""
    api_server: Address | None = None

    @classmethod
    def of_installation(cls, networks: str, environ: Mapping[str, str]) -> EndpointAddresses:
        """From a list with commas; raises ValueError."""
        listed = tuple(ip_network(part.strip()) for part in networks.split(",") if part.strip())
        try:
            return cls(listed, ip_address(environ.get(API_SERVER_VARIABLE, "")))
        except ValueError:
            return cls(listed)

    def refusal(self, address: str) -> str | None:
        """Why the operator does not connect there, with what to do; None: it does."""
        try:
            inner = _inner(ip_address(address.partition("%")[0]))
        except ValueError:
            return f"{address} is not an address"
        kind = self._kind(inner)
        if kind is None:
            return None
        return (
            f"the operator does not connect to {address} for a SlurmEndpoint ({kind}): give the address of a "
            "Service of your namespace in spec.endpoint"
        )

    def _kind(self, address: Address) -> str | None:
        kinds = {
            "loopback": address.is_loopback,
            "link-local": address.is_link_local,
            "a cloud's metadata": address in METADATA,
            "the API server": address == self.api_server,
            "unspecified": address.is_unspecified or address in IPv4Network("0.0.0.0/8"),
            "multicast": address.is_multicast or address == IPv4Address("255.255.255.255"),
            "not of operator.slurmEndpoints.networks": bool(self.networks)
            and not any(address in network for network in self.networks),
        }
        return next((kind for kind, holds in kinds.items() if holds), None)


def _inner(address: Address) -> Address:
    """The IPv4 address that a translator or a tunnel would make of an IPv6 address."""
    if isinstance(address, IPv4Address) or address.is_loopback or address.is_unspecified:
        return address
    if inner := address.ipv4_mapped or address.sixtofour:
        return inner
    if any(address in network for network in IN_IPV6):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address
