//! Steps on trees whose values expire. Commands show live values only.

use bristlecone_matrix::conformance::{Gives, Outcome, Step};
use serde_json::Value;

use super::{DONE, Session, outcome_of};

/// Returns the argument with the expiry that a step names.
pub fn flag(step: &Step) -> String {
    match step.number("expires") {
        None => "--ttl=default".to_owned(),
        Some(0) => "--ttl=never".to_owned(),
        Some(millis) => format!("--expires-at={}", utc(millis)),
    }
}

/// Returns a time in UTC, as the tool reads it.
fn utc(millis: u64) -> String {
    let printed = std::process::Command::new("date")
        .args(["--utc", "+%Y-%m-%dT%H:%M:%S", &format!("--date=@{}", millis / 1000)])
        .output()
        .expect("date");
    format!("{}.{:03}Z", String::from_utf8(printed.stdout).unwrap().trim(), millis % 1000)
}

/// Returns the value that a command has printed, without the time of one that expires.
pub fn value_of(line: &Value) -> &Value {
    match line["value"].get("value") {
        Some(value) => value,
        None => &line["value"],
    }
}

impl Session {
    /// Returns the number of entries, expired or not.
    pub fn entries(&self, name: &str) -> Outcome {
        ("ok", Gives::Count(self.described(name)["entries"].as_u64().unwrap()))
    }

    fn described(&self, name: &str) -> Value {
        let info = self.bench.run("info @p --json").json();
        info["trees"].as_array().unwrap().iter().find(|tree| tree["name"] == name).unwrap().clone()
    }

    pub fn timed(&self, step: &Step, name: &str, key: String) -> Outcome {
        if step.operation() == "expire_after" {
            let millis = self.described(name)["expire_after_ms"].as_u64();
            return ("ok", millis.map_or(Gives::Nothing, Gives::Count));
        }
        let ran = self.command(&["get", name, "--json"], std::slice::from_ref(&key));
        if ran.code != 0 {
            return outcome_of(&ran);
        }
        let line: Value = serde_json::from_str(&ran.stdout).unwrap();
        let expiry = line["value"].get("expires_ms").map_or(0, |millis| millis.as_u64().unwrap());
        match step.operation() {
            "expires_later" => ("ok", Gives::Bool(expiry > step.number("than").expect("a time"))),
            "set_expiry" => {
                let set = self.command(&["expire", name, &flag(step)], &[key]);
                assert_eq!(outcome_of(&set), DONE);
                ("ok", Gives::Count(expiry))
            }
            _ => ("ok", Gives::Count(expiry)),
        }
    }
}

#[test]
fn times_are_written_in_utc() {
    assert_eq!(
        (utc(4_102_444_800_000), utc(1)),
        ("2100-01-01T00:00:00.000Z".to_owned(), "1970-01-01T00:00:00.001Z".to_owned())
    );
}
