import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Runs Kafka's programs one after the other in one JVM, which has most of their classes after the first ones.
 *
 * On standard input a request: how many words, and each with its size in front. The first is the program's class, the
 * second its standard input, the others its arguments. On standard output what came of it: exit code, standard output,
 * standard error, the last two with their sizes in front. Sizes are ints of four bytes. Ends with its standard input.
 */
class Programs {
    /** Where a program would have ended the JVM. */
    private static class Ended extends Error {
        private final int code;

        private Ended(int code) {
            super(null, null, false, false);
            this.code = code;
        }
    }

    /** What a program printed; threads that an earlier one left behind are not heard. */
    private static class Printed extends ByteArrayOutputStream {
        @Override
        public synchronized void write(int b) {
            if (PROGRAM.get() == running) {
                super.write(b);
            }
        }

        @Override
        public synchronized void write(byte[] bytes, int offset, int length) {
            if (PROGRAM.get() == running) {
                super.write(bytes, offset, length);
            }
        }
    }

    private static final InheritableThreadLocal<Object> PROGRAM = new InheritableThreadLocal<>();
    private static volatile Object running;
    private static Ended ended;

    public static void main(String[] arguments) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        ByteArrayOutputStream output = new Printed();
        ByteArrayOutputStream errors = new Printed();
        System.setOut(new PrintStream(output, true));  // once: Scala's println goes to what was there at its first time
        System.setErr(new PrintStream(errors, true));
        Exit.setExitProcedure(Programs::end);
        Exit.setHaltProcedure(Programs::end);
        Exit.setShutdownHookAdder((name, hook) -> { });  // they wait for what runs, and all of it has ended
        while (true) {
            String[] words;
            try {
                words = new String[requests.readInt()];
            } catch (EOFException end) {
                System.exit(0);
                return;
            }
            for (int i = 0; i < words.length; i++) {
                words[i] = new String(requests.readNBytes(requests.readInt()), StandardCharsets.UTF_8);
            }
            output.reset();
            errors.reset();
            System.setIn(new ByteArrayInputStream(words[1].getBytes(StandardCharsets.UTF_8)));
            answers.writeInt(run(words[0], Arrays.copyOfRange(words, 2, words.length)));
            write(answers, output);
            write(answers, errors);
            answers.flush();
        }
    }

    private static void end(int code, String message) {
        ended = ended == null ? new Ended(code) : ended;  // some catch it and end once more
        throw ended;
    }

    private static int run(String program, String[] arguments) throws ReflectiveOperationException {
        ended = null;
        running = new Object();
        PROGRAM.set(running);  // every thread that it starts has it, too
        try {
            var main = Class.forName(program).getDeclaredMethod("main", String[].class);
            main.setAccessible(true);
            main.invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            if (ended == null) {
                failure.getCause().printStackTrace();
                return 1;
            }
        } finally {
            System.out.flush();
            System.err.flush();
        }
        return ended == null ? 0 : ended.code;
    }

    private static void write(DataOutputStream answers, ByteArrayOutputStream written) throws IOException {
        answers.writeInt(written.size());
        written.writeTo(answers);
    }
}

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
    }
}
