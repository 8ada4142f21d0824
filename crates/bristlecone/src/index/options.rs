//! Design options, each declared once: name, default, allowed values and documentation, with conversion from names
//! and to directory words.

use std::fmt;

use bristlecone_pm::{Error, Result};

/// Number of words that the directory stores for a design's options.
pub const PARAMS: usize = 8;

/// An option of a design, fixed when a tree is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionInfo {
    /// The name, as used in arguments and reports.
    pub name: &'static str,
    /// The default value.
    pub default: u64,
    /// The allowed values.
    pub allowed: Allowed,
    /// The meaning, in one or a few sentences.
    pub doc: &'static str,
    /// Whether only builds with the feature `lab` have it: it switches a mechanism of the design off or over, for a
    /// figure of a paper.
    pub experimental: bool,
}

/// The allowed values of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Allowed {
    /// Any of these values.
    OneOf(&'static [u64]),
    /// Any value from the first to the second; `u64::MAX` means unbounded.
    Range(u64, u64),
    /// Any multiple of the third value from the first to the second.
    Multiples(u64, u64, u64),
}

impl OptionInfo {
    /// Creates the description of an option.
    #[must_use]
    pub const fn new(name: &'static str, default: u64, allowed: Allowed, doc: &'static str) -> Self {
        Self { name, default, allowed, doc, experimental: false }
    }

    /// Makes it an option of experiments.
    #[must_use]
    pub const fn experimental(self) -> Self {
        Self { experimental: true, ..self }
    }

    /// Returns whether this build has the option.
    #[must_use]
    pub const fn is_compiled(&self) -> bool {
        cfg!(feature = "lab") || !self.experimental
    }
}

/// Returns the value of an experimental option; its default in a build without the feature `lab`, so that the code of
/// the experiment is not compiled.
#[inline(always)]
pub const fn experimental(value: u64, default: u64) -> u64 {
    if cfg!(feature = "lab") { value } else { default }
}

impl fmt::Display for OptionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, default, allowed, doc, .. } = self;
        write!(f, "{name}={default} ({allowed}): {doc}")
    }
}

impl Allowed {
    /// Returns whether a value is allowed.
    #[must_use]
    pub fn contains(self, value: u64) -> bool {
        match self {
            Self::OneOf(values) => values.contains(&value),
            Self::Range(least, most) => (least..=most).contains(&value),
            Self::Multiples(least, most, of) => (least..=most).contains(&value) && value.is_multiple_of(of),
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OneOf([]) => f.write_str("nothing"),
            Self::OneOf([only]) => write!(f, "{only}"),
            Self::OneOf([first, others @ .., last]) => {
                write!(f, "{first}")?;
                others.iter().try_for_each(|value| write!(f, ", {value}"))?;
                write!(f, " or {last}")
            }
            Self::Range(least, u64::MAX) => write!(f, "{least} or more"),
            Self::Range(least, most) if most > 1 << 20 && most.is_power_of_two() => {
                write!(f, "{least} to 2^{}", most.ilog2())
            }
            Self::Range(least, most) => write!(f, "{least} to {most}"),
            Self::Multiples(least, most, of) => write!(f, "{least} to {most}, a multiple of {of}"),
        }
    }
}

/// The options struct of a design, declared by `design_options!`.
pub trait Parameters: Default {
    /// The design's name.
    const DESIGN: &'static str;

    /// All options, in the order of the directory's words.
    const OPTIONS: &'static [OptionInfo];

    /// Returns the values of all options, in the same order.
    fn values(&mut self) -> Vec<&mut u64>;

    /// Returns the first violated rule between options.
    fn broken_rule(&self) -> Option<&'static str>;

    /// Rejects experimental options in a build that does not have them.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`].
    fn expect_compiled(&mut self) -> Result<()> {
        for (info, value) in Self::OPTIONS.iter().zip(self.values()) {
            if !info.is_compiled() && *value != info.default && info.allowed.contains(*value) {
                let (design, name) = (Self::DESIGN, info.name);
                return Err(Error::invalid(format!(
                    "{design} with {name}={value} is an experiment: build bristlecone with the feature lab"
                )));
            }
        }
        Ok(())
    }

    /// Returns a description of the first invalid option, if any.
    fn violation(&mut self) -> Option<String> {
        let forbidden =
            Self::OPTIONS.iter().zip(self.values()).find(|(info, value)| !info.allowed.contains(**value));
        let forbidden = forbidden.map(|(info, _)| format!("{} must be {}", info.name, info.allowed));
        forbidden.or_else(|| self.broken_rule().map(str::to_owned))
    }

    /// Returns the default options, overridden by the given names and values.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an unknown name or an invalid value.
    fn parse(given: &[(String, u64)]) -> Result<Self> {
        let mut options = Self::default();
        for (name, value) in given {
            let Some(at) = Self::OPTIONS.iter().position(|info| info.name == name) else {
                let known: Vec<_> =
                    Self::OPTIONS.iter().filter(|info| info.is_compiled()).map(|info| info.name).collect();
                let (design, known) = (Self::DESIGN, known.join(", "));
                return Err(Error::invalid(format!(
                    "{design} has no option {name:?}; its options are {known}"
                )));
            };
            *options.values()[at] = *value;
        }
        options.expect_compiled()?;
        options.violation().map_or(Ok(options), |violation| Err(Error::invalid(violation)))
    }

    /// Returns the options as directory words.
    fn to_words(mut self) -> [u64; PARAMS] {
        let mut words = [0; PARAMS];
        for (word, value) in words.iter_mut().zip(self.values()) {
            *word = *value;
        }
        words
    }

