/** The hash slots of a cluster, of which a channel has to be in that of its key. */

const SLOTS = 16_384;
const texts = new Map<number, string>();

/** The slot of a key: the CRC16 (XMODEM) of its hash tag, or of all of it. */
export function slotOf(key: string): number {
    const start = key.indexOf('{');
    const end = start < 0 ? -1 : key.indexOf('}', start + 1);
    const hashed = end > start + 1 ? key.slice(start + 1, end) : key;
    let crc = 0;
    for (const byte of Buffer.from(hashed)) {
        crc ^= byte << 8;
        for (let bit = 0; bit < 8; bit += 1) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
    }
    return crc % SLOTS;
}

/** A text in this slot. */
export function textOfSlot(slot: number): string {
    let text = texts.get(slot);
    for (let number = 0; text === undefined; number += 1) {
        if (slotOf(String(number)) === slot) text = String(number);
    }
    texts.set(slot, text);
    return text;
}
