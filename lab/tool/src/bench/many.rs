//! Multi-key calls: the measured loop, a group at a time.

use bristlecone::Error;
use bristlecone_cli::interrupt;

use super::data::{BenchKey, BenchValue, Buffer, Shape};
use super::latency::ticks;
use super::samples::{Answers, Samples};
use super::stream::Stream;
use super::subject::{Subject, look};
use super::workload::Op;

/// Buffers for the keys and values of a group.
pub struct Buffers {
    keys: Vec<Buffer>,
    values: Vec<Buffer>,
}

impl Buffers {
    /// Creates buffers for `group` items.
    pub fn new(group: usize, key: Shape, value: Shape) -> Self {
        let room = |shape: Shape| (0..group).map(|_| shape.buffer()).collect();
        Self { keys: room(key), values: room(value) }
    }

    fn keys<'b, K: BenchKey>(&'b mut self, ids: &[u64]) -> Vec<K::Ref<'b>> {
        self.keys.iter_mut().zip(ids).map(|(buffer, id)| K::make(*id, buffer)).collect()
    }

    fn items<'b, K: BenchKey, V: BenchValue>(
        &'b mut self,
        ids: &[u64],
        version: impl Fn(usize) -> u64,
    ) -> Vec<(K::Ref<'b>, V::Ref<'b>)> {
        let buffers = self.keys.iter_mut().zip(&mut self.values).zip(ids).enumerate();
        buffers
            .map(|(at, ((key, value), id))| (K::make(*id, key), V::make(*id, version(at), value)))
            .collect()
    }
}

/// Runs one call for each group of keys, and times the first one of every batch.
pub fn drive<K: BenchKey, V: BenchValue>(
    subject: &impl Subject<K, V>,
    op: Op,
    stream: &Stream,
    buffers: &mut Buffers,
    samples: &mut Samples,
) -> Result<Answers, Error> {
    let group = buffers.keys.len();
    let batch = samples.batch.next_multiple_of(group);
    let mut answers = Answers::default();
    for (number, ids) in stream.ids.chunks(group).enumerate() {
        let at = number * group;
        let timed = at.is_multiple_of(batch);
        let before = if timed { ticks() } else { 0 };
        call::<K, V>(subject, op, (at as u64, ids), buffers, &mut answers)?;
        if timed {
            samples.took.push(ticks().wrapping_sub(before));
            samples.began.push(before);
            if interrupt::asked() {
                break;
            }
        }
    }
    Ok(answers)
}

#[inline(always)]
fn call<K: BenchKey, V: BenchValue>(
    subject: &impl Subject<K, V>,
    op: Op,
    (at, ids): (u64, &[u64]),
    buffers: &mut Buffers,
    answers: &mut Answers,
) -> Result<(), Error> {
    match op {
        Op::GetMany => {
            let Buffers { keys, values } = buffers;
            let keys: Vec<_> = keys.iter_mut().zip(ids).map(|(buffer, id)| K::make(*id, buffer)).collect();
            let looked = |at: usize, value: V::Ref<'_>| look::<V>(value, ids[at], &values[0]);
            return subject.get_many(&keys, looked, |answer| answers.add(answer));
        }
        Op::InsertMany => subject.insert_many(&buffers.items::<K, V>(ids, |_| 0))?,
        Op::RemoveMany => {
            answers.add_found(subject.remove_many(&buffers.keys::<K>(ids))?);
            return Ok(());
        }
        _ => subject.upsert_many(&buffers.items::<K, V>(ids, |item| at + item as u64))?,
    }
    answers.add_found(ids.len() as u64);
    Ok(())
}
