//! Devices by name, from files, and with individual parameters changed.

use bristlecone_device::Profile;
use serde::Deserialize;

macro_rules! parameters {
    ($($name:ident: $kind:ty),* $(,)?) => {
        /// The given parameters of a device.
        #[derive(Debug, Default, Deserialize)]
        struct Parameters {
            $($name: Option<$kind>,)*
        }

        /// The names of the parameters.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];

        impl Parameters {
            fn set(self, profile: &mut Profile) {
                $(if let Some(value) = self.$name {
                    profile.$name = value;
                })*
            }
        }
    };
}

parameters! {
    media_line_bytes: usize,
    modules: usize,
    interleave_bytes: usize,
    write_buffer_lines: usize,
    read_buffer_lines: usize,
    read_ns: f64,
    buffered_read_ns: f64,
    flush_ns: f64,
    fence_ns: f64,
    media_read_ns: f64,
    media_write_ns: f64,
    queue_ns: f64,
    reflush_ns: f64,
    clwb_evicts: bool,
    random_eviction: bool,
    line_ns: f64,
    writers_best: usize,
    write_slowdown: f64,
    shared_queue: bool,
}

/// Returns the device of this name, or that in the file at this path.
pub fn named(text: &str) -> Result<Profile, String> {
    if !text.contains('/') && !text.ends_with(".toml") {
        return text.parse().map_err(|error| format!("{error}, and FILE.toml"));
    }
    let content = std::fs::read_to_string(text).map_err(|error| format!("{text}: {error}"))?;
    parse(&content, text).map_err(|what| format!("{text}: {what}"))
}

/// Parses a device in TOML: missing parameters are those of `base`.
fn parse(content: &str, path: &str) -> Result<Profile, String> {
    let mut table: toml::Table = content.parse().map_err(one_line)?;
    let mut text = |name: &str| match table.remove(name) {
        None => Ok(None),
        Some(toml::Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("{name} is no text but of type {}", other.type_str())),
    };
    let (name, base) = (text("name")?, text("base")?);
    let mut profile: Profile = base.as_deref().unwrap_or("optane").parse()?;
    // One leak for each device in the arguments.
    profile.name = name.unwrap_or_else(|| path.to_owned()).leak();
    set(&mut profile, table)?;
    profile.check()?;
    Ok(profile)
}

/// Sets parameters of a device.
pub fn set(profile: &mut Profile, table: toml::Table) -> Result<(), String> {
    if let Some(unknown) = table.keys().find(|name| !NAMES.contains(&name.as_str())) {
        return Err(format!("no parameter {unknown:?} of a device: there are {}", NAMES.join(", ")));
    }
    table.try_into::<Parameters>().map_err(one_line)?.set(profile);
    Ok(())
}

/// Returns a device with these parameters, each `NAME=VALUE`.
pub fn with(mut profile: Profile, parameters: &[String]) -> Result<Profile, String> {
    for text in parameters {
        let table =
            text.parse().map_err(|_| format!("--model {text}: write NAME=NUMBER, or true or false"))?;
        set(&mut profile, table).map_err(|what| format!("--model {text}: {what}"))?;
    }
    profile.check()?;
    Ok(profile)
}

/// Returns the error in one line.
pub fn one_line(error: toml::de::Error) -> String {
    error.message().lines().next().unwrap_or("not TOML").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_in_toml_changes_what_it_says_and_nothing_else() {
        let profile =
            parse("name = \"mine\"\nbase = \"nvdimm\"\nread_ns = 120\nclwb_evicts = true\n", "p").unwrap();
        assert_eq!(profile, Profile { name: "mine", read_ns: 120.0, clwb_evicts: true, ..Profile::NVDIMM });
        assert_eq!(parse("", "p").unwrap(), Profile { name: "p", ..Profile::OPTANE });
        for (wrong, said) in [
            ("reed_ns = 1", "no parameter \"reed_ns\""),
            ("base = \"dram\"", "no profile"),
            ("modules = 0", "modules"),
            ("media_line_bytes = 100", "media_line_bytes"),
            ("read_ns = -1", "read_ns"),
            ("modules = \"six\"", "invalid type"),
            ("modules", "expected"),
        ] {
            let error = parse(wrong, "p").unwrap_err();
            assert!(error.contains(said) && !error.contains('\n'), "{wrong}: {error}");
        }
        assert!(named("/no/such.toml").unwrap_err().contains("/no/such.toml"));
        assert!(named("dram").unwrap_err().contains("FILE.toml"));
    }

    #[test]
    fn profile_parameters_are_set_one_by_one() {
        let set = |text: &[&str]| {
            with(Profile::OPTANE, &text.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        let profile = set(&["reflush_ns=800", "shared_queue=true", "write_buffer_lines=48"]).unwrap();
        assert_eq!(
            profile,
            Profile { reflush_ns: 800.0, shared_queue: true, write_buffer_lines: 48, ..Profile::OPTANE }
        );
        for (wrong, said) in [
            ("reflush_ns", "NAME=NUMBER"),
            ("flush=1", "no parameter"),
            ("modules=x", "NAME=NUMBER"),
            ("modules=true", "invalid type"),
            ("line_ns=-3", "line_ns"),
        ] {
            let error = set(&[wrong]).unwrap_err();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }
}
