//! Arguments that several commands have.

use bristlecone::Domain;
use clap::Args;

/// How far a store must travel before it counts as durable.
#[derive(Args, Clone, Copy, Debug)]
pub struct DomainArg {
    /// How data is made durable: process, adr, eadr or msync; detected from the medium if not given.
    #[arg(long, value_name = "DOMAIN")]
    pub domain: Option<Domain>,
}

/// Reads `name=value`.
pub fn option(text: &str) -> Result<(String, u64), String> {
    let said = || format!("{text:?} is not an option: write name=number, such as max_subnodes=4");
    let (name, value) = text.split_once('=').ok_or_else(said)?;
    let value = value.trim().parse().map_err(|_| said())?;
    Ok((name.trim().to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_names_and_numbers() {
        assert_eq!(option("max_subnodes=4"), Ok(("max_subnodes".to_owned(), 4)));
        assert!(option("max_subnodes").is_err());
        assert!(option("max_subnodes=many").is_err());
    }
}
