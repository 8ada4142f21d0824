'use strict';

const { LITTLE, decode, encode } = require('./kinds');
const { call, callAsync, OP } = require('./native');
const { outOfRange } = require('./errors');

const FROM_EXCLUDED = 1;
const TO_INCLUDED = 2;
const CHUNK_FIRST = 16;
const CHUNK_MAX = 1024;

/** Splits a chunk into the bytes of keys and values. */
function itemsOf(data) {
  const items = [];
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  for (let at = 0; at < data.length; ) {
    const key = at + 16;
    const value = key + Number(view.getBigUint64(at, LITTLE));
    at = value + Number(view.getBigUint64(at + 8, LITTLE));
    items.push([data.subarray(key, value), data.subarray(value, at)]);
  }
  return items;
}

function bound(options, inclusive, exclusive, kind) {
  if (options[inclusive] !== undefined && options[exclusive] !== undefined) throw outOfRange(`both ${inclusive} and ${exclusive}`);
  const isInclusive = options[inclusive] !== undefined;
  const key = isInclusive ? options[inclusive] : options[exclusive];
  return { bytes: key === undefined ? undefined : encode(kind, key), isInclusive };
}

const begins = (bytes, prefix) => bytes.length >= prefix.length && prefix.every((byte, at) => bytes[at] === byte);

/** What an iteration has not fetched yet. */
class Rest {
  constructor(tree, other, options) {
    const from = bound(options, 'from', 'after', tree.keys);
    const to = bound(options, 'through', 'before', tree.keys);
    this.tree = tree;
    this.other = other;
    this.from = from.bytes;
    this.to = to.bytes;
    this.flags = (from.bytes && !from.isInclusive ? FROM_EXCLUDED : 0) | (to.isInclusive ? TO_INCLUDED : 0);
    this.prefix = options.prefix === undefined ? undefined : encode(tree.keys, options.prefix);
    this.isReverse = Boolean(options.reverse);
    this.left = options.limit ?? Infinity;
    this.chunk = CHUNK_FIRST;
    this.isFirst = true;
    if (typeof this.left !== 'number' || Number.isNaN(this.left) || this.left < 0) throw outOfRange('limit is no number of items');
    if (this.prefix && (from.bytes || to.bytes)) throw outOfRange('both a prefix and a bound');
    if (this.isReverse && other?.isTransaction) throw outOfRange('a scan of a transaction is in ascending order');
  }

  /** Returns the arguments of the next fetch; undefined at the end. */
  next() {
    if (this.left <= 0) return undefined;
    const items = Math.min(this.chunk, this.left);
    this.chunk = Math.min(2 * this.chunk, CHUNK_MAX);
    this.asked = items;
    const isPrefix = this.prefix !== undefined && this.isFirst;
    const snapshot = this.other && !this.other.isTransaction ? this.other.handle : 0;
    const transaction = this.other?.isTransaction ? this.other.handle : 0;
    return {
      numbers: [this.tree.handle, snapshot, transaction, this.flags, this.isReverse, items, isPrefix],
      parts: isPrefix ? [this.prefix] : [this.from, this.to],
    };
  }

  /** Returns the items of a chunk; begins the next one behind them. */
  taken(result) {
    const all = itemsOf(result.data ?? new Uint8Array());
    const last = all.at(-1)?.[0];
    this.isFirst = false;
    const items = this.prefix === undefined ? all : all.filter(([key]) => begins(key, this.prefix));
    if (result.status !== 0 || all.length === 0 || items.length < all.length) this.left = 0;
    // A transaction returns no status at the end.
    if (this.other?.isTransaction && all.length === 0) this.left = 0;
    this.left -= items.length;
    if (last && this.isReverse) {
      this.to = last;
      this.flags &= ~TO_INCLUDED;
    } else if (last) {
      this.from = last;
      this.flags |= FROM_EXCLUDED;
    }
    return items.map(([key, value]) => [decode(this.tree.keys, key), decode(this.tree.values, value)]);
  }
}

/**
 * A range of items, for `for await` and, on this thread, for `for`. An iteration holds no lock and no handle. It returns
 * every key that exists throughout, each once, while others write.
 */
class Scan {
  #tree;
  #other;
  #options;

  constructor(tree, other, options = {}) {
    this.#tree = tree;
    this.#other = other;
    this.#options = { ...options };
    // Refuses wrong bounds here rather than in the first iteration.
    void new Rest(tree, other, this.#options);
  }

  *[Symbol.iterator]() {
    const rest = new Rest(this.#tree, this.#other, this.#options);
    for (let asked = rest.next(); asked; asked = rest.next()) {
      yield* rest.taken(call(OP.fetch, asked.numbers, asked.parts));
    }
  }

  async *[Symbol.asyncIterator]() {
    const rest = new Rest(this.#tree, this.#other, this.#options);
    for (let asked = rest.next(); asked; asked = rest.next()) {
      yield* rest.taken(await callAsync(OP.fetch, asked.numbers, asked.parts));
    }
  }

  /** Removes the items in one step. Returns how many. */
  async remove() {
    const { word } = await callAsync(OP.removeRange, ...this.#removal());
    return Number(word);
  }

  /** Removes the items in one step, on this thread. Returns how many. */
  removeSync() {
    return Number(call(OP.removeRange, ...this.#removal()).word);
  }

  #removal() {
    const { tree, from, to, flags, prefix, left } = new Rest(this.#tree, this.#other, this.#options);
    if (this.#other || left !== Infinity) throw outOfRange('a range with a limit, of a snapshot or of a transaction cannot be removed');
    return [[tree.handle, flags, prefix !== undefined], prefix === undefined ? [from, to] : [prefix]];
  }

  /** Returns the items. */
  async toArray() {
    const items = [];
    for await (const item of this) items.push(item);
    return items;
  }
}

module.exports = { Scan };
