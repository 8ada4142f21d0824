//! Written text is parsed as the same value, for every kind and form.

use bristlecone_random::Generator;

use super::*;

/// A seeded generator of values.
struct Drawn(Generator);

impl Drawn {
    fn word(&mut self) -> u64 {
        self.0.word()
    }

    /// Returns a word of any magnitude, often an extreme one.
    fn number(&mut self) -> u64 {
        match self.word() % 8 {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << 63,
            3 => (1 << 53) + 1,
            _ => self.word() >> (self.word() % 64),
        }
    }

    fn character(&mut self) -> char {
        const ODD: [char; 14] =
            ['\0', '\t', '\n', '\r', '\\', '"', '\'', ',', '[', '{', '\u{7f}', '\u{85}', 'ü', char::MAX];
        match self.word() % 3 {
            0 => ODD[(self.word() % 14) as usize],
            1 => char::from(b'a' + (self.word() % 26) as u8),
            _ => char::from_u32((self.word() % 0x11_0000) as u32).unwrap_or('x'),
        }
    }

    fn text(&mut self) -> String {
        (0..self.word() % 12).map(|_| self.character()).collect()
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len)
            .map(|_| {
                if self.word().is_multiple_of(2) {
                    b'a' + (self.word() % 26) as u8
                } else {
                    self.word() as u8
                }
            })
            .collect()
    }

    fn datum(&mut self, kind: &Kind) -> Datum {
        let wide = u128::from(self.number()) << 64 | u128::from(self.number());
        match kind {
            Kind::Unit => Datum::Unit,
            Kind::Bool => Datum::Bool(self.word().is_multiple_of(2)),
            Kind::U8 => Datum::U8(self.number() as u8),
            Kind::U16 => Datum::U16(self.number() as u16),
            Kind::U32 => Datum::U32(self.number() as u32),
            Kind::U64 => Datum::U64(self.number()),
            Kind::U128 => Datum::U128(wide),
            Kind::I8 => Datum::I8(self.number() as i8),
            Kind::I16 => Datum::I16(self.number() as i16),
            Kind::I32 => Datum::I32(self.number() as i32),
            Kind::I64 => Datum::I64(self.number() as i64),
            Kind::I128 => Datum::I128(wide as i128),
            // Any bits, including infinities, subnormals and every NaN.
            Kind::F32 => Datum::F32(f32::from_bits(self.exponent(0xff << 23) as u32)),
            Kind::F64 => Datum::F64(f64::from_bits(self.exponent(0x7ff << 52))),
            Kind::Char => Datum::Char(self.character()),
            Kind::Str => Datum::Str(self.text().into()),
            Kind::Json => {
                Datum::Json(serde_json::json!({ "a": [self.text(), self.number()] }).to_string().into())
            }
            Kind::Bytes | Kind::Postcard => {
                let len = self.word() % 20;
                let bytes = self.bytes(len as usize).into();
                if *kind == Kind::Bytes { Datum::Bytes(bytes) } else { Datum::Postcard(bytes) }
            }
            Kind::Array(len) => Datum::Bytes(self.bytes(*len).into()),
            Kind::Option(_) if self.word().is_multiple_of(3) => Datum::Option(None),
            Kind::Option(inner) => Datum::Option(Some(Box::new(self.datum(inner)))),
            Kind::Tuple(kinds) => Datum::Tuple(kinds.iter().map(|kind| self.datum(kind)).collect()),
            Kind::Expiring(inner) => {
                let expiry = bristlecone::Expiry::from_millis(self.number());
                Datum::Expiring(Box::new(self.datum(inner)), expiry)
            }
            other => panic!("{other} is not tested"),
        }
    }

    fn exponent(&mut self, all: u64) -> u64 {
        let bits = self.word();
        if self.word().is_multiple_of(4) { bits | all } else { bits }
    }
}

/// Returns every simple kind, and kinds composed of them.
fn kinds() -> Vec<Kind> {
    use Kind::*;
    let option = |inner| Option(Box::new(inner));
    let simple = [
        Unit,
        Bool,
        U8,
        U16,
        U32,
        U64,
        U128,
        I8,
        I16,
        I32,
        I64,
        I128,
        F32,
        F64,
        Char,
        Str,
        Bytes,
        Array(0),
        Array(4),
    ];
    let mut kinds = simple.to_vec();
    kinds.extend([Json, Postcard]);
    kinds.extend(simple.iter().cloned().map(option));
    kinds.extend(simple.iter().cloned().map(|kind| Tuple(vec![kind])));
    kinds.extend(simple.iter().cloned().map(|kind| Expiring(Box::new(kind))));
    kinds.extend([Expiring(Box::new(Json)), Expiring(Box::new(Tuple(vec![Str, option(U64)])))]);
    kinds.push(option(option(Unit)));
    kinds.push(option(option(U64)));
    kinds.push(option(Tuple(vec![Str, option(Bytes)])));
    kinds.extend(simple.chunks(8).map(|kinds| Tuple(kinds.to_vec())));
    kinds.push(Tuple(vec![Tuple(vec![Unit]), Tuple(vec![Str, option(option(F32))])]));
    kinds
}

