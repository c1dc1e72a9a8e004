package redislock.internal.net;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;
import redislock.LockClient;
import redislock.LockException;
import redislock.NotLoadedException;
import redislock.PermissionException;
import redislock.RefusedException;
import redislock.testing.TestServer;

/** The exceptions for error replies. */
class ErrorsTest {
    @Test
    void a_refusal_names_no_user() {
        // The texts of Redis 7.2 and later.
        for (String what : new String[] {"run the 'lock.acquire' command", "access the 'k' key"}) {
            LockException error = Errors.ofServer("h:1", "NOPERM User secret has no permissions to " + what);
            assertEquals(PermissionException.class, error.getClass());
            assertFalse(error.getMessage().contains("secret"), error.getMessage());
            assertEquals("h:1: NOPERM this user has no permissions to " + what, error.getMessage());
        }
    }

    @Test
    void only_a_command_of_the_module_needs_the_module() {
        for (String command : new String[] {"LOCK.ACQUIRE", "sem.info", "LATCH.DOWN"}) {
            LockException error = Errors.ofServer("h:1", "ERR unknown command '" + command + "', with args ...");
            assertEquals(command, assertInstanceOf(NotLoadedException.class, error).command());
        }
        // Redis 6 has another quotation mark.
        LockException error = Errors.ofServer("h:1",
                "ERR unknown command `AUTH`, with args beginning with: `app`, `secret`, ");
        assertEquals("ERR", assertInstanceOf(RefusedException.class, error).code());
        assertEquals("h:1: ERR unknown command 'AUTH'", error.getMessage());
    }

    @Test
    void a_server_that_is_no_sentinel_is_named() {
        try (TestServer server = TestServer.start();
                LockClient client = LockClient.create("redis+sentinel://127.0.0.1:" + server.port() + "/main")) {
            LockException error = assertThrows(LockException.class, client.lock("k")::tryLock);
            assertEquals("127.0.0.1:" + server.port() + "/main/0: is no sentinel", error.getMessage());
        }
    }
}
