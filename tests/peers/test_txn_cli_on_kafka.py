"""`tidelog txn …` on Apache Kafka: all of it works there too."""

import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.transaction_wire import Identity, WireProducer
from tests.peers.kafka_server import KafkaServer
from tests.peers.txn_cli_cases import Hang, Hung, TxnCliCases

from tidelog.errors import ErrorCode
from tidelog.wire.messages.data import InitProducerIdRequest

pytestmark = [pytest.mark.peers, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    # Since 3.6 Kafka asks the coordinator before it writes, so that nothing can hang any more. Here something has to.
    with KafkaServer(settings={"transaction.partition.verification.enable": "false"}) as kafka:
        yield kafka.bootstrap_servers


class TestTxnCliOnKafka(TxnCliCases):
    @pytest.fixture
    def hang(self, bootstrap: str) -> Hang:
        def make() -> Hung:
            topic = f"hangs-{uuid4().hex[:10]}"
            admin = AdminClient({"bootstrap.servers": bootstrap})  # held in a name: its requests end with it
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
            with WireProducer(bootstrap, "nobody") as producer:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
                while (given := producer.connection.call(request, 4)).error_code:
                    time.sleep(0.1)  # the first of all is asked of the controller
                producer.identity = Identity(given.producer_id, given.producer_epoch)
                assert producer.produce(topic, 0, b"hangs") is ErrorCode.NONE
            return Hung(topic, given.producer_id, 0)

        return make
