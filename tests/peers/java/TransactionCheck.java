import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions of Java clients: {@code TransactionCheck BOOTSTRAP TOPIC STEP PROTOCOL}, where PROTOCOL is "first" or
 * "second", which must be what this client speaks to this broker. What does not hold throws.
 */
public final class TransactionCheck {
    static String bootstrap;
    static String topic;
    static String protocol;
    static Admin admin;
    static final List<AutoCloseable> open = new ArrayList<>();

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static void await(Callable<Boolean> holds, String what) throws Exception {
        long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
        while (!holds.call()) {
            check(System.nanoTime() < deadline, "not in time: " + what);
            Thread.sleep(10);
        }
    }

    static KafkaProducer<String, String> producer(String name, int timeoutMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", name);
        settings.put("transaction.timeout.ms", timeoutMs);
        settings.put("delivery.timeout.ms", 20_000);
        settings.put("request.timeout.ms", 10_000);
        settings.put("max.block.ms", 20_000);
        KafkaProducer<String, String> made =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        open.add(() -> made.close(Duration.ZERO));
        made.initTransactions();
        return made;
    }

    static KafkaProducer<String, String> producer(String name) {
        return producer(name, 30_000);
    }

    static void send(KafkaProducer<String, String> producer, int partition, String... values) throws Exception {
        for (String value : values) {
            producer.send(new ProducerRecord<>(topic, partition, "key", value)).get();
        }
    }

