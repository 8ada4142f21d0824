'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const test = require('node:test');
const { open } = require('..');
const { encode, parse } = require('../lib/kinds');
const { DESIGNS, MAX_BYTES, withPath } = require('./common');

const FOLDER = path.join(__dirname, '../../conformance');
const FEATURES = ['changes', 'handles', 'clear_closed', 'create_new', 'null_bounds', 'nested_options'];
const CASES_MIN = 100;

function elementsOf(kind) {
  const inside = kind.slice(1, kind.endsWith(',)') ? -2 : -1);
  const kinds = [];
  let depth = 0;
  let begin = 0;
  for (let at = 0; at < inside.length; at++) {
    if ('(<['.includes(inside[at])) depth++;
    if (')>]'.includes(inside[at])) depth--;
    if (inside[at] === ',' && depth === 0) {
      kinds.push(inside.slice(begin, at));
      begin = at + 2;
    }
  }
  return [...kinds, inside.slice(begin)];
}

const isNullable = (kind) => kind === '()' || kind.startsWith('Option<');

function floatOf(kind, text) {
  if (!text.startsWith('0x')) return Number(text);
  const view = new DataView(new ArrayBuffer(8));
  if (kind === 'f64') view.setBigUint64(0, BigInt(text));
  else view.setUint32(0, Number(text));
  return kind === 'f64' ? view.getFloat64(0) : view.getFloat32(0);
}

/** Converts a key or a value of the table. */
function datum(kind, value) {
  if (value?.kind !== undefined) return datum(value.kind, value.datum);
  const text = value?.times === undefined ? value : value.repeat.repeat(value.times);
  if (kind.startsWith('Option<')) {
    const inner = kind.slice(7, -1);
    if (value === null) return null;
    const some = datum(inner, value[0]);
    return isNullable(inner) ? [some] : some;
  }
  if (kind.startsWith('Expiring<')) return [BigInt(value[0]), datum(kind.slice(9, -1), value[1])];
  if (kind === '()') return null;
  if (kind.startsWith('(')) return elementsOf(kind).map((element, at) => datum(element, value[at]));
  if (['bytes', 'postcard'].includes(kind) || kind.startsWith('[')) return Uint8Array.from(Buffer.from(text, 'hex'));
  if (['u64', 'i64', 'u128', 'i128'].includes(kind)) return BigInt(text);
  if (/^f/.test(kind)) return floatOf(kind, text);
  return /^[ui]/.test(kind) ? Number(text) : text;
}

/** The open objects of a case. `isSync` chooses between the calls that run on this thread and the others. */
class Runner {
  constructor(at, design, isSync) {
    Object.assign(this, { at, design, isSync, trees: new Map(), others: new Map() });
  }

  /** Returns the outcome of a step, and what it returned. */
  async outcome(step) {
    try {
      return (await this.run(step)) ?? { status: 'ok' };
    } catch (error) {
      if (error.status === undefined) throw error;
      return { status: error.status === 'closed' ? 'usage' : error.status };
    }
  }

  datum(step, argument, which = 'keyKind') {
    return step[argument] === undefined ? undefined : datum(this.trees.get(step.on)[which], step[argument]);
  }

  async run(step) {
    const other = this.others.get(step.in ?? step.of);
    switch (step.do) {
      case 'batch': return this.batch(step);
      case 'changes': return { status: 'ok', commits: await this.commits() };
      case 'begin': return void this.others.set(step.as, this.pool.transaction());
      case 'snapshot': return void this.others.set(step.as, await this.pool.snapshot());
      case 'commit': return other.commit();
      case 'rollback':
      case 'release': return other.close();
      default: return step.in ? this.within(step, other) : this.manage(step);
    }
  }

