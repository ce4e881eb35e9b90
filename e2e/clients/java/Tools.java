import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;

/**
 * Kafka's own command line tools for clientmatrix_test.go, in one process: each is a
 * class with a main method, and starts of Java cost more than what they do.
 *
 *   Tools BOOTSTRAP TOPIC    with a topic of three partitions
 *
 * The kinds of groups that the brokers have are in MATRIX_GROUPS, apart by spaces.
 * Prints as Matrix does; names are TOOL/USE.
 */
public class Tools {
    static final PrintStream OUTPUT = System.out;

    static String bootstrap;
    static String topic;
    static int written;
    static Integer status; // that the running tool asked to end with, at first

    /** A tool that asked to end. */
    static class Ended extends RuntimeException {
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        topic = args[1];
        List<String> kinds = List.of(System.getenv("MATRIX_GROUPS").split(" "));
        endByException();
        Properties build = new Properties();
        try (var resource = Tools.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            build.load(resource);
        }
        OUTPUT.println("version " + build.getProperty("version"));
        topics();
        configs();
        produce();
        consume(kinds);
        perf(kinds);
        groups(kinds);
        OUTPUT.flush();
        Runtime.getRuntime().halt(0); // without what tools do when they are interrupted
    }

    /** Has tools throw where they would end the process. Kafka's class for that has moved. */
    static void endByException() throws ReflectiveOperationException {
        Class<?> exit = Class.forName(either("org.apache.kafka.common.utils.internals.Exit", "org.apache.kafka.common.utils.Exit"));
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        Object thrower = Proxy.newProxyInstance(Tools.class.getClassLoader(), new Class<?>[] {procedure}, (self, method, args) -> {
            // Some catch this as any other failure, and ask again.
            if (status == null) {
                status = (Integer) args[0];
            }
            throw new Ended();
        });
        exit.getMethod("setExitProcedure", procedure).invoke(null, thrower);
        exit.getMethod("setHaltProcedure", procedure).invoke(null, thrower);
    }

    static void topics() {
        String tool = "org.apache.kafka.tools.TopicCommand";
        String made = topic + "-made";
        use("kafka-topics/create", "Created topic " + made, "", tool, "--create", "--topic", made, "--partitions", "3");
        use("kafka-topics/list", made, "", tool, "--list");
        use("kafka-topics/describe", "Leader:", "", tool, "--describe", "--topic", topic);
        use("kafka-topics/alter", "", "", tool, "--alter", "--topic", made, "--partitions", "4");
        use("kafka-topics/delete", "", "", tool, "--delete", "--topic", made);
    }

    static void configs() {
        String tool = either("org.apache.kafka.tools.ConfigCommand", "kafka.admin.ConfigCommand");
        String[] entity = {"--entity-type", "topics", "--entity-name", topic};
        use("kafka-configs/alter", "Completed", "", tool, with(entity, "--alter", "--add-config", "retention.ms=3600000"));
        use("kafka-configs/describe", "retention.ms=3600000", "", tool, with(entity, "--describe"));
        use("kafka-configs/describe a broker", "", "", tool, "--entity-type", "brokers", "--entity-name", "1", "--describe");
        run("kafka-cluster/cluster-id", "Cluster ID", "", "org.apache.kafka.tools.ClusterTool", "cluster-id",
            "--bootstrap-server", bootstrap);
    }

