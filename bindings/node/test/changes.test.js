'use strict';

const assert = require('node:assert/strict');
const path = require('node:path');
const test = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');
const { Worker } = require('node:worker_threads');
const { BristleconeError, open } = require('..');
const { MAX_BYTES, failsWith, withPath, withPool } = require('./common');

const openJournal = (at) => open(at, { create: true, maxBytes: MAX_BYTES, domain: 'journal', cursorLimit: 1 << 20 });

function withJournal(work) {
  return withPath(async (at) => {
    const pool = await openJournal(at);
    try {
      return await work(pool, at);
    } finally {
      await pool.close();
    }
  });
}

async function collect(iterable) {
  const all = [];
  for await (const each of iterable) all.push(each);
  return all;
}

test('whole commits arrive in order', () =>
  withJournal(async (pool) => {
    const ages = await pool.tree('ages', 'str', '(u64, str)');
    await ages.put('Methuselah', [4857n, 'pine']);
    await pool.batch().put(ages, 'Pando', [14000n, 'aspen']).remove(ages, 'Methuselah').commit();
    await ages.close();
    await pool.renameTree('ages', 'years');
    await pool.clearTree('years');
    const commits = await collect(await pool.changes());
    const { treeId } = commits[0].changes[0];
    const kinds = { treeId, keyKind: 'str', valueKind: '(u64, str)' };
    assert.deepEqual(commits[2].changes, [
      { what: 'remove', tree: 'ages', ...kinds, key: 'Methuselah', existed: true },
      { what: 'put', tree: 'ages', ...kinds, key: 'Pando', value: [14000n, 'aspen'], existed: false },
    ]);
    assert.deepEqual(commits[3].changes, [{ what: 'rename', tree: 'ages', ...kinds, renamedTo: 'years' }]);
    assert.notEqual(commits[4].changes[0].newTreeId ?? treeId, treeId);
    commits.slice(1).forEach((commit, at) => assert.ok(commits[at].nextLsn <= commit.lsn));
    assert.ok(Math.abs(commits[0].time - Date.now()) < 300_000);
    // A stream continues where another one ended.
    assert.deepEqual(await collect(await pool.changes({ from: commits[1].nextLsn })), commits.slice(2));
    await assert.rejects(pool.changes({ from: 1n << 40n }), failsWith('usage'));
    for (const from of [0, '0', -1n, 1n << 64n, null]) await assert.rejects(pool.changes({ from }), failsWith('usage'));
  }));

test('values that expire have their times', () =>
  withJournal(async (pool) => {
    for (const [kind, value] of [['u64', 7n], ['str', 'seven'], ['json', '[7]']]) {
      const tree = await pool.tree(kind, 'str', `Expiring<${kind}>`);
      assert.equal(tree.valueKind, `Expiring<${kind}>`);
      await tree.put('a', [1_900_000_000_000n, value]);
      assert.deepEqual(await tree.get('a'), [1_900_000_000_000n, value]);
      assert.deepEqual(await tree.scan().toArray(), [['a', [1_900_000_000_000n, value]]]);
      await assert.rejects(tree.put('a', value), failsWith('usage'));
      const commits = await collect(await pool.changes());
      assert.deepEqual(commits.at(-1).changes[0].value, [1_900_000_000_000n, value]);
    }
    await assert.rejects(pool.tree('x', 'Expiring<u64>', 'u64'), failsWith('usage'));
    await assert.rejects(pool.tree('x', 'u64', 'Expiring<u64'), failsWith('usage'));
  }));

test('a long commit is whole', () =>
  withJournal(async (pool) => {
    const tree = await pool.tree('t', 'u64', 'str');
    const batch = pool.batch();
    for (let key = 0n; key < 30_000n; key++) batch.put(tree, key, 'abcdefghijklmnop');
    await batch.commit();
    const [, long, ...more] = await collect(await pool.changes());
    assert.deepEqual(long.changes.map(({ key }) => key), Array.from({ length: 30_000 }, (_, at) => BigInt(at)));
    assert.equal(more.length, 0);
  }));

test('a follower waits until it is aborted, and blocks no thread', () =>
  withJournal(async (pool) => {
    const tree = await pool.tree('t', 'u64', 'u64');
    const streams = await Promise.all(Array.from({ length: 8 }, () => pool.changes()));
    // More followers than libuv has threads.
    const controller = new AbortController();
    const found = streams.map(async (stream) => {
      const keys = [];
      const following = stream.follow({ signal: controller.signal });
      await assert.rejects(async () => {
        for await (const { changes } of following) keys.push(...changes.map(({ key }) => key));
      }, { name: 'AbortError' });
      return keys.length;
    });
    for (let key = 0n; key < 50n; key++) await tree.put(key, key);
    await sleep(300);
    controller.abort();
    assert.deepEqual(await Promise.all(found), streams.map(() => 51));
    // The streams are intact.
    await tree.put(7n, 7n);
    assert.equal((await streams[0].tryNext()).changes[0].key, 7n);
    assert.equal(await streams[0].tryNext(), undefined);
    await assert.rejects(streams[0].follow({ signal: AbortSignal.abort(new Error('mine')) }).next(), { message: 'mine' });
    assert.throws(() => streams[0].follow({ signal: 7 }), failsWith('usage'));
    await assert.rejects(streams[0].follow({ signal: AbortSignal.timeout(30) }).next(), { name: 'TimeoutError' });
  }));

