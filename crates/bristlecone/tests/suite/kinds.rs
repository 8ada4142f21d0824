//! Every kind as a key and as a value, in every design, typed and dynamic alternately: compared with
//! `BTreeMap`.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::common::{Configuration, Noise, Plant, Scratch, inserted, small, swapped};
use bristlecone::dynamic::Datum;
use bristlecone::{Error, Key, Pool, Tree, Value, dynamic};

/// A type with few frequent values.
pub trait Sample: Clone {
    fn sample(noise: &mut Noise) -> Self;
}

macro_rules! samples {
    ($($type:ty: $edges:expr;)+) => {$(
        impl Sample for $type {
            fn sample(noise: &mut Noise) -> Self {
                let edges = $edges;
                edges[noise.below(edges.len() as u64) as usize].to_owned()
            }
        }
    )+};
}

macro_rules! integer_samples {
    ($($type:ty),+) => {$(
        impl Sample for $type {
            fn sample(noise: &mut Noise) -> Self {
                match noise.below(4) {
                    0 => [<$type>::MIN, <$type>::MAX, 0, !0][noise.below(4) as usize],
                    1 => 1 << noise.below(<$type>::BITS.into()),
                    2 => !(1 << noise.below(<$type>::BITS.into())),
                    _ => noise.below(100) as $type,
                }
            }
        }
    )+};
}

integer_samples!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

samples! {
    (): [()];
    bool: [true, false];
    char: ['\0', 'a', 'b', 'ß', '\u{d7ff}', '\u{e000}', '\u{ffff}', '\u{10000}', char::MAX];
    f32: [0.0, -0.0, 1.5, -1.5, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN, f32::from_bits(1)];
    f64: [0.0, -0.0, 1.5, -1.5, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN, f64::from_bits(1)];
    String: ["", "\0", "\0\u{1}", "a", "a\0", "ab", "path/that/is/shared", "path/that/is/shared/by", "ß"];
    Vec<u8>: [&b""[..], b"\0", b"\0\xff", b"\0\x01", b"a", b"ab", b"\xff", b"\xff\xff", b"path/that/is/shared"];
    [u8; 0]: [[]];
    [u8; 3]: [[0; 3], [0, 0, 1], [0, 255, 0], [1, 0, 0], [255; 3]];
}

impl<T: Sample> Sample for Option<T> {
    fn sample(noise: &mut Noise) -> Self {
        (noise.below(4) > 0).then(|| T::sample(noise))
    }
}

macro_rules! tuple_samples {
    ($($element:ident),+) => {
        impl<$($element: Sample),+> Sample for ($($element,)+) {
            fn sample(noise: &mut Noise) -> Self {
                ($($element::sample(noise),)+)
            }
        }
    };
}

tuple_samples!(A);
tuple_samples!(A, B);
tuple_samples!(A, B, C);
tuple_samples!(A, B, C, D);
tuple_samples!(A, B, C, D, E);
tuple_samples!(A, B, C, D, E, F);
tuple_samples!(A, B, C, D, E, F, G);
tuple_samples!(A, B, C, D, E, F, G, H);

/// Keys and values of one kind, with the same argument and result types.
pub trait Both: Key + Value<Owned = <Self as Key>::Owned> {}

impl<T: Key + Value<Owned = <T as Key>::Owned>> Both for T {}

pub type Owned<T> = <T as Key>::Owned;
type Model = BTreeMap<Datum<'static>, Datum<'static>>;

/// A tree with both interfaces, and its expected contents.
struct Trees<T: Both> {
    typed: Tree<T, T>,
    dynamic: dynamic::Tree,
    model: Model,
}

