use super::*;
use crate::Value;
use crate::index::parts::codec::{Codec, KeyCodec, Record};

/// The stored form of a key or value: its word, or the bytes of its record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Encoded {
    Word(u64),
    Bytes(Vec<u8>),
}

trait Both: Codec + KeyCodec {
    fn encoded(item: Self::Ref<'_>) -> Encoded;
    fn of(encoded: &Encoded) -> Self::Owned;
}

impl Both for crate::index::parts::codec::Inline {
    fn encoded(item: u64) -> Encoded {
        Encoded::Word(item)
    }
    fn of(encoded: &Encoded) -> u64 {
        let Encoded::Word(word) = encoded else { panic!("not a word: {encoded:?}") };
        *word
    }
}

impl Both for Record {
    fn encoded(item: &[u8]) -> Encoded {
        Encoded::Bytes(item.to_vec())
    }
    fn of(encoded: &Encoded) -> Box<[u8]> {
        let Encoded::Bytes(bytes) = encoded else { panic!("not bytes: {encoded:?}") };
        bytes.as_slice().into()
    }
}

fn key<K: Key<Codec: Both>>(key: &K::Owned) -> Encoded {
    K::with(&K::fixed().unwrap(), K::lend(key), |key| Ok(<K::Codec as Both>::encoded(key))).unwrap()
}

fn value<V: Value<Codec: Both>>(value: &V::Owned) -> Encoded {
    value_of::<V>(V::lend(value))
}

fn value_of<V: Value<Codec: Both>>(value: V::Ref<'_>) -> Encoded {
    V::with(&V::fixed().unwrap(), value, |value| Ok(<V::Codec as Both>::encoded(value))).unwrap()
}

fn element<E: Element>(element: &E::Owned) -> Vec<u8> {
    encode::<E, _>(E::lend(element), <[u8]>::to_vec)
}

/// The expected order of keys, with floats in total order.
trait Ordered {
    fn order(&self, other: &Self) -> std::cmp::Ordering;
}

macro_rules! ordered {
    ($($type:ty),+) => {$(
        impl Ordered for $type {
            fn order(&self, other: &Self) -> std::cmp::Ordering {
                self.cmp(other)
            }
        }
    )+};
}

ordered!((), bool, u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, char, String, Vec<u8>, [u8; 0], [u8; 3]);

impl Ordered for f32 {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        self.total_cmp(other)
    }
}

impl Ordered for f64 {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        self.total_cmp(other)
    }
}

impl<T: Ordered> Ordered for Option<T> {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        match (self, other) {
            (Some(a), Some(b)) => a.order(b),
            _ => self.is_some().cmp(&other.is_some()),
        }
    }
}

macro_rules! ordered_tuple {
    ($($element:ident $at:tt),+) => {
        impl<$($element: Ordered),+> Ordered for ($($element,)+) {
            fn order(&self, other: &Self) -> std::cmp::Ordering {
                std::cmp::Ordering::Equal$(.then_with(|| self.$at.order(&other.$at)))+
            }
        }
    };
}

ordered_tuple!(A 0);
ordered_tuple!(A 0, B 1);
ordered_tuple!(A 0, B 1, C 2);
ordered_tuple!(A 0, B 1, C 2, D 3);
ordered_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// Edge cases of a type's values.
trait Edges: Sized {
    fn edges() -> Vec<Self>;
}

macro_rules! edges {
    ($($type:ty: $edges:expr;)+) => {$(
        impl Edges for $type {
            fn edges() -> Vec<Self> {
                Vec::from($edges)
            }
        }
    )+};
}

macro_rules! integer_edges {
    ($($type:ty),+) => {$(
        impl Edges for $type {
            fn edges() -> Vec<Self> {
                let powers = (0..<$type>::BITS).flat_map(|bit| {
                    let power: $type = 1 << bit;
                    [power, power.wrapping_sub(1), power.wrapping_add(1), !power]
                });
                powers.chain([0, <$type>::MIN, <$type>::MAX]).collect()
            }
        }
    )+};
}

integer_edges!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

