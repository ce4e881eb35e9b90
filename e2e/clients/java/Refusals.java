import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java client for refusals_test.go, which lists the commands */
public class Refusals {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, KafkaProducer<String, String>> PRODUCERS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        Properties build = new Properties();
        try (InputStream resource = KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            build.load(resource);
        }
        say(JSON.createObjectNode().put("version", build.getProperty("version")));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode command = JSON.readTree(line);
            try {
                carryOut(command);
            } catch (ExecutionException e) {
                failed(command, e.getCause());
            } catch (RuntimeException e) {
                failed(command, e);
            }
        }
        System.exit(0); // with whatever still runs
    }

    static void carryOut(JsonNode command) throws Exception {
        String name = command.path("producer").asText();
        KafkaProducer<String, String> producer = PRODUCERS.get(name);
        long offset = -1;
        switch (command.get("do").asText()) {
            case "send" -> {
                send(producer, command);
                return;
            }
            case "open" -> PRODUCERS.put(name, open(command));
            case "begin" -> producer.beginTransaction();
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "next" -> offset = next(command);
            case "close" -> producer.close(Duration.ZERO);
            default -> throw new IllegalArgumentException(command.toString());
        }
        done(command, offset);
    }

    static KafkaProducer<String, String> open(JsonNode command) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", command.get("bootstrap").asText());
        properties.put("delivery.timeout.ms", 30000);
        properties.put("request.timeout.ms", 20000);
        properties.put("linger.ms", 0);
        properties.put("acks", command.get("acks").asText());
        properties.put("enable.idempotence", command.get("idempotent").asBoolean());
        if (command.get("batch_bytes").asInt() > 0) {
            properties.put("batch.size", command.get("batch_bytes").asInt());
        }
        String transactionalId = command.get("transactional_id").asText();
        if (!transactionalId.isEmpty()) {
            properties.put("transactional.id", transactionalId);
        }
        command.path("properties").fields().forEachRemaining(p -> properties.put(p.getKey(), p.getValue().asText()));
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
        if (!transactionalId.isEmpty()) {
            producer.initTransactions();
        }
        return producer;
    }

    static void send(KafkaProducer<String, String> producer, JsonNode command) {
        Long timestamp = command.path("timestamp").asLong() == 0 ? null : command.get("timestamp").asLong();
        ProducerRecord<String, String> record = new ProducerRecord<>(command.get("topic").asText(),
            command.get("partition").asInt(), timestamp, null, command.get("value").asText());
        for (JsonNode header : command.path("headers")) {
            record.headers().add(header.get("name").asText(), header.get("value").asText().getBytes(StandardCharsets.UTF_8));
        }
        producer.send(record, (metadata, exception) -> {
            if (exception == null) {
                done(command, metadata.offset());
            } else {
                failed(command, exception);
            }
        });
    }

    static long next(JsonNode command) throws Exception {
        TopicPartition partition = new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", command.get("bootstrap").asText()))) {
            return admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition).get().offset();
        }
    }

    static void done(JsonNode command, long offset) {
        say(JSON.createObjectNode().put("tag", command.get("tag").asText()).put("offset", offset));
    }

    /** Transactional methods throw an earlier error as it is, or as the cause of a bare KafkaException: that is luck. */
    static void failed(JsonNode command, Throwable e) {
        Throwable told = e.getClass() == KafkaException.class && e.getCause() != null ? e.getCause() : e;
        String kind = told.getClass().getSimpleName();
        ObjectNode report = JSON.createObjectNode().put("tag", command.get("tag").asText());
        report.putObject("error").put("kind", kind).put("code", Errors.forException(told).code()).put("message", e.getMessage());
        say(report);
    }

    static synchronized void say(ObjectNode report) {
        System.out.println(report);
    }
}
