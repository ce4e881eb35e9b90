import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Java client's part of the end-to-end tests.
 *
 *   Client suite BOOTSTRAP TOPIC           everything a client does, on a new topic
 *   Client fenced BOOTSTRAP TOPIC PLAIN    conditions on TOPIC, which has a rule, and a transaction on PLAIN
 *   Client golden BOOTSTRAP TOPIC CODEC    one batch of three records; CODEC may be "transactional"
 *
 * Prints one "broker HOST:PORT" line for each broker address it was told, and
 * "ok NAME" for each check; ends with an exception when one fails.
 */
public class Client {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final int PARTITIONS = 6;
    static final int RECORDS = 10;
    static final Duration TIMEOUT = Duration.ofSeconds(60);

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "suite" -> suite(args[1], args[2]);
            case "fenced" -> fenced(args[1], args[2], args[3]);
            case "golden" -> golden(args[1], args[2], args[3]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static void suite(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            create(admin, topic);
            describe(admin);
            Set<String> written = new HashSet<>();
            for (String codec : CODECS) {
                // Leaders of a new topic may not serve yet, which acks=0 would not tell.
                for (String acks : List.of("all", "1", "0")) {
                    Map<String, Object> config = Map.of("acks", acks, "compression.type", codec,
                        "linger.ms", 20, "enable.idempotence", false);
                    try (KafkaProducer<String, String> producer = producer(bootstrap, config)) {
                        written.addAll(produce(producer, topic, codec + "-" + acks, !acks.equals("0")));
                    }
                }
            }
            ok("produce");
            try (KafkaProducer<String, String> producer = producer(bootstrap, Map.of("enable.idempotence", true))) {
                written.addAll(produce(producer, topic, "idempotent", true));
            }
            ok("idempotent");
            Set<String> aborted;
            try (KafkaProducer<String, String> producer = producer(bootstrap, Map.of("transactional.id", topic))) {
                producer.initTransactions();
                producer.beginTransaction();
                written.addAll(produce(producer, topic, "committed", true));
                producer.commitTransaction();
                producer.beginTransaction();
                aborted = produce(producer, topic, "aborted", true);
                producer.abortTransaction();
            }
            ok("transactional");
            consume(bootstrap, topic, topic + "-group", written, aborted, admin);
        }
    }

