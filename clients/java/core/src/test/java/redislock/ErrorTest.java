package redislock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import redislock.testing.Certificates;
import redislock.testing.TestServer;

/** Arguments, errors, and what their messages do not show. */
class ErrorTest {
    @Test
    void wrong_arguments_are_refused_before_anything_is_sent() {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address())) {
            LockOptions options = LockOptions.defaults();
            FencedLock lock = client.lock("k");
            List<Executable> wrong = List.of(
                    () -> options.lease(Duration.ofMillis(1)),
                    () -> options.lease(Duration.ofNanos(1_999_999)),
                    () -> options.lease(Duration.ofSeconds(-1)),
                    () -> options.lease(Duration.ofDays(36_501)),
                    () -> options.margin(Duration.ofMillis(-1)),
                    () -> client.lock("k", options.margin(Duration.ofSeconds(16))),
                    () -> options.owner(""),
                    () -> options.owner("\ud800"),
                    () -> client.lock("half of a pair: \udc00"),
                    () -> client.readWriteLock("\ud800"),
                    () -> client.semaphore("\ud800"),
                    () -> client.latch("\ud800"),
                    () -> options.owner("x".repeat(257)),
                    () -> options.owner("#token"),
                    () -> client.readWriteLock("k", options.owner("mode")),
                    () -> client.readWriteLock("k", options.owner("a:write")),
                    () -> options.limit(0),
                    () -> client.lock("k", options.limit(1)),
                    () -> client.semaphore("k", options.session()),
                    () -> client.lock("k", options.session().fixedLease()),
                    () -> lock.lock(Duration.ZERO),
                    () -> lock.tryLock(Duration.ofSeconds(-1), Duration.ofSeconds(1)),
                    () -> lock.tryLock(Duration.ZERO, Duration.ofMillis(1)),
                    () -> lock.acquireWithin(Duration.ofMillis(-1)),
                    () -> lock.acquireAsync(Duration.ofMillis(-1)),
                    () -> client.semaphore("s").set(-1),
                    () -> client.latch("l").set(-1),
                    () -> client.latch("l").countDown(0),
                    () -> client.latch("l").awaitWithin(Duration.ofMillis(-1)),
                    () -> client.multiLock(),
                    () -> client.multiLock(lock, client.lock("k")),
                    () -> client.multiLock(
                            IntStream.range(0, 1_025).mapToObj(i -> client.lock("k" + i)).toArray(FencedLock[]::new)),
                    () -> client.settled(Duration.ofSeconds(-1)),
                    () -> LockClient.builder(server.address()).responseTimeout(Duration.ZERO),
                    () -> LockClient.create("http://a:1"),
                    () -> LockClient.create("redis+sentinel://a:1"),
                    () -> LockClient.create("redis://a:x"),
                    () -> LockClient.create("redis+cluster://a:1/2"),
                    () -> LockClient.create("local host:6379"));
            wrong.forEach(call -> assertThrows(IllegalArgumentException.class, call));
            List<Executable> missing = List.of(
                    () -> client.lock((String) null),
                    () -> client.lock((byte[]) null),
                    () -> client.latch((String) null),
                    () -> client.lock("k", null),
                    () -> LockClient.create(null),
                    () -> options.lease(null),
                    () -> lock.acquireWithin(null),
                    () -> lock.tryLock(null, Duration.ofSeconds(1)));
            missing.forEach(call -> {
                String argument = assertThrows(NullPointerException.class, call).getMessage();
                assertTrue(Set.of("key", "options", "lease", "wait", "address").contains(argument), argument);
            });
            assertFalse(server.info("commandstats").contains("cmdstat_lock."), server.info("commandstats"));
            assertEquals(0, client.statistics().connections());
        }
    }

    @Test
    void a_server_without_the_module_is_named() {
        try (TestServer server = TestServer.withoutModule(); LockClient client = Clients.create(server.address())) {
            NotLoadedException error = assertThrows(NotLoadedException.class, client.lock("k")::lock);
            assertEquals("LOCK.ACQUIRE", error.command());
            assertTrue(error.getMessage().contains("127.0.0.1:" + server.port()));
            assertTrue(error.getMessage().contains("loadmodule /usr/lib/redis/modules/libredis_lock.so"));
            assertThrows(NotLoadedException.class, () -> client.latch("l").await());
            assertThrows(NotLoadedException.class, () -> client.semaphore("s").set(1));
            assertThrows(NotLoadedException.class, () -> client.latch("l").count());
        }
    }

    @Test
    void a_client_of_lettuce_without_an_address_is_refused_at_once() {
        RedisClient client = RedisClient.create();
        try {
            Exception refused = assertThrows(IllegalArgumentException.class, () -> LockClient.of(client));
            assertTrue(refused.getMessage().contains("has no address"), refused::toString);
        } finally {
            client.shutdown();
        }
    }

    @Test
    void an_exception_begins_at_its_caller() throws Exception {
        List<Throwable> errors = new ArrayList<>();
        try (TestServer server = TestServer.start();
                LockClient client =
                        LockClient.builder(server.address()).responseTimeout(Duration.ofMillis(300)).build()) {
            server.call("SET", "text", "x");
            Guard guard = client.lock("k").acquire();
            errors.add(assertThrows(WrongTypeException.class, client.lock("text")::lock));
            errors.add(assertThrows(WrongTypeException.class, () -> client.semaphore("text").info()));
            server.line("ACL SETUSER default -lock.renew");
            errors.add(assertThrows(PermissionException.class, () -> guard.renew(Duration.ofSeconds(5))));
            server.pause();
            errors.add(assertThrows(LockConnectionException.class, client.lock("free")::tryLock));
            errors.add(assertThrows(LockException.class, client.latch("l")::countDown));
            server.resume();
        }
        try (TestServer server = TestServer.withoutModule(); LockClient client = Clients.create(server.address())) {
            errors.add(assertThrows(NotLoadedException.class, client.lock("k")::lock));
        }
        for (Throwable error : errors) {
            assertTrue(isFromHere(error), "no caller in the stack of " + error);
            assertFalse(error.getCause() instanceof LockException, "the same exception twice: " + error);
        }
    }

    private static boolean isFromHere(Throwable error) {
        return Stream.of(error.getStackTrace())
                .anyMatch(frame -> frame.getClassName().equals(ErrorTest.class.getName()));
    }

    @Test
    void an_exception_for_another_thread_is_of_the_same_class() {
        List<LockException> errors = new ArrayList<>(List.of(new LockException("a:1", "failed", null),
                new LockException("", "failed", new IOException()), new LockConnectionException("a:1", "broken", null),
                new UntrustedException("a:1", new IOException()), new NotLoadedException("a:1", "LOCK.ACQUIRE"),
                new UnheardException("a:1", "broken", null)));
        for (String code : List.of("DEADLOCK", "NOPERM", "LOCKTYPE", "LOCKBUSY", "LOCKBROKEN", "LOCKDELAY", "OOM")) {
            errors.add(RefusedException.of("a:1", code, "why"));
        }
        for (LockException error : errors) {
            LockException same = error.inThisThread();
            assertSame(error.getClass(), same.getClass());
            assertEquals(error.getMessage(), same.getMessage());
            assertEquals(error.server(), same.server());
            assertEquals(error.isPassing(), same.isPassing());
            assertSame(error.getCause(), same.getCause());
        }
    }

    @Test
    void refusals_have_classes() {
        try (TestServer server = TestServer.builder().users().start()) {
            server.call("SET", "text", "x");
            try (LockClient client = Clients.create(server.address())) {
                WrongTypeException type = assertThrows(WrongTypeException.class, client.lock("text")::lock);
                assertEquals("WRONGTYPE", type.code());
                assertFalse(type.isPassing());
                server.call("RPUSH", "list", "x");
                for (String key : List.of("text", "list")) {
                    WrongTypeException noCount = assertThrows(WrongTypeException.class, client.latch(key)::count);
                    assertFalse(noCount.isPassing());
                }
            }
            try (LockClient client = Clients.create(server.address("app", "change-me-app"))) {
                PermissionException error = assertThrows(PermissionException.class, client.lock("text")::lock);
                assertEquals("NOPERM", error.code());
                assertThrows(PermissionException.class, client.lock("lock:x")::isLocked);
            }
            try (LockClient client = Clients.create(server.address("app", "wrong-secret"))) {
                PermissionException error = assertThrows(PermissionException.class, client.lock("lock:x")::lock);
                assertEquals("WRONGPASS", error.code());
                assertHidden(error, "wrong-secret");
            }
        }
    }

    @Test
    void messages_show_no_secret() {
        List<Map.Entry<String, String>> secrets = List.of(
                Map.entry("redis://u5er:s3cret@127.0.0.1:1", "s3cret"),
                Map.entry("redis+cluster://u5er:s3cret@127.0.0.1:1,127.0.0.1:2", "s3cret"),
                Map.entry("redis+sentinel://u5er:s3cret@127.0.0.1:1/x?sentinel-user=u5er&sentinel-password=s3cret",
                        "s3cret"));
        for (Map.Entry<String, String> secret : secrets) {
            try (LockClient client = LockClient.create(secret.getKey())) {
                FencedLock lock = client.lock("k", LockOptions.defaults().owner("0wner"));
                LockConnectionException error = assertThrows(LockConnectionException.class, lock::tryAcquire);
                for (Object shown : List.of(client, client.name(), lock, LockOptions.defaults().owner("0wner"))) {
                    assertFalse(shown.toString().matches("(?s).*(s3cret|u5er|0wner).*"), shown.toString());
                }
                assertHidden(error, secret.getValue(), "u5er", "0wner");
            }
        }
        for (String address : List.of("redis://u5er:s3cret@a:x", "redis+sentinel://u5er:s3cret@a:1",
                "redis+sentinel://a:1/x?password=s3cret", "redis://u5er:%zz-s3cret@a:1", "u5er:s3cret")) {
            Throwable error = assertThrows(IllegalArgumentException.class, () -> LockClient.create(address));
            assertHidden(error, "s3cret", "u5er");
        }
    }

    /** Fails when an exception shows one of these, in its message or in that of a cause. */
    private static void assertHidden(Throwable error, String... secrets) {
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text));
        for (String secret : secrets) {
            assertFalse(text.toString().contains(secret), text.toString());
        }
    }

    @Test
    void no_refusal_names_the_user() {
        try (TestServer server = TestServer.start()) {
            LockOptions options = LockOptions.defaults().owner("0wner");
            for (String rights : List.of("-@all", "+hello", "+hello +client +select +ping")) {
                for (String password : List.of("s3cret", "wr0ng")) {
                    server.line("ACL SETUSER u5er reset on >s3cret ~* " + rights);
                    try (LockClient client = Clients.create(server.address("u5er", password) + "/1")) {
                        for (LockOptions each : List.of(options, options.session())) {
                            LockException error =
                                    assertThrows(LockException.class, client.lock("k", each)::tryAcquire);
                            assertHidden(error, "u5er", "s3cret", "wr0ng", "0wner");
                        }
                    }
                }
            }
        }
    }

    @Test
    void a_cause_is_kept() {
        try (LockClient client = LockClient.create("redis://127.0.0.1:1")) {
            LockConnectionException error = assertThrows(LockConnectionException.class, client.lock("k")::tryLock);
            assertInstanceOf(ConnectException.class, error.getCause(), "the error of the transport");
            assertEquals("127.0.0.1:1", error.server());
            assertTrue(error.isPassing());
        }
    }

    @Test
    void a_port_of_another_protocol_is_named() throws Exception {
        try (Certificates certificates = Certificates.create();
                TestServer server = TestServer.builder().tls(certificates).start();
                ServerSocket web = new ServerSocket(0, 10, InetAddress.getLoopbackAddress())) {
            Thread answering = new Thread(() -> answerAsWebServer(web));
            answering.setDaemon(true);
            answering.start();
            Map<String, String> texts = Map.of(
                    "rediss://127.0.0.1:" + server.port(), "does not speak TLS on this port",
                    "redis://127.0.0.1:" + server.tlsPort(), "does it speak TLS on this port",
                    "redis://127.0.0.1:" + web.getLocalPort(), "a web server (HTTP) answers on this port");
            texts.forEach((address, text) -> {
                try (LockClient client =
                        LockClient.builder(address).responseTimeout(Duration.ofSeconds(20)).build()) {
                    LockException error = assertThrows(LockException.class, client.lock("k")::tryLock, address);
                    assertTrue(error.getMessage().contains(text), address + ": " + error.getMessage());
                }
            });
        }
    }

    private static void answerAsWebServer(ServerSocket web) {
        while (!web.isClosed()) {
            try (Socket socket = web.accept()) {
                socket.getInputStream().read(new byte[64]);
                socket.getOutputStream().write("HTTP/1.1 400 Bad Request\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
            } catch (IOException ended) {
                // The next one, or the end of the test.
            }
        }
    }

    @Test
    void a_thread_of_the_transport_is_not_blocked() throws Exception {
        try (TestServer server = TestServer.start(); LockClient client = Clients.create(server.address());
                io.lettuce.core.RedisClient lettuce = io.lettuce.core.RedisClient.create(server.address())) {
            // The reply comes after the stage is there, so the stage runs on the event loop.
            IllegalStateException refused = lettuce.connect().async().blpop(0.2, "none")
                    .handle((nothing, error) -> assertThrows(IllegalStateException.class, client.lock("k")::lock))
                    .toCompletableFuture().get(5, TimeUnit.SECONDS);
            assertTrue(refused.getMessage().contains("must not wait"));
            lettuce.connect().async().blpop(0.2, "none").handle((nothing, error) -> assertThrows(
                    IllegalStateException.class, () -> client.settled(Duration.ZERO)))
                    .toCompletableFuture().get(5, TimeUnit.SECONDS);
        }
    }
}