test('a second call on a stream is refused', () =>
  withJournal(async (pool) => {
    await pool.tree('t', 'u64', 'u64');
    const stream = await pool.changes();
    const outcomes = await Promise.allSettled([stream.tryNext(), stream.tryNext(), stream.advance(0n)]);
    assert.deepEqual(outcomes.map(({ status }) => status), ['fulfilled', 'rejected', 'rejected']);
    assert.equal(outcomes[1].reason.status, 'in_use');
    assert.equal(await stream.tryNext(), undefined);
  }));

test('a cursor keeps what was not read', () =>
  withPath(async (at) => {
    let pool = await openJournal(at);
    let tree = await pool.tree('t', 'u64', 'bytes');
    const begun = await pool.createCursor('audit');
    for (const name of ['audit', 'a/b', '', 'a\0b', 7]) await assert.rejects(pool.createCursor(name), failsWith('usage'));
    for (let key = 0n; key < 10n; key++) await tree.put(key, Uint8Array.of(1));
    await pool.checkpoint();
    let stream = await pool.changesOf('audit');
    await assert.rejects(pool.changesOf('audit'), failsWith('in_use'));
    let last;
    for (let count = 0; count < 5; count++) last = await stream.tryNext();
    await stream.advance(last.nextLsn);
    await assert.rejects(stream.advance(begun), failsWith('usage'));
    await assert.rejects(stream.advance(7), failsWith('usage'));
    await assert.rejects((await pool.changes({ from: last.nextLsn })).advance(last.nextLsn), failsWith('usage'));
    await pool.close();

    pool = await openJournal(at);
    tree = await pool.tree('t');
    stream = await pool.changesOf('audit');
    assert.deepEqual((await collect(stream)).map(({ changes }) => changes[0].key), [5n, 6n, 7n, 8n, 9n]);
    const [cursor] = await pool.cursors();
    assert.ok(cursor.name === 'audit' && cursor.lsn === last.nextLsn && !cursor.dropped && cursor.time instanceof Date);
    await isLost(pool, tree, stream);
    await pool.close();
  }));

/** Asserts that a consumer that does not advance loses its cursor. */
async function isLost(pool, tree, stream) {
  for (let key = 0n; key < 600n; key++) await tree.put(key % 8n, new Uint8Array(100_000));
  await pool.checkpoint();
  await pool.checkpoint();
  const error = await collect(stream.follow()).catch((thrown) => thrown);
  assert.ok(error instanceof BristleconeError && error.status === 'pruned' && error.oldestLsn > 0n);
  // All later calls throw the error.
  await assert.rejects(stream.tryNext(), failsWith('pruned'));
  await assert.rejects(pool.changesOf('audit'), failsWith('pruned'));
  await pool.dropCursor('audit');
  await assert.rejects(pool.dropCursor('audit'), failsWith('absent'));
  await assert.rejects(pool.changesOf('audit'), failsWith('absent'));
  const { oldestLsn } = await pool.journalStatus();
  await assert.rejects(pool.changes(), { ...failsWith('pruned'), oldestLsn });
  await pool.changes({ from: oldestLsn });
}

test('closing ends a follower', () =>
  withPath(async (at) => {
    for (let round = 0; round < 6; round++) {
      const pool = await openJournal(at);
      const stream = await pool.changes();
      const ended = assert.rejects(collect(stream.follow()), failsWith('closed'));
      await sleep(5 * round);
      if (round % 2 === 0) await stream.close();
      await pool.close();
      await ended;
      const calls = [() => stream.tryNext(), () => stream.advance(0n), () => collect(stream), () => pool.changes(), () => pool.changesOf('c'),
        () => pool.createCursor('c'), () => pool.cursors(), () => pool.dropCursor('c')];
      for (const call of calls) await assert.rejects(call(), failsWith('closed'));
      await stream.close();
    }
  }));

test('a pool without a journal has no stream', () =>
  withPool(async (pool) => {
    await assert.rejects(pool.changes(), failsWith('usage'));
    await assert.rejects(pool.changesOf('c'), failsWith('usage'));
    await assert.rejects(pool.createCursor('c'), failsWith('usage'));
    await assert.rejects(pool.cursors(), failsWith('absent'));
  }));

test('unreachable streams are closed, and garbage collection spares followers', { skip: !global.gc }, () =>
  withJournal(async (pool) => {
    const tree = await pool.tree('t', 'u64', 'u64');
    await pool.createCursor('audit');
    await (async () => void (await pool.changesOf('audit')))();
    for (let attempt = 0; ; attempt++) {
      global.gc();
      await sleep(5);
      const stream = await pool.changesOf('audit').catch((error) => error);
      if (!(stream instanceof Error)) break;
      assert.equal(stream.status, 'in_use');
      assert.ok(attempt < 1000, 'the stream stays open');
    }
    const collector = setInterval(global.gc, 1);
    const following = (await pool.changes()).follow();
    for (let key = 0n; key < 100n; key++) {
      await tree.put(key, key);
      await following.next();
    }
    clearInterval(collector);
  }));

test('a worker that ends while it follows leaves no pool open', () =>
  withPath(async (at) => {
    const program = `
      const { open } = require(${JSON.stringify(path.join(__dirname, '..'))});
      const { parentPort, workerData } = require('node:worker_threads');
      open(workerData, { create: true, maxBytes: ${MAX_BYTES}, domain: 'journal' }).then(async (pool) => {
        await pool.tree('t', 'u64', 'u64');
        for await (const _ of (await pool.changes()).follow()) parentPort.postMessage('ready');
      });`;
    for (let round = 0; round < 3; round++) {
      const worker = new Worker(program, { eval: true, workerData: at });
      await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject));
      await worker.terminate();
      await (await open(at, { wait: 10_000 })).close();
    }
  }));