  async manage(step) {
    switch (step.do) {
      case 'create': {
        const how = { design: step.design ?? this.design, expireAfter: step.expire_after };
        return void this.trees.set(step.on, await this.pool.createTree(step.on, step.key_kind, step.value_kind, how));
      }
      case 'open': return void this.trees.set(step.on, await this.pool.tree(step.on, step.key_kind, step.value_kind));
      case 'expiring': return void this.trees.set(step.as, await this.trees.get(step.on).expiring());
      case 'close': return this.trees.get(step.on).close();
      case 'drop': return this.pool.dropTree(step.on);
      case 'rename': return this.pool.renameTree(step.on, step.to);
      case 'clear': return this.pool.clearTree(step.on);
      case 'close_pool': return this.pool.close();
      case 'trees': {
        const trees = (await this.pool.trees()).map((tree) => [tree.name, tree.keyKind, tree.valueKind]);
        return { status: 'ok', plain: trees.sort() };
      }
      case 'check': {
        for (const checked of [this.pool, ...this.trees.values()]) assert.deepEqual(await checked.check(), []);
        return undefined;
      }
      case 'reopen':
        await this.pool.close();
        this.trees.clear();
        this.pool = await open(this.at, { readOnly: step.read_only });
        return undefined;
      default: return this.onTree(step, this.trees.get(step.on));
    }
  }

  /** Returns the changes of the durable commits so far. */
  async commits() {
    const stream = await this.pool.changes();
    try {
      const commits = [];
      for await (const { changes } of stream) commits.push(changes);
      return commits;
    } finally {
      await stream.close();
    }
  }

  async batch(step) {
    const batch = this.pool.batch();
    try {
      for (const change of step.changes) {
        const value = this.datum(change, 'value', 'valueKind');
        batch[change.do](this.trees.get(change.on), this.datum(change, 'key'), value);
      }
      await batch.commit();
    } finally {
      await batch.close();
    }
  }

  async items(scan) {
    return { status: 'ok', items: this.isSync ? [...scan] : await scan.toArray() };
  }

  bounds(step) {
    const named = { from: step.from_excluded ? 'after' : 'from', end: step.end_included ? 'through' : 'before', prefix: 'prefix' };
    const keys = Object.entries(named).map(([argument, option]) => [option, this.datum(step, argument)]);
    return { ...Object.fromEntries(keys.filter(([, key]) => key !== undefined)), reverse: step.reverse, limit: step.limit };
  }

  async within(step, other) {
    const tree = this.trees.get(step.on);
    const key = this.datum(step, 'key');
    switch (step.do) {
      case 'get': return found(this.isSync && other.getSync ? other.getSync(tree, key) : await other.get(tree, key));
      case 'scan': return this.items(other.scan(tree, this.bounds(step)));
      default: return void other[step.do](tree, key, this.datum(step, 'value', 'valueKind'));
    }
  }

  async onTree(step, tree) {
    const call = (name, ...given) => (this.isSync ? tree[`${name}Sync`](...given) : tree[name](...given));
    const key = this.datum(step, 'key');
    const value = this.datum(step, 'value', 'valueKind');
    const keys = step.keys?.map((each) => datum(tree.keyKind, each));
    const how = step.expires === undefined ? undefined : { expires: step.expires === 0 ? null : step.expires };
    switch (step.do) {
      case 'get': return found(await call('get', key));
      case 'update': return found(await call('update', key, value, how));
      case 'remove': return found(await call('remove', key));
      case 'put': return void (await call('put', key, value, how));
      case 'exchange': return { status: 'ok', value: await call('exchange', key, value, how) };
      case 'contains': return { status: 'ok', plain: await call('has', key) };
      case 'len': return { status: 'ok', plain: await call('count') };
      case 'insert': {
        const { inserted, present } = await call('insert', key, value, how);
        return { status: inserted ? 'ok' : 'present', value: present };
      }
      case 'compare_and_swap': {
        const values = ['expected', 'wanted'].map((argument) => this.datum(step, argument, 'valueKind'));
        const swap = await call('compareAndSwap', key, ...values, how);
        return { status: swap.swapped ? 'ok' : 'differs', value: swap.found };
      }
      case 'scan':
      case 'prefix': return this.items(tree.scan(this.bounds(step)));
      case 'remove_range':
      case 'remove_prefix': {
        const scan = tree.scan(this.bounds(step));
        return { status: 'ok', plain: this.isSync ? scan.removeSync() : await scan.remove() };
      }
      case 'get_many': return { status: 'ok', many: await call('getMany', keys) };
      case 'remove_many': return void (await call('removeMany', keys));
      case 'put_many': {
        const items = step.items.map(([k, v]) => [datum(tree.keyKind, k), datum(tree.valueKind, v)]);
        return void (await call('putMany', items));
      }
      case 'expiry': return time(await call('expiry', key));
      case 'set_expiry': return time(await call('setExpiry', key, how));
      case 'expires_later': return { status: 'ok', plain: (await call('expiry', key)) > step.than };
      case 'expire_after': return { status: 'ok', plain: tree.expireAfter };
      case 'remove_expired': {
        const { examined, removed, complete } = await call('removeExpired', step.budget);
        return { status: 'ok', plain: [examined, removed, complete] };
      }
      default: throw new Error(`an unknown operation: ${step.do}`);
    }
  }

