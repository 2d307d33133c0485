import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Lets Kafka's own storage open partition directories, as a broker does at its start, and close them again.
 *
 * Arguments: a file with one line for each directory: path, "clean" or "unclean", recovery point, log start offset,
 * truncate to (-1: not); then settings of the logs as name=value. Prints one line for each: path, log start offset, log
 * end offset. Whatever Kafka wants to change in the files, it changes.
 */
class OpenLogs {
    private static final int DAY_MS = 86_400_000;

    public static void main(String[] arguments) throws Exception {
        List<String> lines = Files.readAllLines(Path.of(arguments[0]));
        Map<String, String> settings = new HashMap<>();
        for (int i = 1; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        for (String line : lines) {
            String[] words = line.split(" ");
            UnifiedLog log = UnifiedLog.create(
                new File(words[0]), new LogConfig(settings), Long.parseLong(words[3]), Long.parseLong(words[2]),
                scheduler, new BrokerTopicStats(), Time.SYSTEM, DAY_MS,
                new ProducerStateManagerConfig(DAY_MS, false), DAY_MS, new LogDirFailureChannel(1),
                words[1].equals("clean"), Optional.empty());
            long cut = Long.parseLong(words[4]);
            if (cut >= 0) {
                // As retention does all the time. Otherwise a segment that is cut before the first entry of its time
                // index forgets its largest timestamp, and is closed without the last entry.
                for (LogSegment segment : log.logSegments()) {
                    segment.largestTimestamp();
                }
                log.truncateTo(cut);
            }
            System.out.println("opened " + words[0] + " " + log.logStartOffset() + " " + log.logEndOffset());
            log.close();
        }
        scheduler.shutdown();
        System.exit(0);
    }
}
