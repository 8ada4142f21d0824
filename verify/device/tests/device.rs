//! Tests the device model against experiments with known results.

use std::sync::Arc;

use bristlecone_device::{Counted, Device, Layout, Processor, Profile, Times};
use bristlecone_pm::{Domain, Geometry, LINE_BYTES, Part, Persist, PoolFile, Region};

const WRITE: u8 = 1;
const READ: u8 = 2;
const THREADS: [usize; 3] = [1, 16, 48];

/// A device with a pool on it, whose chunks can be written.
struct Bare {
    device: Device,
    pool: Arc<PoolFile<Device>>,
    start: u64,
    bytes: u64,
}

impl Bare {
    fn new(profile: Profile, domain: Domain) -> Self {
        let geometry = Geometry { chunk_bytes: 2 << 20, chunks_max: 512, trees_max: 2 };
        let region = Region::memory(geometry.max_bytes()).unwrap();
        let processor = Processor { cache_bytes: 1 << 20, ..Processor::default() };
        let device = Device::new(
            &region,
            Layout { geometry, part_of: |_| None },
            domain,
            profile,
            processor,
            &THREADS,
        );
        let pool = PoolFile::create_in(region, geometry, domain, device.clone()).unwrap();
        device.take();
        let start = geometry.header_bytes();
        Self { device, pool, start, bytes: geometry.max_bytes() - start }
    }

    /// Writes `lines` lines of each of `units` random media lines, flushes them and waits, `times`
    /// times.
    fn write(&self, lines: u64, units: u64, times: u64) -> Counted {
        let (medium, unit_bytes) = (self.pool.medium(), 256);
        let mut random = 1u64;
        for _ in 0..times {
            self.device.operation(WRITE, || {
                let mut flushed = bristlecone_pm::Flushed::none();
                for _ in 0..units {
                    random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    let unit = (random >> 20) % (self.bytes / unit_bytes);
                    for line in 0..lines {
                        let at = self.start + unit * unit_bytes + line * LINE_BYTES as u64;
                        let word = &self.pool.words(at, 1)[0];
                        word.store(medium, 1);
                        flushed = flushed.and(medium.flush(word, "line"));
                    }
                }
                (drop(medium.fence(flushed, "lines")), lines * units * 64)
            });
        }
        self.device.take()
    }
}

/// Returns microseconds per operation on the clock with `threads` threads.
fn microseconds(counted: &Counted, threads: usize) -> f64 {
    let times = counted.times.iter().find(|times| times.threads == threads).unwrap();
    times.seconds * 1e6 / counted.tallies[WRITE].operations as f64
}

/// CCL-BTree, figure 2 (a): N lines of one media line. (b): 4 lines of each of N media lines. The
/// paper's machine has four modules a socket.
#[test]
fn device_flush_of_any_lines_writes_whole_media_lines() {
    const TIMES: u64 = 100_000;
    let run = |lines, units| {
        let profile = Profile { modules: 4, ..Profile::OPTANE };
        let counted = Bare::new(profile, Domain::Adr).write(lines, units, TIMES);
        let tally = counted.tallies[WRITE];
        let total = tally.total();
        let flushed = lines * units * TIMES;
        assert_eq!((total.flushes, tally.fences, total.lines_written), (flushed, TIMES, flushed));
        assert_eq!(total.device_bytes_written, flushed * 64);
        // Occasionally two random media lines are equal, and merge in the buffer.
        let media = total.media_bytes_written as f64 / (TIMES * units * 256) as f64;
        assert!((0.99..=1.0).contains(&media), "{lines} lines of {units}: {media}");
        counted
    };
    let one_line = [1, 2, 3, 4].map(|lines| run(lines, 1));
    let units = [1, 2, 3, 4].map(|units| run(4, units));
    println!("threads: us an operation, 1-4 lines of one media line; 4 lines of 1-4 media lines");
    for threads in THREADS {
        let table = |runs: &[Counted; 4]| runs.each_ref().map(|run| microseconds(run, threads));
        println!("{threads:>7}: {:.3?}; {:.3?}", table(&one_line), table(&units));
    }
    let ratio =
        |runs: &[Counted; 4], threads| microseconds(&runs[3], threads) / microseconds(&runs[0], threads);
    // One thread waits for each line; many threads wait for the media, for which four lines cost the
    // same as one.
    assert!(ratio(&one_line, 1) > 1.5, "{}", ratio(&one_line, 1));
    assert!((0.95..1.05).contains(&ratio(&one_line, 48)), "{}", ratio(&one_line, 48));
    assert!((3.8..4.2).contains(&ratio(&units, 48)), "{}", ratio(&units, 48));
}