edges! {
    (): [()];
    bool: [true, false];
    char: ['\0', '\u{1}', 'a', 'ß', '\u{d7ff}', '\u{e000}', '\u{ffff}', '\u{10000}', char::MAX];
    f32: [0.0, 1.0, 1.5, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, f32::NAN, f32::from_bits(1), f32::from_bits(0x7f80_0001)]
        .into_iter().flat_map(|float| [float, -float]).collect::<Vec<_>>();
    f64: [0.0, 1.0, 1.5, f64::MIN_POSITIVE, f64::MAX, f64::INFINITY, f64::NAN, f64::from_bits(1), f64::from_bits(0x7ff0_0000_0000_0001)]
        .into_iter().flat_map(|float| [float, -float]).collect::<Vec<_>>();
    String: ["", "\0", "\0\0", "\0\u{1}", "\u{1}", "a", "a\0", "a\0b", "ab", "b", "\u{7f}", "ß", "\u{10ffff}"].map(str::to_owned);
    Vec<u8>: [&b""[..], b"\0", b"\0\0", b"\0\x01", b"\0\xff", b"\x01", b"\xfe\xff", b"\xff", b"\xff\0", b"\xff\xff"].map(<[u8]>::to_vec);
    [u8; 0]: [[]];
    [u8; 3]: [[0; 3], [0, 0, 1], [0, 255, 0], [1, 0, 0], [255; 3]];
}

impl<T: Edges> Edges for Option<T> {
    fn edges() -> Vec<Self> {
        T::edges().into_iter().map(Some).chain([None]).collect()
    }
}

macro_rules! tuple_edges {
    ($($element:ident $name:ident $step:literal),+) => {
        impl<$($element: Edges + Clone),+> Edges for ($($element,)+) {
            fn edges() -> Vec<Self> {
                // The elements are cycled independently, which covers only some of the
                // combinations.
                $(let $name = $element::edges();)+
                (0..240).map(|at| ($($name[at / $step % $name.len()].clone(),)+)).collect()
            }
        }
    };
}

tuple_edges!(A a 1);
tuple_edges!(A a 16, B b 1);
tuple_edges!(A a 64, B b 8, C c 1);
tuple_edges!(A a 64, B b 16, C c 4, D d 1);
tuple_edges!(A a 128, B b 64, C c 32, D d 16, E e 8, F f 4, G g 2, H h 1);

/// Verifies the properties that every kind must have.
fn fits<T>(name: &str)
where
    T: Element<Codec: Both>
        + Value<Codec = <T as Key>::Codec, Owned = <T as Key>::Owned>
        + Key<Owned: Edges + Ordered>,
{
    assert_eq!(<T as Key>::kind(), name);
    assert_eq!(<T as Value>::kind(), name);
    let mut edges = <T as Key>::Owned::edges();
    edges.sort_by(Ordered::order);
    for (at, a) in edges.iter().enumerate() {
        let (key_of_a, element_of_a, value_of_a) = (key::<T>(a), element::<T>(a), value::<T>(a));
        let same = |b: Option<<T as Key>::Owned>| b.is_some_and(|b| b.order(a).is_eq());
        assert!(
            same(<T as Key>::decode(&<T as Key>::fixed().unwrap(), <T as Key>::Codec::of(&key_of_a))),
            "{name}: key {a:?}"
        );
        let owned = <T as Value>::Codec::of(&value_of_a);
        let borrowed = <<T as Value>::Codec as Codec>::borrow(&owned);
        assert!(same(<T as Value>::decode(&<T as Value>::fixed().unwrap(), borrowed)), "{name}: value {a:?}");
        let viewed =
            <T as Value>::view(&<T as Value>::fixed().unwrap(), borrowed, |viewed| value_of::<T>(viewed));
        assert_eq!(viewed, Some(value_of_a), "{name}: {a:?}");
        assert!(same(<T as Value>::take(&<T as Value>::fixed().unwrap(), owned)), "{name}: value {a:?}");
        assert!(same(decode::<T>(&element_of_a)), "{name}: element {a:?}");
        for cut in 0..element_of_a.len() {
            assert!(decode::<T>(&element_of_a[..cut]).is_none(), "{name}: {a:?} cut to {cut} bytes");
        }
        assert!(
            decode::<T>(&[&element_of_a[..], &[0]].concat()).is_none(),
            "{name}: {a:?} and one byte more"
        );
        for b in &edges[at..] {
            let order = a.order(b);
            assert_eq!(key_of_a.cmp(&key::<T>(b)), order, "{name}: keys {a:?}, {b:?}");
            // No element is a prefix of another one, regardless of the following bytes.
            let (mut long_a, mut long_b) = (element_of_a.clone(), element::<T>(b));
            assert_eq!(long_a.cmp(&long_b), order, "{name}: elements {a:?}, {b:?}");
            if order.is_ne() {
                long_a.push(0xff);
                long_b.push(0);
                assert_eq!(long_a.cmp(&long_b), order, "{name}: {a:?}, {b:?} with others behind");
            }
        }
    }
}

