//! The arguments of commands, as the table of commands writes them and `COMMAND DOCS` shows them.
//!
//! A word in capitals stands for itself, another one for a value. `[…]` may be left out, `(…)` is one thing, `|` separates
//! alternatives, and what `...` follows may come again. A word in capitals belongs to what follows it within its brackets.

use std::ffi::CString;
#[cfg(test)]
use std::fmt::Write;
use std::mem::zeroed;

use crate::server::raw;

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Key,
    Integer,
    /// A time since 1970.
    UnixTime,
    Double,
    Pattern,
    String,
    /// A word that stands for itself.
    Token,
    OneOf,
    Block,
}

/// An argument.
#[derive(Debug)]
pub struct Argument {
    name: String,
    kind: Kind,
    /// The word before it, or the word that it is.
    token: Option<String>,
    is_optional: bool,
    is_multiple: bool,
    parts: Vec<Argument>,
}

/// Returns the arguments that a text means.
///
/// # Panics
///
/// If brackets do not match: the texts are those of the table.
pub fn arguments(text: &str) -> Vec<Argument> {
    let mut spaced = text.to_owned();
    for mark in ["(", ")", "[", "]", "|", "..."] {
        spaced = spaced.replace(mark, &format!(" {mark} "));
    }
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let sequence = sequence(&mut rest);
    assert!(rest.is_empty(), "{text}");
    sequence
}

/// Reads arguments up to a closing bracket or the next alternative.
fn sequence(rest: &mut &[&str]) -> Vec<Argument> {
    let mut found: Vec<Argument> = Vec::new();
    while let [word, after @ ..] = *rest {
        match *word {
            ")" | "]" | "|" => break,
            "..." => {
                *rest = after;
                found.last_mut().expect("something may come again").is_multiple = true;
            }
            "(" | "[" => {
                *rest = after;
                found.push(group(rest, *word == "["));
            }
            word => {
                *rest = after;
                found.push(Argument::of_word(word));
            }
        }
    }
    with_token(found)
}

/// Makes a word in capitals the token of what follows it.
fn with_token(mut sequence: Vec<Argument>) -> Vec<Argument> {
    if sequence.len() < 2 || sequence[0].kind != Kind::Token {
        return sequence;
    }
    let token = sequence.remove(0).token;
    let mut argument = if sequence.len() == 1 { sequence.remove(0) } else { Argument::block(sequence) };
    argument.token = token;
    vec![argument]
}

fn group(rest: &mut &[&str], is_optional: bool) -> Argument {
    let mut alternatives = vec![Argument::one(sequence(rest))];
    while let ["|", after @ ..] = *rest {
        *rest = after;
        alternatives.push(Argument::one(sequence(rest)));
    }
    *rest = &rest[1..];
    let mut argument = if alternatives.len() == 1 {
        alternatives.remove(0)
    } else {
        Argument { kind: Kind::OneOf, ..Argument::block(alternatives) }
    };
    argument.is_optional = is_optional;
    argument
}

impl Argument {
    fn of_word(word: &str) -> Self {
        let is_token = word.bytes().all(|byte| byte.is_ascii_uppercase());
        let kind = match word {
            _ if is_token => Kind::Token,
            "key" | "destination" | "source" => Kind::Key,
            "count" | "offset" | "number" | "numfields" | "seconds" | "milliseconds" => Kind::Integer,
            "unix-time-seconds" | "unix-time-milliseconds" => Kind::UnixTime,
            "timeout" => Kind::Double,
            "pattern" => Kind::Pattern,
            _ => Kind::String,
        };
        Self {
            name: word.to_ascii_lowercase(),
            kind,
            token: is_token.then(|| word.to_owned()),
            is_optional: false,
            is_multiple: false,
            parts: Vec::new(),
        }
    }

    /// Returns what is one argument of several words.
    fn block(parts: Vec<Argument>) -> Self {
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let name = names.join("-");
        Self { name, kind: Kind::Block, token: None, is_optional: false, is_multiple: false, parts }
    }

    fn one(mut sequence: Vec<Argument>) -> Self {
        if sequence.len() == 1 { sequence.remove(0) } else { Self::block(sequence) }
    }

    #[cfg(test)]
    fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Key => "key",
            Kind::Integer => "integer",
            Kind::UnixTime => "unix-time",
            Kind::Double => "double",
            Kind::Pattern => "pattern",
            Kind::String => "string",
            Kind::Token => "pure-token",
            Kind::OneOf => "oneof",
            Kind::Block => "block",
        }
    }

    /// Appends it as JSON, as the server's own commands are described.
    #[cfg(test)]
    pub fn write_json(&self, to: &mut String, indent: usize) {
        let pad = " ".repeat(indent);
        _ = write!(to, "{pad}{{\"name\": {:?}, \"type\": {:?}", self.name, self.kind_name());
        if let Some(token) = &self.token {
            _ = write!(to, ", \"token\": {token:?}");
        }
        for (name, holds) in [("optional", self.is_optional), ("multiple", self.is_multiple)] {
            if holds {
                _ = write!(to, ", \"{name}\": true");
            }
        }
        if !self.parts.is_empty() {
            to.push_str(", \"arguments\": [\n");
            write_all(&self.parts, to, indent + 2);
            _ = write!(to, "{pad}]");
        }
        to.push('}');
    }
}

