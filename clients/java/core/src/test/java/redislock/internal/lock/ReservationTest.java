package redislock.internal.lock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import redislock.Mode;

/** The names of owners, without a client. */
class ReservationTest {
    private static Reservation.Name name(String key, String kind) {
        return new Reservation.Name("s", ByteBuffer.wrap(key.getBytes()), ByteBuffer.wrap(new byte[] {1}), kind);
    }

    private static Reservation tryReserve(Reservation.Name name) {
        return Reservation.tryReserve(name, null);
    }

    private static Reservation.Waiter reserve(Reservation.Name name, Consumer<Reservation> then) {
        Reservation.Waiter waiter = new Reservation.Waiter(name, null, then);
        waiter.start();
        return waiter;
    }

    @Test
    void a_name_goes_to_the_acquisitions_that_wait_for_it_in_their_order() {
        Reservation.Name name = name("turns", Mode.EXCLUSIVE.name());
        Reservation first = tryReserve(name);
        List<Integer> order = new ArrayList<>();
        List<Reservation> reserved = new ArrayList<>();
        List<Reservation.Waiter> waiters = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            int number = i;
            waiters.add(reserve(name, got -> {
                order.add(number);
                reserved.add(got);
            }));
        }
        assertTrue(waiters.get(1).cancel());
        first.free();
        assertFalse(waiters.get(0).cancel(), "handed over");
        for (int i = 0; i < 3; i++) {
            assertNull(tryReserve(name), "another one has it");
            reserved.get(i).free();
        }
        assertEquals(List.of(0, 2, 3), order);
        Reservation last = tryReserve(name);
        assertNotNull(last);
        last.free();
    }

    @Test
    void the_undoing_of_an_exclusive_request_excludes_the_other_modes() {
        Reservation.Name exclusiveName = name("modes", Mode.EXCLUSIVE.name());
        Reservation.Name read = name("modes", Mode.READ.name());
        Reservation.Name write = name("modes", Mode.WRITE.name());
        Reservation exclusive = tryReserve(exclusiveName);
        Reservation reader = tryReserve(read);
        assertNotNull(reader, "nothing is undone yet");
        exclusive.settling();
        assertTrue(exclusive.hasOtherMode() && !reader.hasOtherMode());
        assertNull(tryReserve(write));
        List<Reservation> writers = new ArrayList<>();
        Reservation.Waiter cancelled = reserve(write, writers::add);
        Reservation.Waiter waiting = reserve(write, writers::add);
        assertTrue(waiting.isForAnswer() && cancelled.cancel());
        exclusive.free();
        assertEquals(1, writers.size());
        assertNull(Reservation.tryReserveToUndo(exclusiveName, null));
        Reservation permit = Reservation.tryReserveToUndo(name("modes", "PERMIT"), null);
        assertNotNull(permit, "a release of a permit ends no lock");
        writers.get(0).free();
        reader.free();
        Reservation again = Reservation.tryReserveToUndo(exclusiveName, null);
        assertNull(tryReserve(read));
        again.free();
        reader = tryReserve(read);
        assertNotNull(reader);
        List.of(reader, permit).forEach(Reservation::free);
    }
}
