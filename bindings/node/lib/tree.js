'use strict';

const { LITTLE, decode, encode } = require('./kinds');
const { outOfRange } = require('./errors');
const { call, callAsync, OP, STATUS, TYPE, WRITE } = require('./native');
const { Scan } = require('./scan');

/** Returns the bytes of many keys or values behind each other, and their lengths. */
function pack(kind, data) {
  const parts = Array.from(data, (each) => encode(kind, each));
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  const lengths = BigUint64Array.from(parts, (part) => BigInt(part.length));
  return { count: parts.length, parts: [bytes, new Uint8Array(lengths.buffer)] };
}

// An operation is { op, numbers, parts, result }, which `sync` and `async` carry out.
const sync = ({ op, numbers, parts, result, hasCount }) => result(call(op, numbers, parts, hasCount));
const async = ({ op, numbers, parts, result, hasCount }) => callAsync(op, numbers, parts, hasCount).then(result);

/** An ordered map in a pool. Every write of one key is atomic, and durable when it returns or its promise is fulfilled. */
class Tree {
  constructor(pool, handle, name, keys, values) {
    this.pool = pool;
    this.handle = handle;
    this.name = name;
    this.keys = keys;
    this.values = values;
  }

  get keyKind() {
    return this.keys.name;
  }

  get valueKind() {
    return this.values.name;
  }

  value(result) {
    return result.status === STATUS.ok ? decode(this.values, result.data ?? new Uint8Array()) : undefined;
  }

  /** Looks a key up in the tree, a snapshot or a transaction. */
  lookup(key, type = TYPE.tree, of = this.handle) {
    return { op: OP.get, numbers: [type, of, this.handle], parts: [encode(this.keys, key)], result: (result) => this.value(result) };
  }

  found(result) {
    return result.data === undefined ? undefined : decode(this.values, result.data);
  }

  #write(what, key, value, expected, result) {
    const given = value === undefined ? undefined : encode(this.values, value);
    const parts = [encode(this.keys, key), given, expected === undefined ? undefined : encode(this.values, expected)];
    return { op: OP.write, numbers: [what, this.handle], parts, result };
  }

  /** Returns a value that is not absent. */
  #given(value) {
    if (value === undefined) encode(this.values, value);
    return value;
  }

  #put(key, value) {
    return this.#write(WRITE.put, key, this.#given(value), undefined, () => undefined);
  }

  #old(what, key, value) {
    return this.#write(what, key, what === WRITE.remove ? undefined : this.#given(value), undefined, (result) => this.found(result));
  }

  #insert(key, value) {
    const result = (of) => (of.status === STATUS.ok ? { inserted: true } : { inserted: false, present: this.found(of) });
    return this.#write(WRITE.insert, key, this.#given(value), undefined, result);
  }

  #swap(key, expected, wanted) {
    const result = (of) => (of.status === STATUS.ok ? { swapped: true } : { swapped: false, found: this.found(of) });
    return this.#write(WRITE.swap, key, wanted, expected, result);
  }

  #contains(key) {
    return { op: OP.contains, numbers: [this.handle], parts: [encode(this.keys, key)], result: (of) => of.status === STATUS.ok };
  }

  #getMany(keys) {
    const { count, parts } = pack(this.keys, keys);
    return { op: OP.getMany, numbers: [this.handle, count], parts, result: (of) => this.#manyOf(of, count) };
  }

  #manyOf(result, count) {
    const values = new Array(count).fill(undefined);
    const { data = new Uint8Array() } = result;
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    for (let at = 0; at < data.length; ) {
      const length = Number(view.getBigUint64(at + 8, LITTLE));
      values[Number(view.getBigUint64(at, LITTLE))] = decode(this.values, data.subarray(at + 16, at + 16 + length));
      at += 16 + length;
    }
    return values;
  }

  #putMany(items) {
    const all = Array.from(items);
    if (all.some((item) => !Array.isArray(item) || item.length !== 2)) throw outOfRange('an item is no pair of a key and a value');
    const keys = pack(this.keys, all.map((item) => item[0]));
    const values = pack(this.values, all.map((item) => item[1]));
    return { op: OP.putMany, numbers: [this.handle, keys.count], parts: [...keys.parts, ...values.parts], result: () => undefined, hasCount: true };
  }

  #removeMany(keys) {
    const { count, parts } = pack(this.keys, keys);
    return { op: OP.removeMany, numbers: [this.handle, count], parts, result: () => undefined, hasCount: true };
  }

  #length() {
    return { op: OP.len, numbers: [this.handle], parts: [], result: (of) => of.word };
  }

  async get(key) {
    return async(this.lookup(key));
  }

  getSync(key) {
    return sync(this.lookup(key));
  }

  async has(key) {
    return async(this.#contains(key));
  }

  hasSync(key) {
    return sync(this.#contains(key));
  }

  async put(key, value) {
    return async(this.#put(key, value));
  }

  putSync(key, value) {
    return sync(this.#put(key, value));
  }

  async exchange(key, value) {
    return async(this.#old(WRITE.exchange, key, value));
  }

  exchangeSync(key, value) {
    return sync(this.#old(WRITE.exchange, key, value));
  }

  async insert(key, value) {
    return async(this.#insert(key, value));
  }

  insertSync(key, value) {
    return sync(this.#insert(key, value));
  }

  async update(key, value) {
    return async(this.#old(WRITE.update, key, value));
  }

  updateSync(key, value) {
    return sync(this.#old(WRITE.update, key, value));
  }

  async remove(key) {
    return async(this.#old(WRITE.remove, key));
  }

  removeSync(key) {
    return sync(this.#old(WRITE.remove, key));
  }

  async compareAndSwap(key, expected, wanted) {
    return async(this.#swap(key, expected, wanted));
  }

  compareAndSwapSync(key, expected, wanted) {
    return sync(this.#swap(key, expected, wanted));
  }

  async getMany(keys) {
    return async(this.#getMany(keys));
  }

  getManySync(keys) {
    return sync(this.#getMany(keys));
  }

  async putMany(items) {
    return async(this.#putMany(items));
  }

  putManySync(items) {
    return sync(this.#putMany(items));
  }

  async removeMany(keys) {
    return async(this.#removeMany(keys));
  }

  removeManySync(keys) {
    return sync(this.#removeMany(keys));
  }

  /** Counts the items; exact while nothing writes. */
  async count() {
    return async(this.#length());
  }

  countSync() {
    return sync(this.#length());
  }

  /** Opens a handle that takes and shows values without their times, of a tree with values of a kind `Expiring<…>`. */
  async expiring() {
    return require('./expiring').live(this);
  }

  scan(options) {
    return new Scan(this, undefined, options);
  }

  [Symbol.iterator]() {
    return this.scan()[Symbol.iterator]();
  }

  [Symbol.asyncIterator]() {
    return this.scan()[Symbol.asyncIterator]();
  }

  /** Verifies everything that is reachable from the tree; returns the damage: normally none. */
  async check() {
    return this.pool.issuesOf(TYPE.tree, this.handle);
  }

  /** Closes the handle after the calls that are under way; the data stays. Again, it does nothing. */
  async close() {
    await this.handle.closeAfterCalls();
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }
}

module.exports = { Tree, async, sync };