macro_rules! every_kind {
    ($visit:ident) => {
        $visit!((), "()");
        $visit!(bool, "bool");
        $visit!(u8, "u8");
        $visit!(u16, "u16");
        $visit!(u32, "u32");
        $visit!(u64, "u64");
        $visit!(u128, "u128");
        $visit!(i8, "i8");
        $visit!(i16, "i16");
        $visit!(i32, "i32");
        $visit!(i64, "i64");
        $visit!(i128, "i128");
        $visit!(f32, "f32");
        $visit!(f64, "f64");
        $visit!(char, "char");
        $visit!(String, "str");
        $visit!(&'static str, "str");
        $visit!(Vec<u8>, "bytes");
        $visit!(&'static [u8], "bytes");
        $visit!([u8; 0], "[u8; 0]");
        $visit!([u8; 3], "[u8; 3]");
        $visit!(Option<u64>, "Option<u64>");
        $visit!(Option<String>, "Option<str>");
        $visit!(Option<Option<()>>, "Option<Option<()>>");
        $visit!(Option<(bool, Vec<u8>)>, "Option<(bool, bytes)>");
        $visit!((char,), "(char,)");
        $visit!((&'static str, u64), "(str, u64)");
        $visit!((f64, i8), "(f64, i8)");
        $visit!((String, u32, Vec<u8>), "(str, u32, bytes)");
        $visit!((i32, (String, Option<i64>), String), "(i32, (str, Option<i64>), str)");
        $visit!((Option<String>, [u8; 3], u16, i128), "(Option<str>, [u8; 3], u16, i128)");
        $visit!(
            ((), bool, u8, String, char, i16, f32, Vec<u8>),
            "((), bool, u8, str, char, i16, f32, bytes)"
        );
    };
}

#[test]
fn kinds_keep_their_order_and_come_back() {
    macro_rules! visit {
        ($type:ty, $name:literal) => {
            fits::<$type>($name);
        };
    }
    every_kind!(visit);
}

/// Damaged bytes must fail to decode or decode to a valid value.
#[test]
fn kinds_of_damaged_bytes_refuse_or_decode() {
    fn damaged<T: Element<Codec: Both> + Value<Codec = <T as Key>::Codec, Owned = <T as Key>::Owned>>()
    where
        <T as Key>::Owned: Edges,
    {
        for edge in <T as Key>::Owned::edges() {
            for encoded in [key::<T>(&edge), value::<T>(&edge)] {
                let others: Vec<Encoded> = match encoded {
                    Encoded::Word(word) => (0..64).map(|bit| Encoded::Word(word ^ 1 << bit)).collect(),
                    Encoded::Bytes(bytes) => {
                        let flipped = (0..8 * bytes.len()).map(|bit| {
                            let mut bytes = bytes.clone();
                            bytes[bit / 8] ^= 1 << (bit % 8);
                            bytes
                        });
                        let cut = (0..bytes.len()).map(|len| bytes[..len].to_vec());
                        flipped.chain(cut).map(Encoded::Bytes).collect()
                    }
                };
                for other in others {
                    let owned = <T as Key>::Codec::of(&other);
                    // A decoded value must encode to the same bytes.
                    if let Some(decoded) = <T as Key>::decode(&<T as Key>::fixed().unwrap(), owned.clone()) {
                        assert_eq!(key::<T>(&decoded), other, "{}", <T as Key>::kind());
                    }
                    let borrowed = <<T as Key>::Codec as Codec>::borrow(&owned);
                    let viewed = <T as Value>::view(&<T as Value>::fixed().unwrap(), borrowed, |viewed| {
                        value_of::<T>(viewed)
                    });
                    assert_eq!(
                        viewed,
                        <T as Value>::decode(&<T as Value>::fixed().unwrap(), borrowed)
                            .map(|decoded| value::<T>(&decoded))
                    );
                    assert!(viewed.is_none_or(|viewed| viewed == other));
                }
            }
        }
    }
    macro_rules! visit {
        ($type:ty, $name:literal) => {
            damaged::<$type>();
        };
    }
    every_kind!(visit);
    assert_eq!(<bool as Value>::decode(&(), 2), None);
    assert_eq!(<char as Key>::decode(&(), 0xd800), None);
    assert_eq!(<u32 as Value>::decode(&(), 1 << 32), None);
    assert_eq!(<String as Value>::decode(&(), b"\xff"), None);
    assert_eq!(<[u8; 3] as Value>::decode(&(), b"ab"), None);
}

/// Must match the table in `docs/format.md`.
#[test]
fn kinds_are_encoded_as_ever() {
    fn word<T: Word>(item: T, key: u64, value: u64) {
        assert_eq!((item.to_key(), item.to_value()), (key, value), "{}", T::NAME);
    }
    use words::Word;
    word((), 0, 0);
    word(true, 1, 1);
    word(0x12u8, 0x12, 0x12);
    word(0x1234u16, 0x1234, 0x1234);
    word(0x1234_5678u32, 0x1234_5678, 0x1234_5678);
    word(0x1234_5678_9abc_def0u64, 0x1234_5678_9abc_def0, 0x1234_5678_9abc_def0);
    word(-2i8, 0x7e, u64::MAX - 1);
    word(-2i16, 0x7ffe, u64::MAX - 1);
    word(-2i32, 0x7fff_fffe, u64::MAX - 1);
    word(-2i64, 0x7fff_ffff_ffff_fffe, u64::MAX - 1);
    word(2i32, 0x8000_0002, 2);
    word(1.0f32, 0xbf80_0000, 0x3f80_0000);
    word(-1.0f32, 0x407f_ffff, 0xbf80_0000);
    word(1.0f64, 0xbff0_0000_0000_0000, 0x3ff0_0000_0000_0000);
    word(-0.0f64, 0x7fff_ffff_ffff_ffff, 0x8000_0000_0000_0000);
    word('ß', 0xdf, 0xdf);

    fn record<T>(item: <T as Key>::Ref<'_>, alone: &[u8], in_a_tuple: &[u8])
    where
        T: Element<Codec = crate::index::parts::codec::Record>
            + for<'a> Value<Ref<'a> = <T as Key>::Ref<'a>, Codec = crate::index::parts::codec::Record>,
    {
        <T as Key>::with(&<T as Key>::fixed().unwrap(), item, |bytes| {
            assert_eq!(bytes, alone, "{}", <T as Key>::kind());
            Ok(())
        })
        .unwrap();
        <T as Value>::with(&<T as Value>::fixed().unwrap(), item, |bytes| {
            assert_eq!(bytes, alone, "{}", <T as Key>::kind());
            Ok(())
        })
        .unwrap();
        encode::<T, _>(item, |bytes| assert_eq!(bytes, in_a_tuple, "{}", <T as Key>::kind()));
    }
    let wide = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2];
    record::<u128>(0x102, &wide, &wide);
    let wide = [0x7f, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 254];
    record::<i128>(-2, &wide, &wide);
    record::<String>("a\0b", b"a\0b", b"a\0\xffb\0\x01");
    record::<Vec<u8>>(b"\0", b"\0", b"\0\xff\0\x01");
    record::<[u8; 3]>([1, 0, 2], &[1, 0, 2], &[1, 0, 2]);
    record::<Option<u16>>(None, &[0], &[0]);
    record::<Option<u16>>(Some(0x102), &[1, 1, 2], &[1, 1, 2]);
    record::<((), bool, u8, i8, u16, i16)>(
        ((), true, 3, -2, 0x405, -2),
        &[1, 3, 0x7e, 4, 5, 0x7f, 0xfe],
        &[1, 3, 0x7e, 4, 5, 0x7f, 0xfe],
    );
    let numbers = [
        &[0, 0, 0, 0, 1, 2, 3, 4][..],
        &[0x7f, 255, 255, 254],
        &[0, 0, 0, 0, 0, 0, 0, 5],
        &[0x7f, 255, 255, 255, 255, 255, 255, 254],
    ]
    .concat();
    record::<(u32, i32, u64, i64)>((0x0102_0304, -2, 5, -2), &numbers, &numbers);
    let rest = [&[0xbf, 0x80, 0, 0][..], &[0xbf, 0xf0, 0, 0, 0, 0, 0, 0], &[0, 0, 0, 0xdf], b"x\0\x01", &[0]]
        .concat();
    record::<(f32, f64, char, (String,), Option<()>)>((1.0, 1.0, 'ß', ("x",), None), &rest, &rest);

    fn entry<T: Value<Schema = (), Codec: Codec<Entry = Record>>>(value: T::Ref<'_>, stored: &[u8]) {
        let entry = crate::Expiring::new(value, crate::Expiry::from_millis(0x0102));
        let expected = [&[2, 1, 0, 0, 0, 0, 0, 0], stored].concat();
        <crate::Expiring<T> as Value>::with(&(), entry, |bytes| {
            assert_eq!(bytes, expected, "{}", T::kind());
            Ok(())
        })
        .unwrap();
    }
    entry::<i8>(-2, &[0xfe, 255, 255, 255, 255, 255, 255, 255]);
    entry::<String>("a\0b", b"a\0b");
    entry::<(u8, String)>((3, "x"), b"\x03x\0\x01");
}