    static void produce() {
        String tool = either("org.apache.kafka.tools.ConsoleProducer", "kafka.tools.ConsoleProducer");
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String lines = "console " + codec + "\nconsole again " + codec + "\n";
            if (use("kafka-console-producer/" + codec, "", lines, tool, "--topic", topic, "--compression-codec", codec)) {
                written += 2;
            }
        }
        for (String acks : List.of("0", "1", "all")) {
            if (use("kafka-console-producer/acks=" + acks, "", "acks " + acks + "\n", tool, "--topic", topic, "--request-required-acks", acks)) {
                written++;
            }
        }
    }

    static void consume(List<String> kinds) {
        String tool = "org.apache.kafka.tools.consumer.ConsoleConsumer";
        String[] all = {"--topic", topic, "--timeout-ms", "20000", "--max-messages", String.valueOf(written)};
        use("kafka-console-consumer/without a group", "console again zstd", "", tool, with(all, "--from-beginning"));
        use("kafka-console-consumer/classic group", "console again zstd", "", tool,
            with(all, "--from-beginning", "--group", topic + "-classic"));
        if (kinds.contains("consumer")) {
            use("kafka-console-consumer/KIP-848 group", "console again zstd", "", tool, with(all, "--from-beginning",
                "--group", topic + "-consumer", "--consumer-property", "group.protocol=consumer"));
        }
        if (kinds.contains("share")) {
            String configs = either("org.apache.kafka.tools.ConfigCommand", "kafka.admin.ConfigCommand");
            use("kafka-configs/alter a group", "Completed", "", configs, "--entity-type", "groups", "--entity-name", topic + "-share",
                "--alter", "--add-config", "share.auto.offset.reset=earliest");
            use("kafka-console-share-consumer/share group", "console again zstd", "", "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
                with(all, "--group", topic + "-share"));
        }
    }

    static void perf(List<String> kinds) {
        String tool = "org.apache.kafka.tools.ProducerPerformance";
        String[] run = {"--topic", topic, "--num-records", "300", "--record-size", "100", "--throughput", "-1"};
        for (String acks : List.of("0", "1", "all")) {
            run("kafka-producer-perf-test/acks=" + acks, "300 records sent", "", tool,
                with(run, "--producer-props", "bootstrap.servers=" + bootstrap, "acks=" + acks, "linger.ms=20"));
        }
        run("kafka-producer-perf-test/transactions", "300 records sent", "", tool, with(run, "--transactional-id", topic + "-perf",
            "--transaction-duration-ms", "100", "--producer-props", "bootstrap.servers=" + bootstrap));
        String[] read = {"--topic", topic, "--messages", "900", "--timeout", "20000"};
        use("kafka-consumer-perf-test/classic group", "data.consumed", "", "org.apache.kafka.tools.ConsumerPerformance",
            with(read, "--group", topic + "-perf"));
        if (kinds.contains("share")) {
            // It reads from the end unless the group is told otherwise.
            use("kafka-share-consumer-perf-test/share group", "data.consumed", "", "org.apache.kafka.tools.ShareConsumerPerformance",
                "--topic", topic, "--messages", "300", "--timeout", "20000", "--group", topic + "-share");
        }
    }

    static void groups(List<String> kinds) {
        String tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
        String group = topic + "-classic";
        use("kafka-consumer-groups/list", group, "", tool, "--list");
        use("kafka-consumer-groups/describe", "LOG-END-OFFSET", "", tool, "--describe", "--group", group);
        use("kafka-consumer-groups/reset offsets", "NEW-OFFSET", "", tool, "--reset-offsets", "--to-earliest", "--all-topics",
            "--group", group, "--execute");
        use("kafka-consumer-groups/delete", "", "", tool, "--delete", "--group", group);
        if (kinds.contains("share")) {
            String share = "org.apache.kafka.tools.consumer.group.ShareGroupCommand";
            use("kafka-share-groups/list", topic + "-share", "", share, "--list");
            use("kafka-share-groups/describe", "START-OFFSET", "", share, "--describe", "--group", topic + "-share");
            use("kafka-groups/list", topic + "-share", "", "org.apache.kafka.tools.GroupsCommand", "--list");
        }
    }

    static String[] with(String[] some, String... more) {
        List<String> all = new ArrayList<>(Arrays.asList(some));
        all.addAll(Arrays.asList(more));
        return all.toArray(new String[0]);
    }

    static boolean use(String name, String says, String input, String tool, String... args) {
        return run(name, says, input, tool, with(new String[] {"--bootstrap-server", bootstrap}, args));
    }

    /**
     * What a tool printed must hold says, and it must end well. Brokers learn of changes
     * one after the other, so that one that only looks is asked until it sees them.
     */
    static boolean run(String name, String says, String input, String tool, String... args) {
        boolean looks = name.contains("/list") || name.contains("/describe");
        String failure = null;
        for (int tries = looks ? 20 : 1; tries > 0; tries--) {
            failure = failureOf(says, input, tool, args);
            if (failure == null) {
                OUTPUT.println("ok " + name);
                return true;
            }
        }
        OUTPUT.println("failed " + name + ": " + failure.replaceAll("\\s+", " "));
        return false;
    }

    /** Runs a tool once; null: it did as it should. */
    static String failureOf(String says, String input, String tool, String... args) {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream all = new PrintStream(printed, true, StandardCharsets.UTF_8);
        PrintStream errors = System.err;
        String failure = null;
        status = null;
        System.setOut(all);
        System.setErr(all);
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException e) {
            if (!(e.getCause() instanceof Ended)) {
                failure = e.getCause().toString();
            }
        } catch (ReflectiveOperationException e) {
            failure = e.toString();
        } finally {
            System.setOut(OUTPUT);
            System.setErr(errors);
        }
        String text = printed.toString(StandardCharsets.UTF_8);
        if (failure == null && status != null && status != 0) {
            failure = "exit status " + status;
        }
        if (failure == null && !text.contains(says)) {
            failure = "it did not print \"" + says + "\"";
        }
        if (failure != null) {
            System.err.println(tool + ":\n" + text);
        }
        return failure;
    }

    static String either(String newer, String older) {
        try {
            Class.forName(newer);
            return newer;
        } catch (ClassNotFoundException e) {
            return older;
        }
    }
}