  /** Asserts that a result is that of the table. Data are compared by their bytes. */
  verify(step, outcome) {
    assert.equal(outcome.status, step.is ?? 'ok');
    const tree = this.trees.get(step.on);
    const bytesOf = (which, value) => Buffer.from(encode(parse(tree[which]), value));
    const isEqual = (which, value, wanted) => assert.deepEqual(bytesOf(which, value), bytesOf(which, datum(tree[which], wanted)));
    if (outcome.commits) {
      compareCommits(outcome.commits, step);
      return;
    }
    const given = outcome.plain ?? outcome.items ?? outcome.many ?? outcome.value;
    assert.equal(given !== undefined, step.gives !== undefined, `returned ${String(given)}`);
    if (outcome.plain !== undefined) assert.deepEqual(outcome.plain, step.gives);
    if (outcome.value !== undefined) isEqual('valueKind', outcome.value, step.gives);
    for (const list of [outcome.items, outcome.many]) assert.equal(list?.length ?? step.gives?.length, step.gives?.length);
    outcome.items?.forEach(([key, value], at) => {
      isEqual('keyKind', key, step.gives[at][0]);
      isEqual('valueKind', value, step.gives[at][1]);
    });
    outcome.many?.forEach((value, at) => {
      assert.equal(value === undefined, step.gives[at]?.absent === true);
      if (value !== undefined) isEqual('valueKind', value, step.gives[at]);
    });
  }
}

/** Asserts that commits are those of the table. */
function compareCommits(commits, step) {
  const bytesOf = (kind, value) => Buffer.from(encode(parse(kind), value)).toString('hex');
  const shown = ({ what, tree, key, value, existed, renamedTo, keyKind, valueKind }) => {
    const data = { key: key === undefined ? undefined : bytesOf(keyKind, key), value: value === undefined ? undefined : bytesOf(valueKind, value) };
    return { what, tree, existed, renamedTo, ...data };
  };
  const wanted = ({ renamed_to: renamedTo, key, value, ...rest }) => {
    const [keyKind, valueKind] = [step.key_kind, step.value_kind];
    const data = { key: key === undefined ? undefined : datum(keyKind, key), value: value === undefined ? undefined : datum(valueKind, value) };
    return shown({ ...rest, ...data, renamedTo, keyKind, valueKind });
  };
  assert.deepEqual(commits.map((changes) => changes.map(shown)), step.gives.map((changes) => changes.map(wanted)));
}

const time = (at) => (at === undefined ? { status: 'absent' } : { status: 'ok', plain: at ?? 0 });
const found = (value) => (value === undefined ? { status: 'absent' } : { status: 'ok', value });

async function run(of, design, isSync) {
  await withPath(async (at) => {
    const runner = new Runner(at, design, isSync);
    const domain = of.needs?.includes('changes') ? 'journal' : 'detected';
    runner.pool = await open(at, { create: true, maxBytes: MAX_BYTES, domain });
    try {
      for (const step of of.steps) {
        const outcome = await runner.outcome(step);
        try {
          runner.verify(step, outcome);
        } catch (error) {
          error.message = `${JSON.stringify(step)}: ${error.message}`;
          throw error;
        }
      }
    } finally {
      await runner.pool.close();
    }
  });
}

let ran = 0;
for (const file of fs.readdirSync(FOLDER).filter((name) => name.endsWith('.json'))) {
  const { cases } = JSON.parse(fs.readFileSync(path.join(FOLDER, file), 'utf8'));
  for (const of of cases.filter(({ needs = [] }) => needs.every((need) => FEATURES.includes(need)))) {
    test(`${file}: ${of.name}`, async () => {
      for (const [at, design] of DESIGNS.entries()) await run(of, design, at % 2 === 0);
      for (const [at, design] of DESIGNS.entries()) await run(of, design, at % 2 === 1);
    });
    ran += DESIGNS.length;
  }
}
test('the table is not empty', () => assert.ok(ran >= CASES_MIN * DESIGNS.length, `${ran} cases`));
