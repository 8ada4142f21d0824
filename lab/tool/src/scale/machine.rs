//! Machines by name, from files, and with individual parameters changed.

use bristlecone_device::cores::{Machine, Placement};
use serde::Deserialize;

use crate::count::profile;

macro_rules! parameters {
    ($($name:ident: $kind:ty),* $(,)?) => {
        /// The given parameters of a machine.
        #[derive(Debug, Default, Deserialize)]
        struct Parameters {
            $($name: Option<$kind>,)*
        }

        const NAMES: &[&str] = &[$(stringify!($name)),*];

        impl Parameters {
            fn set(self, machine: &mut Machine) {
                $(if let Some(value) = self.$name {
                    machine.$name = value.into();
                })*
            }
        }

        /// Returns the parameters of a machine and of its device in JSON.
        pub fn json(machine: &Machine) -> serde_json::Value {
            let mut all = serde_json::Map::new();
            all.insert("name".to_owned(), machine.name.into());
            $(all.insert(stringify!($name).to_owned(), serde_json::json!(<$kind>::from(machine.$name)));)*
            all.insert("device".to_owned(), machine.device.name.into());
            all.into()
        }
    };
}

parameters! {
    sockets: usize,
    cores: usize,
    threads_per_core: usize,
    shared_core: f64,
    l1_bytes: usize,
    l1_ways: usize,
    l2_bytes: usize,
    l2_ways: usize,
    llc_bytes: usize,
    llc_ways: usize,
    operation_ns: f64,
    step_ns: f64,
    l2_ns: f64,
    llc_ns: f64,
    transfer_ns: f64,
    remote_transfer_ns: f64,
    dram_ns: f64,
    remote_memory_ns: f64,
    dram_line_ns: f64,
    sequential: f64,
    locked_ns: f64,
    full_fence_ns: f64,
    store_buffer: usize,
    fill_buffers: usize,
    pause_ns: f64,
    spins: u32,
    wake_ns: f64,
    placement: Where,
}

/// A placement, as written.
#[derive(Clone, Copy, Debug, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
enum Where {
    First,
    FirstTouch,
    Interleaved,
}

impl From<Where> for Placement {
    fn from(place: Where) -> Self {
        match place {
            Where::First => Self::First,
            Where::FirstTouch => Self::FirstTouch,
            Where::Interleaved => Self::Interleaved,
        }
    }
}

impl From<Placement> for Where {
    fn from(place: Placement) -> Self {
        match place {
            Placement::First => Self::First,
            Placement::FirstTouch => Self::FirstTouch,
            Placement::Interleaved => Self::Interleaved,
        }
    }
}

/// Returns the machine of this name, or that in the file at this path.
pub fn named(text: &str) -> Result<Machine, String> {
    if !text.contains('/') && !text.ends_with(".toml") {
        return text.parse().map_err(|error| format!("{error}, or FILE.toml"));
    }
    let content = std::fs::read_to_string(text).map_err(|error| format!("{text}: {error}"))?;
    parse(&content, text).map_err(|what| format!("{text}: {what}"))
}

/// Parses a machine in TOML: missing parameters are those of `base`, which must be named.
fn parse(content: &str, path: &str) -> Result<Machine, String> {
    let mut table: toml::Table = content.parse().map_err(profile::one_line)?;
    let mut text = |name: &str| match table.remove(name) {
        None => Ok(None),
        Some(toml::Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("{name} is no text but of type {}", other.type_str())),
    };
    let (name, base) = (text("name")?, text("base")?);
    let mut machine: Machine =
        base.ok_or("no base: name the machine whose parameters it changes")?.parse()?;
    // One leak for each machine in the arguments.
    machine.name = name.unwrap_or_else(|| path.to_owned()).leak();
    set(&mut machine, table)?;
    machine.check()?;
    Ok(machine)
}

fn set(machine: &mut Machine, table: toml::Table) -> Result<(), String> {
    let is_own = |name: &String| NAMES.contains(&name.as_str());
    let (own, of_device): (toml::Table, toml::Table) = table.into_iter().partition(|(name, _)| is_own(name));
    if let Some(unknown) = of_device.keys().find(|name| !profile::NAMES.contains(&name.as_str())) {
        let (own, device) = (NAMES.join(", "), profile::NAMES.join(", "));
        return Err(format!("no parameter {unknown:?}: a machine has {own}; its device {device}"));
    }
    own.try_into::<Parameters>().map_err(profile::one_line)?.set(machine);
    profile::set(&mut machine.device, of_device)
}

/// Returns a machine with these parameters, each `NAME=VALUE`.
pub fn with(mut machine: Machine, parameters: &[String]) -> Result<Machine, String> {
    for text in parameters {
        let table = text.parse().or_else(|_| quoted(text).parse());
        let table = table.map_err(|_| format!("--set {text}: expected NAME=VALUE"))?;
        set(&mut machine, table).map_err(|what| format!("--set {text}: {what}"))?;
    }
    machine.check()?;
    Ok(machine)
}

/// Returns a parameter with its value in quotes.
fn quoted(text: &str) -> String {
    match text.split_once('=') {
        Some((name, value)) => format!("{name}={value:?}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_in_toml_changes_its_base_and_its_device() {
        let text = "name = \"mine\"\nbase = \"icelake2s-optane\"\ncores = 28\nread_ns = 400\nplacement = \"interleaved\"";
        let machine = parse(text, "m").unwrap();
        assert_eq!((machine.name, machine.cores, machine.device.read_ns), ("mine", 28, 400.0));
        assert_eq!(machine.placement, Placement::Interleaved);
        for (wrong, said) in [
            ("cores = 2", "no base"),
            ("base = \"i486\"", "no machine"),
            ("base = \"zen4-dram\"\ncors = 2", "no parameter \"cors\""),
            ("base = \"zen4-dram\"\ncores = 0", "cores = 0"),
            ("base = \"zen4-dram\"\ncores = \"two\"", "invalid type"),
            ("base = \"zen4-dram\"\nllc_ns = nan", "llc_ns = NaN"),
            ("base = \"zen4-dram\"\nread_ns = -1", "read_ns = -1"),
            ("base = 7", "base is no text"),
        ] {
            let error = parse(wrong, "m").unwrap_err();
            assert!(error.contains(said) && !error.contains('\n'), "{wrong}: {error}");
        }
        assert!(named("/no/such.toml").unwrap_err().contains("/no/such.toml"));
    }

    #[test]
    fn machine_parameters_are_set_one_by_one() {
        let set = |text: &[&str]| {
            with(Machine::ICELAKE, &text.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        let machine = set(&["cores=28", "modules=8", "placement=first-touch"]).unwrap();
        assert_eq!((machine.cores, machine.device.modules), (28, 8));
        assert_eq!(machine.placement, Placement::FirstTouch);
        for (wrong, said) in [
            ("cores", "NAME=VALUE"),
            ("core=1", "no parameter"),
            ("cores=x", "invalid type"),
            ("placement=moon", "unknown variant"),
            ("sockets=8", "384 threads"),
        ] {
            let error = set(&[wrong]).unwrap_err();
            assert!(error.contains(said) && !error.contains('\n'), "{wrong}: {error}");
        }
    }
}
