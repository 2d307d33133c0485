// Kafka's own Java client: all that it can ask a cluster, and what it is told. BOOTSTRAP PREFIX PHASE ("whole", "below").
// Prints a JSON object: a result for each scenario, an error as its name in Kafka's table. Runs with kafka-clients 3.9 and 4.

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.*;

public class Scenarios {
    static final int RECORDS = 20, PARTITIONS = 4, MORE = 8;
    static final Duration PATIENCE = Duration.ofSeconds(180), SHORT = Duration.ofMillis(200);
    static String bootstrap, prefix;
    static Admin admin;
    static final Map<String, Object> results = new LinkedHashMap<>();

    interface Act { Object run() throws Exception; }

    static void tell(String scenario, Act act) {
        if (results.containsKey(scenario)) throw new IllegalStateException(scenario);
        Object told;
        try {
            told = act.run();
        } catch (Throwable error) {
            told = Map.of("error", word(error));
        }
        results.put(scenario, told);
    }

    /** Asks until the answer shows what was done: Kafka's brokers learn of it after its caller. */
    static <T> T eventually(Callable<T> ask, Predicate<T> holds) throws Exception {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (System.nanoTime() < end) {
            T found = ask.call();
            if (holds.test(found)) return found;
        }
        throw new TimeoutException("not within " + PATIENCE);
    }

    static String word(Throwable error) {
        while (error instanceof ExecutionException || error.getClass() == KafkaException.class) {
            if (error.getCause() == null) break;
            error = error.getCause();
        }
        if (error instanceof OffsetOutOfRangeException || error instanceof NoOffsetForPartitionException) {
            return error.getClass().getSimpleName();
        }
        Errors known = Errors.forException(error);
        return known == Errors.UNKNOWN_SERVER_ERROR ? error.getClass().getSimpleName() : known.name();
    }

    static String topic(String name) { return prefix + "-" + name; }

    static Properties settings(Object... pairs) {
        Properties found = new Properties();
        found.put("bootstrap.servers", bootstrap);
        for (int at = 0; at < pairs.length; at += 2) found.put(pairs[at], pairs[at + 1]);
        return found;
    }

    // --- Data --------------------------------------------------------------------------------------------------------

    static Object produce(String topic, List<String> values, String key, int partitions, Object... pairs)
            throws Exception {
        Properties own = settings(pairs);
        own.putIfAbsent("max.block.ms", topic.equals(topic("none")) ? "5000" : "60000");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<String> told = new ArrayList<>();
        long began = System.currentTimeMillis();
        try (var producer = new KafkaProducer<>(own, new StringSerializer(), new StringSerializer())) {
            for (int at = 0; at < values.size(); at++) {
                sent.add(producer.send(new ProducerRecord<>(topic, at % partitions, began + at, key, values.get(at))));
            }
            for (var each : sent) {
                try {
                    each.get();
                    told.add("");
                } catch (ExecutionException error) {
                    told.add(word(error));
                }
            }
        }
        Collections.sort(told);
        return told;
    }

    static List<String> numbers(int from, int until) {
        return IntStream.range(from, until).mapToObj(Integer::toString).toList();
    }

    static KafkaConsumer<String, String> consumer(String group, Object... pairs) {
        Properties own = settings(pairs);
        if (group != null) own.put("group.id", topic(group));
        own.putIfAbsent("auto.offset.reset", "earliest");
        own.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(own, new StringDeserializer(), new StringDeserializer());
    }

