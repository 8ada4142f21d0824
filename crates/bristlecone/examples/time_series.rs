//! Measurements by sensor and time: one tree whose keys are tuples, read by ranges.
//!
//! ```sh
//! cargo run --release --example time_series
//! ```

use std::path::PathBuf;

use bristlecone::{Pool, Result, Tree};

/// Millidegrees by sensor and second. Tuples order by sensor first, so the measurements of one sensor are
/// adjacent.
type Series = Tree<(u32, u64), i64>;

/// Returns the last measurement of a sensor.
fn latest(series: &Series, sensor: u32) -> Result<Option<(u64, i64)>> {
    let last = series.range((sensor, 0)..=(sensor, u64::MAX)).next_back().transpose()?;
    Ok(last.map(|((_, at), value)| (at, value)))
}

/// Returns the mean of a sensor between two times.
fn mean(series: &Series, sensor: u32, from: u64, to: u64) -> Result<Option<i64>> {
    let (mut sum, mut count) = (0, 0);
    for item in series.range((sensor, from)..(sensor, to)) {
        (sum, count) = (sum + item?.1, count + 1);
    }
    Ok((count > 0).then(|| sum / count))
}

/// Removes the measurements of a sensor before a time; returns their number.
fn forget(series: &Series, sensor: u32, before: u64) -> Result<u64> {
    let mut removed = 0;
    for item in series.range((sensor, 0)..(sensor, before)) {
        removed += u64::from(series.remove(item?.0)?.is_some());
    }
    Ok(removed)
}

/// Runs the example.
pub fn main() -> Result<()> {
    const SENSORS: u32 = 8;
    const SECONDS: u64 = 1_000;
    let path = PathBuf::from(format!("/dev/shm/bristlecone-series-{}.pool", std::process::id()));
    let pool = Pool::options().max_bytes(64 << 20).create_new(true).open(&path)?;
    let series: Series = pool.tree("temperatures")?;
    std::thread::scope(|scope| {
        for sensor in 0..SENSORS {
            let series = &series;
            scope.spawn(move || {
                for at in 0..SECONDS {
                    // The previous value is not needed, so designs with buffers can skip reading the leaf.
                    series.upsert((sensor, at), i64::from(sensor) * 1000 - 2000 + at as i64)?;
                }
                Ok::<_, bristlecone::Error>(())
            });
        }
    });
    println!("{} measurements", series.len()?);
    println!("sensor 3 last measured {:?}", latest(&series, 3)?);
    println!("its mean from second 100 to 200 was {:?}", mean(&series, 3, 100, 200)?);
    assert_eq!(latest(&series, 3)?, Some((SECONDS - 1, 1999)));
    assert_eq!(mean(&series, 3, 100, 200)?, Some(1149));
    assert_eq!(mean(&series, SENSORS, 0, SECONDS)?, None);

    let forgotten = forget(&series, 3, 900)?;
    println!("{forgotten} are forgotten, {} are left", series.len()?);
    assert_eq!(forgotten, 900);
    // A range is read leaf by leaf, from both ends: a descending page costs only the items that it returns.
    let newest = series.range((3, 0)..=(3, u64::MAX)).rev().take(3).map(|item| Ok(item?.0.1));
    assert_eq!(newest.collect::<Result<Vec<_>>>()?, [999, 998, 997]);

    drop(series);
    pool.close()?;
    std::fs::remove_file(&path).map_err(|error| bristlecone::Error::io("removing the pool", error))
}
