package redislock.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Child processes, which end with this process at the latest: by a shutdown hook, and where {@code setpriv} is
 * installed by the kernel, if this process is killed.
 */
final class Processes {
    private static final Set<Process> ALIVE = ConcurrentHashMap.newKeySet();
    private static final Path SETPRIV = Path.of("/usr/bin/setpriv");

    /** The kernel ends a child with the thread that started it, so one thread starts all of them and never ends. */
    private static final ExecutorService STARTER = Executors.newSingleThreadExecutor(task -> {
        Thread thread = new Thread(task, "process-starter");
        thread.setDaemon(true);
        return thread;
    });

    static {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> ALIVE.forEach(Process::destroyForcibly)));
    }

    private Processes() {}

    /** Starts a process in this directory. Its output goes to the file {@code output} there. */
    static Process start(List<String> command, Path dir) {
        List<String> whole = new ArrayList<>();
        if (Files.isExecutable(SETPRIV)) {
            whole.addAll(List.of(SETPRIV.toString(), "--pdeathsig", "KILL", "--"));
        }
        whole.addAll(command);
        ProcessBuilder builder = new ProcessBuilder(whole).directory(dir.toFile());
        builder.redirectOutput(dir.resolve("output").toFile()).redirectErrorStream(true);
        Process process = onStarter(builder);
        ALIVE.add(process);
        return process;
    }

    /** Runs a program to its end; its failure is an error with its output. */
    static void run(Path dir, String... command) {
        ProcessBuilder builder = new ProcessBuilder(command).directory(dir.toFile()).redirectErrorStream(true);
        Process process = onStarter(builder);
        try {
            String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.ISO_8859_1);
            if (!await(process) || process.exitValue() != 0) {
                throw new AssertionError(String.join(" ", command) + " failed:\n" + output);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } finally {
            process.destroyForcibly();
        }
    }

    /** Sends a signal, by its name without {@code SIG}. */
    static void signal(Process process, String signal) {
        run(Path.of(System.getProperty("java.io.tmpdir")), "kill", "-" + signal, Long.toString(process.pid()));
    }

    /** Kills a process and waits until it has ended. */
    static void end(Process process) {
        process.destroyForcibly();
        if (!await(process)) {
            throw new AssertionError("process " + process.pid() + " does not end");
        }
        ALIVE.remove(process);
    }

    /** Whether the process ends in time. An interrupt does not end this wait: a process would be left behind. */
    static boolean await(Process process) {
        long patience = Waiting.PATIENCE.toMillis();
        return process.onExit().completeOnTimeout(null, patience, TimeUnit.MILLISECONDS).join() != null;
    }

    private static Process onStarter(ProcessBuilder builder) {
        return CompletableFuture.supplyAsync(() -> {
            try {
                return builder.start();
            } catch (IOException e) {
                throw new UncheckedIOException("a process did not start", e);
            }
        }, STARTER).join();
    }
}
