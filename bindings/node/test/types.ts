import { BristleconeError, open } from '..';

export async function typed(): Promise<void> {
  const pool = await open('/dev/shm/trees.pool', { create: true, maxBytes: 1n << 30n });
  const ages = await pool.tree('ages', 'str', 'u64');
  const age: bigint | undefined = await ages.get('Methuselah');
  await ages.put('Methuselah', (age ?? 0n) + 1n);
  // @ts-expect-error A word is a BigInt.
  await ages.put('Methuselah', 1);
  // @ts-expect-error A key is a string.
  ages.getSync(1n);
  const arrays = await pool.createTree('arrays', '[u8; 4]', 'f64', { design: 'nbtree', options: { leaf_items: 15 } });
  for await (const [key, value] of arrays.scan({ from: new Uint8Array(4), reverse: true, limit: 3 })) {
    const both: [Uint8Array, number] = [key, value];
    void both;
  }
  const sessions = await (await pool.createTree('sessions', 'str', 'Expiring<u64>', { expireAfter: 3_600_000 })).expiring();
  await sessions.put('ada', 7n, { expires: new Date() });
  const session: bigint | undefined = sessions.getSync('ada');
  void session;
  // @ts-expect-error A time is no string.
  await sessions.setExpiry('ada', { expires: 'tomorrow' });
  const outcome = await ages.insert('Pando', 80_000n);
  if (!outcome.inserted) outcome.present.toString(16);
  const sum: bigint = await pool.transact((tx) => (tx.get(ages, 'Pando') ?? 0n) + 1n);
  void sum;
  try {
    await pool.batch().expect(ages, 'Pando', undefined).put(ages, 'Pando', 1n).commit();
  } catch (error) {
    if (error instanceof BristleconeError && error.status === 'conflict') return;
    // @ts-expect-error There is no such status.
    if (error instanceof BristleconeError && error.status === 'conflicts') throw error;
  }
}