    static KafkaConsumer<String, String> consumer(String isolation, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", isolation);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("fetch.max.wait.ms", "50");
        settings.put("max.poll.records", "7");
        if (group != null) settings.put("group.id", group);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static long end(TopicPartition place, IsolationLevel level) throws Exception {
        return admin.listOffsets(Map.of(place, OffsetSpec.latest()), new ListOffsetsOptions(level))
                .partitionResult(place).get().offset();
    }

    /** Everything such a reader is given of a partition, once no transaction is open in it. */
    static List<String> read(String isolation, int partition) throws Exception {
        TopicPartition place = new TopicPartition(topic, partition);
        if (isolation.equals("read_committed")) {
            await(() -> end(place, IsolationLevel.READ_COMMITTED) == end(place, IsolationLevel.READ_UNCOMMITTED),
                    "the end of every transaction");
        }
        long end = end(place, IsolationLevel.READ_UNCOMMITTED);
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(isolation, null)) {
            consumer.assign(List.of(place));
            await(() -> {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    values.add(record.value());
                }
                return consumer.position(place) >= end;
            }, "the end of the log at " + end);
        }
        return values;
    }

    static TransactionDescription describe(String name) throws Exception {
        return admin.describeTransactions(List.of(name)).description(name).get();
    }

    static void visible() throws Exception {
        String name = topic + "-visible";
        KafkaProducer<String, String> producer = producer(name);
        List<Integer> epochs = new ArrayList<>();
        for (int number = 0; number < 4; number++) {
            producer.beginTransaction();
            for (int partition = 0; partition < 3; partition++) {
                send(producer, partition, number + "a", number + "b");
            }
            epochs.add(describe(name).producerEpoch());
            if (number % 2 == 0) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
        check(epochs.equals(protocol.equals("second") ? List.of(0, 1, 2, 3) : List.of(0, 0, 0, 0)), "" + epochs);
        for (int partition = 0; partition < 3; partition++) {
            List<String> committed = read("read_committed", partition);
            check(committed.equals(List.of("0a", "0b", "2a", "2b")), "" + committed);
            check(read("read_uncommitted", partition).size() == 8, "all that was written");
        }
        for (int turn = 0; turn < 3; turn++) {  // with nothing in them
            producer.beginTransaction();
            if (turn == 1) producer.abortTransaction(); else producer.commitTransaction();
        }
        producer.beginTransaction();
        StringBuilder large = new StringBuilder();
        while (large.length() < 1000) large.append("large ");
        for (int number = 0; number < 3000; number++) {
            producer.send(new ProducerRecord<>(topic, number % 3, "key", large.toString() + number));
        }
        producer.commitTransaction();
        check(read("read_committed", 1).size() == 1004, "a thousand more");
    }

    static boolean isFenced(Throwable thrown) {
        for (Throwable each = thrown; each != null; each = each.getCause()) {
            if (each instanceof ProducerFencedException || each instanceof InvalidProducerEpochException) return true;
        }
        return false;
    }

    static void mustBeFenced(Callable<?> attempt) throws Exception {
        try {
            attempt.call();
        } catch (KafkaException | ExecutionException | IllegalStateException refused) {
            check(isFenced(refused), "refused for another reason: " + refused);
            return;
        }
        throw new AssertionError("it was not refused");
    }

    static void fence() throws Exception {
        String name = topic + "-fence";
        KafkaProducer<String, String> first = producer(name);
        first.beginTransaction();
        send(first, 0, "lost");
        KafkaProducer<String, String> second = producer(name);
        second.beginTransaction();
        send(second, 0, "kept");
        mustBeFenced(() -> {
            first.commitTransaction();
            return null;
        });
        second.commitTransaction();
        KafkaProducer<String, String> third = producer(name);
        third.beginTransaction();
        mustBeFenced(() -> {
            second.beginTransaction();
            send(second, 1, "late");
            second.commitTransaction();
            return null;
        });
        send(third, 1, "also kept");
        admin.fenceProducers(List.of(name)).all().get();
        mustBeFenced(() -> {
            third.commitTransaction();
            return null;
        });
        check(read("read_committed", 0).equals(List.of("kept")), "" + read("read_committed", 0));
        check(read("read_committed", 1).isEmpty(), "" + read("read_committed", 1));
    }

    /** The broker aborts what takes too long. Readers go on, and so does a new producer. */
    static void timeout() throws Exception {
        String name = topic + "-timeout";
        TopicPartition place = new TopicPartition(topic, 0);
        KafkaProducer<String, String> slow = producer(name, 1000);
        slow.beginTransaction();
        send(slow, 0, "lost");
        check(end(place, IsolationLevel.READ_COMMITTED) == 0, "it is open");
        await(() -> end(place, IsolationLevel.READ_COMMITTED) == 2, "the broker's abort");
        check(describe(name).state() == TransactionState.COMPLETE_ABORT, "" + describe(name));
        try {
            send(slow, 0, "late");
            slow.commitTransaction();
            throw new AssertionError("it was too late");
        } catch (KafkaException | ExecutionException refused) {
            // Which one depends on the protocol; what counts is that nothing of it is seen.
        }
        KafkaProducer<String, String> next = producer(name);
        next.beginTransaction();
        send(next, 0, "kept");
        next.commitTransaction();
        check(read("read_committed", 0).equals(List.of("kept")), "" + read("read_committed", 0));
    }

    static Long committed(String group) throws Exception {
        OffsetAndMetadata found = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                .get(new TopicPartition(topic, 0));
        return found == null ? null : found.offset();
    }

    static void offsets() throws Exception {
        String group = topic + "-group";
        TopicPartition place = new TopicPartition(topic, 0);
        KafkaProducer<String, String> producer = producer(topic + "-offsets");
        ConsumerGroupMetadata stale;
        try (KafkaConsumer<String, String> consumer = consumer("read_committed", group)) {
            consumer.subscribe(List.of(topic));
            await(() -> {
                consumer.poll(Duration.ofMillis(100));
                return !consumer.assignment().isEmpty();
            }, "the assignment");
            producer.beginTransaction();
            send(producer, 1, "out");
            producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(3)), consumer.groupMetadata());
            check(committed(group) == null, "it is not decided");
            producer.commitTransaction();
            await(() -> Long.valueOf(3).equals(committed(group)), "offset 3");
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(9)), consumer.groupMetadata());
            producer.abortTransaction();
            stale = consumer.groupMetadata();
        }
        try (KafkaConsumer<String, String> consumer = consumer("read_committed", group)) {
            consumer.subscribe(List.of(topic));
            await(() -> {
                consumer.poll(Duration.ofMillis(100));
                return !consumer.assignment().isEmpty();
            }, "the second assignment");
            producer.beginTransaction();
            send(producer, 1, "too late");
            try {
                producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(9)), stale);
                producer.commitTransaction();
                throw new AssertionError("a member that left may not commit");
            } catch (CommitFailedException refused) {
                producer.abortTransaction();
            }
        }
        check(Long.valueOf(3).equals(committed(group)), "" + committed(group));
        check(read("read_committed", 1).equals(List.of("out")), "" + read("read_committed", 1));
    }

    /** Consume from partition 0, produce to partition 2; every third transaction is aborted and done again. */
    static void loop() throws Exception {
        String group = topic + "-loop";
        TopicPartition source = new TopicPartition(topic, 0);
        KafkaProducer<String, String> producer = producer(topic + "-source");
        producer.beginTransaction();
        List<String> expected = new ArrayList<>();
        for (int number = 0; number < 100; number++) {
            producer.send(new ProducerRecord<>(topic, 0, "key", "" + number));
            expected.add("seen " + number);
        }
        producer.commitTransaction();
        int turns = 0;
        try (KafkaConsumer<String, String> consumer = consumer("read_committed", group)) {
            consumer.assign(List.of(source));
            KafkaProducer<String, String> worker = producer(topic + "-worker");
            for (long done = 0; done < 100; turns++) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) continue;
                worker.beginTransaction();
                for (ConsumerRecord<String, String> record : records) {
                    worker.send(new ProducerRecord<>(topic, 2, "key", "seen " + record.value()));
                }
                Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                next.put(source, new OffsetAndMetadata(consumer.position(source)));
                worker.sendOffsetsToTransaction(next, consumer.groupMetadata());
                if (turns % 3 == 2) {
                    worker.flush(); // an abort drops what is not sent yet
                    worker.abortTransaction();
                    consumer.seek(source, records.iterator().next().offset());
                } else {
                    worker.commitTransaction();
                    done += records.count();
                }
            }
        }
        check(read("read_committed", 2).equals(expected), "" + read("read_committed", 2));
        check(read("read_uncommitted", 2).size() > 100, "some were aborted");
    }

    static void administer() throws Exception {
        String name = topic + "-admin";
        TopicPartition place = new TopicPartition(topic, 0);
        KafkaProducer<String, String> producer = producer(name, 12_345);
        check(describe(name).state() == TransactionState.EMPTY, "" + describe(name));
        producer.beginTransaction();
        send(producer, 0, "hangs");
        TransactionDescription told = describe(name);
        check(told.state() == TransactionState.ONGOING, "" + told);
        check(told.topicPartitions().equals(Set.of(place)) && told.transactionTimeoutMs() == 12_345, "" + told);
        check(Math.abs(told.transactionStartTimeMs().getAsLong() - System.currentTimeMillis()) < 20_000, "" + told);
        Collection<TransactionListing> listed = admin.listTransactions(new ListTransactionsOptions()
                .filterStates(Set.of(TransactionState.ONGOING))
                .filterProducerIds(Set.of(told.producerId()))).all().get();
        check(listed.size() == 1 && listed.iterator().next().transactionalId().equals(name), "" + listed);
        ProducerState state = admin.describeProducers(Set.of(place)).partitionResult(place).get()
                .activeProducers().get(0);
        check(state.producerId() == told.producerId(), "" + state);
        check(state.currentTransactionStartOffset().getAsLong() == 0, "" + state);
        admin.abortTransaction(new AbortTransactionSpec(place, state.producerId(), (short) state.producerEpoch(),
                state.coordinatorEpoch().orElse(0))).all().get();
        check(end(place, IsolationLevel.READ_COMMITTED) == 2, "the marker is written");
        check(read("read_committed", 0).isEmpty(), "it was aborted");
        try {
            describe(name + "-nobody");
            throw new AssertionError("there is no such id");
        } catch (ExecutionException refused) {
            check(refused.getCause() instanceof TransactionalIdNotFoundException, "" + refused);
        }
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        String step = arguments[2];
        protocol = arguments[3];
        try (Admin made = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap))) {
            admin = made;
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all().get();
            switch (step) {
                case "visible": visible(); break;
                case "fence": fence(); break;
                case "timeout": timeout(); break;
                case "offsets": offsets(); break;
                case "loop": loop(); break;
                case "administer": administer(); break;
                default: throw new IllegalArgumentException(step);
            }
            for (AutoCloseable each : open) each.close();
        }
        System.out.println("ok " + step);
    }
}
