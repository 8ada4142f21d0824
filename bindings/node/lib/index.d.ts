/// <reference types="node" />

type Big = 'u64' | 'i64' | 'u128' | 'i128';
type Small = 'u8' | 'u16' | 'u32' | 'i8' | 'i16' | 'i32' | 'f32' | 'f64';
type Text = 'str' | 'char' | 'json';

/**
 * The type of a kind: BigInt for words of 64 and 128 bits, numbers for smaller ones and floats, strings, `Uint8Array`
 * for bytes and arrays, `null` for `()`. Tuples are arrays, and options are `null` or the value: `any` here.
 */
export type TypeOf<K extends string> = string extends K ? any
  : K extends Big ? bigint
  : K extends Small ? number
  : K extends Text ? string
  : K extends 'bytes' | 'postcard' | `[u8; ${number}]` ? Uint8Array
  : K extends 'bool' ? boolean
  : K extends '()' ? null
  : K extends `Expiring<${infer V}>` ? [bigint, TypeOf<V>]
  : any;

/** The reason of an error. */
export type Status =
  | 'failed' | 'usage' | 'in_use' | 'absent' | 'corrupted' | 'full' | 'forked' | 'read_only' | 'durability_lost' | 'bug'
  | 'conflict' | 'snapshot_too_old' | 'no_writer' | 'pruned' | 'closed';

/**
 * An error of the library. The operation has changed nothing, except with `durability_lost`, where the outcome is unknown.
 * Keys, values and arguments of a wrong type are a `TypeError`, and those out of range a `RangeError`, with the same `code`.
 */
export class BristleconeError extends Error {
  readonly status: Status;
  /** `ERR_BRISTLECONE_` and the status in capitals. */
  readonly code: string;
  /** Of calls for many keys: the number of items, from the first on, that were processed. */
  readonly done?: number;
  /** Of the status `pruned`: the LSN of the oldest commit that is kept. */
  readonly oldestLsn?: bigint;
}

export type Domain = 'detected' | 'process' | 'adr' | 'eadr' | 'msync' | 'journal';
export type Durability = 'default' | 'commit' | 'interval' | 'memory';

export interface OpenOptions {
  /** Creates the pool if it does not exist. */
  create?: boolean;
  /** Creates the pool, and fails if it exists. */
  createNew?: boolean;
  /** Opens the pool for reading, beside other readers. */
  readOnly?: boolean;
  /** Reads the pool while another process writes to it. */
  follow?: boolean;
  /** Maximum size in bytes. It raises a lower maximum of an existing pool. */
  maxBytes?: number | bigint;
  domain?: Domain;
  /** When a write is fulfilled, in a pool with a journal. */
  durability?: Durability;
  /** The time of the durability `interval`, in milliseconds. */
  intervalMs?: number;
  /** Number of threads that recover a tree; 0 is one per processor. */
  recoveryThreads?: number;
  /** Folder of the journal; by default the path of the pool, followed by `.journal`. */
  journal?: string;
  /** Maximum size in bytes of the files that are kept only for a cursor, before a checkpoint drops it; 0 is 1 GiB. */
  cursorLimit?: number | bigint;
  /** Milliseconds to wait while the pool is in use, or has no writer to follow. */
  wait?: number;
  /** Ends the wait. */
  signal?: AbortSignal;
}

export interface TreeOptions {
  /** `sstree` (the default), `nbtree`, `cclbtree`, `lodgetree` or `wotree`. */
  design?: string;
  /** Options of the design, by name. */
  options?: Record<string, number | bigint>;
  /** Milliseconds that a value of a kind `Expiring<…>` lives if its write names no expiry; 0, the default: it does not expire. */
  expireAfter?: number | bigint;
}

/** Bounds of keys, an order, and a maximum number of items. */
export interface ScanOptions<K> {
  /** The first key. */
  from?: K;
  /** The key before the first one. */
  after?: K;
  /** The key behind the last one. */
  before?: K;
  /** The last key. */
  through?: K;
  /** Only keys that begin so, of a tree whose keys are strings, bytes or arrays. */
  prefix?: K;
  reverse?: boolean;
  limit?: number;
}

export class Scan<K, V> implements Iterable<[K, V]>, AsyncIterable<[K, V]> {
  private constructor();
  [Symbol.iterator](): IterableIterator<[K, V]>;
  [Symbol.asyncIterator](): AsyncIterableIterator<[K, V]>;
  toArray(): Promise<[K, V][]>;
  /**
   * Removes the items of a tree in one step: all of them or, after an error or a crash, none. Returns how many. Writers of the
   * tree wait until it ends. A range with a limit, of a snapshot or of a transaction is refused.
   */
  remove(): Promise<number>;
  removeSync(): number;
}

export interface Issue {
  location: string;
  what: string;
}

