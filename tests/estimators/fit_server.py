"""A process that fits models in child processes, so that tests may kill them.

Importing takes longer than fitting, so it is done once: every line of standard input is a job,
for which the process forks. Standard output says `started PID`, `reached STEP` and `ended CODE`
(negative for a signal), one per line.
"""

import json
import os
import select
import signal
import socket
import sys

import knoi
from knoi.solvers import noi
from knoi.solvers.deep import DeepUpdate
from knoi.solvers.dsgd import DSGDUpdate
from knoi.solvers.noi import KNOIUpdate

RULES = {"KNOI": KNOIUpdate, "DoublyStochasticCCA": DSGDUpdate, "DeepCCA": DeepUpdate}
# Small enough that even small maps have blocks to share among workers.
noi.TILE_COLUMNS = 16


def say(*words):
    print(*words, flush=True)


def announce_steps(rule, announced, waiting):
    """Say when step number `announced` of this process begins; at `waiting`, wait for a signal."""
    begun, step = [0], rule.step
    # Readable once a signal has come, even one that comes before the waiting begins.
    signalled, sender = socket.socketpair()
    sender.setblocking(False)
    signal.set_wakeup_fd(sender.fileno())

    def announcing(*args):
        begun[0] += 1
        if begun[0] == announced:
            say("reached", announced)
        if begun[0] == waiting:
            select.select([signalled], [], [])
        return step(*args)

    rule.step = announcing
    return sender  # which must stay open


def run(job):
    sender = announce_steps(RULES[job["estimator"]], *job["steps"])
    model = getattr(knoi, job["estimator"])(**job["params"])
    model.fit(*job["views"], resume=job["resume"]).save(job["out"])
    signal.set_wakeup_fd(-1)
    sender.close()


def main():
    while line := sys.stdin.readline():
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            run(job)
            return
        say("started", pid)
        say("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    main()
