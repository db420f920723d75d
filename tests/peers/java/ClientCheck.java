import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What the Java clients do against a broker, one step per run: {@code ClientCheck BOOTSTRAP TOPIC STEP}.
 * A step that does not hold throws, and the process ends with a code other than zero.
 */
public final class ClientCheck {
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    static final int RECORDS = 300;
    static final long BASE_TIME_MS = 1_700_000_000_000L;

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        String topic = args[1];
        switch (args[2]) {
            case "produce" -> produce(bootstrap, topic);
            case "consume" -> consume(bootstrap, topic);
            case "errors" -> errors(bootstrap, topic);
            case "admin" -> admin(bootstrap, topic);
            default -> throw new IllegalArgumentException(args[2]);
        }
        System.out.println("ok " + args[2]);
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static Properties settings(String bootstrap, String... pairs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) settings.put(pairs[i], pairs[i + 1]);
        return settings;
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, String... pairs) {
        return new KafkaProducer<>(settings(bootstrap, pairs), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String... pairs) {
        return new KafkaConsumer<>(settings(bootstrap, pairs), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static byte[] key(int i) {
        return i % 7 == 0 ? null : ("key-" + i).getBytes(StandardCharsets.UTF_8);
    }

    static byte[] value(int i) {
        return i % 11 == 0 ? null : "tide ".repeat(i % 50).getBytes(StandardCharsets.UTF_8);
    }

    /** Partition p holds the records with codec p; idempotence and acks=all are the defaults of these clients. */
    static void produce(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(settings(bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, CODECS.length, (short) 1))).all().get();
        }
        for (int partition = 0; partition < CODECS.length; partition++) {
            try (var producer = producer(bootstrap, "compression.type", CODECS[partition], "linger.ms", "5")) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = 0; i < RECORDS; i++) {
                    var record = new ProducerRecord<>(topic, partition, BASE_TIME_MS + i, key(i), value(i));
                    record.headers().add(new RecordHeader("n", Integer.toString(i).getBytes(StandardCharsets.UTF_8)));
                    record.headers().add(new RecordHeader("null", (byte[]) null));
                    sent.add(producer.send(record));
                }
                for (int i = 0; i < RECORDS; i++) {
                    check(sent.get(i).get(20, TimeUnit.SECONDS).offset() == i, "offset " + i);
                }
            }
        }
    }

    static void consume(String bootstrap, String topic) {
        for (String isolation : new String[] {"read_uncommitted", "read_committed"}) {
            try (var consumer = consumer(bootstrap, "isolation.level", isolation, "check.crcs", "true")) {
                List<TopicPartition> partitions = new ArrayList<>();
                for (int p = 0; p < CODECS.length; p++) partitions.add(new TopicPartition(topic, p));
                consumer.assign(partitions);
                consumer.seekToBeginning(partitions);
                Map<Integer, Integer> next = new HashMap<>();
                int left = RECORDS * CODECS.length;
                long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
                while (left > 0 && System.nanoTime() < deadline) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                        int i = next.merge(record.partition(), 1, Integer::sum) - 1;
                        check(record.offset() == i, "offset");
                        check(record.timestamp() == BASE_TIME_MS + i, "timestamp");
                        check(java.util.Arrays.equals(record.key(), key(i)), "key " + i);
                        check(java.util.Arrays.equals(record.value(), value(i)), "value " + i);
                        check(new String(record.headers().lastHeader("n").value()).equals("" + i), "header");
                        check(record.headers().lastHeader("null").value() == null, "null header");
                        left--;
                    }
                }
                check(left == 0, left + " records did not come");
                TopicPartition first = partitions.get(0);
                consumer.seek(first, 123);
                consumer.pause(partitions.subList(1, partitions.size()));
                check(consumer.poll(Duration.ofSeconds(10)).iterator().next().offset() == 123, "seek");
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(first, BASE_TIME_MS + 50)).get(first);
                check(found.offset() == 50 && found.timestamp() == BASE_TIME_MS + 50, "offset by time");
                check(consumer.endOffsets(partitions).get(first) == RECORDS, "end");
                check(consumer.beginningOffsets(partitions).get(first) == 0, "beginning");
                check(consumer.partitionsFor(topic).size() == CODECS.length, "partitions");
            }
        }
    }

    static <T extends Throwable> void fails(Class<T> expected, Future<?> future) throws Exception {
        try {
            future.get(20, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            check(expected.isInstance(error.getCause()), "expected " + expected + " and not " + error.getCause());
            return;
        }
        throw new AssertionError("expected " + expected);
    }

    static void errors(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(settings(bootstrap))) {
            var small = new NewTopic(topic, 1, (short) 1).configs(Map.of("max.message.bytes", "1000"));
            admin.createTopics(List.of(small)).all().get();
            fails(TopicExistsException.class, admin.createTopics(List.of(small)).all());
            fails(UnknownTopicOrPartitionException.class, admin.deleteTopics(List.of(topic + "-missing")).all());
            var wrong = new NewTopic(topic + "-wrong", 1, (short) 1).configs(Map.of("retention.ms", "soon"));
            fails(InvalidConfigurationException.class, admin.createTopics(List.of(wrong)).all());
        }
        try (var producer = producer(bootstrap)) {
            fails(RecordTooLargeException.class, producer.send(new ProducerRecord<>(topic, new byte[5000])));
            producer.send(new ProducerRecord<>(topic, new byte[10])).get(20, TimeUnit.SECONDS);
        }
        try (var consumer = consumer(bootstrap, "auto.offset.reset", "none")) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, 999);
            try {
                for (int i = 0; i < 20; i++) consumer.poll(Duration.ofMillis(500));
                throw new AssertionError("reading beyond the end must fail");
            } catch (OffsetOutOfRangeException expected) {
                check(expected.offsetOutOfRangePartitions().get(partition) == 999, "the offset asked for");
            }
        }
    }

    static void admin(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(settings(bootstrap))) {
            var cluster = admin.describeCluster();
            check(cluster.nodes().get().size() == 1 && cluster.clusterId().get() != null, "cluster");
            admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "60000")))).all().get();
            check(admin.listTopics().names().get().contains(topic), "list");
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            TopicDescription described = eventually(() -> admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic),
                    found -> found.partitions().size() == 4);
            check(described.partitions().get(0).leader() != null, "leader");
            check(!described.topicId().toString().isEmpty(), "topic id");

            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            check(value(admin, resource, "retention.ms").equals("60000"), "describe configs");
            Collection<AlterConfigOp> changes = List.of(
                    new AlterConfigOp(new ConfigEntry("retention.ms", "70000"), AlterConfigOp.OpType.SET),
                    new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND));
            admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
            eventually(() -> value(admin, resource, "retention.ms"), "70000"::equals);
            check(new HashSet<>(List.of(value(admin, resource, "cleanup.policy").split(","))).equals(Set.of("delete", "compact")), "append");

            try (var producer = producer(bootstrap)) {
                for (int i = 0; i < 20; i++) {
                    producer.send(new ProducerRecord<>(topic, 0, BASE_TIME_MS + i, new byte[] {1}, new byte[] {(byte) i}));
                }
                producer.flush();
            }
            TopicPartition partition = new TopicPartition(topic, 0);
            check(offset(admin, partition, OffsetSpec.latest()) == 20, "latest");
            check(offset(admin, partition, OffsetSpec.maxTimestamp()) == 19, "max timestamp");
            check(offset(admin, partition, OffsetSpec.forTimestamp(BASE_TIME_MS + 7)) == 7, "by timestamp");
            long low = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(5))).lowWatermarks().get(partition).get().lowWatermark();
            check(low == 5, "delete records");
            check(offset(admin, partition, OffsetSpec.earliest()) == 5, "earliest");
            var producers = admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
            check(producers.size() == 1 && producers.get(0).lastSequence() == 19, "describe producers");
            int node = cluster.nodes().get().iterator().next().id();
            check(admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).values().stream()
                    .anyMatch(directory -> directory.replicaInfos().containsKey(partition)), "log dirs");
            admin.deleteTopics(List.of(topic)).all().get();
            eventually(() -> admin.listTopics().names().get(), names -> !names.contains(topic));
        }
    }

    static String value(Admin admin, ConfigResource resource, String name) throws Exception {
        Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        return Objects.requireNonNull(config.get(name), name).value();
    }

    static long offset(Admin admin, TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset();
    }

    interface Question<T> {
        T ask() throws Exception;
    }

    /** Metadata is eventually consistent in Apache Kafka, against which this program runs too. */
    static <T> T eventually(Question<T> question, java.util.function.Predicate<T> holds) throws Exception {
        for (int i = 0; i < 50; i++) {
            T answer = question.ask();
            if (holds.test(answer)) return answer;
            Thread.sleep(100);
        }
        throw new AssertionError("did not become true: " + question.ask());
    }
}
