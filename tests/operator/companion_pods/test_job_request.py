"""The text of a stored request: an operator compares it with the ConfigMaps of an older one."""

from redbox_api.models import JobRequest
from redbox_operator.companion_pods.job_request import digest, stored_request

REQUEST = JobRequest.model_validate(
    {
        "options": ["--exclusive"],
        "hold": True,
        "begin": "now+1hour",
        "dependencies": [{"jobID": "7"}],
        "array": "0-3",
        "error": "e",
        "output": "o",
        "workingDirectory": "~/x",
        "env": {"A": "ü"},
        "resources": {"nodes": 2},
        "qos": "high",
        "account": "physics",
        "partition": "debug",
        "name": "j",
        "batch": "#!/bin/sh\nhostname\n",
    }
)
# As commit b960f9a wrote it.
DIGEST = "sha256:d89609d1664ba3956a1a6a5924339210bab376074ec55df53ac9f63b8d22d00e"


def test_a_request_is_stored_as_operators_before_stored_it() -> None:
    assert digest(stored_request(REQUEST)) == DIGEST
