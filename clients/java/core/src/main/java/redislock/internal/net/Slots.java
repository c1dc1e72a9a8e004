package redislock.internal.net;

import java.nio.charset.StandardCharsets;

/** The hash slots of a cluster. */
public final class Slots {
    /** The number of the slot outside a cluster. */
    public static final int NONE = -1;
    private static final int COUNT = 16_384;

    private Slots() {
    }

    /** The slot of a key: that of its hash tag (the text between the first braces), or of the whole key without one. */
    public static int of(byte[] key) {
        int open = indexOf(key, '{', 0);
        int close = open < 0 ? -1 : indexOf(key, '}', open + 1);
        boolean hasTag = close > open + 1;
        return hasTag ? crc16(key, open + 1, close) % COUNT : crc16(key, 0, key.length) % COUNT;
    }

    /** This name with a hash tag behind it, so that it is in this slot. Tries 16,384 tags on average. */
    static byte[] nameIn(String name, int slot) {
        int tag = 0;
        while (of(Integer.toString(tag).getBytes(StandardCharsets.US_ASCII)) != slot) {
            tag++;
        }
        return (name + ":{" + tag + "}").getBytes(StandardCharsets.US_ASCII);
    }

    private static int indexOf(byte[] key, char wanted, int from) {
        for (int i = from; i < key.length; i++) {
            if (key[i] == wanted) {
                return i;
            }
        }
        return -1;
    }

    /** CRC16 of XMODEM. */
    private static int crc16(byte[] bytes, int from, int to) {
        int crc = 0;
        for (int i = from; i < to; i++) {
            crc ^= (bytes[i] & 0xff) << 8;
            for (int bit = 0; bit < 8; bit++) {
                crc = (crc & 0x8000) == 0 ? crc << 1 : crc << 1 ^ 0x1021;
            }
            crc &= 0xffff;
        }
        return crc;
    }
}
