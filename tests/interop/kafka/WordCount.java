// Kafka Streams' word count: BOOTSTRAP SOURCE SINK GUARANTEE DIRECTORY WORD=COUNT...
// Runs until its sink holds these counts; prints "word count" for each word, the newest value of the sink.

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

public class WordCount {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], source = arguments[1], sink = arguments[2];
        Map<String, Long> wanted = new TreeMap<>();
        for (String each : Arrays.copyOfRange(arguments, 5, arguments.length)) {
            wanted.put(each.split("=")[0], Long.valueOf(each.split("=")[1]));
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(source, Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .to(sink, Produced.with(Serdes.String(), Serdes.Long()));
        Properties settings = new Properties();
        settings.put("application.id", source + "-words");
        settings.put("bootstrap.servers", bootstrap);
        settings.put("processing.guarantee", arguments[3]);
        settings.put("state.dir", arguments[4]);
        settings.put("replication.factor", "3");
        settings.put("commit.interval.ms", "200");
        settings.put("consumer.auto.offset.reset", "earliest");
        AtomicReference<Throwable> failure = new AtomicReference<>();
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            failure.set(error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        Map<String, Long> counts = new TreeMap<>();
        Properties reading = new Properties();
        reading.put("bootstrap.servers", bootstrap);
        try (var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new LongDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(sink).stream()
                .map(each -> new TopicPartition(each.topic(), each.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (failure.get() == null && !counts.entrySet().containsAll(wanted.entrySet())) {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> counts.put(record.key(), record.value()));
            }
        }
        if (failure.get() != null) {
            System.err.println("streams ended with " + failure.get());
            Runtime.getRuntime().halt(1);
        }
        streams.close(Duration.ofSeconds(60));
        counts.forEach((word, count) -> System.out.println(word + " " + count));
        Runtime.getRuntime().halt(0);
    }
}
