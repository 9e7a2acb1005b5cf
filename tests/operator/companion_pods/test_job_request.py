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
# As release 0.1.0 writes it.
DIGEST = "sha256:186581b820254c0e75835fb096b04f5e1f650c6101d6765d24c1e4450ae74f63"


def test_a_request_is_stored_as_release_0_1_0_stores_it() -> None:
    assert digest(stored_request(REQUEST)) == DIGEST
