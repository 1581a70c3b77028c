// A queue from which the item of the least weight is taken first; of equal weights, that of the least number.

export class Queue {
  constructor() {
    this.held = [];
  }
  get length() {
    return this.held.length;
  }
  items() {
    return this.held.map(({ item }) => item);
  }
  add(weight, number, item) {
    const held = this.held;
    const entry = { weight, number, item };
    let at = held.length;
    for (let parent; at > 0 && before(entry, held[(parent = (at - 1) >> 1)]); at = parent) held[at] = held[parent];
    held[at] = entry;
  }
  take() {
    const held = this.held;
    const { item } = held[0];
    const entry = held.pop();
    if (!held.length) return item;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child + 1 < held.length && before(held[child + 1], held[child])) child += 1;
      if (child >= held.length || !before(held[child], entry)) break;
      held[at] = held[child];
      at = child;
    }
    held[at] = entry;
    return item;
  }
}

function before(a, b) {
  return a.weight < b.weight || (a.weight === b.weight && a.number < b.number);
}