    /// Decodes options from directory words, which may be damaged.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`] if [`parse`](Self::parse) would not accept them in any build; [`Error::Invalid`] for options
    /// that this build does not have.
    fn from_words(words: [u64; PARAMS]) -> Result<Self> {
        let mut options = Self::default();
        for (value, word) in options.values().into_iter().zip(words) {
            *value = word;
        }
        options.expect_compiled()?;
        options.violation().map_or(Ok(options), |violation| Err(Error::corrupted(violation, "directory")))
    }

    /// Returns the names and values of all options.
    fn named(mut self) -> Vec<(&'static str, u64)> {
        Self::OPTIONS.iter().zip(self.values()).map(|(info, value)| (info.name, *value)).collect()
    }
}

/// Declares the options of a design: each with its documentation, name, default and allowed values (a list, a range,
/// or a range with a step), and the rules between them; `for experimental` ends those of experiments. Generates the
/// struct, the parser, the help and the field docs. [`Parameters`] must be in scope at the call.
#[cfg_attr(feature = "lab", macro_export)]
macro_rules! design_options {
    (
        $(#[$meta:meta])*
        pub struct $name:ident of $design:literal {
            $(
                $(#[doc = $doc:literal])+
                $option:ident = $default:literal in $allowed:tt $(step $step:literal)? $(for $experiments:ident)?;
            )+
        }
        $(where |$own:ident| $rule:expr => $why:literal;)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $(
                $(#[doc = $doc])+
                ///
                #[doc = concat!(
                    "Allowed: `", stringify!($allowed), $(" step ", stringify!($step),)? "`, default: ",
                    stringify!($default), "."
                )]
                pub $option: u64,
            )+
        }

        impl ::std::default::Default for $name {
            fn default() -> Self {
                Self { $($option: $default,)+ }
            }
        }

        impl Parameters for $name {
            const DESIGN: &'static str = $design;

            const OPTIONS: &'static [$crate::OptionInfo] = &[$(
                $crate::OptionInfo::new(
                    stringify!($option),
                    $default,
                    design_options!(@allowed $allowed $($step)?),
                    concat!($($doc),+).trim_ascii_start(),
                )$(.$experiments())?,
            )+];

            fn values(&mut self) -> ::std::vec::Vec<&mut u64> {
                ::std::vec![$(&mut self.$option,)+]
            }

            fn broken_rule(&self) -> ::std::option::Option<&'static str> {
                $(
                    let $own = self;
                    if !($rule) {
                        return ::std::option::Option::Some($why);
                    }
                )*
                ::std::option::Option::None
            }
        }
    };
    (@allowed [$($value:literal),+]) => {
        $crate::Allowed::OneOf(&[$($value),+])
    };
    (@allowed ($least:literal..)) => {
        $crate::Allowed::Range($least, u64::MAX)
    };
    (@allowed ($least:literal..=$most:literal)) => {
        $crate::Allowed::Range($least, $most)
    };
    (@allowed ($least:literal..=$most:literal) $step:literal) => {
        $crate::Allowed::Multiples($least, $most, $step)
    };
}

pub(crate) use design_options;

#[cfg(test)]
mod tests {
    use super::*;

    design_options! {
        /// Options of nothing.
        pub struct Toy of "toy" {
            /// Takes few values,
            /// not many.
            few = 2 in [1, 2, 4];
            /// Has no end.
            many = 7 in (3..);
            /// Goes in steps.
            stepped = 128 in (64..=256) step 64;
            /// Is large.
            large = 0 in (0..=4294967296);
        }
        where |own| own.few <= own.many => "few must be at most many";
    }

    fn refused(option: &str, value: u64) -> String {
        Toy::parse(&[(option.to_owned(), value)]).map(Toy::named).unwrap_err().to_string()
    }

    #[test]
    fn a_declaration_is_all_of_it() {
        let shown: Vec<_> = Toy::OPTIONS.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "few=2 (1, 2 or 4): Takes few values, not many.",
                "many=7 (3 or more): Has no end.",
                "stepped=128 (64 to 256, a multiple of 64): Goes in steps.",
                "large=0 (0 to 2^32): Is large."
            ]
        );
        assert_eq!(Toy::default().to_words(), [2, 7, 128, 0, 0, 0, 0, 0]);
        let given = Toy::parse(&[("few".to_owned(), 4), ("large".to_owned(), 1 << 32)]).unwrap();
        assert_eq!(given.named(), [("few", 4), ("many", 7), ("stepped", 128), ("large", 1 << 32)]);
        assert_eq!(Toy::from_words(given.to_words()).unwrap(), given);
    }

    #[test]
    fn what_is_not_allowed_is_refused() {
        assert!(refused("few", 3).contains("few must be 1, 2 or 4"));
        assert!(refused("many", 2).contains("many must be 3 or more"));
        assert!(refused("stepped", 100).contains("stepped must be 64 to 256, a multiple of 64"));
        assert!(refused("large", (1 << 32) + 1).contains("large must be 0 to 2^32"));
        assert!(
            refused("other", 1)
                .contains("toy has no option \"other\"; its options are few, many, stepped, large")
        );
        let both = [("few".to_owned(), 4), ("many".to_owned(), 3)];
        assert!(Toy::parse(&both).unwrap_err().to_string().contains("few must be at most many"));
        assert!(matches!(Toy::from_words([3; PARAMS]), Err(Error::Corrupted { .. })));
    }
}
