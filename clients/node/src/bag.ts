/** Items that come and go with each acquisition. A `Set` makes its table anew for them, at more cost than a timer. */
export class Bag<T extends { place: number }> {
    readonly items: T[] = [];

    add(item: T): void {
        item.place = this.items.push(item) - 1;
    }

    /** Whether it was there. */
    delete(item: T): boolean {
        if (this.items[item.place] !== item) return false;
        const last = this.items.pop()!;
        last.place = item.place;
        if (last !== item) this.items[last.place] = last;
        return true;
    }
}