    static void data() {
        List<String> values = numbers(0, RECORDS);
        Map<String, Object[]> ways = new LinkedHashMap<>();
        for (String acks : List.of("0", "1", "all")) {
            ways.put("produce, acks=" + acks, new Object[] {"acks", acks, "enable.idempotence", "false"});
        }
        ways.put("produce, idempotent", new Object[] {});
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd")) {
            ways.put("produce, " + codec, new Object[] {"compression.type", codec});
        }
        ways.forEach((way, own) -> tell(way, () -> produce(topic("one"), values, "k", 1, own)));
        tell("consume by assignment", () -> {
            try (var consumer = consumer(null)) {
                TopicPartition partition = new TopicPartition(topic("one"), 0);
                consumer.assign(List.of(partition));
                int found = 0;
                while (found < RECORDS * ways.size()) found += consumer.poll(SHORT).count();
                return List.of(found, consumer.beginningOffsets(List.of(partition)).get(partition),
                    consumer.endOffsets(List.of(partition)).get(partition),
                    consumer.offsetsForTimes(Map.of(partition, 1L)).get(partition).offset());
            }
        });
        tell("consume from an offset with its epoch", () -> {
            try (var consumer = consumer(null)) {
                TopicPartition partition = new TopicPartition(topic("one"), 0);
                consumer.assign(List.of(partition));
                consumer.seek(partition, new OffsetAndMetadata(RECORDS, Optional.of(0), ""));
                int found = 0;
                while (found < RECORDS * (ways.size() - 1)) found += consumer.poll(SHORT).count();
                return found;
            }
        });
        tell("produce a record that is too large",
            () -> produce(topic("small"), List.of("x".repeat(9000)), "k", 1));
        tell("produce without a key to a compacted topic", () -> produce(topic("compacted"), List.of("x"), null, 1));
        tell("produce to an unknown topic", () -> produce(topic("none"), List.of("x"), "k", 1));
        tell("produce to an unknown partition", () -> {
            try (var producer = new KafkaProducer<>(settings("max.block.ms", "3000"), new StringSerializer(),
                    new StringSerializer())) {
                return producer.send(new ProducerRecord<>(topic("one"), 7, "k", "x")).get().offset();
            }
        });
        tell("consume out of range", () -> refusedRead(topic("one"), 10_000));
    }

    /** Of a topic with LogAppendTime: a batch of three records with other times. */
    static void times() {
        tell("produce a record of the far future", () -> sentAt(topic("one"), 1L << 42));
        tell("log append times", () -> {
            String topic = topic("timed");
            TopicPartition partition = new TopicPartition(topic, 0);
            List<Long> told = sentAt(topic, 1_000, 1L << 42, 1_000);
            List<String> found = new ArrayList<>();
            try (var consumer = consumer(null)) {
                consumer.assign(List.of(partition));
                while (found.size() < told.size()) {
                    for (var each : consumer.poll(SHORT)) {
                        found.add(each.timestampType() + " " + (each.timestamp() == told.get((int) each.offset())));
                    }
                }
                return List.of(Set.copyOf(told).size(), told.get(0) > 1_000 && told.get(0) < 1L << 42, found,
                    consumer.offsetsForTimes(Map.of(partition, 1_001L)).get(partition).offset(),
                    String.valueOf(consumer.offsetsForTimes(Map.of(partition, told.get(0) + 1)).get(partition)),
                    admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition).get().offset());
            }
        });
    }

    static List<Long> sentAt(String topic, long... times) throws Exception {
        Properties own = settings("linger.ms", "1000");
        List<Long> told = new ArrayList<>();
        try (var producer = new KafkaProducer<>(own, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (long time : times) sent.add(producer.send(new ProducerRecord<>(topic, 0, time, "k", "x")));
            for (var each : sent) told.add(each.get().timestamp());
        }
        return told;
    }

    static Object refusedRead(String topic, long offset) {
        try (var consumer = consumer(null, "auto.offset.reset", "none")) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, offset);
            while (true) consumer.poll(SHORT);
        }
    }

    // --- Groups ------------------------------------------------------------------------------------------------------

    static void groups() {
        String strategies = "org.apache.kafka.clients.consumer.";
        Map<String, Object[]> kinds = new LinkedHashMap<>();
        kinds.put("classic", new Object[] {});
        kinds.put("cooperative",
            new Object[] {"partition.assignment.strategy", strategies + "CooperativeStickyAssignor"});
        kinds.put("static", new Object[] {"group.instance.id", "NAME", "session.timeout.ms", "6000"});
        kinds.put("consumer", new Object[] {"group.protocol", "consumer"});
        kinds.forEach((kind, own) -> tell("group, " + kind, () -> group(kind, own)));
        tell("commit without a group", () -> {
            try (var consumer = consumer(null)) {
                consumer.commitSync(Map.of(new TopicPartition(topic("one"), 0), new OffsetAndMetadata(1)));
                return "";
            }
        });
        tell("commit for an unknown topic", () -> {
            try (var consumer = consumer("stray")) {
                consumer.commitSync(Map.of(new TopicPartition(topic("none"), 0), new OffsetAndMetadata(1)),
                    Duration.ofSeconds(5));
                return "";
            }
        });
        tell("a group with an empty id", () -> {
            try (var consumer = new KafkaConsumer<>(settings("group.id", ""), new StringDeserializer(),
                    new StringDeserializer())) {
                consumer.subscribe(List.of(topic("four")));
                while (true) consumer.poll(SHORT);
            }
        });
        tell("two protocols in a group", () -> {
            try (var one = consumer("mixed"); var other = consumer("mixed", "partition.assignment.strategy",
                    strategies + "RoundRobinAssignor")) {
                one.subscribe(List.of(topic("four")));
                while (one.assignment().isEmpty()) one.poll(SHORT);
                other.subscribe(List.of(topic("four")));
                while (other.assignment().isEmpty()) other.poll(SHORT);
                return "";
            }
        });
    }

    static KafkaConsumer<String, String> member(String kind, String topic, String name, Object[] own) {
        Object[] filled = own.clone();
        for (int at = 0; at < filled.length; at++) if (filled[at].equals("NAME")) filled[at] = name;
        var consumer = consumer(kind, filled);
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    /** Two members share the topic, commit and close; a third is given what nobody has read. */
    static Object group(String kind, Object[] own) throws Exception {
        String topic = topic("four") + "-" + kind;
        admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 3))).all().get();
        produce(topic, numbers(0, RECORDS), "k", PARTITIONS);
        Set<TopicPartition> partitions = IntStream.range(0, PARTITIONS)
            .mapToObj(each -> new TopicPartition(topic, each)).collect(Collectors.toSet());
        var both = List.of(member(kind, topic, "a", own), member(kind, topic, "b", own));
        int first = read(both, found -> found.size() == RECORDS
            && both.stream().allMatch(each -> each.assignment().size() == PARTITIONS / 2 && isAtTheEnd(each))).size();
        for (var each : both) each.commitSync();
        Object committed = both.get(0).committed(partitions).entrySet().stream()
            .sorted(Comparator.comparing(each -> each.getKey().partition()))
            .map(each -> each.getValue().offset()).toList();
        for (var each : both) each.close();
        produce(topic, numbers(RECORDS, RECORDS + MORE), "k", PARTITIONS);
        var third = List.of(member(kind, topic, "a", own));
        Set<Integer> then = read(third, found -> found.size() == MORE);
        third.get(0).close();
        return Map.of("read", first, "committed", committed, "then", then);
    }

    static boolean isAtTheEnd(KafkaConsumer<String, String> member) {
        return member.assignment().stream().allMatch(each -> member.position(each) == RECORDS / PARTITIONS);
    }

    /** What the members read between them; each has a thread of its own, as Java's consumers want when they rebalance. */
    static Set<Integer> read(List<KafkaConsumer<String, String>> members, Predicate<Set<Integer>> done)
            throws Exception {
        Set<Integer> found = new ConcurrentSkipListSet<>();
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (System.nanoTime() < end) {
            ExecutorService threads = Executors.newFixedThreadPool(members.size());
            for (var each : members) {
                threads.submit(() -> each.poll(SHORT).forEach(record -> found.add(Integer.valueOf(record.value()))));
            }
            threads.shutdown();
            threads.awaitTermination(PATIENCE.toSeconds(), TimeUnit.SECONDS);
            if (done.test(found)) return found;
        }
        throw new TimeoutException("read " + found);
    }

    static void groupAdministration() throws Exception {
        String kind = "classic", group = topic(kind), unknown = topic("nobody");
        TopicPartition first = new TopicPartition(topic("four") + "-" + kind, 0);
        TopicPartition absent = new TopicPartition(first.topic(), 99);
        try (var member = consumer(kind)) {
            member.subscribe(List.of(first.topic()));
            while (member.assignment().size() < PARTITIONS) member.poll(SHORT);
            tell("produce to an internal topic", () -> produce("__consumer_offsets", List.of("x"), "k", 1));
            tell("list groups", () -> admin.listConsumerGroups().valid().get().stream()
                .filter(each -> each.groupId().startsWith(prefix + "-"))
                .map(each -> each.groupId().substring(prefix.length())).sorted().toList());
            tell("describe a group", () -> described(group));
            tell("describe a group of KIP-848", () -> described(topic("consumer")));
            tell("describe an unknown group", () -> described(unknown));
            tell("offsets of a group", () -> offsets(group));
            tell("offsets of an unknown group", () -> offsets(unknown));
            tell("alter offsets of a group with members", () -> altered(group, first));
            tell("delete offsets that are subscribed to", () -> forgotten(group, first));
            tell("delete a group with members", () -> admin.deleteConsumerGroups(List.of(group)).all().get());
            tell("remove an unknown member", () -> admin.removeMembersFromConsumerGroup(group,
                new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("nobody")))).all().get());
        }
        tell("alter offsets of a group", () -> altered(group, first));
        tell("alter offsets of an unknown partition", () -> altered(group, absent));
        tell("offsets of a group after that", () -> offsets(group));
        tell("delete offsets", () -> forgotten(group, first));
        tell("delete offsets of an unknown group", () -> forgotten(unknown, first));
        tell("delete a group", () -> admin.deleteConsumerGroups(List.of(group)).all().get());
        tell("delete an unknown group", () -> admin.deleteConsumerGroups(List.of(unknown)).all().get());
    }

    static Object described(String group) throws Exception {
        var found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        return List.of(found.state().name(), found.partitionAssignor(), found.members().size());
    }

    static Object offsets(String group) throws Exception {
        return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().entrySet().stream()
            .map(each -> each.getKey().partition() + " " + each.getValue().offset()).sorted().toList();
    }

    static Object altered(String group, TopicPartition partition) throws Exception {
        return admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(3, "by hand"))).all().get();
    }

    static Object forgotten(String group, TopicPartition partition) throws Exception {
        return admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get();
    }

    // --- Administration ----------------------------------------------------------------------------------------------

    static void cluster() {
        tell("metadata", () -> {
            try (var consumer = consumer(null)) {
                return List.of(consumer.partitionsFor(topic("four")).size(), consumer.listTopics().containsKey(topic("one")));
            }
        });
        tell("describe the cluster", () -> {
            var found = admin.describeCluster();
            return List.of(found.nodes().get().stream().map(Node::id).sorted().toList(), found.controller().get() != null);
        });
        tell("features", () -> admin.describeFeatures().featureMetadata().get().finalizedFeatures().keySet());
        tell("describe the quorum", () -> {
            var found = admin.describeMetadataQuorum().quorumInfo().get();
            return List.of(found.voters().size(), found.observers().size(), found.leaderId() > 0);
        });
        tell("log directories", () -> admin.describeLogDirs(List.of(1, 2, 3)).allDescriptions().get().values().stream()
            .map(each -> each.values().stream().anyMatch(dir -> dir.replicaInfos().keySet().stream()
                .anyMatch(partition -> partition.topic().equals(topic("one"))))).toList());
        tell("log directories of an unknown broker", () -> admin.describeLogDirs(List.of(9),
            new DescribeLogDirsOptions().timeoutMs(3000)).allDescriptions().get());
        tell("describe ACLs without an authorizer", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        tell("describe credentials of an unknown user",
            () -> admin.describeUserScramCredentials(List.of("nobody")).description("nobody").get());
        tell("describe all credentials", () -> admin.describeUserScramCredentials().all().get());
        tell("describe quotas", () -> admin.describeClientQuotas(
            org.apache.kafka.common.quota.ClientQuotaFilter.all()).entities().get());
    }

    static Object created(boolean validateOnly, NewTopic... topics) throws Exception {
        return admin.createTopics(List.of(topics), new CreateTopicsOptions().validateOnly(validateOnly)).all().get();
    }

    static void create() {
        String topic = topic("admin"), other = topic("other");
        tell("create a topic", () -> created(false, new NewTopic(topic, 2, (short) 3).configs(Map.of("retention.ms", "100000"))));
        tell("create a topic again", () -> created(false, new NewTopic(topic, 2, (short) 3)));
        tell("create, only validated", () -> created(true, new NewTopic(other, 2, (short) 3)));
        Map<String, NewTopic> refused = new LinkedHashMap<>();
        refused.put("with a name that cannot be", new NewTopic("no good", 1, (short) 1));
        refused.put("with the name of a dot", new NewTopic(".", 1, (short) 1));
        refused.put("with too many replicas", new NewTopic(other, 1, (short) 4));
        refused.put("without replicas", new NewTopic(other, 1, (short) 0));
        refused.put("without partitions", new NewTopic(other, 0, (short) 1));
        refused.put("with an unknown config", new NewTopic(other, 1, (short) 1).configs(Map.of("no.such", "1")));
        refused.put("with a value that is no number", new NewTopic(other, 1, (short) 1).configs(Map.of("retention.ms", "soon")));
        refused.put("with a value out of range", new NewTopic(other, 1, (short) 1).configs(Map.of("min.insync.replicas", "0")));
        refused.put("on a broker twice", new NewTopic(other, Map.of(0, List.of(1, 1))));
        refused.put("on an unknown broker", new NewTopic(other, Map.of(0, List.of(1, 9))));
        refused.put("with partitions that do not begin with 0", new NewTopic(other, Map.of(1, List.of(1))));
        refused.forEach((what, wanted) -> tell("create " + what, () -> created(false, wanted)));
        tell("what a new topic would be", () -> {
            var found = admin.createTopics(List.of(new NewTopic(other, Optional.empty(), Optional.empty())),
                new CreateTopicsOptions().validateOnly(true));
            return List.of(found.numPartitions(other).get() > 0, found.replicationFactor(other).get() > 0);
        });
        tell("describe topics", () -> partitions(topic));
        tell("describe an unknown topic", () -> partitions(other));
        tell("add partitions", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get());
        tell("add no partitions", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get());
        tell("take partitions away", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all().get());
        tell("add partitions to an unknown topic",
            () -> admin.createPartitions(Map.of(other, NewPartitions.increaseTo(2))).all().get());
    }

    static Object partitions(String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().stream()
            .map(each -> each.replicas().size() + " " + each.isr().size()).toList();
    }

    static Map<String, Object> configs(ConfigResource resource, String... names) throws Exception {
        Config found = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        Map<String, Object> told = new LinkedHashMap<>();
        for (String name : names) {
            ConfigEntry entry = found.get(name);
            told.put(name, entry.value() + " " + entry.source() + " " + entry.isReadOnly() + " " + entry.isSensitive());
        }
        return told;
    }

    static Object altered(ConfigResource resource, String name, String value, AlterConfigOp.OpType how)
            throws Exception {
        var operation = new AlterConfigOp(new ConfigEntry(name, value), how);
        return admin.incrementalAlterConfigs(Map.of(resource, List.of(operation))).all().get();
    }

    static void configs() {
        var topic = new ConfigResource(ConfigResource.Type.TOPIC, topic("admin"));
        var none = new ConfigResource(ConfigResource.Type.TOPIC, topic("none"));
        var broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        String[] wanted = {"retention.ms", "cleanup.policy", "min.insync.replicas", "max.message.bytes", "segment.bytes"};
        tell("describe configs", () -> configs(topic, wanted));
        tell("describe configs of an unknown topic", () -> configs(none));
        tell("describe configs of a broker", () -> configs(broker, "node.id", "num.partitions"));
        var set = AlterConfigOp.OpType.SET;
        var append = AlterConfigOp.OpType.APPEND;
        tell("set a config", () -> altered(topic, "retention.ms", "200000", set));
        tell("append to a config", () -> altered(topic, "cleanup.policy", "compact", append));
        tell("append to a config what it has", () -> altered(topic, "cleanup.policy", "compact", append));
        tell("subtract from a config", () -> altered(topic, "cleanup.policy", "compact", AlterConfigOp.OpType.SUBTRACT));
        tell("append to a number", () -> altered(topic, "retention.ms", "1", append));
        tell("set an unknown config", () -> altered(topic, "no.such", "1", set));
        tell("set a config to no number", () -> altered(topic, "retention.ms", "soon", set));
        tell("set a config of an unknown topic", () -> altered(none, "retention.ms", "1", set));
        tell("set a config that only a restart changes", () -> altered(broker, "node.id", "7", set));
        tell("set min.insync.replicas below 1", () -> altered(topic, "min.insync.replicas", "0", set));
        tell("delete a config", () -> altered(topic, "retention.ms", "", AlterConfigOp.OpType.DELETE));
        tell("configs after all this", () -> {
            return eventually(() -> configs(topic, wanted),
                found -> found.get("retention.ms").toString().contains("DEFAULT_CONFIG"));
        });
    }

    static void offsets() {
        String four = topic("offsets");
        tell("fill a topic", () -> {
            created(false, new NewTopic(four, PARTITIONS, (short) 3));
            return produce(four, numbers(0, RECORDS), "k", PARTITIONS);
        });
        Map<String, OffsetSpec> specs = new LinkedHashMap<>();
        specs.put("earliest", OffsetSpec.earliest());
        specs.put("latest", OffsetSpec.latest());
        specs.put("newest", OffsetSpec.maxTimestamp());
        specs.put("by time", OffsetSpec.forTimestamp(1));
        specs.put("after the end of time", OffsetSpec.forTimestamp(1L << 62));
        specs.forEach((what, spec) -> tell("list offsets, " + what, () -> listed(new TopicPartition(four, 0), spec)));
        tell("list offsets of an unknown topic", () -> listed(new TopicPartition(topic("none"), 0), OffsetSpec.latest()));
        tell("list offsets of an unknown partition", () -> listed(new TopicPartition(four, 9), OffsetSpec.latest()));
        tell("delete records", () -> cut(new TopicPartition(four, 0), 3));
        tell("delete records that are gone", () -> cut(new TopicPartition(four, 0), 2));
        tell("delete records beyond the end", () -> cut(new TopicPartition(four, 0), 1_000_000));
        tell("delete records up to the high watermark", () -> cut(new TopicPartition(four, 1), -1));
        tell("delete records of an unknown topic", () -> cut(new TopicPartition(topic("none"), 0), 1));
        tell("delete records of an internal topic", () -> cut(new TopicPartition("__consumer_offsets", 0), 0));
        tell("consume what was deleted", () -> refusedRead(four, 1));
        for (ElectionType kind : ElectionType.values()) {
            tell("elect, " + kind, () -> elected(kind, new TopicPartition(four, 1)));
            tell("elect for an unknown partition, " + kind, () -> elected(kind, new TopicPartition(four, 99)));
        }
        var one = new TopicPartition(topic("moved"), 0);
        tell("reassign", () -> {
            created(false, new NewTopic(one.topic(), Map.of(0, List.of(1, 2))));
            admin.alterPartitionReassignments(Map.of(one, Optional.of(new NewPartitionReassignment(List.of(2, 3))))).all().get();
            while (!admin.listPartitionReassignments(Set.of(one)).reassignments().get().isEmpty()) Thread.sleep(50);
            return eventually(() -> admin.describeTopics(List.of(one.topic())).allTopicNames().get().get(one.topic())
                .partitions().get(0).replicas().stream().map(Node::id).toList(), found -> found.size() == 2 && !found.contains(1));
        });
        tell("reassign to an unknown broker", () -> reassigned(one, List.of(1, 9)));
        tell("reassign to a broker twice", () -> reassigned(one, List.of(1, 1)));
        tell("reassign to nobody", () -> reassigned(one, List.of()));
        tell("reassign an unknown partition", () -> reassigned(new TopicPartition(one.topic(), 99), List.of(1, 2)));
        tell("cancel a reassignment that is not", () -> admin.alterPartitionReassignments(Map.of(one, Optional.empty())).all().get());
    }

    static Object reassigned(TopicPartition partition, List<Integer> replicas) throws Exception {
        return admin.alterPartitionReassignments(
            Map.of(partition, Optional.of(new NewPartitionReassignment(replicas)))).all().get();
    }

    static Object listed(TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec), new ListOffsetsOptions().timeoutMs(3000)).all().get().get(partition).offset();
    }

    static Object cut(TopicPartition partition, long offset) throws Exception {
        var options = new DeleteRecordsOptions().timeoutMs(3000);
        return admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(offset)), options).lowWatermarks().get(partition).get().lowWatermark();
    }

    static Object elected(ElectionType kind, TopicPartition partition) throws Exception {
        return admin.electLeaders(kind, Set.of(partition)).partitions().get().get(partition).map(Scenarios::word).orElse("");
    }

    static void delete() {
        tell("delete a topic", () -> admin.deleteTopics(List.of(topic("admin"))).all().get());
        tell("delete a topic by its id", () -> {
            Uuid id = admin.createTopics(List.of(new NewTopic(topic("by-id"), 1, (short) 1))).topicId(topic("by-id")).get();
            return admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        });
        tell("delete an unknown topic", () -> admin.deleteTopics(List.of(topic("none"))).all().get());
        tell("delete an unknown id",
            () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(new Uuid(7, 7)))).all().get());
    }

    // --- The whole ---------------------------------------------------------------------------------------------------

    static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream().sorted(Comparator.comparing(each -> results == map ? "" : each.getKey().toString()))
                .map(each -> json(each.getKey()) + ": " + json(each.getValue()))
                .collect(Collectors.joining(", ", "{", "}"));
        }
        if (value instanceof Collection<?> many) {
            return many.stream().map(Scenarios::json).collect(Collectors.joining(", ", "[", "]"));
        }
        if (value == null || value instanceof Number || value instanceof Boolean) return String.valueOf(value);
        return '"' + value.toString().replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        prefix = arguments[1];
        admin = Admin.create(settings());
        if (arguments[2].equals("whole")) {
            cluster();
            data();
            times();
            groups();
            groupAdministration();
            create();
            configs();
            offsets();
            delete();
        } else {
            for (String acks : List.of("all", "1")) {
                tell("produce below min.insync.replicas, acks=" + acks, () -> produce(topic("strict"), List.of("x"), "k", 1,
                    "acks", acks, "retries", "0", "enable.idempotence", "false"));
            }
        }
        System.out.println(json(results));
        Runtime.getRuntime().halt(0);
    }
}
