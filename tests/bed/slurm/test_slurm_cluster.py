"""What Slurm and the kernel say is read as it is meant."""

from redbox_bed.slurm.slurm_cluster import are_in_service, listening_ports, parse_node_states

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1AA1 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0
   1: 0100007F:1AA3 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0
"""


def test_a_node_in_several_partitions_is_one_node() -> None:
    assert parse_node_states("n1 idle\nn2 down*\nn1 idle\n") == {"n1": "idle", "n2": "down*"}


def test_an_answer_that_is_an_error_names_no_node() -> None:
    assert parse_node_states("") == {}


def test_only_listening_sockets_are_ports_that_serve() -> None:
    assert listening_ports(TCP) == {6817}


def test_nodes_are_in_service_when_slurm_shows_each_of_them_so() -> None:
    assert are_in_service(["n1", "n2"], {"n1": "idle", "n2": "mixed"})
    assert not are_in_service(["n1", "n2"], {"n1": "idle", "n2": "down*"})
    assert not are_in_service(["n1", "n2"], {"n1": "idle"})
    assert not are_in_service(["n1"], {})  # slurmctld did not answer