impl<T: Both> Trees<T>
where
    Owned<T>: Sample + Into<Datum<'static>> + TryFrom<Datum<'static>, Error = Error>,
{
    fn datum(owned: &Owned<T>) -> Datum<'static> {
        owned.clone().into()
    }

    /// One operation, typed or dynamic.
    fn step(&mut self, noise: &mut Noise) {
        let (key, value) = (Owned::<T>::sample(noise), Owned::<T>::sample(noise));
        let (key_ref, value_ref) = (<T as Key>::lend(&key), <T as Value>::lend(&value));
        let (key_datum, value_datum) = (Self::datum(&key), Self::datum(&value));
        let held = self.model.get(&key_datum).cloned();
        let typed = |old: Option<Owned<T>>| old.map(|old| Self::datum(&old));
        let (old, is_written) = match noise.below(8) {
            0 => (typed(self.typed.insert(key_ref, value_ref).unwrap()), true),
            1 => (self.dynamic.insert(&key_datum, &value_datum).unwrap(), true),
            2 => (typed(self.typed.update(key_ref, value_ref).unwrap()), held.is_some()),
            3 => (self.dynamic.update(&key_datum, &value_datum).unwrap(), held.is_some()),
            4 => (inserted(self.dynamic.try_insert(&key_datum, &value_datum)), held.is_none()),
            5 => {
                // The current value, or another one, or none.
                let other = Some(value_datum.clone()).filter(|_| held.is_none());
                let expected = if noise.below(3) == 0 { other } else { held.clone() };
                let new = Some(value_datum.clone()).filter(|_| noise.below(3) > 0);
                let due = if expected == held { Ok(()) } else { Err(held.clone()) };
                let done = self.dynamic.compare_and_swap(&key_datum, expected.as_ref(), new.as_ref());
                assert_eq!(swapped(done), due);
                if due.is_ok() && new.is_none() {
                    self.model.remove(&key_datum);
                }
                (held.clone(), due.is_ok() && new.is_some())
            }
            6 => {
                self.dynamic.upsert(&key_datum, &value_datum).unwrap();
                (held.clone(), true)
            }
            _ => {
                let removed = match noise.below(2) {
                    0 => typed(self.typed.remove(key_ref).unwrap()),
                    _ => self.dynamic.remove(&key_datum).unwrap(),
                };
                assert_eq!(self.model.remove(&key_datum), removed);
                (held.clone(), false)
            }
        };
        assert_eq!(old, held);
        if is_written {
            self.model.insert(key_datum.clone(), value_datum);
        }
        let expected = self.model.get(&key_datum).cloned();
        assert_eq!(typed(self.typed.get(key_ref).unwrap()), expected);
        assert_eq!(self.dynamic.get(&key_datum).unwrap(), expected);
        assert_eq!(self.dynamic.contains_key(&key_datum).unwrap(), expected.is_some());
        let shown = self
            .typed
            .get_with(key_ref, |shown| match &expected {
                // A value that was shown can be written again.
                Some(_) => self.typed.insert(key_ref, shown).unwrap().map(|old| Self::datum(&old)),
                None => None,
            })
            .unwrap();
        assert_eq!(shown.flatten(), expected);
    }

    /// Verifies that both interfaces return the model's items in order, also from any key on.
    fn compare(&self, noise: &mut Noise) {
        let pairs = || self.model.iter().map(|(key, value)| (key.clone(), value.clone()));
        let typed = || {
            self.typed.iter().map(Result::unwrap).map(|(key, value)| (Self::datum(&key), Self::datum(&value)))
        };
        assert!(typed().eq(pairs()) && typed().rev().eq(pairs().rev()), "{:?}", self.dynamic);
        let dynamic = || self.dynamic.range(..).map(Result::unwrap);
        assert!(dynamic().eq(pairs()) && dynamic().rev().eq(pairs().rev()), "{:?}", self.dynamic);
        let checked: Vec<_> = self.dynamic.range(..).map(Result::unwrap).collect();
        assert!(checked.into_iter().eq(pairs()));
        let from = Owned::<T>::sample(noise);
        let bounds = (Bound::Excluded(Self::datum(&from)), Bound::Unbounded);
        let above = || self.model.range(bounds.clone()).map(|(key, _)| key.clone());
        assert!(
            self.dynamic
                .range((bounds.0.as_ref(), bounds.1.as_ref()))
                .map(Result::unwrap)
                .map(|(key, _)| key)
                .eq(above())
        );
        let bounds = (Bound::Excluded(<T as Key>::lend(&from)), Bound::Unbounded);
        assert!(self.typed.range(bounds).map(Result::unwrap).map(|(key, _)| Self::datum(&key)).eq(above()));
        assert_eq!(self.dynamic.first_key_value().unwrap(), pairs().next());
        assert_eq!(self.dynamic.last_key_value().unwrap(), pairs().next_back());
        for (key, value) in pairs() {
            let key = Owned::<T>::try_from(key).unwrap();
            assert_eq!(Self::datum(&self.typed.get(<T as Key>::lend(&key)).unwrap().unwrap()), value);
        }
        assert_eq!(self.dynamic.check(), []);
        assert_eq!(self.dynamic.len().unwrap(), self.model.len() as u64);
    }

    fn run(pool: &Pool, shape: Configuration, number: usize) -> Model {
        let (name, mut noise) = (number.to_string(), Noise(number as u64 + 1));
        let typed: Tree<T, T> = shape.create(pool, &name).unwrap();
        let dynamic = pool.dynamic_tree(&name).unwrap();
        let mut trees = Self { typed, dynamic, model: Model::new() };
        for _ in 0..2 {
            (0..80).for_each(|_| trees.step(&mut noise));
            trees.compare(&mut noise);
        }
        trees.model
    }

    fn run_again(pool: &Pool, shape: Configuration, number: usize, model: Model) {
        let dynamic = pool.dynamic_tree(&number.to_string()).unwrap();
        let typed = shape.open(pool, &number.to_string()).unwrap();
        Self { typed, dynamic, model }.compare(&mut Noise(7));
    }
}

