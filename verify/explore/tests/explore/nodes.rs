//! Nodes of the index that lose their last leaf and are reused elsewhere, while other threads are on their way to them.

use bristlecone_explore::proofs::nbtree::{SLOTS, small};
use bristlecone_explore::targets::{Items, Texts, Words};
use bristlecone_matrix::by_level;
use bristlecone_sim::{Access, Operation, Plan, Way};

use crate::effort::schedules;
use crate::planned::raced;

/// Result of an ascending load: full leaves, in full nodes. The fields are numbers of items, nodes and leaves.
struct Filled {
    items: u64,
    leaves: u64,
    nodes: u64,
}

/// Number of nodes above which hints exist.
const HINTED: u64 = 34;

impl Filled {
    /// Returns a plan in which a node has only one leaf left, with one key, which a thread removes: the node is freed.
    /// The same thread then writes to full leaves of a full node behind it, whose new half takes the freed node. Others
    /// look that key up meanwhile, write it, and scan all keys; where there are hints, the one for that key leads to
    /// the node before.
    fn serve_elsewhere(&self, draw: &mut dyn FnMut(usize) -> usize) -> Plan {
        let of_node = self.items * self.leaves;
        let key = |at: u64| 2 * at;
        let all = of_node * self.nodes + self.items * 2;
        let is_hinted = self.nodes >= HINTED;
        let mut before: Vec<_> = (0..all).map(|at| (key(at), Access::Insert(at))).collect();
        // The second of four nodes, and sometimes a leaf on each side.
        let beside = |draw: usize| if draw == 0 { self.items } else { 0 };
        let (from, to) = (of_node - beside(draw(4)), 2 * of_node + beside(draw(4)));
        // The keys of the first nodes that share a hint are those of a leaf.
        let left = if is_hinted {
            of_node + draw(self.items as usize) as u64
        } else {
            of_node + self.items + draw((of_node - 2 * self.items) as usize) as u64
        };
        let gone = (from..to).filter(|at| *at != left);
        before.extend(gone.map(|at| (key(at), Access::Remove)));
        let left = key(left);
        // The third node: it is split in its middle, behind which leaves have space for misplaced keys.
        let leaf = |number: u64| 2 * of_node + number * self.items;
        let half = self.leaves / 2;
        for number in half..self.leaves {
            before.extend((1..self.items - 1).map(|at| (key(leaf(number) + at), Access::Remove)));
            // Only a replaced leaf has no slots of removed keys.
            before.push((key(leaf(number) + 1) + 1, Access::Insert(900)));
        }
        let mut full = (half - 3..half).map(|number| (key(leaf(number)) + 1, Access::Insert(900)));
        // The full node has no space left, and splits when another leaf does.
        before.extend(full.next());
        let mut filling = vec![Operation::On(left, Access::Remove)];
        if draw(4) == 0 {
            filling.push(Operation::On(left, Access::Insert(900)));
        }
        filling.extend(full.map(|(key, access)| Operation::On(key, access)));
        let mut threads = vec![filling];
        let mut written = 1000;
        for _ in 0..1 + draw(4) / 3 {
            let goes_over_all = !is_hinted && draw(2) == 0;
            let operation = |_| {
                written += 1;
                match draw(8) {
                    _ if goes_over_all => Operation::Scan(Way::draw(draw)),
                    0 => Operation::On(left, Access::Get),
                    1 => Operation::On(left + 1, Access::Insert(written)),
                    _ => Operation::On(left, Access::Upsert(written)),
                }
            };
            let hint = is_hinted.then(|| Operation::On(key(of_node - 2 * self.items), Access::Get));
            let count = if goes_over_all { 2 } else { 4 };
            threads.push(hint.into_iter().chain((0..count).map(operation)).collect());
        }
        Plan::new(before, threads).warm_from(0)
    }
}

/// Explores schedules of a plan, and fails if nodes are rarely freed and reused, or another step is rarely reached.
fn survives<I: Items>(plan: fn(&mut dyn FnMut(usize) -> usize) -> Plan, count: u64, step: Option<&str>) {
    let steps = ["index node.freed", "index node.reused"].into_iter().chain(step);
    raced(small::<I>(), plan, (3, count), &steps.map(|step| (step, 4)).collect::<Vec<_>>());
}

#[test]
fn nodes_of_nbtree_serve_elsewhere() {
    const WORDS: Filled = Filled { items: SLOTS, leaves: 15, nodes: 3 };
    const TEXTS: Filled = Filled { items: SLOTS, leaves: 6, nodes: 3 };
    survives::<Words>(|draw| WORDS.serve_elsewhere(draw), schedules(8000), None);
    survives::<Texts>(|draw| TEXTS.serve_elsewhere(draw), schedules(1000), None);
}

/// A schedule of them writes 3,600 keys first: a quick run has few.
#[test]
fn nodes_that_hints_lead_to_serve_elsewhere() {
    const WORDS: Filled = Filled { items: SLOTS, leaves: 15, nodes: HINTED };
    let step = Some("index step from a hint");
    survives::<Words>(|draw| WORDS.serve_elsewhere(draw), by_level(64, 2000, 20_000), step);
}
