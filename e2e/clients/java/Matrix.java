import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Java client for clientmatrix_test.go.
 *
 *   Matrix BOOTSTRAP TOPIC FENCED    with topics of three partitions; FENCED has a rule
 *
 * The kinds of groups that the brokers have are in MATRIX_GROUPS, apart by spaces.
 *
 * Prints "version VERSION", one "broker HOST:PORT" line for each address that it was
 * told, and "ok NAME", "cannot NAME: WHY" or "failed NAME: WHY" for each thing to do.
 */
public class Matrix {
    static final int PARTITIONS = 3;
    static final int RECORDS = 2;
    static final Duration TIMEOUT = Duration.ofSeconds(30);

    static String bootstrap;
    static String topic;
    static final Set<String> WRITTEN = new HashSet<>();
    static final Set<String> ABORTED = new HashSet<>();

    interface Step {
        void run() throws Exception;
    }

    /** Where records are read from, in a group of whatever kind. */
    interface Source extends AutoCloseable {
        ConsumerRecords<String, String> poll(Duration wait) throws Exception;

        void commit() throws Exception;

        @Override
        void close() throws Exception;
    }

    static class Cannot extends Exception {
        Cannot(String why) {
            super(why);
        }
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        topic = args[1];
        Properties build = new Properties();
        try (var resource = KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            build.load(resource);
        }
        System.out.println("version " + build.getProperty("version"));
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            step("codec/" + codec, () -> produce("codec-" + codec, Map.of("compression.type", codec, "enable.idempotence", false)));
        }
        for (String acks : List.of("all", "1", "0")) {
            step("acks/" + acks, () -> produce("acks-" + acks, Map.of("acks", acks, "enable.idempotence", false)));
        }
        step("idempotent", () -> produce("idempotent", Map.of("enable.idempotence", true)));
        step("transactions", Matrix::transact);
        for (String kind : System.getenv("MATRIX_GROUPS").split(" ")) {
            step("group/" + kind, () -> group(kind));
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            step("admin/topics", () -> topics(admin, topic + "-made"));
            step("admin/cluster", () -> cluster(admin));
            step("admin/configs", () -> configs(admin));
            step("admin/groups", () -> groups(admin, topic + "-classic"));
        }
        step("conditions", () -> fenced(args[2]));
    }

    static void step(String name, Step step) {
        try {
            step.run();
            System.out.println("ok " + name);
        } catch (Cannot e) {
            System.out.println("cannot " + name + ": " + e.getMessage());
        } catch (Throwable e) {
            e.printStackTrace();
            System.out.println("failed " + name + ": " + e.toString().replaceAll("\\s+", " "));
        }
    }

    static KafkaProducer<String, String> producer(Map<String, Object> config) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", 20));
        all.putAll(config);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    static Set<String> write(KafkaProducer<String, String> producer, String tag, boolean acknowledged) throws Exception {
        Set<String> values = new HashSet<>();
        List<Future<RecordMetadata>> results = new ArrayList<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            for (int i = 0; i < RECORDS; i++) {
                String value = tag + "/" + partition + "/" + i + "/" + "x".repeat(200);
                ProducerRecord<String, String> record = new ProducerRecord<>(topic, partition, null, value);
                record.headers().add("tag", tag.getBytes(StandardCharsets.UTF_8));
                results.add(producer.send(record));
                values.add(value);
            }
        }
        producer.flush();
        for (Future<RecordMetadata> result : results) {
            check(result.get().hasOffset() == acknowledged, "offset of " + result.get());
        }
        return values;
    }

    static Set<String> produce(String tag, Map<String, Object> config) throws Exception {
        try (KafkaProducer<String, String> producer = producer(config)) {
            Set<String> values = write(producer, tag, !"0".equals(config.get("acks")));
            WRITTEN.addAll(values);
            return values;
        }
    }

    static void transact() throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of("transactional.id", topic))) {
            producer.initTransactions();
            producer.beginTransaction();
            WRITTEN.addAll(write(producer, "committed", true));
            producer.commitTransaction();
            producer.beginTransaction();
            ABORTED.addAll(write(producer, "aborted", true));
            producer.abortTransaction();
        }
    }

    /** Reads all, commits, and has another member go on behind that. */
    static void group(String kind) throws Exception {
        String group = topic + "-" + kind;
        read(group, kind, WRITTEN, ABORTED);
        Set<String> before = new HashSet<>(WRITTEN);
        before.addAll(ABORTED);
        read(group, kind, produce("behind-" + kind, Map.of()), before);
    }

    static void read(String group, String kind, Set<String> expected, Set<String> forbidden) throws Exception {
        try (Source source = kind.equals("share") ? share(group) : consumer(group, kind)) {
            Set<String> missing = new HashSet<>(expected);
            long deadline = System.nanoTime() + TIMEOUT.toNanos();
            while (!missing.isEmpty()) {
                check(System.nanoTime() < deadline, missing.size() + " records not read");
                for (ConsumerRecord<String, String> record : source.poll(Duration.ofMillis(500))) {
                    check(!forbidden.contains(record.value()), "read " + record.value());
                    missing.remove(record.value());
                }
            }
            source.commit();
        }
    }

    static Source consumer(String group, String kind) throws Cannot {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group,
            "auto.offset.reset", "earliest", "enable.auto.commit", false, "isolation.level", "read_committed"));
        if (kind.equals("consumer")) {
            config.put("group.protocol", "consumer");
        }
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return new Source() {
            public ConsumerRecords<String, String> poll(Duration wait) {
                return consumer.poll(wait);
            }

            public void commit() {
                consumer.commitSync();
            }

            public void close() {
                consumer.close();
            }
        };
    }

    /** By reflection: older clients have no such class. */
    static Source share(String group) throws Exception {
        Class<?> type;
        try {
            type = Class.forName("org.apache.kafka.clients.consumer.KafkaShareConsumer");
            ConfigResource.Type.valueOf("GROUP"); // which those lack that have the class for trial alone
        } catch (ClassNotFoundException | IllegalArgumentException e) {
            throw new Cannot("it has no share consumer");
        }
        ConfigResource resource = new ConfigResource(ConfigResource.Type.valueOf("GROUP"), group);
        Map<ConfigResource, Collection<AlterConfigOp>> settings = Map.of(resource, List.of(
            set("share.auto.offset.reset", "earliest"), set("share.isolation.level", "read_committed")));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.incrementalAlterConfigs(settings).all().get();
        }
        Object consumer = type.getConstructor(Map.class, Deserializer.class, Deserializer.class).newInstance(
            Map.of("bootstrap.servers", bootstrap, "group.id", group), new StringDeserializer(), new StringDeserializer());
        type.getMethod("subscribe", Collection.class).invoke(consumer, List.of(topic));
        return new Source() {
            @SuppressWarnings("unchecked")
            public ConsumerRecords<String, String> poll(Duration wait) throws Exception {
                return (ConsumerRecords<String, String>) type.getMethod("poll", Duration.class).invoke(consumer, wait);
            }

            public void commit() throws Exception {
                type.getMethod("commitSync").invoke(consumer);
            }

            public void close() throws Exception {
                type.getMethod("close").invoke(consumer);
            }
        };
    }

    static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }

    static void topics(Admin admin, String name) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, PARTITIONS, (short) 3))).all().get();
        await("the topic is listed", () -> admin.listTopics().names().get().contains(name));
        admin.deleteTopics(List.of(name)).all().get();
    }

    static void cluster(Admin admin) throws Exception {
        Collection<Node> nodes = admin.describeCluster().nodes().get();
        nodes.forEach(Matrix::tell);
        tell(admin.describeCluster().controller().get());
        check(nodes.size() == 3, "nodes: " + nodes);
    }

    static void configs(Admin admin) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set("retention.ms", "3600000")))).all().get();
        await("the setting is shown", () ->
            admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value().equals("3600000"));
    }

    static void groups(Admin admin, String group) throws Exception {
        check(admin.listConsumerGroups().all().get().stream().anyMatch(g -> g.groupId().equals(group)), "the group is not listed");
        tell(admin.describeConsumerGroups(List.of(group)).all().get().get(group).coordinator());
    }

    static void fenced(String fenced) throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            check(append(producer, fenced, 0) == 0, "the first is elsewhere");
            try {
                throw new AssertionError("appended at " + append(producer, fenced, 0));
            } catch (ExecutionException e) {
                check(e.getCause() instanceof OffsetOutOfRangeException, "refused with " + e.getCause());
            }
            check(append(producer, fenced, 1) == 1, "the second is elsewhere");
        }
    }

    static long append(KafkaProducer<String, String> producer, String fenced, long expected) throws Exception {
        ProducerRecord<String, String> record = new ProducerRecord<>(fenced, 0, null, "x");
        record.headers().add("expected-offset", String.valueOf(expected).getBytes(StandardCharsets.UTF_8));
        record.headers().add("append-id", String.valueOf(System.nanoTime()).getBytes(StandardCharsets.UTF_8));
        return producer.send(record).get().offset();
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void await(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + TIMEOUT.toNanos();
        while (!condition.holds()) {
            check(System.nanoTime() < deadline, "not in time: " + what);
            Thread.sleep(50);
        }
    }

    static void tell(Node node) {
        System.out.println("broker " + node.host() + ":" + node.port());
    }

    static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }
}
