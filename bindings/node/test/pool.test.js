'use strict';

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const readline = require('node:readline');
const test = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');
const { Worker } = require('node:worker_threads');
const { BristleconeError, open, version } = require('..');
const { addon } = require('../lib/native');
const { DESIGNS, MAX_BYTES, failsWith, withPath, withPool } = require('./common');

test('data of other types are refused, and nothing changes', () =>
  withPool(async (pool) => {
    const words = await pool.tree('w', 'u64', 'i8');
    for (const key of [1, '1', null, undefined, {}, [1n], -1n, 1n << 64n, Symbol('x')]) {
      assert.throws(() => words.putSync(key, 1), failsWith('usage'));
      await assert.rejects(words.put(key, 1), failsWith('usage'));
      await assert.rejects(words.get(key), failsWith('usage'));
    }
    for (const value of [128, -129, 1.5, NaN, 1n, '1', undefined]) assert.throws(() => words.putSync(1n, value), failsWith('usage'));
    const texts = await pool.tree('t', 'str', 'char');
    for (const key of ['\ud800', 1, null, new Uint8Array(1)]) assert.throws(() => texts.putSync(key, 'a'), failsWith('usage'));
    for (const value of ['', 'ab', '\udc00', 1]) assert.throws(() => texts.putSync('a', value), failsWith('usage'));
    const floats = await pool.tree('f', 'f32', '(bool, [u8; 2])');
    assert.throws(() => floats.putSync(0.1, [true, new Uint8Array(2)]), failsWith('usage'));
    for (const value of [[true], [1, new Uint8Array(2)], [true, new Uint8Array(3)], [true, [1, 2]], null]) {
      assert.throws(() => floats.putSync(1, value), failsWith('usage'));
    }
    await assert.rejects(words.putMany([[1n, 1], [2n]]), failsWith('usage'));
    assert.throws(() => words.scan({ from: 1 }), failsWith('usage'));
    assert.throws(() => words.scan({ from: 1n, after: 1n }), failsWith('usage'));
    assert.throws(() => words.scan({ limit: -1 }), failsWith('usage'));
    for (const tree of [words, texts, floats]) assert.equal(await tree.count(), 0);
    await assert.rejects(pool.tree('x', 'u63', 'u64'), failsWith('usage'));
    await assert.rejects(pool.tree('x', '('.repeat(100_000), 'u64'), failsWith('usage'));
    await assert.rejects(pool.tree('x\0', 'u64', 'u64'), failsWith('usage'));
    await assert.rejects(pool.tree('x', 'u64'), failsWith('usage'));
    await assert.rejects(pool.tree(7, 'u64', 'u64'), failsWith('usage'));
    await assert.rejects(pool.createTree('x', 'u64', 'u64', { options: { 'no such option': 1 } }), failsWith('usage'));
    const error = await texts.putMany([['a', 'a'], ['x'.repeat(16385), 'b']]).catch((thrown) => thrown);
    assert.ok(error instanceof BristleconeError && error.status === 'usage' && error.done <= 1);
  }));

test('arguments of the addon of other types are refused', () => {
  for (const given of [[], [0], [0, [], 1], [99, [], []], [0, {}, []], [-1, [], []], [1, [1.5], []], [1, ['1'], []], [14, [1, 2, 3], ['x']]]) {
    assert.throws(() => addon.call(...given), TypeError);
    assert.throws(() => addon.callAsync(...given), TypeError);
  }
  assert.equal(addon.call(1, [1, 12345], []).status, 2);
  assert.match(version, /^\d+\.\d+\.\d+/);
});