/**
 * An ordered map in a pool. Every write of one key is atomic, and durable when its promise is fulfilled. Calls that end in
 * `Sync` run on the calling thread; the others on a thread of libuv, in no order among each other.
 */
export class Tree<K = any, V = any> implements Iterable<[K, V]>, AsyncIterable<[K, V]> {
  private constructor();
  readonly name: string;
  readonly keyKind: string;
  readonly valueKind: string;
  /** The value of a key; `undefined` if it is absent. */
  get(key: K): Promise<V | undefined>;
  getSync(key: K): V | undefined;
  has(key: K): Promise<boolean>;
  hasSync(key: K): boolean;
  /** Writes a key's value, whether or not the key exists. */
  put(key: K, value: V): Promise<void>;
  putSync(key: K, value: V): void;
  /** Writes a key's value; returns the previous one. */
  exchange(key: K, value: V): Promise<V | undefined>;
  exchangeSync(key: K, value: V): V | undefined;
  /** Inserts an absent key. */
  insert(key: K, value: V): Promise<{ inserted: true } | { inserted: false; present: V }>;
  insertSync(key: K, value: V): { inserted: true } | { inserted: false; present: V };
  /** Replaces the value of an existing key; returns the previous one, or `undefined` if the key is absent. */
  update(key: K, value: V): Promise<V | undefined>;
  updateSync(key: K, value: V): V | undefined;
  /** Removes a key; returns its value. */
  remove(key: K): Promise<V | undefined>;
  removeSync(key: K): V | undefined;
  /** Changes a key from `expected` to `wanted` in one step; `undefined` means an absent key. */
  compareAndSwap(key: K, expected: V | undefined, wanted: V | undefined): Promise<{ swapped: boolean; found?: V }>;
  compareAndSwapSync(key: K, expected: V | undefined, wanted: V | undefined): { swapped: boolean; found?: V };
  /** Looks up keys. Each lookup reads at its own time. */
  getMany(keys: Iterable<K>): Promise<(V | undefined)[]>;
  getManySync(keys: Iterable<K>): (V | undefined)[];
  /** Writes items one after the other. Each write is atomic, and durable; `error.done` says how many were made. */
  putMany(items: Iterable<[K, V]>): Promise<void>;
  putManySync(items: Iterable<[K, V]>): void;
  /** Removes keys one after the other; absent ones are skipped. */
  removeMany(keys: Iterable<K>): Promise<void>;
  removeManySync(keys: Iterable<K>): void;
  /** Counts the items; exact while nothing writes. */
  count(): Promise<number>;
  countSync(): number;
  /** Opens a handle to a tree with values of a kind `Expiring<…>` that takes and shows the values that have not expired. */
  expiring(): Promise<ExpiringTree<K, V extends [bigint, infer W] ? W : any>>;
  /** A range of items. It holds no lock and no handle, and returns every key that exists throughout, each once. */
  scan(options?: ScanOptions<K>): Scan<K, V>;
  [Symbol.iterator](): IterableIterator<[K, V]>;
  [Symbol.asyncIterator](): AsyncIterableIterator<[K, V]>;
  /** Verifies the tree; returns the damage: normally none. */
  check(): Promise<Issue[]>;
  /** Closes the handle, after the calls that are under way. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** When a value expires: at a time, or after milliseconds from now on. Without either its tree decides. */
export interface Expires {
  /** A `Date`, or milliseconds since 1970; `null` for never. */
  expires?: Date | number | null;
  expiresIn?: number;
}

/** What a pass of `removeExpired` did. */
export interface ExpiredRemoval {
  /** Number of entries that it read. */
  examined: number;
  /** Number of expired entries that it removed. */
  removed: number;
  /** Whether it reached the end of the tree. The next pass begins at the smallest key. */
  complete: boolean;
}

/**
 * A tree whose values expire: for its calls, an entry whose time has come is absent. Batches, transactions, snapshots, calls
 * of many keys and removals of ranges use the tree of entries, whose values have their times.
 */
export class ExpiringTree<K = any, V = any> implements Iterable<[K, V]>, AsyncIterable<[K, V]> {
  private constructor();
  readonly name: string;
  readonly keyKind: string;
  /** The kind of the values, without their times. */
  readonly valueKind: string;
  /** Milliseconds that a value lives if its write names no expiry; `undefined`: it does not expire. */
  readonly expireAfter: number | undefined;
  get(key: K): Promise<V | undefined>;
  getSync(key: K): V | undefined;
  has(key: K): Promise<boolean>;
  hasSync(key: K): boolean;
  put(key: K, value: V, options?: Expires): Promise<void>;
  putSync(key: K, value: V, options?: Expires): void;
  exchange(key: K, value: V, options?: Expires): Promise<V | undefined>;
  exchangeSync(key: K, value: V, options?: Expires): V | undefined;
  insert(key: K, value: V, options?: Expires): Promise<{ inserted: true } | { inserted: false; present: V }>;
  insertSync(key: K, value: V, options?: Expires): { inserted: true } | { inserted: false; present: V };
  update(key: K, value: V, options?: Expires): Promise<V | undefined>;
  updateSync(key: K, value: V, options?: Expires): V | undefined;
  remove(key: K): Promise<V | undefined>;
  removeSync(key: K): V | undefined;
  /** Changes a key in one step; `undefined` means an absent key. The expiry that the key had does not count. */
  compareAndSwap(key: K, expected: V | undefined, wanted: V | undefined, options?: Expires): Promise<{ swapped: boolean; found?: V }>;
  compareAndSwapSync(key: K, expected: V | undefined, wanted: V | undefined, options?: Expires): { swapped: boolean; found?: V };
  /** When a key expires, in milliseconds since 1970; `null` for never, `undefined` if it is absent. */
  expiry(key: K): Promise<number | null | undefined>;
  expirySync(key: K): number | null | undefined;
  /** Sets when a key expires, and keeps its value; without options it is renewed. Returns the previous expiry. */
  setExpiry(key: K, options?: Expires): Promise<number | null | undefined>;
  setExpirySync(key: K, options?: Expires): number | null | undefined;
  /** Reads up to `budget` entries and removes the expired ones among them; the next call continues behind them. */
  removeExpired(budget: number): Promise<ExpiredRemoval>;
  removeExpiredSync(budget: number): ExpiredRemoval;
  /** Counts the entries, including expired ones that were not removed. */
  count(): Promise<number>;
  countSync(): number;
  scan(options?: ScanOptions<K>): Scan<K, V>;
  [Symbol.iterator](): IterableIterator<[K, V]>;
  [Symbol.asyncIterator](): AsyncIterableIterator<[K, V]>;
  check(): Promise<Issue[]>;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** All trees of a pool as of one instant. What changes meanwhile is kept in memory: close it soon. */
export class Snapshot {
  private constructor();
  get<K, V>(tree: Tree<K, V>, key: K): Promise<V | undefined>;
  getSync<K, V>(tree: Tree<K, V>, key: K): V | undefined;
  scan<K, V>(tree: Tree<K, V>, options?: ScanOptions<K>): Scan<K, V>;
  /** Approximate number of bytes of memory that are kept for it. */
  readonly bytes: number;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Changes of any trees of a pool that are made together. */
export class Batch {
  private constructor();
  put<K, V>(tree: Tree<K, V>, key: K, value: V): this;
  remove<K>(tree: Tree<K, any>, key: K): this;
  /** Adds the condition that a key has a value before the batch; `undefined` means an absent key. */
  expect<K, V>(tree: Tree<K, V>, key: K, value: V | undefined): this;
  /** Applies all changes atomically, if all conditions hold; otherwise its status is `conflict`. */
  commit(): Promise<void>;
  /** Ends it. Without a commit nothing changes. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** All trees of a pool as of one instant, with its own writes. All but the commit is in memory, and synchronous. */
export class Transaction {
  private constructor();
  get<K, V>(tree: Tree<K, V>, key: K): V | undefined;
  put<K, V>(tree: Tree<K, V>, key: K, value: V): this;
  remove<K>(tree: Tree<K, any>, key: K): this;
  /** A range of items, in ascending order. */
  scan<K, V>(tree: Tree<K, V>, options?: Omit<ScanOptions<K>, 'reverse'>): Scan<K, V>;
  /** Applies the changes, if nothing that it read has changed meanwhile; otherwise its status is `conflict`. */
  commit(): Promise<void>;
  /** Ends it. Without a commit nothing changes. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface PoolInfo {
  domain: Domain;
  wasClean: boolean;
  readOnly: boolean;
  following: boolean;
  fileBytes: number;
  maxBytes: number;
  uuid: string;
}

export interface JournalStatus {
  durability: Durability;
  intervalMs: number;
  lsn: bigint;
  durableLsn: bigint;
  checkpointLsn: bigint | undefined;
  bytesSinceCheckpoint: bigint;
  syncs: bigint;
  /** LSN of the oldest commit that is kept: a stream of changes can begin there. */
  oldestLsn: bigint;
  failed: boolean;
}

export interface TreeEntry {
  name: string;
  keyKind: string;
  valueKind: string;
  design: string;
}

/** A change of a tree. Members that do not apply are absent. */
export interface Change {
  what: 'put' | 'remove' | 'create' | 'drop' | 'rename' | 'clear' | 'other';
  /** Name of the tree before the change; of a created tree, its name. */
  tree: string;
  /** Number of the tree, which no other tree had at the same time; `newTreeId` after `clear`. */
  treeId: number;
  newTreeId?: number;
  keyKind: string;
  valueKind: string;
  /** The key of a put or remove. */
  key?: any;
  /** The new value of a put. */
  value?: any;
  /** Of a put or remove: whether the key was present before. It is absent if the write did not look. */
  existed?: boolean;
  /** New name of a renamed tree. */
  renamedTo?: string;
}

/** Changes that were applied together. */
export interface Commit {
  lsn: bigint;
  /** LSN from which a later stream continues behind it. */
  nextLsn: bigint;
  /** When it was written to the journal. */
  time: Date;
  changes: Change[];
}

/**
 * The durable changes of a pool with a journal, in the order of their LSNs. One call at a time may use it; a second one
 * gets the status `in_use`. As an iterable it ends at the last durable commit.
 */
export class Changes implements AsyncIterable<Commit> {
  private constructor();
  /** The next commit; `undefined` if none is durable yet. */
  tryNext(): Promise<Commit | undefined>;
  [Symbol.asyncIterator](): AsyncIterableIterator<Commit>;
  /**
   * Iterates over the commits, and waits for more. It throws the reason of the signal once that is aborted, after which the
   * stream is intact, and an error of the status `closed` once the stream or its pool is closed.
   */
  follow(options?: { signal?: AbortSignal }): AsyncIterableIterator<Commit>;
  /** Moves the cursor of the stream, durably: usually to the `nextLsn` of the last commit whose effects are durable. */
  advance(lsn: bigint): Promise<void>;
  /** Closes the stream, after the call that is under way. Its cursor stays. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A position in the journal with a name. */
export interface Cursor {
  name: string;
  /** Where the next stream begins: commits from there on are kept. */
  lsn: bigint;
  /** Bytes of the files that are kept only for it. */
  pinnedBytes: bigint;
  /** When it was advanced last. */
  time: Date;
  /** Whether it held back too much, so that nothing is kept for it any more. */
  dropped: boolean;
}

/** An open pool: a file with trees. */
export class Pool {
  private constructor();
  readonly path: string;
  readonly closed: boolean;
  /** Opens the tree of this name, or creates it with these kinds. Without kinds it must exist. */
  tree<K extends string, V extends string>(name: string, keys: K, values: V): Promise<Tree<TypeOf<K>, TypeOf<V>>>;
  tree(name: string): Promise<Tree>;
  /** Creates a tree, and fails if one of this name exists. */
  createTree<K extends string, V extends string>(name: string, keys: K, values: V, options?: TreeOptions): Promise<Tree<TypeOf<K>, TypeOf<V>>>;
  trees(): Promise<TreeEntry[]>;
  /** Drops a tree with all its items. It must not be open. */
  dropTree(name: string): Promise<void>;
  /** Removes every item of a tree atomically. It must not be open. */
  clearTree(name: string): Promise<void>;
  renameTree(from: string, to: string): Promise<void>;
  /** Allocates space in advance. */
  prefault(bytes: number | bigint): Promise<void>;
  /** Makes everything durable that was written so far. */
  sync(): Promise<void>;
  /** Writes all items to a new checkpoint in the journal, and frees the space of the entries before it. */
  checkpoint(): Promise<void>;
  /** Does what `checkpoint` does, and removes all files of the journal that are not needed any more. */
  pruneJournal(): Promise<void>;
  info(): Promise<PoolInfo>;
  /** Its status is `absent` for a pool that does not write a journal. */
  journalStatus(): Promise<JournalStatus>;
  /** Opens a stream of changes from an LSN on: by default from the first change. Its status is `pruned` if that is not kept. */
  changes(options?: { from?: bigint }): Promise<Changes>;
  /** Opens a stream of changes at a cursor. One stream at a time has it. */
  changesOf(cursor: string): Promise<Changes>;
  /** Creates a cursor at an LSN, or behind the last durable commit; returns its LSN. */
  createCursor(name: string, lsn?: bigint): Promise<bigint>;
  dropCursor(name: string): Promise<void>;
  cursors(): Promise<Cursor[]>;
  check(): Promise<Issue[]>;
  batch(): Batch;
  transaction(): Transaction;
  /** Takes a snapshot that keeps at most about `maxBytes` of memory; 0 is unlimited. */
  snapshot(options?: { maxBytes?: number | bigint }): Promise<Snapshot>;
  /** Calls a function with a transaction and commits it; calls it again, up to 256 times, after a conflict. */
  transact<T>(work: (transaction: Transaction) => T | Promise<T>): Promise<T>;
  /** Closes everything that was opened in the pool, and the pool, after the calls that are under way. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Opens a pool. */
export function open(path: string, options?: OpenOptions): Promise<Pool>;

/** The version of the C library. */
export const version: string;
