//! The expansion of `derive(Key)`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Error, Field, Index, Member, Result, Type};

/// Maximum number of elements of a tuple of keys.
const FIELDS_MAX: usize = 8;

/// A field: its name or number, and its type.
struct Part<'a> {
    member: Member,
    of: &'a Type,
}

/// Returns the implementations for a struct.
pub fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let refuse = |why: &str| Err(Error::new_spanned(&input.ident, why));
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(_) => {
            return refuse("an enum cannot be a key: its order would change with its variants; use a number");
        }
        Data::Union(_) => return refuse("a union cannot be a key"),
    };
    if !input.generics.params.is_empty() {
        return refuse("a generic struct cannot be a key: the kind of a tree's keys names one type");
    }
    let parts: Vec<_> = fields.iter().enumerate().map(part).collect::<Result<_>>()?;
    match parts.len() {
        0 => return refuse("a struct without fields cannot be a key: `()` is one"),
        1..=FIELDS_MAX => {}
        _ => return refuse("a key has at most 8 fields: put some of them into a tuple, or a struct"),
    }
    let key = match (is_transparent(&input.attrs)?, parts.as_slice()) {
        (false, parts) => of_tuple(input, parts),
        (true, [part]) => of_field(input, part),
        (true, _) => return refuse("a transparent key has one field"),
    };
    let element = element(input, &parts);
    Ok(quote! {
        const _: () = {
            #key
            #element
        };
    })
}

fn part((at, field): (usize, &Field)) -> Result<Part<'_>> {
    if let Type::Reference(reference) = &field.ty {
        let why = "the field of a key owns what it holds: `String` for `&str`, `Vec<u8>` for `&[u8]`";
        return Err(Error::new_spanned(reference, why));
    }
    let member = field.ident.clone().map_or_else(|| Member::Unnamed(Index::from(at)), Member::Named);
    Ok(Part { member, of: &field.ty })
}

/// Returns whether there is a `#[key(transparent)]`.
fn is_transparent(attributes: &[Attribute]) -> Result<bool> {
    let mut is_transparent = false;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("key")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("transparent") {
                return Err(meta.error("there is `transparent`"));
            }
            is_transparent = true;
            Ok(())
        })?;
    }
    Ok(is_transparent)
}

/// Returns a key that is stored as a record, like the tuple of the fields.
fn of_tuple(input: &DeriveInput, parts: &[Part<'_>]) -> TokenStream {
    let name = &input.ident;
    let of = parts.iter().map(|part| part.of);
    quote! {
        #[automatically_derived]
        impl ::bristlecone::Key for #name {
            type Ref<'a> = &'a #name;
            type Owned = #name;
            type Codec = ::bristlecone::derived::Record;
            type Schema = ();

            fn kind() -> ::std::string::String {
                ::bristlecone::derived::tuple_kind(&[#(<#of as ::bristlecone::Key>::kind()),*])
            }
            fn fixed() -> ::bristlecone::Result<()> {
                ::std::result::Result::Ok(())
            }
            fn lend(key: &#name) -> &#name {
                key
            }
            fn with<R>(
                (): &(),
                key: &#name,
                use_it: impl ::std::ops::FnOnce(&[u8]) -> ::bristlecone::Result<R>,
            ) -> ::bristlecone::Result<R> {
                ::bristlecone::derived::encode::<#name, _>(key, use_it)
            }
            fn decode((): &(), key: ::std::boxed::Box<[u8]>) -> ::std::option::Option<#name> {
                ::bristlecone::derived::decode::<#name>(&key)
            }
        }
    }
}

/// Returns a key that is stored like its only field.
fn of_field(input: &DeriveInput, part: &Part<'_>) -> TokenStream {
    let (name, Part { member, of }) = (&input.ident, part);
    let codec = quote!(<<#of as ::bristlecone::Key>::Codec as ::bristlecone::derived::Codec>);
    quote! {
        #[automatically_derived]
        impl ::bristlecone::Key for #name {
            type Ref<'a> = &'a #name;
            type Owned = #name;
            type Codec = <#of as ::bristlecone::Key>::Codec;
            type Schema = <#of as ::bristlecone::Key>::Schema;

            fn kind() -> ::std::string::String {
                <#of as ::bristlecone::Key>::kind()
            }
            fn fixed() -> ::bristlecone::Result<Self::Schema> {
                <#of as ::bristlecone::Key>::fixed()
            }
            fn lend(key: &#name) -> &#name {
                key
            }
            #[inline(always)]
            fn with<R>(
                schema: &Self::Schema,
                key: &#name,
                use_it: impl ::std::ops::FnOnce(#codec::Ref<'_>) -> ::bristlecone::Result<R>,
            ) -> ::bristlecone::Result<R> {
                <#of as ::bristlecone::Key>::with(schema, <#of as ::bristlecone::Key>::lend(&key.#member), use_it)
            }
            #[inline(always)]
            fn decode(schema: &Self::Schema, key: #codec::Owned) -> ::std::option::Option<#name> {
                <#of as ::bristlecone::Key>::decode(schema, key).map(|field| #name { #member: field })
            }
        }
    }
}

/// Returns the implementation for the struct within tuples, options and other structs, and in its
/// own record.
fn element(input: &DeriveInput, parts: &[Part<'_>]) -> TokenStream {
    let name = &input.ident;
    let (members, of): (Vec<_>, Vec<_>) = parts.iter().map(|part| (&part.member, part.of)).unzip();
    quote! {
        #[automatically_derived]
        impl ::bristlecone::Element for #name {
            fn append(element: &#name, to: &mut ::bristlecone::derived::Buffer) {
                #(<#of as ::bristlecone::Element>::append(<#of as ::bristlecone::Key>::lend(&element.#members), to);)*
            }
            fn take(from: &mut &[u8]) -> ::std::option::Option<#name> {
                ::std::option::Option::Some(#name {
                    #(#members: <#of as ::bristlecone::Element>::take(from)?,)*
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(input: &str) -> String {
        let input: DeriveInput = syn::parse_str(input).unwrap();
        expand(&input).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_a_key_is_refused_in_a_sentence() {
        for (input, why) in [
            ("enum E { A, B }", "an enum cannot be a key"),
            ("union U { a: u8 }", "a union cannot be a key"),
            ("struct S<T>(T);", "a generic struct cannot be a key"),
            ("struct S<'a>(&'a str);", "a generic struct cannot be a key"),
            ("struct S<const N: usize>([u8; N]);", "a generic struct cannot be a key"),
            ("struct S;", "a struct without fields cannot be a key"),
            ("struct S();", "a struct without fields cannot be a key"),
            ("struct S(u8, u8, u8, u8, u8, u8, u8, u8, u8);", "a key has at most 8 fields"),
            ("struct S(&'static str);", "the field of a key owns what it holds"),
            ("#[key(transparent)] struct S(u8, u8);", "a transparent key has one field"),
            ("#[key(opaque)] struct S(u8);", "there is `transparent`"),
        ] {
            assert!(refused(input).starts_with(why), "{input}: {}", refused(input));
        }
    }
}