test('options that are wrong are refused', () =>
  withPath(async (at) => {
    for (const options of [{ domain: 'x' }, { durability: 1 }, { maxBytes: -1 }, { maxBytes: 1n << 64n }, { intervalMs: 0.5 }, { creat: true }, null]) {
      await assert.rejects(open(at, options), failsWith('usage'));
    }
    await assert.rejects(open(at), failsWith('absent'));
    await assert.rejects(open(7), failsWith('usage'));
    const pool = await open(at, { create: true, maxBytes: MAX_BYTES });
    await assert.rejects(open(at), failsWith('in_use'));
    await assert.rejects(open(at, { wait: 30 }), failsWith('in_use'));
    await assert.rejects(open(at, { wait: 10_000, signal: AbortSignal.timeout(30) }), { name: /AbortError|TimeoutError/ });
    const waiting = open(at, { wait: 20_000 });
    await pool.close();
    await (await waiting).close();
    await assert.rejects(open(at, { createNew: true }), failsWith('usage'));
    fs.writeFileSync(at, 'no pool');
    await assert.rejects(open(at), failsWith('corrupted'));
  }));

test('closed handles are refused', () =>
  withPath(async (at) => {
    const pool = await open(at, { create: true, maxBytes: MAX_BYTES });
    const tree = await pool.tree('t', 'str', 'u64');
    const words = await pool.tree('w', 'u64', 'u64');
    await tree.put('a', 1n);
    const snapshot = await pool.snapshot();
    const transaction = pool.transaction();
    const batch = pool.batch();
    const items = tree.scan()[Symbol.iterator]();
    await tree.close();
    await tree.close();
    const calls = [
      () => tree.getSync('a'), () => tree.putSync('a', 1n), () => tree.removeSync('a'), () => tree.countSync(), () => tree.getManySync(['a']),
      () => tree.putManySync([['a', 1n]]), () => [...tree.scan()], () => items.next(), () => snapshot.getSync(tree, 'a'),
      () => transaction.get(tree, 'a'), () => transaction.put(tree, 'a', 1n), () => batch.put(tree, 'a', 1n), () => [...snapshot.scan(tree)],
    ];
    const later = [() => tree.get('a'), () => tree.put('a', 1n), () => tree.check(), () => tree.scan().toArray(), () => snapshot.get(tree, 'a')];
    const refused = async () => {
      // An iterator that has thrown has ended.
      for (const call of calls.filter((each, at2) => at2 !== 7)) assert.throws(call, failsWith('closed'));
      for (const call of later) await assert.rejects(call(), failsWith('closed'));
    };
    assert.throws(calls[7], failsWith('closed'));
    await refused();
    await pool.close();
    await pool.close();
    assert.ok(pool.closed);
    await refused();
    const more = [() => pool.trees(), () => pool.info(), () => pool.check(), () => pool.sync(), () => pool.tree('u', 'u64', 'u64'), () => pool.dropTree('t'),
      () => pool.snapshot(), () => words.get(1n), () => transaction.commit(), () => batch.commit(), () => pool.transact(() => {})];
    for (const call of more) await assert.rejects(call(), failsWith('closed'));
    assert.throws(() => pool.batch(), failsWith('closed'));
    assert.throws(() => snapshot.bytes, failsWith('closed'));
    await Promise.all([snapshot.close(), transaction.close(), batch.close()]);
  }));

test('closing waits for calls that are under way', () =>
  withPath(async (at) => {
    for (let round = 0; round < 10; round++) {
      const pool = await open(at, { create: true, maxBytes: MAX_BYTES });
      const tree = await pool.tree('t', 'u64', 'bytes');
      const writes = Promise.allSettled(Array.from({ length: 200 }, (_, key) => tree.put(BigInt(key), new Uint8Array(100))));
      const scans = Promise.allSettled(Array.from({ length: 10 }, () => tree.scan().toArray()));
      await (round % 2 ? tree.close().then(() => pool.close()) : pool.close());
      assert.ok((await writes).every((write) => write.status === 'fulfilled'));
      for (const scan of await scans) {
        assert.ok(scan.status === 'fulfilled' || scan.reason.code === 'ERR_BRISTLECONE_CLOSED', String(scan.reason));
      }
    }
  }));

