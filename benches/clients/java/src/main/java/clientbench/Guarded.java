package clientbench;

import java.io.IOException;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * What the lock guards: a count and the last fencing token, in a file that the bench reads as well. A lost update is a
 * lock that two had at a time.
 */
final class Guarded {
  private static final int SIZE = 16;
  private static final int TOKEN = 8;

  private final MappedByteBuffer words;

  Guarded(Path path) throws IOException {
    try (FileChannel file = FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
      words = file.map(MapMode.READ_WRITE, 0, SIZE);
      words.order(ByteOrder.nativeOrder());
    }
  }

  /** Returns the count. Fails when a new holder's token is not above that of the one before. */
  long enter(long token) {
    if (token != Locks.NO_TOKEN) {
      long last = words.getLong(TOKEN);
      if (token <= last) {
        throw new IllegalStateException("token " + token + " after " + last);
      }
      words.putLong(TOKEN, token);
    }
    return words.getLong(0);
  }

  void leave(long count) {
    words.putLong(0, count + 1);
  }
}
