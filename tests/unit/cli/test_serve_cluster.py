"""`tidelog serve` as one of a cluster: what its flags mean, and what is wrong with those that cannot work."""

from pathlib import Path

import pytest

from tidelog.cli import run
from tidelog.cli.problems import Problem
from tidelog.cli.serve import broker_config
from tidelog.cli.serve_cluster import check_cluster, check_voters
from tidelog.config import BrokerConfig

VOTERS = "1@127.0.0.1:9192,2@127.0.0.1:9292,3@127.0.0.1:9392"


def config(**flags: object) -> BrokerConfig:
    made = broker_config(environment={}, **flags)  # type: ignore[arg-type]
    check_cluster(made)
    return made


def test_the_flags_are_settings() -> None:
    made = config(node_id=2, port=9093, voters=VOTERS, controller_port=9292)
    assert made.node_id == 2
    assert made.controller_quorum_voters == tuple(VOTERS.split(","))
    assert made.controller_address == ("127.0.0.1", 9292)
    assert made.controller_listener is None
    assert config(node_id=2, voters=VOTERS).controller_address == ("127.0.0.1", 9292)
    assert config(node_id=2, assignments=[f"controller.quorum.voters={VOTERS}"]).controller_address is not None


def test_a_broker_without_a_vote_says_where_it_listens() -> None:
    assert config(node_id=4, voters=VOTERS, controller_port=9492).controller_address == ("127.0.0.1", 9492)
    assert config(node_id=4, host="10.0.0.4", voters=VOTERS, controller_port=9492).controller_address == (
        "10.0.0.4",
        9492,
    )


@pytest.mark.parametrize(
    ("flags", "wrong"),
    [
        ({"voters": VOTERS}, "needs an id"),
        ({"node_id": 4, "voters": VOTERS}, "node 4 is not among the voters 1, 2, 3"),
        ({"node_id": 1, "controller_port": 9192}, "--voters does not say which"),
        ({"node_id": 1, "voters": VOTERS, "controller_port": 9193}, "on port 9192, and --controller-port says 9193"),
        ({"node_id": 1, "voters": VOTERS, "port": 9192}, "given twice"),
        ({"node_id": 1, "voters": VOTERS, "port": 9192, "host": "0.0.0.0"}, "given twice"),
        ({"node_id": 1, "voters": "1@h"}, "1@h is not id@host:port"),
        ({"node_id": 1, "voters": "1@h:1,x@h:2"}, "x@h:2 is not id@host:port"),
        ({"node_id": 1, "voters": "1@h:1,1@h:2"}, "names node 1 twice"),
        ({"node_id": 1, "voters": "1@h:1,2@h:1"}, "gives h:1 to two nodes"),
        ({"node_id": 1, "voters": " , "}, "is empty"),
    ],
)
def test_what_cannot_work(flags: dict[str, object], wrong: str) -> None:
    with pytest.raises(Problem) as refused:
        config(**flags)
    assert wrong in str(refused.value)
    assert refused.value.next_step


def test_spaces_between_voters_are_nobodys_mistake() -> None:
    assert check_voters("1@h:1, 2@h:2") == "1@h:1,2@h:2"


def test_the_directory_of_another(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=2\ncluster.id=X\n")
    assert run(["serve", "--node-id", "3", "-d", str(tmp_path)]) == 1
    assert "is the directory of node 2, and this is node 3" in capfd.readouterr().err
    assert run(["serve", "--node-id", "2", "-d", str(tmp_path), "-s", "cluster.id=Y"]) == 1
    err = capfd.readouterr().err
    assert "belongs to cluster X, and cluster.id is Y" in err
    assert "next:" in err
