//! `bristlecone-lab probe`: the cost of lines on the device itself, without a tree.

use bristlecone::Domain;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::output::Output;
use bristlecone_cli::size;
use bristlecone_device::{Device, Layout, Processor, Profile};
use bristlecone_pm::{CHUNK_BYTES, Flushed, Geometry, LINE_BYTES, Persist, PoolFile, Region};
use bristlecone_random::Generator;
use clap::Args;
use serde_json::{Value, json};

/// Count the cost of writes to random places on a device, without a tree
///
/// Each write stores to lines of randomly chosen media lines, flushes them and waits. This shows
/// which of the two determines a device's time. Counted, and on a virtual clock, like count.
#[derive(Args, Debug)]
pub struct Probe {
    /// Number of lines of every media line that each write flushes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    lines: u16,
    /// Number of media lines of each write.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    media_lines: u16,
    /// Number of threads on the virtual clock.
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Number of writes of all threads together.
    #[arg(long, value_name = "N", default_value = "200k", value_parser = size::parse_count)]
    writes: u64,
    /// The device: optane, cxl-ssd or nvdimm.
    #[arg(long, value_name = "PROFILE", default_value = "optane")]
    profile: Profile,
}

const KIND: u8 = 1;
/// Memory to write to: far more than caches and buffers hold.
const CHUNKS: u64 = 256;

impl Probe {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let report = self.measure()?;
        if output.json() {
            return output.value(&report);
        }
        let number = |name: &str| report[name].as_f64().unwrap_or_default();
        output.line(format_args!(
            "{} lines of each of {} media lines of {}, {} threads on the virtual clock:",
            self.lines, self.media_lines, self.profile, self.threads
        ))?;
        output.line(format_args!(
            "{:.3} us a write and thread, {:.1} B to the device, {:.1} B written by the media",
            number("us"),
            number("device_bytes_written"),
            number("media_bytes_written"),
        ))
    }

    /// Counts, and returns the output of `--json`.
    pub fn measure(&self) -> Outcome<Value> {
        let per_media_line = self.profile.media_line_bytes / LINE_BYTES;
        if usize::from(self.lines) > per_media_line {
            let most = format!("--lines: a media line of {} has {per_media_line}", self.profile);
            return Err(Failure::usage(most));
        }
        let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max: CHUNKS, trees_max: 2 };
        let region = Region::memory(geometry.max_bytes())?;
        // The tree's cache would retain the first reads.
        let processor = Processor { cache_bytes: 1 << 20, ..Processor::default() };
        let threads = [usize::from(self.threads)];
        let layout = Layout { geometry, part_of: |_| None };
        let device = Device::new(&region, layout, Domain::Adr, self.profile, processor, &threads);
        let pool = PoolFile::create_in(region, geometry, Domain::Adr, device.clone())?;
        device.take();
        let (start, medium) = (geometry.header_bytes(), pool.medium());
        let media_line = self.profile.media_line_bytes as u64;
        let media_lines = (geometry.max_bytes() - start) / media_line;
        let mut random = Generator::new(1);
        for _ in 0..self.writes {
            device.operation(KIND, || {
                let mut flushed = Flushed::none();
                for _ in 0..self.media_lines {
                    let first = start + random.word() % media_lines * media_line;
                    for line in 0..u64::from(self.lines) {
                        let word = &pool.words(first + line * LINE_BYTES as u64, 1)[0];
                        word.store(medium, 1);
                        flushed = flushed.and(medium.flush(word, "line"));
                    }
                }
                (drop(medium.fence(flushed, "lines")), 0)
            });
        }
        let counted = device.take();
        let (tally, seconds) = (counted.tallies[KIND], counted.times[0].seconds);
        let each = |bytes: u64| bytes as f64 / self.writes as f64;
        Ok(json!({
            "lines": self.lines,
            "media_lines": self.media_lines,
            "threads": self.threads,
            "writes": self.writes,
            "profile": self.profile.name,
            "us": seconds * 1e6 * f64::from(self.threads) / self.writes as f64,
            "device_bytes_written": each(tally.total().device_bytes_written),
            "media_bytes_written": each(tally.total().media_bytes_written),
        }))
    }
}
