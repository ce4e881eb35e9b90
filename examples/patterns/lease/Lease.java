import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.UnknownServerException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Lease BOOTSTRAP TOPIC NAME...: each NAME leads, and then again. The log of partition 0 says who
 * leads: whoever wrote the last "lead". A leader works, then pauses for longer than its
 * lease lasts, as a process does that is frozen, and tries to work on.
 */
public class Lease implements Callable<Void> {
    static final Duration TTL = Duration.ofMillis(200);

    final String name;
    final TopicPartition partition;
    final KafkaConsumer<String, String> consumer;
    final KafkaProducer<String, String> producer;

    // What the log says below offset next.
    long next;
    String leader = "";
    long token; // the offset of the leader's "lead": greater for each later leader
    long heard = System.nanoTime(); // when something was last read, by our own clock

    Lease(String bootstrap, String topic, String name) {
        this.name = name;
        partition = new TopicPartition(topic, 0);
        consumer = new KafkaConsumer<>(Map.of("bootstrap.servers", bootstrap), new StringDeserializer(), new StringDeserializer());
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        producer = new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap, "request.timeout.ms", 5_000, "delivery.timeout.ms", 10_000),
            new StringSerializer(), new StringSerializer());
    }

    public Void call() throws Exception {
        try (consumer; producer) {
            for (int led = 0; led < 2; led++) {
                while (!leader.equals(name) && !lead()) {
                    Thread.sleep(ThreadLocalRandom.current().nextLong(TTL.toMillis() / 2)); // so that few try at once
                }
                long mine = token; // what this leader does elsewhere carries it
                boolean leading = true;
                for (int i = 0; leading && i < 3; i++) {
                    leading = append("work"); // renews the lease as well
                }
                Thread.sleep(5 * TTL.toMillis());
                leading = leading && append("work");
                System.out.println(name + " led with token " + mine + (leading ? ", still leads" : ", was replaced meanwhile"));
            }
        }
        return null;
    }

    /** Takes the lead if nothing was heard of another leader for as long as a lease lasts. */
    boolean lead() throws Exception {
        catchUp();
        boolean free = leader.isEmpty() || System.nanoTime() - heard > TTL.toNanos();
        return free && append("lead");
    }

    /**
     * Appends at the end of what was read; false: something else stands there, so what was
     * decided on the log before is void. Whoever acts elsewhere by its lease has to count it
     * from before it calls this.
     */
    boolean append(String what) throws Exception {
        long at = next;
        String id = UUID.randomUUID().toString();
        var record = new ProducerRecord<String, String>(partition.topic(), partition.partition(), null, name + " " + what);
        record.headers().add("expected-offset", Long.toString(at).getBytes());
        record.headers().add("append-id", id.getBytes());
        while (true) {
            try {
                long offset = producer.send(record).get().offset();
                if (offset != at) {
                    throw new IllegalStateException("appended at " + offset + ", not at " + at + ": is there a rule for the topic here?");
                }
            } catch (ExecutionException e) {
                if (e.getCause() instanceof OffsetOutOfRangeException) {
                    catchUp(); // what came between
                    return false; // refused: nothing of ours is in the log
                }
                if (!(e.getCause() instanceof UnknownServerException || e.getCause() instanceof RetriableException)) {
                    throw e; // not appended, and would not be next time
                }
            }
            // Won or unknown: the log tells. If it has nothing at that place yet, the same
            // record is sent again, under the same append-id.
            for (var stored : catchUp()) {
                if (stored.offset() == at) {
                    return new String(stored.headers().lastHeader("append-id").value()).equals(id);
                }
            }
        }
    }

    /** Reads on to the end of the log, and returns what is new. */
    List<ConsumerRecord<String, String>> catchUp() {
        long end = consumer.endOffsets(Set.of(partition)).get(partition);
        var read = new ArrayList<ConsumerRecord<String, String>>();
        while (consumer.position(partition) < end) {
            for (var record : consumer.poll(Duration.ofMillis(100))) {
                String[] words = record.value().split(" ");
                if (words[1].equals("lead")) {
                    leader = words[0];
                    token = record.offset();
                }
                next = record.offset() + 1;
                heard = System.nanoTime();
                read.add(record);
            }
        }
        return read;
    }

    public static void main(String[] args) throws Exception {
        var threads = Executors.newCachedThreadPool();
        var running = new ArrayList<Future<Void>>();
        for (int i = 2; i < args.length; i++) {
            var contender = new Lease(args[0], args[1], args[i]);
            contender.lead(); // the first will, if nobody does
            running.add(threads.submit(contender));
        }
        try {
            for (var one : running) {
                one.get();
            }
        } finally {
            threads.shutdownNow(); // if one failed, the others need not go on
        }
    }
}
