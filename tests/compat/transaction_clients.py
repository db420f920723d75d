"""Transactional producers of three libraries behind one face. Nothing is patched."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Self

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from confluent_kafka import KafkaError, KafkaException

CALL_S = 60.0


class Fenced(Exception):
    """In the words of any library: somebody else owns this transactional id now."""


class Producer(ABC):
    """One producer with a transactional id, through its life. `with` closes it, as its library does."""

    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = 30_000, codec: str = "none") -> None:
        self.bootstrap, self.transactional_id = bootstrap, transactional_id
        self.timeout_ms, self.codec = timeout_ms, codec

    @abstractmethod
    def init(self) -> Self: ...

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, partition: int, *values: bytes, key: bytes | None = None) -> None:
        """Returns once the broker has them all."""
        ...

    @abstractmethod
    def send_offsets(self, offsets: Mapping[tuple[str, int], int], group: str, consumer: Any = None) -> None:
        """`consumer` is of the same library, and a member of the group."""
        ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def transact(self, topic: str, partition: int, *values: bytes, commit: bool = True) -> None:
        self.begin()
        self.send(topic, partition, *values)
        self.commit() if commit else self.abort()

    def __enter__(self) -> Self:
        return self.init()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class ConfluentProducer(Producer):
    _FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)

    def init(self) -> Self:
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": self.timeout_ms,
                "message.timeout.ms": min(self.timeout_ms, 20_000),
                "compression.type": self.codec,
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        self._failures: list[KafkaError] = []
        self._call(self.producer.init_transactions, CALL_S)
        return self

    def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        try:
            function(*arguments)
        except KafkaException as failure:
            self._raise_fenced(failure)
            raise
        except SystemError as failure:
            self._raise_fenced(failure.__cause__ or self._ask_again())
            raise

    def _raise_fenced(self, told: BaseException | None) -> None:
        if isinstance(told, KafkaException) and told.args[0].code() in self._FENCED:
            raise Fenced(str(told)) from told

    def _ask_again(self) -> BaseException | None:
        """A fatal error is raised within whatever callback comes next. Of that Python makes a SystemError, and on the
        way the reason may get lost; every later call has it."""
        try:
            self.producer.begin_transaction()
        except KafkaException as failure:
            return failure
        return None

    def begin(self) -> None:
        self._call(self.producer.begin_transaction)

    def send(self, topic: str, partition: int, *values: bytes, key: bytes | None = None) -> None:
        self._failures = []
        for value in values:
            self._call(lambda value=value: self.producer.produce(topic, value, key, partition, on_delivery=self._told))
        self._call(self.producer.flush, CALL_S)
        for failure in self._failures:
            self._call(_raise, KafkaException(failure))

    def _told(self, error: KafkaError | None, _message: confluent_kafka.Message) -> None:
        if error is not None:
            self._failures.append(error)

    def send_offsets(self, offsets: Mapping[tuple[str, int], int], group: str, consumer: Any = None) -> None:
        places = [confluent_kafka.TopicPartition(*place, offset) for place, offset in offsets.items()]
        if consumer is None:
            consumer = confluent_kafka.Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        self._call(self.producer.send_offsets_to_transaction, places, consumer.consumer_group_metadata(), CALL_S)

    def commit(self) -> None:
        self._call(self.producer.commit_transaction, CALL_S)

    def abort(self) -> None:
        self._call(self.producer.abort_transaction, CALL_S)

    def close(self) -> None:
        self.producer.purge()


class KafkaPythonProducer(Producer):
    _FENCED = (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError)

    def init(self) -> Self:
        self.producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            compression_type=None if self.codec == "none" else self.codec,
            max_block_ms=int(CALL_S * 1000),
            linger_ms=1,
        )
        self._call(self.producer.init_transactions)
        return self

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._FENCED as failure:
            raise Fenced(repr(failure)) from failure

    def begin(self) -> None:
        self._call(self.producer.begin_transaction)

    def send(self, topic: str, partition: int, *values: bytes, key: bytes | None = None) -> None:
        futures = [
            self._call(lambda value=value: self.producer.send(topic, value, key, partition=partition))
            for value in values
        ]
        self.producer.flush(timeout=CALL_S)
        for future in futures:
            self._call(lambda future=future: future.get(timeout=CALL_S))

    def send_offsets(self, offsets: Mapping[tuple[str, int], int], group: str, consumer: Any = None) -> None:
        places = {
            kafka.TopicPartition(*place): kafka.structs.OffsetAndMetadata(offset, "", -1)
            for place, offset in offsets.items()
        }
        metadata = group if consumer is None else consumer.group_metadata()
        self._call(self.producer.send_offsets_to_transaction, places, metadata)

    def commit(self) -> None:
        self._call(self.producer.commit_transaction)

    def abort(self) -> None:
        self._call(self.producer.abort_transaction)

    def close(self) -> None:
        self.producer.close(timeout=0)


class AioKafkaProducer(Producer):
    """Its event loop runs in a thread, as it must go on between two calls."""

    def init(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            self._call(self._start())
        except BaseException:
            self._end_loop()
            raise
        return self

    async def _start(self) -> None:
        self.producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            compression_type=None if self.codec == "none" else self.codec,
            linger_ms=1,
            retry_backoff_ms=20,
        )
        try:
            await self.producer.start()
        except BaseException:
            await self.producer.client.close()
            raise

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S)
        except (aiokafka.errors.ProducerFenced, aiokafka.errors.InvalidProducerEpoch) as failure:
            raise Fenced(repr(failure)) from failure

    def begin(self) -> None:
        self._call(self.producer.begin_transaction())

    def send(self, topic: str, partition: int, *values: bytes, key: bytes | None = None) -> None:
        async def work() -> None:
            futures = [await self.producer.send(topic, value, key, partition=partition) for value in values]
            await asyncio.gather(*futures)

        self._call(work())

    def send_offsets(self, offsets: Mapping[tuple[str, int], int], group: str, consumer: Any = None) -> None:
        """It knows groups by their name only: whose generation is over is not seen."""
        places = {aiokafka.TopicPartition(*place): offset for place, offset in offsets.items()}
        self._call(self.producer.send_offsets_to_transaction(places, group))

    def commit(self) -> None:
        self._call(self.producer.commit_transaction())

    def abort(self) -> None:
        self._call(self.producer.abort_transaction())

    def close(self) -> None:
        """Without the end of an open transaction: `stop` would abort it."""

        async def work() -> None:
            await self.producer._sender.close()
            await self.producer.client.close()
            self.producer._closed = True

        self._call(work())
        self._end_loop()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_S)
        self._loop.close()


PRODUCERS: dict[str, type[Producer]] = {
    "confluent": ConfluentProducer,
    "kafka-python": KafkaPythonProducer,
    "aiokafka": AioKafkaProducer,
}


def _raise(failure: BaseException) -> None:
    raise failure
