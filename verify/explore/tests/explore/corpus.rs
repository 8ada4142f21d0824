//! Plans of threads with rare coverage: for each subject a file of `corpus/`, whose plans run before any that are
//! drawn. `BRISTLECONE_CORPUS=N` searches for them among N schedules of each subject, including those of the file,
//! and rewrites the file.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bristlecone_pm::Step;
use bristlecone_sim::{Mode, PER_PLAN, Progress, Report, Schedules, Subject};

/// Maximum number of plans drawn, two at a time, when those of a file cover too few pairs.
const FURTHER: u64 = 256;
const AT_ONCE: usize = 16;

type Pairs = BTreeSet<(Step, Step)>;

/// A plan, identified by the seed and its number.
type Plan = (u64, u64);

fn file(subject: &dyn Subject) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    folder.join(format!("{}.txt", subject.name()))
}

/// Returns the plans of a file, and the number of pairs of steps they covered when it was written.
fn read(subject: &dyn Subject) -> (Vec<Plan>, usize) {
    let text = std::fs::read_to_string(file(subject)).unwrap_or_default();
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let covered = lines.next().map_or(0, |line| number(line.trim_end_matches(" pairs of steps")));
    let plan = |line: &str| {
        let (seed, plan) = line.split_once(' ').expect("a seed and a plan");
        (number(seed), number(plan))
    };
    (lines.map(plan).collect(), covered as usize)
}

fn run(subject: &dyn Subject, (seed, plan): Plan, progress: &Progress) -> Report {
    let (first, count) = (plan * PER_PLAN, PER_PLAN);
    let wanted = Schedules { seed, first, count, modes: Mode::ALL.to_vec(), threads: 1 };
    let report = subject.schedules(&wanted, progress).expect("threads share trees");
    report.assert_clean();
    report
}

/// Runs the plans of a subject's file, two at a time. Draws further ones if thread switches have moved since the file
/// was written. Fails if they cover far fewer pairs of steps than the file says.
pub fn run_corpus(subject: &dyn Subject, progress: &Progress) -> Report {
    if let Ok(schedules) = std::env::var("BRISTLECONE_CORPUS") {
        write(subject, schedules.parse().expect("a number of schedules"), progress);
    }
    let (plans, covered) = read(subject);
    let mut total = Report::default();
    let mut run_all = |plans: &[Plan]| {
        in_pairs(plans, &|plan| run(subject, plan, progress))
            .into_iter()
            .for_each(|report| total.merge(report));
        total.pairs.len()
    };
    let mut met = run_all(&plans);
    let mut others: Vec<Plan> =
        (0..FURTHER).map(|plan| (0, plan)).filter(|plan| !plans.contains(plan)).collect();
    while met * 10 < covered * 9 && !others.is_empty() {
        let few = others.split_off(others.len().saturating_sub(AT_ONCE));
        met = run_all(&few);
        println!(
            "{}: {} plans after the corpus, {met} of {covered} pairs of steps",
            subject.name(),
            few.len()
        );
    }
    assert!(met * 10 >= covered * 9, "{}: {covered} pairs of steps were met, now {met}", subject.name());
    total
}

/// Searches for plans that together cover all pairs of steps that any plan does.
fn write(subject: &dyn Subject, schedules: u64, progress: &Progress) {
    let mut plans = read(subject).0;
    plans.extend((0..schedules / PER_PLAN).map(|plan| (0, plan)));
    let found = in_pairs(&plans, &|plan| (plan, run(subject, plan, progress).pairs));
    let mut covered = Pairs::new();
    let mut kept: Vec<(Plan, Pairs)> = Vec::new();
    for (plan, pairs) in found {
        if !pairs.is_subset(&covered) {
            covered.extend(pairs.iter().copied());
            kept.push((plan, pairs));
        }
    }
    // Later ones may make earlier ones unnecessary.
    let mut at = 0;
    while at < kept.len() {
        let others = kept.iter().enumerate().filter(|(other, _)| *other != at);
        let others: Pairs = others.flat_map(|(_, (_, pairs))| pairs.iter().copied()).collect();
        if kept[at].1.is_subset(&others) {
            kept.remove(at);
        } else {
            at += 1;
        }
    }
    let mut text = String::from(
        "# Plans of threads that meet, together, so many pairs: a seed and a plan's number each.\n",
    );
    writeln!(text, "{} pairs of steps", covered.len()).expect("a string");
    kept.iter().for_each(|((seed, plan), _)| writeln!(text, "{seed} {plan}").expect("a string"));
    let file = file(subject);
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder for the corpus");
    std::fs::write(file, text).expect("the corpus");
}

/// Applies the same work to all plans, two at a time, and returns the results in order.
fn in_pairs<T: Send>(plans: &[Plan], work: &(dyn Fn(Plan) -> T + Sync)) -> Vec<T> {
    let half = |from: usize| plans.iter().skip(from).step_by(2).map(|plan| work(*plan)).collect::<Vec<T>>();
    let (even, odd) = std::thread::scope(|scope| {
        let odd = scope.spawn(|| half(1));
        (half(0), odd.join().expect("no panic"))
    });
    let mut odd = odd.into_iter();
    even.into_iter().flat_map(|one| [Some(one), odd.next()]).flatten().collect()
}
