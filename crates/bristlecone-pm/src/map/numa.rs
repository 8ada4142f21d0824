//! NUMA nodes: which one a thread runs on, and which one memory belongs to. A processor accesses the memory
//! of its own node faster than that of others.

use std::fs::read_to_string;
use std::path::Path;

use crate::sync::raced::Raced;

/// Where Linux lists its nodes.
const NODES: &str = "/sys/devices/system/node";

/// The nodes of a machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    /// The node of each processor; empty on a machine with uniform memory.
    of_cpu: Box<[u16]>,
    asked: Option<Asked>,
}

/// Functions that return the processor of the calling thread and the node of an address.
#[derive(Clone, Copy, Debug)]
struct Asked {
    cpu: fn() -> usize,
    memory: fn(usize) -> Option<u16>,
}

impl Nodes {
    /// Returns the nodes of this machine, determined once.
    pub fn here() -> Self {
        static HERE: Raced<Nodes> = Raced::new();
        HERE.get_or_make(|| Box::new(Self::listed(Path::new(NODES)))).clone()
    }

    fn listed(directory: &Path) -> Self {
        let mut of_cpu = Vec::new();
        let mut nodes = 0;
        for node in 0..u16::MAX {
            let cpus = directory.join(format!("node{node}/cpulist"));
            // Numbers may have gaps, but not large ones.
            let Ok(cpus) = read_to_string(cpus) else {
                if usize::from(node) > of_cpu.len() + 64 {
                    break;
                }
                continue;
            };
            nodes += 1;
            for cpu in numbers(&cpus) {
                of_cpu.resize(of_cpu.len().max(cpu + 1), 0);
                of_cpu[cpu] = node;
            }
        }
        if nodes > 1 {
            Self::of(of_cpu, rustix::thread::sched_getcpu, node_of_memory)
        } else {
            Self::default()
        }
    }

    /// Returns a machine with the given node per processor; `cpu` returns the processor of the calling thread
    /// and `memory` the node of an address.
    pub fn of(of_cpu: Vec<u16>, cpu: fn() -> usize, memory: fn(usize) -> Option<u16>) -> Self {
        Self { of_cpu: of_cpu.into(), asked: Some(Asked { cpu, memory }) }
    }

    /// Returns the node on which the calling thread currently runs.
    pub fn of_thread(&self) -> u16 {
        self.asked.and_then(|asked| self.of_cpu.get((asked.cpu)())).copied().unwrap_or(0)
    }

    /// Returns the node of memory that was written to, or the calling thread's node if it is unknown.
    pub fn of_memory<T>(&self, at: &T) -> u16 {
        let Some(asked) = self.asked else { return 0 };
        (asked.memory)(std::ptr::from_ref(at).addr()).unwrap_or_else(|| self.of_thread())
    }
}

/// Parses a list of numbers in Linux's format, `0-3,8`.
fn numbers(list: &str) -> impl Iterator<Item = usize> {
    list.trim()
        .split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
        })
        .flatten()
}

/// Returns the node that holds the page at an address.
fn node_of_memory(address: usize) -> Option<u16> {
    const NODE_OF_ADDRESS: libc::c_ulong = 1 | 2;
    let mut node: libc::c_int = -1;
    let nothing = std::ptr::null_mut::<libc::c_ulong>();
    // SAFETY: with these flags the kernel writes one int and reads nothing; any address will do.
    let failed = unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut node, nothing, 0_usize, address, NODE_OF_ADDRESS)
    };
    u16::try_from(node).ok().filter(|_| failed == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let listed = |list| numbers(list).collect::<Vec<_>>();
        assert_eq!(listed("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert!(listed("\n").is_empty());
    }

    #[test]
    fn processors_have_nodes() {
        let directory = std::env::temp_dir().join(format!("bristlecone-nodes-{}", std::process::id()));
        for (node, cpus) in [("node0", "0,2\n"), ("node2", "1,3\n")] {
            std::fs::create_dir_all(directory.join(node)).unwrap();
            std::fs::write(directory.join(node).join("cpulist"), cpus).unwrap();
        }
        let nodes = Nodes::listed(&directory);
        std::fs::remove_dir_all(directory).unwrap();
        assert_eq!(*nodes.of_cpu, [0, 2, 0, 2]);
    }

    #[test]
    fn memory_has_the_node_that_linux_says() {
        let word = Box::new(7_u64);
        // If the system does not answer, or has one node, the result is the first node or unknown.
        let node = node_of_memory(std::ptr::from_ref(&*word).addr());
        let most = std::fs::read_dir(NODES).map_or(1, |all| all.count());
        assert!(node.is_none_or(|node| usize::from(node) < most), "{node:?}");
    }
}
