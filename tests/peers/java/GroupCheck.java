import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A consumer group of Java clients: {@code GroupCheck BOOTSTRAP TOPIC PROTOCOL ASSIGNOR}.
 * What does not hold throws, and the process ends with a code other than zero.
 */
public final class GroupCheck {
    static final int PARTITIONS = 6;

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static void await(BooleanSupplier holds, String what) throws InterruptedException {
        long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        while (!holds.getAsBoolean()) {
            check(System.nanoTime() < deadline, "not in time: " + what);
            Thread.sleep(10);
        }
    }

    /** A consumer that polls in a thread of its own until it is told to leave. */
    static final class Member implements Runnable, ConsumerRebalanceListener {
        final Set<Integer> owned = ConcurrentHashMap.newKeySet();
        final Set<Integer> read = ConcurrentHashMap.newKeySet();
        final AtomicInteger changes = new AtomicInteger();
        private final KafkaConsumer<String, String> consumer;
        private final String topic;
        private final Thread thread = new Thread(this);
        private volatile boolean leaving;
        private volatile Throwable failure;

        Member(Properties settings, String topic) {
            this.consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            this.topic = topic;
            thread.setDaemon(true);
            thread.start();
        }

        public void run() {
            try (consumer) {
                consumer.subscribe(List.of(topic), this);
                while (!leaving) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                        read.add(Integer.valueOf(record.value()));
                    }
                    try {
                        consumer.commitSync();
                    } catch (RebalanceInProgressException again) {
                        // Cooperative members read on during a rebalance, but commit only once it is over.
                    }
                }
                consumer.commitSync();
            } catch (Throwable thrown) {
                failure = thrown;
                thrown.printStackTrace();
            }
        }

        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            if (!partitions.isEmpty()) changes.incrementAndGet();
            for (TopicPartition partition : partitions) owned.add(partition.partition());
        }

        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            if (!partitions.isEmpty()) changes.incrementAndGet();
            for (TopicPartition partition : partitions) owned.remove(partition.partition());
        }

        void leave() throws Exception {
            leaving = true;
            thread.join();
            if (failure != null) throw new AssertionError("a member failed", failure);
        }
    }

    static boolean balanced(Member... members) {
        Set<Integer> all = new HashSet<>();
        for (Member member : members) {
            if (member.owned.size() != PARTITIONS / members.length) return false;
            all.addAll(member.owned);
        }
        return all.size() == PARTITIONS;
    }

    static boolean readAll(int from, int to, Member... members) {
        Set<Integer> all = new TreeSet<>();
        for (Member member : members) all.addAll(member.read);
        for (int i = from; i < to; i++) if (!all.contains(i)) return false;
        return true;
    }

    static void send(String bootstrap, String topic, int from, int to) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int i = from; i < to; i++) {
                producer.send(new ProducerRecord<>(topic, i % PARTITIONS, null, String.valueOf(i))).get();
            }
        }
    }

    static Properties settings(String bootstrap, String group, String protocol, String assignor, String instance) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        if (instance != null) settings.put("group.instance.id", instance);
        if (protocol.equals("classic")) {
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "200");
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
        } else {
            settings.put("group.remote.assignor", assignor);
        }
        return settings;
    }

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], topic = args[1], protocol = args[2], assignor = args[3];
        String group = "group-" + topic;
        Properties connect = new Properties();
        connect.put("bootstrap.servers", bootstrap);
        try (Admin admin = Admin.create(connect)) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
            send(bootstrap, topic, 0, 60);
            share(bootstrap, topic, group, protocol, assignor, admin);
            restart(bootstrap, topic, "static-" + group, protocol, assignor);
            administer(topic, group, admin);
        }
        System.out.println("ok " + protocol);
    }

    static void share(
            String bootstrap, String topic, String group, String protocol, String assignor, Admin admin)
            throws Exception {
        Properties settings = settings(bootstrap, group, protocol, assignor, null);
        Member one = new Member(settings, topic);
        Member two = new Member(settings, topic);
        await(() -> balanced(one, two), "two members share");
        await(() -> readAll(0, 60, one, two), "every record");
        ConsumerGroupDescription description = describe(admin, group);
        check(description.members().size() == 2, "two members are described");
        check(description.partitionAssignor().length() > 0, "the assignor is told");
        two.leave();
        await(() -> balanced(one), "the one that stays has everything");
        send(bootstrap, topic, 60, 90);
        await(() -> readAll(60, 90, one), "the rest");
        one.leave();

        send(bootstrap, topic, 90, 120);
        Member next = new Member(settings, topic);
        await(() -> readAll(90, 120, next), "what came since");
        check(next.read.size() == 30, "it goes on where the others stopped, but read " + next.read.size());
        next.leave();
    }

    static void restart(String bootstrap, String topic, String group, String protocol, String assignor)
            throws Exception {
        Member stays = new Member(settings(bootstrap, group, protocol, assignor, "stays"), topic);
        Member goes = new Member(settings(bootstrap, group, protocol, assignor, "goes"), topic);
        await(() -> balanced(stays, goes), "static members share");
        Set<Integer> had = new HashSet<>(goes.owned);
        int changes = stays.changes.get();
        goes.leave();
        Member back = new Member(settings(bootstrap, group, protocol, assignor, "goes"), topic);
        await(() -> balanced(stays, back), "the restarted one is back");
        check(back.owned.equals(had), "with what it had");
        check(stays.changes.get() == changes, "and the other noticed nothing");
        back.leave();
        stays.leave();
    }

    static void administer(String topic, String group, Admin admin) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets =
                admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        List<Long> committed = new ArrayList<>();
        for (int i = 0; i < PARTITIONS; i++) committed.add(offsets.get(new TopicPartition(topic, i)).offset());
        check(committed.stream().allMatch(offset -> offset == 20L), "committed: " + committed);
        TopicPartition first = new TopicPartition(topic, 0);
        admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(3, "by hand"))).all().get();
        OffsetAndMetadata altered = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(first);
        check(altered.offset() == 3 && altered.metadata().equals("by hand"), "altered: " + altered);
        admin.deleteConsumerGroupOffsets(group, Set.of(first)).all().get();
        check(!admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().containsKey(first), "deleted");
        admin.deleteConsumerGroups(List.of(group)).all().get();
        check(admin.listConsumerGroups().all().get().stream().noneMatch(each -> each.groupId().equals(group)), "gone");
    }

    static ConsumerGroupDescription describe(Admin admin, String group) throws Exception {
        return admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get();
    }
}
