package redislock.internal.net;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import org.junit.jupiter.api.Test;
import redislock.LockException;
import redislock.PermissionException;

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
}
