"""Ending a transaction from outside: through its coordinator while that knows it, past it when it hangs."""

import typer

from tidelog.cli.problems import Problem
from tidelog.cli.render import shown
from tidelog.cli.txn.cluster import OpenOn, Transaction, Transactions, owners
from tidelog.cli.txn.view import age
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition


def existing(transactions: Transactions, transactional_id: str) -> Transaction:
    found = transactions.one(transactional_id)
    if found is None:
        raise Problem(
            f"there is no transactional id {shown(transactional_id)}", "`tidelog txn list` shows those there are"
        )
    return found


def abort_live(transactions: Transactions, transactional_id: str, ask_first: bool) -> Transaction:
    """What it was before."""
    found = existing(transactions, transactional_id)
    if not found.is_running:
        raise Problem(
            f"{shown(transactional_id)} has no open transaction: it is {found.state}",
            "if readers wait all the same, `tidelog txn find-hanging` shows for what",
        )
    if found.state != "Ongoing":
        raise Problem(
            f"the transaction of {shown(transactional_id)} is decided ({found.state}), its partitions are being told",
            "if that does not end, `tidelog txn find-hanging` shows where",
        )
    if ask_first:
        typer.confirm(
            f"Abort what {shown(transactional_id)} wrote in {age(found.duration_ms)}, and fence its producer?",
            abort=True,
        )
    try:
        transactions.take_over(found)
    except KafkaError as refused:
        if refused.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            raise Problem(
                f"the abort of {shown(transactional_id)} is decided, but not every partition has heard of it",
                f"`tidelog txn describe {transactional_id}` shows what is left",
            ) from None
        raise
    return found


def abort_hanging(
    transactions: Transactions, topic: str, partition: int, start_offset: int, *, force: bool, ask_first: bool
) -> OpenOn:
    """Refused while its coordinator has it for open: that would end it properly, everywhere."""
    place = TopicPartition(topic, partition)
    if place not in transactions.partitions([topic]):
        raise Problem(f"{topic} has no partition {partition}", f"`tidelog topic describe {topic}` shows its partitions")
    found = [each for each in transactions.open_on([place]) if each.start_offset == start_offset]
    if not found:
        raise Problem(
            f"no open transaction begins at offset {start_offset} of {topic}-{partition}",
            f"`tidelog txn find-hanging --topic {topic} --idle 0s` shows those that hang",
        )
    one = found[0]
    owner = owners(transactions.all([one.producer_id])).get(one.producer_id)
    if owner is not None and owner.is_running and place in owner.partitions and not force:
        raise Problem(
            f"it does not hang: it is {owner.state}, of {shown(owner.transactional_id)}",
            f"`tidelog txn abort {shown(owner.transactional_id)}` ends it in every partition; "
            "--force writes the marker all the same",
        )
    if ask_first:
        typer.confirm(f"Abort what producer id {one.producer_id} wrote to {topic}-{partition}?", abort=True)
    try:
        transactions.mark_aborted(one)
    except KafkaError as refused:
        if refused.code is ErrorCode.INVALID_PRODUCER_EPOCH:
            raise Problem(
                f"{topic}-{partition} has seen a newer producer meanwhile, which ended it",
                "`tidelog txn find-hanging` looks again",
            ) from None
        raise
    return one
