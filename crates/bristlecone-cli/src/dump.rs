//! Header and trailer lines of a dump, with which `load` creates the same tree and detects missing lines.
//!
//! ```text
//! {"bristlecone_dump":1,"version":"0.1.0","tree":"ages","number":1,"of":1,"design":"sstree",…,"format":"tsv"}
//! Methuselah⇥4857
//! {"bristlecone_end":"ages","entries":1,"crc32c":"1c7f8a5e"}
//! ```
//!
//! A header or trailer line begins with `{"bristlecone_` and contains no tab. No line of data has this form:
//! one of TSV contains a tab, a field of CSV with a quote begins with one, and an entry in JSON begins with
//! `{"key"`.

use std::collections::BTreeMap;
use std::time::Duration;

use bristlecone_cli::failure::{Failure, Outcome};
use serde::{Deserialize, Serialize};

use crate::format::Format;
use crate::store::TreeInfo;
use crate::tree_args::TreeArgs;

/// The version of the format that this tool writes, and the newest that it reads.
const VERSION: u32 = 1;

/// The line before the entries of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    bristlecone_dump: u32,
    /// The version of the tool that wrote it.
    version: String,
    /// The tree's name.
    pub tree: String,
    /// Index of the tree in the dump, counted from 1.
    pub number: u64,
    /// Number of trees in the dump.
    pub of: u64,
    design: String,
    key: String,
    value: String,
    options: BTreeMap<String, u64>,
    /// Milliseconds that a value lives if its write names no expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expire_after_ms: Option<u64>,
    /// Number of entries of the tree.
    pub entries: u64,
    /// Format of its lines.
    pub format: Format,
}

/// The line after the entries of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trailer {
    /// The tree's name.
    pub bristlecone_end: String,
    /// Number of entries between header and trailer.
    pub entries: u64,
    /// CRC-32C of their lines, including line ends.
    pub crc32c: String,
}

/// A header or trailer line.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    Header(Header),
    Trailer(Trailer),
}

impl Header {
    /// Describes a tree.
    pub fn new(info: &TreeInfo, entries: u64, format: Format, (number, of): (u64, u64)) -> Self {
        Self {
            bristlecone_dump: VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            tree: info.name.clone(),
            number,
            of,
            design: info.design.to_string(),
            key: info.key_kind.clone(),
            value: info.value_kind.clone(),
            options: info.options.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            expire_after_ms: info.expire_after_ms,
            entries,
            format,
        }
    }

    /// Returns the properties of the tree.
    pub fn shape(&self) -> Outcome<TreeArgs> {
        let wrong = |what: String| Failure::usage(format!("the dump of {:?}: {what}", self.tree));
        Ok(TreeArgs {
            design: Some(self.design.parse().map_err(|error| wrong(format!("{error}")))?),
            key: Some(self.key.parse().map_err(|error| wrong(format!("{error}")))?),
            value: Some(self.value.parse().map_err(|error| wrong(format!("{error}")))?),
            options: self.options.clone().into_iter().collect(),
            expire_after: self.expire_after_ms.map(Duration::from_millis),
        })
    }
}

impl Trailer {
    /// Returns the trailer for a tree's entries.
    pub fn new(tree: &str, sum: Sum) -> Self {
        Self { bristlecone_end: tree.to_owned(), entries: sum.entries, crc32c: format!("{:08x}", sum.crc) }
    }
}

/// Number and checksum of lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    pub entries: u64,
    crc: u32,
}

impl Sum {
    /// Adds a line or a part of one, including its end.
    pub fn add(&mut self, text: &[u8]) {
        self.crc = crc32c::crc32c_append(self.crc, text);
    }

    /// Describes how the lines differ from their `trailer`; `None` if they match.
    pub fn differs(&self, header: &Header, trailer: &Trailer) -> Option<String> {
        let tree = &header.tree;
        if &trailer.bristlecone_end != tree {
            return Some(format!("the entries of {tree:?} end as those of {:?}", trailer.bristlecone_end));
        }
        if self.entries != trailer.entries {
            let (found, written) = (self.entries, trailer.entries);
            return Some(format!("{tree:?} has {found} entries here, and {written} were written"));
        }
        let same = format!("{:08x}", self.crc) == trailer.crc32c;
        (!same).then(|| format!("the entries of {tree:?} were changed: their checksum differs"))
    }
}

/// Parses a header or trailer line, given without its end. Returns `None` for a line of data.
pub fn frame(line: &[u8]) -> Option<Result<Frame, String>> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if !line.starts_with(b"{\"bristlecone_") || line.contains(&b'\t') {
        return None;
    }
    Some(read_frame(line))
}

fn read_frame(line: &[u8]) -> Result<Frame, String> {
    #[derive(Deserialize)]
    struct Version {
        bristlecone_dump: u32,
    }
    if line.starts_with(b"{\"bristlecone_end\"") {
        return serde_json::from_slice(line)
            .map(Frame::Trailer)
            .map_err(|error| format!("end of a dump: {error}"));
    }
    let wrong = |error| format!("header of a dump: {error}");
    let version = serde_json::from_slice::<Version>(line).map_err(wrong)?.bristlecone_dump;
    if version > VERSION {
        return Err(format!("the dump is of version {version}: load it with a newer bristlecone"));
    }
    serde_json::from_slice(line).map(Frame::Header).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let info = TreeInfo {
            name: "a\tb".to_owned(),
            design: bristlecone::Design::SsTree,
            key_kind: "str".to_owned(),
            value_kind: "u64".to_owned(),
            options: vec![("max_subnodes", 4)],
            expire_after_ms: Some(900_000),
        };
        Header::new(&info, 7, Format::Csv, (2, 3))
    }

    #[test]
    fn frames_are_read_as_written() {
        let text = serde_json::to_vec(&header()).unwrap();
        assert_eq!(frame(&text), Some(Ok(Frame::Header(header()))));
        assert_eq!(header().shape().unwrap().options, [("max_subnodes".to_owned(), 4)]);
        assert_eq!(header().shape().unwrap().expire_after, Some(Duration::from_secs(900)));
        let mut sum = Sum { entries: 1, crc: 0 };
        sum.add(b"x\t1\n");
        let trailer = Trailer::new("a\tb", sum);
        let text = serde_json::to_vec(&trailer).unwrap();
        assert_eq!(frame(&text), Some(Ok(Frame::Trailer(trailer.clone()))));
        assert_eq!(sum.differs(&header(), &trailer), None);
        sum.add(b"y");
        assert!(sum.differs(&header(), &trailer).unwrap().contains("checksum"));
    }

    #[test]
    fn data_is_no_frame() {
        for line in
            ["", "a\tb", "{\"bristlecone_end\":1}\tx", "\"{\"\"bristlecone_end\"\"\",x", "{\"key\":1}"]
        {
            assert_eq!(frame(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn a_newer_or_broken_frame_is_refused() {
        let newer = frame(b"{\"bristlecone_dump\":2,\"zones\":[]}").unwrap().unwrap_err();
        assert!(newer.contains("version 2"), "{newer}");
        assert!(frame(b"{\"bristlecone_dump\":1,\"tree\":").unwrap().is_err());
        assert!(frame(b"{\"bristlecone_end\":7}").unwrap().is_err());
    }
}