#[test]
fn device_profiles_differ_in_media_bytes_written() {
    for (profile, domain, bytes) in [
        (Profile::OPTANE, Domain::Adr, 256),
        (Profile::CXL_SSD, Domain::Adr, 4096),
        (Profile::NVDIMM, Domain::Adr, 64),
        (Profile::OPTANE, Domain::Eadr, 256),
    ] {
        let counted = Bare::new(profile, domain).write(1, 1, 50_000);
        let tally = counted.tallies[WRITE];
        let total = tally.total();
        let each = total.media_bytes_written as f64 / tally.operations as f64;
        assert!((0.97..=1.0).contains(&(each / f64::from(bytes))), "{profile}, {domain}: {each}");
        assert_eq!(total.flushes, if domain == Domain::Eadr { 0 } else { 50_000 });
        assert_eq!(tally.fences, 50_000);
        assert!(total.device_bytes_written >= 49_000 * 64, "{profile}, {domain}: evicted lines count");
        assert_eq!(counted.tallies.sum(), tally, "nothing is written but by operations");
    }
}

#[test]
fn device_eadr_writes_a_hot_line_once() {
    let bare = Bare::new(Profile::OPTANE, Domain::Eadr);
    let (medium, word) = (bare.pool.medium(), &bare.pool.words(bare.start, 1)[0]);
    for value in 0..1000 {
        bare.device.operation(WRITE, || {
            word.store(medium, value);
            (medium.persist(word, "hot"), 8)
        });
    }
    let total = bare.device.take().tallies[WRITE].total();
    assert_eq!((total.lines_written, total.device_bytes_written), (1000, 64));
    assert_eq!((total.media_bytes_written, total.media_bytes_read), (256, 256));
}

#[test]
fn device_reads_are_counted_by_line_and_by_media_line() {
    let bare = Bare::new(Profile::OPTANE, Domain::Adr);
    let medium = bare.pool.medium();
    bare.device.operation(READ, || {
        for at in 0..64 {
            bare.pool.words(bare.start, 64)[at].load(medium);
            bare.pool.words(bare.start, 64)[at].load(medium);
        }
        ((), 0)
    });
    bare.device.operation(READ, || (bare.pool.words(bare.start, 1)[0].load(medium), 0));
    let counted = bare.device.take();
    let (tally, total) = (counted.tallies[READ], counted.tallies[READ].total());
    assert_eq!((tally.operations, total.lines_read), (2, 8 + 1), "an operation begins with no line read");
    assert_eq!(total.media_bytes_read, 512, "the cache still has the line at the second operation");
    assert_eq!((tally.part(Part::Other), tally.part(Part::Leaf)), (total, Default::default()));
}

#[test]
fn clock_more_threads_never_take_longer_up_to_the_limit_of_the_media() {
    let counted = Bare::new(Profile::OPTANE, Domain::Adr).write(1, 1, 100_000);
    let times = THREADS.map(|threads| microseconds(&counted, threads));
    assert!(times.is_sorted_by(|more, fewer| more >= fewer), "{times:?}");
    // Six modules, each busy for 39 + 111 ns with a random line: 25 ns an operation.
    assert!((0.025..0.027).contains(&times[2]), "{times:?}");
    assert!(times[0] > 0.6, "one thread shares its latency with no other: {times:?}");
}

/// The times of one thread's operations add up to the total; with more threads they take longer.
#[test]
fn clock_latencies_of_one_thread_add_up_to_the_whole_time() {
    let bare = Bare::new(Profile::OPTANE, Domain::Adr);
    let counted = bare.write(1, 2, 30_000);
    let mean = |times: &Times| {
        assert_eq!(times.latencies[&WRITE].len(), 30_000, "{} threads", times.threads);
        times.latencies[&WRITE].mean()
    };
    let (one, many) = (&counted.times[0], &counted.times[2]);
    let sum = mean(one) * 30_000.0 / 1e9;
    assert!((sum / one.seconds - 1.0).abs() < 0.01, "{sum} s, {} s", one.seconds);
    assert!(mean(many) > 2.0 * mean(one), "{} and {} ns", mean(one), mean(many));
}

/// One thread reads uncached lines, each after it prefetched the line `ahead` positions further; returns
/// microseconds per line, and bytes that the media read.
fn read_ahead(ahead: u64) -> (f64, u64) {
    const LINES: u64 = 20_000;
    let bare = Bare::new(Profile::OPTANE, Domain::Adr);
    let line = |n: u64| bare.start + n * 13 % (bare.bytes / 256) * 256;
    bare.device.operation(WRITE, || {
        for n in 0..LINES {
            if ahead > 0 {
                bare.pool.prefetch(line(n + ahead));
            }
            bare.pool.words(line(n), 1)[0].load(bare.pool.medium());
        }
        ((), 0)
    });
    let counted = bare.device.take();
    (microseconds(&counted, 1) / LINES as f64, counted.tallies[WRITE].total().media_bytes_read)
}

#[test]
fn clock_prefetched_lines_arrive_together_and_cost_the_media_as_much() {
    let [alone, next, far, too_far] = [0, 1, 8, 64].map(read_ahead);
    assert!((0.30..0.31).contains(&alone.0), "one after the other: {alone:?}");
    assert!((0.14..0.17).contains(&next.0), "two at a time: {next:?}");
    // At most ten are outstanding; six modules are busy for 39 ns with each.
    assert!((0.03..0.04).contains(&far.0), "nine at a time: {far:?}");
    assert!((0.03..0.04).contains(&too_far.0), "more than there are fill buffers for: {too_far:?}");
    for (ahead, of) in [(1, next), (8, far), (64, too_far)] {
        assert_eq!(of.1, alone.1 + ahead * 256, "{ahead} ahead");
    }
}