/// The test of each kind: in a new tree, and in a reopened one.
type Run = (fn(&Pool, Configuration, usize) -> Model, fn(&Pool, Configuration, usize, Model));

/// Calls a macro with every kind of keys.
macro_rules! each_kind {
    ($with:ident) => {
        $with!(
            (),
            bool,
            char,
            u8,
            u16,
            u32,
            u64,
            u128,
            i8,
            i16,
            i32,
            i64,
            i128,
            f32,
            f64,
            String,
            &'static str,
            Vec<u8>,
            &'static [u8],
            [u8; 0],
            [u8; 3],
            Option<u64>,
            Option<String>,
            Option<Option<()>>,
            (i16,),
            (String, u64),
            (f64, Option<(bool, Vec<u8>)>),
            (u8, char, String),
            (String, i32, [u8; 3], u128),
            (u8, u8, u8, u8, String),
            ((), bool, u8, String, char, i16),
            (i8, i16, i32, i64, i128, u8, u16),
            ((u8,), (String, u8), f32, bool, (), i8, i8, Vec<u8>),
        );
    };
}
pub(crate) use each_kind;

macro_rules! kinds {
    ($($type:ty),+ $(,)?) => {
        const KINDS: &[Run] = &[$((Trees::<$type>::run, Trees::<$type>::run_again)),+];
    };
}

each_kind!(kinds);

#[test]
fn every_kind_is_key_and_value() {
    for shape in small() {
        // A few trees per pool: each has its own chunks for records of every size.
        for kinds in KINDS.chunks(6) {
            let scratch = Scratch::new();
            let open = || scratch.options().max_bytes(1 << 30).open(&scratch.0).unwrap();
            let pool = open();
            let models = kinds.iter().enumerate().map(|(number, (run, _))| run(&pool, shape, number));
            let models: Vec<_> = models.collect();
            drop(pool);
            let pool = open();
            for (number, (model, (_, run_again))) in models.into_iter().zip(kinds).enumerate() {
                run_again(&pool, shape, number, model);
            }
        }
    }
}