test('objects of another pool are refused', () =>
  withPool((pool) =>
    withPool(async (other) => {
      const tree = await pool.tree('t', 'u64', 'u64');
      assert.throws(() => other.transaction().put(tree, 1n, 1n), failsWith('usage'));
      assert.throws(() => other.batch().put(tree, 1n, 1n), failsWith('usage'));
      await assert.rejects((await other.snapshot()).get(tree, 1n), failsWith('usage'));
    }),
  ));

test('an exception rolls a transaction back', () =>
  withPool(async (pool) => {
    const tree = await pool.tree('t', 'str', 'u64');
    await tree.put('n', 0n);
    const mine = new Error('mine');
    await assert.rejects(pool.transact((tx) => { tx.put(tree, 'n', 9n); throw mine; }), mine);
    await assert.rejects(pool.transact(async (tx) => { tx.put(tree, 'n', 9n); await sleep(1); throw mine; }), mine);
    const count = async () => {
      for (let at = 0; at < 20; at++) {
        await pool.transact(async (tx) => {
          const n = tx.get(tree, 'n');
          await sleep(0);
          tx.put(tree, 'n', n + 1n);
        });
      }
    };
    await Promise.all([count(), count(), count()]);
    assert.equal(await tree.get('n'), 60n);
    assert.throws(() => pool.transaction().scan(tree, { reverse: true }), failsWith('usage'));
  }));

test('ranges are removed in one step', () =>
  withPool(async (pool) => {
    const tree = await pool.tree('t', 'str', 'u64');
    await tree.putMany(['a', 'ab', 'abc', 'b', 'c', 'd'].map((key) => [key, 1n]));
    const snapshot = await pool.snapshot();
    for (const scan of [tree.scan({ limit: 3 }), snapshot.scan(tree), pool.transaction().scan(tree)]) {
      assert.throws(() => scan.removeSync(), failsWith('usage'));
      await assert.rejects(scan.remove(), failsWith('usage'));
    }
    assert.throws(() => tree.scan({ prefix: 'a', from: 'ab' }), failsWith('usage'));
    assert.equal(await tree.scan({ prefix: 'ab' }).remove(), 2);
    assert.equal(tree.scan({ after: 'a', through: 'c', reverse: true }).removeSync(), 2);
    assert.equal(await tree.scan({ from: 'x' }).remove(), 0);
    assert.equal(await tree.scan().remove(), 2);
    const words = await pool.tree('w', 'u64', 'u64');
    await assert.rejects(words.scan({ prefix: 1n }).remove(), failsWith('usage'));
    await tree.close();
    await assert.rejects(tree.scan().remove(), failsWith('closed'));
  }));

test('a scan that is left early, or whose body throws, leaves nothing open', () =>
  withPool(async (pool) => {
    const tree = await pool.tree('t', 'u64', 'u64');
    await tree.putMany(Array.from({ length: 5000 }, (_, key) => [BigInt(key), 0n]));
    for (const _ of tree) break;
    for await (const _ of tree) break;
    assert.throws(() => { for (const _ of tree) throw new Error('mine'); }, { message: 'mine' });
    assert.equal((await tree.scan().toArray()).length, 5000);
    assert.deepEqual((await tree.scan({ reverse: true, limit: 2000 }).toArray()).map(([key]) => key), Array.from({ length: 2000 }, (_, at) => BigInt(4999 - at)));
    assert.equal(pool.handle.members.size, 1);
  }));

