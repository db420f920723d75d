"""Three replicas of the quorum in one process: what the core alone can do, without sockets and disks."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit" / "consensus"))

from raft_cluster import Cluster, Values

from tidelog.consensus.entries import Entry


class Counter(Values):
    def apply(self, entry: Entry) -> None:
        self.values[:] = [entry.data]


def measure(entries: int = 50_000, batch: int = 1, size: int = 100) -> float:
    """Entries a second, proposed `batch` at a time, each committed and applied on all three."""
    cluster = Cluster(1, 2, 3)
    for member in cluster.members.values():
        member.driver.machine = Counter()
    leader = cluster.elect(1)
    member = cluster.members[1]
    data = b"x" * size
    begin = time.process_time()
    for _ in range(entries // batch):
        for _ in range(batch):
            leader.propose(data)
        cluster.turn(member)
        cluster.settle()
        cluster.sent.clear()
    assert leader.commit == leader.log.end
    return entries / (time.process_time() - begin)


if __name__ == "__main__":
    for batch in (1, 10, 100):
        print(f"{batch:>4} proposals at a time: {measure(entries=20_000, batch=batch):>10,.0f} entries/s of one core")
