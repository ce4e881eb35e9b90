import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Append BOOTSTRAP TOPIC: appends one record to partition 0 at its next offset,
 * then asks for the same offset again and is refused.
 */
public class Append {
    public static void main(String[] args) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", args[0]);
        var partition = new TopicPartition(args[1], 0);
        try (Admin admin = Admin.create(config);
                var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            long next = admin.listOffsets(Map.of(partition, OffsetSpec.latest()))
                .partitionResult(partition).get().offset();
            for (String value : new String[] {"first", "second"}) {
                try {
                    System.out.println("appended at " + append(producer, partition, next, value));
                } catch (ExecutionException e) {
                    if (e.getCause() instanceof OffsetOutOfRangeException) {
                        System.out.println("refused: " + e.getCause().getMessage());
                    } else { // the record may be in the log: read the partition from next
                        System.out.println("not known to be appended: " + e.getCause());
                    }
                }
            }
        }
    }

    static long append(KafkaProducer<String, String> producer, TopicPartition partition, long expected, String value)
            throws ExecutionException, InterruptedException {
        var record = new ProducerRecord<String, String>(partition.topic(), partition.partition(), null, value);
        record.headers().add("expected-offset", Long.toString(expected).getBytes());
        record.headers().add("append-id", UUID.randomUUID().toString().getBytes());
        return producer.send(record).get().offset();
    }
}
