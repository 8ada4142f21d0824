'use strict';

const { LITTLE, encode, parse } = require('./kinds');
const { outOfRange, wrongType } = require('./errors');
const { call, callAsync, Handle, OP, STATUS, TYPE, WRITE, unreachable } = require('./native');
const { Tree, async, sync } = require('./tree');

const NEVER = 0;
const DEFAULT = (1n << 64n) - 1n;
/** The largest number that is exact. */
const MILLIS_MAX = Number.MAX_SAFE_INTEGER;
const KNOWN = new Set(['expires', 'expiresIn']);

/** Returns the expiry that options name: `expires`, a Date, milliseconds since 1970 or null, or `expiresIn` milliseconds. */
function expiryOf(options = {}) {
  if (options === null || typeof options !== 'object') throw wrongType('options are no object');
  for (const name of Object.keys(options)) {
    if (!KNOWN.has(name)) throw outOfRange(`unknown option ${name}`);
  }
  const { expires, expiresIn } = options;
  if (expires !== undefined && expiresIn !== undefined) throw outOfRange('both expires and expiresIn');
  if (expires === null) return NEVER;
  if (expires === undefined && expiresIn === undefined) return DEFAULT;
  const time = expires === undefined ? Date.now() + expiresIn : Number(expires);
  if (typeof (expires ?? expiresIn) !== 'number' && !(expires instanceof Date)) throw wrongType('a time is a Date, or a number of milliseconds');
  if (!(time <= MILLIS_MAX)) throw outOfRange('a time that is later than numbers can represent, or none');
  // A time before 1970 has passed already.
  return Math.max(Math.ceil(time), 1);
}

/** Returns a time in milliseconds since 1970; `null` if the value does not expire, `undefined` if the key is absent. */
function timeOf(result) {
  if (result.status !== STATUS.ok) return undefined;
  return result.word === NEVER ? null : result.word;
}

function removalOf({ data }) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const word = (at) => Number(view.getBigUint64(8 * at, LITTLE));
  return { examined: word(0), removed: word(1), complete: word(2) === 1 };
}

/** A tree whose values expire: for its calls, an entry whose time has come is absent. */
class ExpiringTree {
  #live;

  /** Takes a tree by a handle that shows only live values. */
  constructor(tree) {
    this.#live = tree;
    this.name = tree.name;
    /** The handle, for the pool. */
    this.handle = tree.handle;
  }

  get keyKind() {
    return this.#live.keyKind;
  }

  get valueKind() {
    return this.#live.valueKind;
  }

  /** Milliseconds that a value lives if its write names no expiry; `undefined`: it does not expire. */
  get expireAfter() {
    const { data } = call(OP.treeInfo, [this.handle]);
    const millis = Number(new DataView(data.buffer, data.byteOffset).getBigUint64(248, LITTLE));
    return millis === 0 ? undefined : millis;
  }

  #write(what, options, key, value, expected, result) {
    const { keys, values } = this.#live;
    const parts = [encode(keys, key), ...[value, expected].map((each) => (each === undefined ? undefined : encode(values, each)))];
    return { op: OP.expiringWrite, numbers: [what, this.handle, expiryOf(options)], parts, result };
  }

  /** Returns a value that is not absent. */
  #given(value) {
    if (value === undefined) encode(this.#live.values, value);
    return value;
  }

  #put(key, value, options) {
    return this.#write(WRITE.put, options, key, this.#given(value), undefined, () => undefined);
  }

  #old(what, key, value, options) {
    return this.#write(what, options, key, this.#given(value), undefined, (result) => this.#live.found(result));
  }

  #insert(key, value, options) {
    const result = (of) => (of.status === STATUS.ok ? { inserted: true } : { inserted: false, present: this.#live.found(of) });
    return this.#write(WRITE.insert, options, key, this.#given(value), undefined, result);
  }

  #swap(key, expected, wanted, options) {
    const result = (of) => (of.status === STATUS.ok ? { swapped: true } : { swapped: false, found: this.#live.found(of) });
    return this.#write(WRITE.swap, options, key, wanted, expected, result);
  }

  #expiry(key) {
    return { op: OP.expiry, numbers: [this.handle], parts: [encode(this.#live.keys, key)], result: timeOf };
  }

  #setExpiry(key, options) {
    return { op: OP.setExpiry, numbers: [this.handle, expiryOf(options)], parts: [encode(this.#live.keys, key)], result: timeOf };
  }

  #removeExpired(budget) {
    if (!Number.isSafeInteger(budget) || budget < 0) throw outOfRange('budget is no number of entries');
    return { op: OP.removeExpired, numbers: [this.handle, budget], parts: [], result: removalOf };
  }

  async get(key) {
    return this.#live.get(key);
  }

  getSync(key) {
    return this.#live.getSync(key);
  }

  async has(key) {
    return this.#live.has(key);
  }

  hasSync(key) {
    return this.#live.hasSync(key);
  }

  async put(key, value, options) {
    return async(this.#put(key, value, options));
  }

  putSync(key, value, options) {
    return sync(this.#put(key, value, options));
  }

  async exchange(key, value, options) {
    return async(this.#old(WRITE.exchange, key, value, options));
  }

  exchangeSync(key, value, options) {
    return sync(this.#old(WRITE.exchange, key, value, options));
  }

  async insert(key, value, options) {
    return async(this.#insert(key, value, options));
  }

  insertSync(key, value, options) {
    return sync(this.#insert(key, value, options));
  }

  async update(key, value, options) {
    return async(this.#old(WRITE.update, key, value, options));
  }

  updateSync(key, value, options) {
    return sync(this.#old(WRITE.update, key, value, options));
  }

  async remove(key) {
    return this.#live.remove(key);
  }

  removeSync(key) {
    return this.#live.removeSync(key);
  }

  async compareAndSwap(key, expected, wanted, options) {
    return async(this.#swap(key, expected, wanted, options));
  }

  compareAndSwapSync(key, expected, wanted, options) {
    return sync(this.#swap(key, expected, wanted, options));
  }

  async expiry(key) {
    return async(this.#expiry(key));
  }

  expirySync(key) {
    return sync(this.#expiry(key));
  }

  async setExpiry(key, options) {
    return async(this.#setExpiry(key, options));
  }

  setExpirySync(key, options) {
    return sync(this.#setExpiry(key, options));
  }

  async removeExpired(budget) {
    return async(this.#removeExpired(budget));
  }

  removeExpiredSync(budget) {
    return sync(this.#removeExpired(budget));
  }

  /** Counts the entries, including expired ones that were not removed; exact while nothing writes. */
  async count() {
    return this.#live.count();
  }

  countSync() {
    return this.#live.countSync();
  }

  scan(options) {
    return this.#live.scan(options);
  }

  [Symbol.iterator]() {
    return this.#live[Symbol.iterator]();
  }

  [Symbol.asyncIterator]() {
    return this.#live[Symbol.asyncIterator]();
  }

  async check() {
    return this.#live.check();
  }

  async close() {
    await this.#live.close();
  }

  async [Symbol.asyncDispose]() {
    await this.close();
  }
}

/** Opens a handle to a tree that shows only live values. */
async function live(tree) {
  const { word } = await callAsync(OP.treeExpiring, [tree.handle]);
  const handle = new Handle(word, TYPE.tree, tree.handle.pool);
  const values = parse(tree.valueKind.slice('Expiring<'.length, -1));
  const owner = new ExpiringTree(new Tree(tree.pool, handle, tree.name, tree.keys, values));
  unreachable.register(owner, handle);
  return owner;
}

module.exports = { ExpiringTree, live };
