"""The agent's main program: guard, nonce, hello, session. It ignores arguments and environment."""

import json
import os
import pwd
import sys
from typing import Any, Dict, List

from redbox.agents.program.archives import make_tar, unpack_tar
from redbox.agents.program.command_records import CommandRecordStore, describe_process, state_directories
from redbox.agents.program.commands import CommandOperations
from redbox.agents.program.earlier_agents import end_agent
from redbox.agents.program.files import FileOperations
from redbox.agents.program.guard import REFUSED, StartRefused, check_user, read_settings
from redbox.agents.program.session import Operation, Session, start_thread
from redbox.agents.program.steps import StepOperations
from redbox.agents.program.wire import EVENT, PROTOCOL, FrameWriter, hello_line

MAX_NONCE = 65


def find_account(uid: int) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        raise StartRefused("the agent refuses to run: uid {} has no account here".format(uid)) from None


def describe_agent(account: pwd.struct_passwd) -> Dict[str, Any]:
    return {
        **describe_process(os.getpid()),
        "protocol": PROTOCOL,
        "uid": account.pw_uid,
        "home": account.pw_dir,
    }


def build_operations(account: pwd.struct_passwd, path: List[str]) -> Dict[str, Operation]:
    commands = CommandOperations(
        account, path, CommandRecordStore(state_directories(account.pw_uid, account.pw_dir))
    )
    files = FileOperations()
    return {
        "run": commands.run,
        "recall": commands.recall,
        "stat": files.stat,
        "read": files.read,
        "glob": files.glob,
        "make_directory": files.make_directory,
        "remove": files.remove,
        "make_own_directory": files.make_own_directory,
        "remove_own_directory": files.remove_own_directory,
        "write": files.write,
        "tar": make_tar,
        "unpack": unpack_tar,
        "run_program": StepOperations(account, path).run_program,
        "end_agent": end_agent,
    }


def greet(nonce: bytes, account: pwd.struct_passwd) -> None:
    os.write(1, hello_line(nonce))
    FrameWriter(1).write(EVENT, 0, json.dumps(describe_agent(account)).encode())


def main() -> None:
    os.environ.clear()
    try:
        settings = read_settings()
        check_user(os.getuid(), os.geteuid(), settings)
        account = find_account(os.getuid())
    except StartRefused as refusal:
        sys.stderr.write("{}\n".format(refusal))
        sys.exit(REFUSED)
    os.chdir("/")
    source = sys.stdin.buffer
    greet(source.readline(MAX_NONCE).strip(), account)
    session = Session(source, 1, build_operations(account, settings.path))
    start_thread(session.exit_when_idle)
    session.serve()
    os._exit(0)  # without joining threads, which a dead file server may block


if __name__ == "__main__":
    main()