#[test]
fn clock_prefetch_in_time_hides_the_read_and_too_late_saves_nothing() {
    let bare = Bare::new(Profile::OPTANE, Domain::Adr);
    let first = &bare.pool.words(bare.start + (1 << 20), 1)[0];
    let run = |access: &dyn Fn()| {
        bare.device.operation(WRITE, || (access(), 0));
        microseconds(&bare.device.take(), 1)
    };
    let cold = run(&|| _ = first.load(bare.pool.medium()));
    let warm = run(&|| _ = first.load(bare.pool.medium()));
    assert!((cold, warm) == (0.605, 0.320), "{cold}, {warm}");
    let other = bare.start + (2 << 20);
    let late = run(&|| {
        bare.pool.prefetch(other);
        bare.pool.words(other, 1)[0].load(bare.pool.medium());
    });
    assert_eq!(late, cold, "what is asked for at once is not there earlier");
    let useless = run(&|| bare.pool.prefetch(bare.start + (3 << 20)));
    assert_eq!(useless, 0.339, "only the media do");
    assert_eq!(run(&|| bare.pool.prefetch(u64::MAX)), 0.3, "no such line");
}

/// Writes one word repeatedly; returns microseconds per write on one thread.
fn hot(profile: Profile) -> f64 {
    const TIMES: u64 = 2000;
    let bare = Bare::new(profile, Domain::Adr);
    let (medium, word) = (bare.pool.medium(), &bare.pool.words(bare.start, 1)[0]);
    for value in 0..TIMES {
        bare.device.operation(WRITE, || {
            word.store(medium, value);
            (medium.persist(word, "hot"), 8)
        });
    }
    microseconds(&bare.device.take(), 1)
}

#[test]
fn device_delays_a_flush_of_the_line_that_was_flushed_before() {
    let plain = hot(Profile::OPTANE);
    let delayed = hot(Profile { reflush_ns: 5000.0, ..Profile::OPTANE });
    assert!(plain < 0.5 && (4.9..5.1).contains(&delayed), "{plain} {delayed}");
    // Other lines are not delayed.
    let scattered = |profile| microseconds(&Bare::new(profile, Domain::Adr).write(1, 1, 5000), 1);
    let ratio = scattered(Profile { reflush_ns: 5000.0, ..Profile::OPTANE }) / scattered(Profile::OPTANE);
    assert!((0.99..1.05).contains(&ratio), "{ratio}");
}

#[test]
fn device_reads_again_what_a_flush_took_out_of_the_cache() {
    let (plain, evicts) = (hot(Profile::OPTANE), hot(Profile { clwb_evicts: true, ..Profile::OPTANE }));
    // The line is read back from the write buffer.
    assert!((0.13..0.17).contains(&(evicts - plain)), "{plain} {evicts}");
}

#[test]
fn device_options_slow_many_threads_down_as_they_say() {
    let times = |lines, profile: Profile| {
        let counted = Bare::new(profile, Domain::Adr).write(lines, 1, 50_000);
        [1, 48].map(|threads| microseconds(&counted, threads))
    };
    let optane = Profile::OPTANE;
    let plain = times(4, optane);
    // Six modules, each busy for 4 * 100 ns with arriving lines, and the same for lines read before: at
    // least 400 / 6.
    let lines = times(4, Profile { line_ns: 100.0, ..optane });
    assert!(lines[1] > 0.066 && lines[1] > 2.0 * plain[1], "{plain:?} {lines:?}");
    let writers = times(4, Profile { write_slowdown: 0.1, ..optane });
    // 44 threads too many: 111 ns become 599.
    assert!(writers[0] == plain[0] && (3.0..6.0).contains(&(writers[1] / plain[1])), "{plain:?} {writers:?}");
    let shared = times(4, Profile { shared_queue: true, ..optane });
    assert!(shared[0] >= plain[0] && shared[1] > plain[1], "{plain:?} {shared:?}");
    // Random eviction separates lines that are written together.
    let written = |random_eviction| {
        let profile = Profile { random_eviction, modules: 1, ..optane };
        let bare = Bare::new(profile, Domain::Adr);
        let medium = bare.pool.medium();
        for at in 0..60_000u64 {
            // Four lines of each media line in turn, with thirty others in between.
            let unit = at / 120 * 30 + at % 30;
            let word = &bare.pool.words(bare.start + unit * 256 + at / 30 % 4 * 64, 1)[0];
            bare.device.operation(WRITE, || {
                word.store(medium, at);
                (medium.persist(word, "part"), 64)
            });
        }
        bare.device.take().tallies[WRITE].total().media_bytes_written
    };
    assert_eq!(written(false), 15_000 * 256);
    assert!(written(true) > 15_100 * 256, "{}", written(true));
}
