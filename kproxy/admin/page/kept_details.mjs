// Details of exchanges that were looked at, the latest ones: so many, and of so many bytes as a page has room for.

const MOST = 200;
const MOST_BYTES = 50e6; // a page with all its rows stays below 150 MB
const STEP = 200; // bytes of a step or a record beside its value, as browsers have them

// Return about how many bytes the details of an exchange take: frames stand there as bytes, and as numbers of steps.
export function weight(data) {
  let sum = 0;
  for (const half of [data?.request, data?.response]) {
    for (const frame of [half?.client, half?.broker]) if (frame) sum += 5 * (frame.data?.length ?? 0) + STEP * (frame.steps?.length ?? 0);
  }
  for (const { batches } of data?.records ?? []) {
    for (const { records } of batches ?? []) {
      for (const { key, value, headers } of records ?? []) {
        sum += STEP + (key?.length ?? 0) + (value?.length ?? 0);
        for (const [name, held] of headers ?? []) sum += name.length + (held?.length ?? 0);
      }
    }
  }
  return sum;
}

export class KeptDetails {
  constructor(most = MOST, mostBytes = MOST_BYTES) {
    Object.assign(this, { most, mostBytes, bytes: 0, byKey: new Map(), sizes: new Map() });
  }
  get(key) {
    return this.byKey.get(key);
  }
  // Keep `one` as the latest under its key; those that were looked at before it go where there is no room.
  put(key, one) {
    this.drop(key);
    this.byKey.set(key, one);
    this.sizes.set(key, weight(one.data));
    this.bytes += this.sizes.get(key);
    for (const old of this.byKey.keys()) {
      if (old === key || (this.byKey.size <= this.most && this.bytes <= this.mostBytes)) return;
      this.drop(old);
    }
  }
  drop(key) {
    this.bytes -= this.sizes.get(key) ?? 0;
    this.byKey.delete(key);
    this.sizes.delete(key);
  }
}