test('bytes may be a Buffer, or a part of one; results are copies', () =>
  withPool(async (pool) => {
    const tree = await pool.tree('t', 'bytes', 'bytes');
    const whole = Buffer.from('xabcx');
    await tree.put(whole.subarray(1, 4), Buffer.alloc(0));
    const given = Uint8Array.of(1, 2);
    const write = tree.put(Buffer.from('k'), given);
    given.fill(9);
    await write;
    assert.deepEqual(await tree.get(Buffer.from('k')), Uint8Array.of(1, 2));
    assert.deepEqual((await tree.scan().toArray()).map(([key]) => Buffer.from(key).toString()), ['abc', 'k']);
    const large = new Uint8Array(131072).fill(7);
    await tree.put(Buffer.from('large'), large);
    assert.deepEqual(tree.getSync(Buffer.from('large')), large);
    const detached = new Uint8Array(8);
    structuredClone(detached, { transfer: [detached.buffer] });
    await assert.rejects(tree.put(detached, detached), TypeError);
    assert.equal(await tree.count(), 3);
  }));

test('journals are synced', async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'bristlecone-node-'));
  try {
    const options = { create: true, maxBytes: MAX_BYTES, domain: 'journal', durability: 'interval', intervalMs: 50 };
    const pool = await open(path.join(folder, 'trees.pool'), options);
    const tree = await pool.tree('t', 'str', 'str');
    await Promise.all(Array.from({ length: 50 }, (_, at) => tree.put(`k${at}`, 'v')));
    await pool.sync();
    const status = await pool.journalStatus();
    assert.ok(status.durability === 'interval' && status.intervalMs === 50 && status.durableLsn > 0n && !status.failed);
    assert.equal(status.checkpointLsn, undefined);
    await pool.checkpoint();
    await pool.pruneJournal();
    assert.notEqual((await pool.journalStatus()).checkpointLsn, undefined);
    await pool.close();
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
  await withPool(async (pool) => {
    await assert.rejects(pool.journalStatus(), failsWith('absent'));
    await assert.rejects(pool.checkpoint(), failsWith('usage'));
  });
});

test('followers read, and do not write', () =>
  withPath(async (at) => {
    const pool = await open(at, { create: true, maxBytes: MAX_BYTES });
    await (await pool.tree('t', 'str', 'u64')).put('a', 1n);
    const follower = await open(at, { follow: true });
    const tree = await follower.tree('t');
    assert.equal(await tree.get('a'), 1n);
    await assert.rejects(tree.put('a', 2n), failsWith('read_only'));
    assert.ok((await follower.info()).following);
    await pool.close();
    await assert.rejects(tree.get('a'), failsWith('no_writer'));
    await follower.close();
  }));

test('damage is an error, and never an absent key or an early end', async () => {
  for (const design of DESIGNS) {
    await withPath(async (at) => {
      const pool = await open(at, { create: true, maxBytes: MAX_BYTES });
      const tree = await pool.createTree('t', 'u64', 'str', { design });
      const digits = (number, count) => String(number).padStart(count, '0');
      for (let key = 0; key < 500; key++) tree.putSync(BigInt(key), `damage me ${digits(key, 4)} ${digits(key, 50)}`);
      await pool.close();
      const content = fs.readFileSync(at);
      for (let found = content.indexOf('damage me 0300'); found >= 0; found = content.indexOf('damage me 0300', found + 1)) content[found + 20] ^= 1;
      fs.writeFileSync(at, content);
      const again = await open(at);
      const damaged = await again.tree('t');
      assert.throws(() => damaged.getSync(300n), failsWith('corrupted'));
      await assert.rejects(damaged.get(300n), failsWith('corrupted'));
      await assert.rejects(damaged.scan().toArray(), failsWith('corrupted'));
      assert.throws(() => [...damaged], failsWith('corrupted'));
      assert.equal(damaged.getSync(301n).length, 65);
      assert.ok((await damaged.check()).length > 0);
      await again.close();
    });
  }
});

test('designs are named', () =>
  withPool(async (pool) => {
    for (const design of DESIGNS) await pool.createTree(design, 'u64', 'u64', { design });
    assert.deepEqual((await pool.trees()).map((tree) => tree.design), DESIGNS);
  }));