    static void create(Admin admin, String topic) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 3))).all().get();
        long deadline = System.nanoTime() + TIMEOUT.toNanos();
        while (true) {
            List<TopicPartitionInfo> partitions = partitions(admin, topic);
            long leaders = partitions.stream().map(TopicPartitionInfo::leader)
                .filter(leader -> leader != null && !leader.isEmpty()).map(Node::id).distinct().count();
            if (partitions.size() == PARTITIONS && leaders == 3) {
                break;
            }
            check(System.nanoTime() < deadline, "the topic is not led by every broker: " + partitions);
            Thread.sleep(50);
        }
        ok("create-topic");
    }

    /** Right after its creation a topic may be unknown to the broker that is asked. */
    static List<TopicPartitionInfo> partitions(Admin admin, String topic) throws Exception {
        try {
            return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof org.apache.kafka.common.errors.UnknownTopicOrPartitionException) {
                return List.of();
            }
            throw e;
        }
    }

    static void describe(Admin admin) throws Exception {
        Collection<Node> nodes = admin.describeCluster().nodes().get();
        check(nodes.size() == 3, "nodes: " + nodes);
        nodes.forEach(Client::tell);
        tell(admin.describeCluster().controller().get());
        ok("describe-cluster");
    }

    static KafkaProducer<String, String> producer(String bootstrap, Map<String, Object> config) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("delivery.timeout.ms", 60000);
        properties.put("request.timeout.ms", 30000);
        properties.putAll(config);
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    /** Ten records into each partition; with acks=0 there is no offset. */
    static Set<String> produce(KafkaProducer<String, String> producer, String topic, String tag, boolean acknowledged)
            throws Exception {
        Set<String> values = new HashSet<>();
        List<Future<RecordMetadata>> results = new ArrayList<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            for (int i = 0; i < RECORDS; i++) {
                String value = tag + "/" + partition + "/" + i;
                ProducerRecord<String, String> record = new ProducerRecord<>(topic, partition, tag + "-" + i, value);
                record.headers().add("tag", tag.getBytes(StandardCharsets.UTF_8));
                results.add(producer.send(record));
                values.add(value);
            }
        }
        producer.flush();
        for (Future<RecordMetadata> result : results) {
            check(result.get().hasOffset() == acknowledged, tag + ": offset of " + result.get());
        }
        return values;
    }

    static void consume(String bootstrap, String topic, String group, Set<String> expected, Set<String> forbidden,
            Admin admin) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "group.id", group,
            "auto.offset.reset", "earliest", "enable.auto.commit", false, "isolation.level", "read_committed");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            Set<String> missing = new HashSet<>(expected);
            long deadline = System.nanoTime() + TIMEOUT.toNanos();
            while (!missing.isEmpty()) {
                check(System.nanoTime() < deadline, missing.size() + " records not consumed");
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> {
                    check(!forbidden.contains(record.value()), "aborted record " + record.value() + " was read");
                    missing.remove(record.value());
                });
            }
            tell(admin.describeConsumerGroups(List.of(group)).all().get().get(group).coordinator());
            ok("describe-group");
            consumer.commitSync();
            Set<TopicPartition> all = IntStream.range(0, PARTITIONS)
                .mapToObj(p -> new TopicPartition(topic, p)).collect(Collectors.toSet());
            consumer.committed(all).forEach((partition, offset) ->
                check(offset != null && offset.offset() > 0, "committed " + partition + ": " + offset));
        }
        ok("consume-group");
    }

    static void fenced(String bootstrap, String topic, String plain) throws Exception {
        try (KafkaProducer<String, String> producer = producer(bootstrap, Map.of("enable.idempotence", true))) {
            check(append(producer, topic, 0, "first") == 0, "the first is elsewhere");
            ok("won");
            Throwable refusal = failure(() -> append(producer, topic, 0, "second"));
            check(refusal instanceof OffsetOutOfRangeException
                && refusal.getMessage().equals("expected-offset taken: expected=0 next=1"), "refusal: " + refusal);
            ok("refused");
            check(append(producer, topic, 1, "third") == 1, "the third is elsewhere");
            ok("goes-on");
        }
        try (KafkaProducer<String, String> producer = producer(bootstrap, Map.of("transactional.id", topic))) {
            producer.initTransactions();
            producer.beginTransaction();
            Throwable refusal = failure(() -> append(producer, topic, 2, "fourth"));
            check(refusal instanceof TopicAuthorizationException, "refusal of a transaction: " + refusal);
            producer.abortTransaction();
            ok("transaction-refused");
            producer.beginTransaction();
            produce(producer, plain, "elsewhere", true);
            producer.commitTransaction();
            ok("transaction-elsewhere");
        }
    }

    static long append(KafkaProducer<String, String> producer, String topic, long expected, String value) throws Exception {
        ProducerRecord<String, String> record = new ProducerRecord<>(topic, 0, null, value);
        record.headers().add("expected-offset", String.valueOf(expected).getBytes(StandardCharsets.UTF_8));
        record.headers().add("append-id", value.getBytes(StandardCharsets.UTF_8));
        return producer.send(record).get().offset();
    }

    /** What a send that must fail fails with. */
    static Throwable failure(Callable<Long> send) throws Exception {
        try {
            throw new AssertionError("appended at " + send.call());
        } catch (ExecutionException e) {
            return e.getCause();
        }
    }

    static void golden(String bootstrap, String topic, String codec) throws Exception {
        boolean transactional = codec.equals("transactional");
        Map<String, Object> config = transactional
            ? Map.of("transactional.id", topic, "linger.ms", 200)
            : Map.of("compression.type", codec, "linger.ms", 200);
        try (KafkaProducer<String, String> producer = producer(bootstrap, config)) {
            if (transactional) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            String[] keys = {"key", null, ""};
            for (int i = 0; i < keys.length; i++) {
                ProducerRecord<String, String> record =
                    new ProducerRecord<>(topic, 0, keys[i], "value " + i + " " + "x".repeat(40));
                record.headers().add("expected-offset", String.valueOf(41 + i).getBytes(StandardCharsets.UTF_8));
                record.headers().add("append-id", new byte[] {0, 1, (byte) i});
                producer.send(record);
            }
            producer.flush();
            if (transactional) {
                producer.commitTransaction();
            }
        }
    }

    static void tell(Node node) {
        System.out.println("broker " + node.host() + ":" + node.port());
    }

    static void ok(String name) {
        System.out.println("ok " + name);
    }

    static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }
}