/// Appends arguments as JSON, one a line.
#[cfg(test)]
pub fn write_all(arguments: &[Argument], to: &mut String, indent: usize) {
    for (at, argument) in arguments.iter().enumerate() {
        argument.write_json(to, indent);
        to.push_str(if at + 1 < arguments.len() { ",\n" } else { "\n" });
    }
}

/// Arguments as the server takes them. What they point to lives as long as this.
pub struct Described {
    arguments: Vec<raw::RedisModuleCommandArg>,
    _parts: Vec<Described>,
    _texts: Vec<CString>,
}

impl Described {
    /// Returns arguments for the server. `keys`: how many key specifications there are.
    pub fn new(arguments: &[Argument], keys: i32) -> Self {
        let mut described = Self { arguments: Vec::new(), _parts: Vec::new(), _texts: Vec::new() };
        for argument in arguments {
            let described_one = described.describe(argument, keys);
            described.arguments.push(described_one);
        }
        // SAFETY: zeros end the list.
        described.arguments.push(unsafe { zeroed() });
        described
    }

    fn describe(&mut self, argument: &Argument, keys: i32) -> raw::RedisModuleCommandArg {
        // SAFETY: a structure of C's, of pointers and numbers, in which zero means that nothing is said.
        let mut one: raw::RedisModuleCommandArg = unsafe { zeroed() };
        one.name = self.keep(&argument.name);
        if let Some(token) = &argument.token {
            one.token = self.keep(token);
        }
        one.key_spec_index = match argument.kind {
            Kind::Key if argument.name == "source" => 1.min(keys - 1),
            Kind::Key => 0,
            _ => -1,
        };
        one.type_ = match argument.kind {
            Kind::Key => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
            Kind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
            Kind::UnixTime => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_UNIX_TIME,
            Kind::Double => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_DOUBLE,
            Kind::Pattern => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PATTERN,
            Kind::String => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
            Kind::Token => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
            Kind::OneOf => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
            Kind::Block => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
        };
        let flag = |holds: bool, flag: u32| if holds { flag } else { 0 };
        one.flags = (flag(argument.is_optional, raw::REDISMODULE_CMD_ARG_OPTIONAL)
            | flag(argument.is_multiple, raw::REDISMODULE_CMD_ARG_MULTIPLE)) as i32;
        if !argument.parts.is_empty() {
            let mut parts = Self::new(&argument.parts, keys);
            one.subargs = parts.arguments.as_mut_ptr();
            self._parts.push(parts);
        }
        one
    }

    fn keep(&mut self, text: &str) -> *const std::ffi::c_char {
        let text = CString::new(text).unwrap_or_default();
        let start = text.as_ptr();
        self._texts.push(text);
        start
    }

    /// Returns the list, which zeros end.
    pub fn list(&mut self) -> *mut raw::RedisModuleCommandArg {
        self.arguments.as_mut_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        fn show(argument: &Argument) -> String {
            let parts: Vec<String> = argument.parts.iter().map(show).collect();
            let token = argument.token.clone().map(|token| token + ":").unwrap_or_default();
            let marks = ["?"].repeat(usize::from(argument.is_optional)).concat()
                + &["*"].repeat(usize::from(argument.is_multiple)).concat();
            let parts = if parts.is_empty() { String::new() } else { format!("({})", parts.join(" ")) };
            format!("{token}{}{parts}{marks}", argument.kind_name())
        }
        arguments(text).iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn arguments_are_what_brackets_and_words_say() {
        let table = [
            ("", ""),
            ("key field", "key string"),
            ("key (field value)... [NX|XX]", "key block(string string)* oneof(NX:pure-token XX:pure-token)?"),
            ("key... timeout", "key* double"),
            ("[LIMIT [offset] count]", "LIMIT:block(integer? integer)?"),
            ("[MATCH pattern] [COUNT count]", "MATCH:pattern? COUNT:integer?"),
            (
                "key unix-time-seconds [NX|XX] (FIELDS numfields field...)",
                "key unix-time oneof(NX:pure-token XX:pure-token)? FIELDS:block(integer string*)",
            ),
            ("(min max|PREFIX prefix)", "oneof(block(string string) PREFIX:string)"),
            (
                "(expected new|(IF value|IFABSENT) (SET value|DEL))",
                "oneof(block(string string) block(oneof(IF:string IFABSENT:pure-token) oneof(SET:string DEL:pure-token)))",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(shown(text), expected, "{text}");
        }
    }
}