test('unreachable handles are closed', { skip: !global.gc }, () =>
  withPath(async (at) => {
    await (async () => {
      const pool = await open(at, { create: true, maxBytes: MAX_BYTES });
      const tree = await pool.tree('t', 'u64', 'u64');
      await pool.snapshot();
      pool.transaction();
      for (let key = 0n; key < 300n; key++) {
        if (key % 50n === 0n) global.gc();
        await tree.put(key, key);
      }
    })();
    for (let attempt = 0; ; attempt++) {
      global.gc();
      await sleep(5);
      const pool = await open(at).catch((error) => error);
      if (!(pool instanceof Error)) {
        assert.equal(await (await pool.tree('t')).count(), 300);
        await pool.close();
        return;
      }
      assert.equal(pool.status, 'in_use');
      assert.ok(attempt < 1000, 'the pool stays open');
    }
  }));

test('garbage collection spares handles in use', { skip: !global.gc }, () =>
  withPool(async (pool) => {
    const collector = setInterval(global.gc, 1);
    for (let key = 0n; key < 200n; key++) {
      await (await pool.tree('t', 'u64', 'u64')).put(key, key);
      const read = (await pool.snapshot()).get(await pool.tree('t'), key);
      global.gc();
      assert.equal(await read, key);
      assert.equal((await (await pool.tree('t')).scan().toArray()).length, Number(key) + 1);
      await pool.batch().put(await pool.tree('t'), key, key).commit();
    }
    clearInterval(collector);
  }));

test('a worker that ends leaves no pool open, also during calls', () =>
  withPath(async (at) => {
    const program = `
      const { open } = require(${JSON.stringify(path.join(__dirname, '..'))});
      const { parentPort, workerData } = require('node:worker_threads');
      open(workerData, { create: true, maxBytes: ${MAX_BYTES} }).then(async (pool) => {
        const tree = await pool.tree('t', 'u64', 'u64');
        await pool.snapshot();
        for (let key = 0n; ; key++) {
          await tree.put(key, key);
          if (key === 100n) parentPort.postMessage('ready');
        }
      });`;
    for (let round = 0; round < 3; round++) {
      const worker = new Worker(program, { eval: true, workerData: at });
      await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
      await assert.rejects(open(at), failsWith('in_use'));
      await worker.terminate();
      const pool = await open(at, { wait: 10_000 });
      assert.ok((await (await pool.tree('t')).count()) > 100);
      await pool.close();
    }
  }));

test('a killed writer loses nothing', async () => {
  for (let round = 0; round < 2; round++) {
    await withPath(async (at) => {
      const writer = spawn(process.execPath, [path.join(__dirname, 'writer.js'), at], { stdio: ['ignore', 'pipe', 'inherit'] });
      const ended = new Promise((resolve) => writer.once('exit', (code, signal) => resolve(signal)));
      let acknowledged = 0n;
      for await (const line of readline.createInterface({ input: writer.stdout })) {
        acknowledged = BigInt(line) + 1n;
        if (acknowledged === 1000n + 777n * BigInt(round)) writer.kill('SIGKILL');
      }
      assert.equal(await ended, 'SIGKILL');
      await verifyWritten(at, acknowledged);
    });
  }
});

async function verifyWritten(at, acknowledged) {
  assert.ok(acknowledged >= 1000n);
  const pool = await open(at);
  assert.equal((await pool.info()).wasClean, false);
  const words = await pool.tree('words');
  const texts = await pool.tree('texts');
  for (let number = 0n; number < acknowledged; number++) {
    assert.equal(words.getSync(number), ~number & 0xffffffffffffffffn);
    assert.equal(texts.getSync(`item ${number}`).length, Number(number % 100n));
  }
  assert.ok(words.countSync() <= Number(acknowledged) + 1);
  for (const checked of [pool, words, texts]) assert.deepEqual(await checked.check(), []);
  await pool.close();
}