#[test]
fn every_kind_in_every_form_is_read_back_as_written() {
    let mut drawn = Drawn(Generator::new(1));
    for kind in kinds() {
        for _ in 0..500 {
            let datum = drawn.datum(&kind);
            for form in [Form::Plain, Form::Line] {
                let mut text = Vec::new();
                write(&datum, form, &mut text);
                let shown = String::from_utf8_lossy(&text);
                if form == Form::Line {
                    assert!(!text.iter().any(|byte| matches!(byte, b'\t' | b'\n' | b'\r')), "{shown}");
                }
                let read = parse(&kind, &text, form);
                assert!(read.as_ref().is_ok_and(|read| *read == datum), "{kind}: {datum:?} {shown} {read:?}");
            }
            let text = serde_json::to_vec(&Json(&datum)).unwrap();
            let read = json::parse(&kind, &text);
            let shown = String::from_utf8_lossy(&text);
            assert!(read.as_ref().is_ok_and(|read| *read == datum), "{kind}: {datum:?} {shown} {read:?}");
        }
    }
}

#[test]
fn forms_are_those_of_the_manual() {
    let shown = |datum: Datum| Shown(&datum).to_string();
    let some = |inner| Datum::Option(Some(Box::new(inner)));
    assert_eq!(shown(Datum::Tuple(vec![Datum::Str("x".into()), Datum::U64(7)])), r#"["x",7]"#);
    assert_eq!(shown(Datum::Option(None)), "null");
    assert_eq!(shown(some(Datum::Str("null".into()))), r#""null""#);
    assert_eq!(shown(some(Datum::Option(None))), "[null]");
    assert_eq!(shown(Datum::F64(1.0)), "1.0");
    assert_eq!(shown(Datum::F64(f64::NAN)), "NaN");
    assert_eq!(shown(Datum::F64(-0.0)), "-0.0");
    assert_eq!(shown(Datum::Unit), "()");
    assert_eq!(shown(Datum::Bytes(b"\0\xff\ttab".into())), r"\x00\xff\ttab");
    let json = |datum: Datum| serde_json::to_string(&Json(&datum)).unwrap();
    assert_eq!(json(Datum::U64(u64::MAX)), "18446744073709551615");
    assert_eq!(json(Datum::U128(7)), "\"7\"");
    assert_eq!(json(Datum::F32(0.1)), "0.1");
    assert_eq!(json(Datum::F64(f64::INFINITY)), "\"inf\"");
    assert_eq!(json(Datum::Bytes(vec![0].into())), r#""\\x00""#);
}

#[test]
fn text_that_is_none_is_refused() {
    let tuple = Kind::Tuple(vec![Kind::Str, Kind::U8]);
    let cases: [(&Kind, &[&str]); 10] = [
        (&Kind::U64, &["", "-1", "1.5", "18446744073709551616", "x"]),
        (&Kind::I8, &["128", "-129", "1e2"]),
        (&Kind::Bool, &["", "True", "1"]),
        (&Kind::F64, &["", "x", "NaN:0x0", "NaN:0xzz"]),
        (&Kind::Char, &["", "ab", "\\q"]),
        (&Kind::Bytes, &["\\", "\\q", "\\x", "\\x4", "\\xg0"]),
        (&Kind::Array(2), &["", "a", "abc", "\\x00"]),
        (&Kind::Unit, &["x", "null"]),
        (&Kind::Json, &["", "x", "{", "[1,]"]),
        (&tuple, &["", "x", "[\"x\"]", "[\"x\",1,2]", "[1,1]", "[\"x\",256]", "[\"x\",1", "[\"x\",1.0]"]),
    ];
    for (kind, texts) in cases {
        for text in texts {
            assert!(parse(kind, text.as_bytes(), Form::Line).is_err(), "{kind}: {text}");
        }
    }
    assert!(parse(&Kind::Str, b"\xff", Form::Line).is_err());
    let error = parse(&tuple, b"x 7", Form::Plain).unwrap_err();
    assert!(error.contains(r#"written like ["x", 7]"#), "{error}");
}
