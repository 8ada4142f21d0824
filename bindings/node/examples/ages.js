'use strict';

// node examples/ages.js [POOL]

const { open } = require('..');

async function main(path = '/dev/shm/ages.pool') {
  const pool = await open(path, { create: true, maxBytes: 64 << 20 });
  try {
    const ages = await pool.tree('ages', 'str', 'u64');
    await ages.put('Methuselah', 4857n);
    await ages.put('Prometheus', 4900n);
    for await (const [name, age] of ages.scan({ from: 'M', before: 'N' })) console.log(name, age);
    await pool.transact((tx) => tx.put(ages, 'Methuselah', tx.get(ages, 'Methuselah') + 1n));
    console.log(await ages.get('Methuselah'));
  } finally {
    await pool.close();
  }
}

main(process.argv[2]);
