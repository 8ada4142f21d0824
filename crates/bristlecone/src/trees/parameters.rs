//! Parameters of a design: by name in the hands of a caller, as words in the directory.

use bristlecone_pm::{Error, Result};

/// Words that the directory keeps for a design's parameters.
pub const PARAMS: usize = 8;

/// The options struct of a design.
pub trait Parameters: Default {
    /// The design's name.
    const DESIGN: &'static str;

    /// Every parameter by its name, in the order of the directory's words.
    fn fields(&mut self) -> Vec<(&'static str, &mut u64)>;

    /// What is wrong with the parameters as they stand, if anything.
    fn flaw(&self) -> Option<String>;

    /// Defaults, but for what is given by name.
    fn parse(given: &[(String, u64)]) -> Result<Self> {
        let mut options = Self::default();
        for (name, value) in given {
            let mut fields = options.fields();
            match fields.iter_mut().find(|(field, _)| field == name) {
                Some((_, field)) => **field = *value,
                None => {
                    let known: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
                    let (design, known) = (Self::DESIGN, known.join(", "));
                    return Err(Error::invalid(format!("{design} has no option {name:?}: it has {known}")));
                }
            }
        }
        match options.flaw() {
            Some(flaw) => Err(Error::invalid(flaw)),
            None => Ok(options),
        }
    }

    /// As the directory keeps them.
    fn to_words(mut self) -> [u64; PARAMS] {
        let mut words = [0; PARAMS];
        for (word, (_, field)) in words.iter_mut().zip(self.fields()) {
            *word = *field;
        }
        words
    }

    /// Back from the directory, which nobody trusts.
    fn from_words(words: [u64; PARAMS]) -> Result<Self> {
        let mut options = Self::default();
        for ((_, field), word) in options.fields().into_iter().zip(words) {
            *field = word;
        }
        match options.flaw() {
            Some(flaw) => Err(Error::corrupted(flaw, "directory")),
            None => Ok(options),
        }
    }

    /// Every parameter with its name.
    fn named(mut self) -> Vec<(&'static str, u64)> {
        self.fields().into_iter().map(|(name, field)| (name, *field)).collect()
    }
}

/// The first rule that does not hold.
pub fn broken_rule(rules: &[(bool, &str)]) -> Option<String> {
    rules.iter().find(|(holds, _)| !holds).map(|(_, rule)| (*rule).to_owned())
}
