//! The derive macro of Bristlecone, which re-exports it with its feature `derive`.

mod key;

use proc_macro::TokenStream;

/// Implements a key type for a struct: see
/// [`bristlecone::Key`](https://docs.rs/bristlecone/latest/bristlecone/derive.Key.html), which has the documentation
/// and its examples.
#[proc_macro_derive(Key, attributes(key))]
pub fn derive_key(input: TokenStream) -> TokenStream {
    let expanded = syn::parse(input).and_then(|input| key::expand(&input));
    expanded.unwrap_or_else(|error| error.into_compile_error()).into()
}
