//! Arguments that several commands share.

use bristlecone::Domain;
use clap::Args;

/// The point that a store must reach to be durable.
#[derive(Args, Clone, Copy, Debug)]
pub struct DomainArg {
    /// Durability domain: process, adr, eadr, msync or journal [default: detected from the medium]
    #[arg(long, value_name = "DOMAIN")]
    pub domain: Option<Domain>,
}

/// Parses `name=value`.
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
