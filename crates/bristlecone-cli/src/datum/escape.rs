//! Bytes as printable text, and back.

/// Appends bytes as printable text. Valid printable UTF-8 is unchanged.
pub fn escape(bytes: &[u8], hexadecimal: bool, to: &mut Vec<u8>) {
    for piece in bytes.utf8_chunks() {
        for character in piece.valid().chars() {
            match character {
                '\t' => to.extend_from_slice(b"\\t"),
                '\n' => to.extend_from_slice(b"\\n"),
                '\r' => to.extend_from_slice(b"\\r"),
                '\\' => to.extend_from_slice(b"\\\\"),
                other if hexadecimal && other.is_control() => {
                    for byte in other.encode_utf8(&mut [0; 4]).bytes() {
                        escape_byte(byte, to);
                    }
                }
                other => to.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        for byte in piece.invalid() {
            escape_byte(*byte, to);
        }
    }
}

fn escape_byte(byte: u8, to: &mut Vec<u8>) {
    to.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
}

/// Returns the text without its escapes.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        bytes.push(match rest.next() {
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b'\\') => b'\\',
            Some(b'x') => {
                let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
                match (digit(rest.next()), digit(rest.next())) {
                    (Some(high), Some(low)) => (high << 4 | low) as u8,
                    _ => return Err("\\x must be followed by two hexadecimal digits".to_owned()),
                }
            }
            Some(other) => {
                let other = char::from(*other);
                return Err(format!("unknown escape \\{other}: \\\\, \\t, \\n, \\r and \\xNN are known"));
            }
            None => return Err("a backslash at the end: write \\\\ for a backslash".to_owned()),
        });
    }
    Ok(bytes)
}

/// Quotes an input for a one-line error; a long input is truncated.
pub fn quoted(text: &[u8]) -> String {
    const SHOWN: usize = 40;
    let mut shown = text[..text.len().min(SHOWN)].escape_ascii().to_string();
    if let Ok(text) = std::str::from_utf8(text) {
        shown = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    }
    let rest = if text.len() > SHOWN { format!("… ({} bytes)", text.len()) } else { String::new() };
    format!("\"{shown}\"{rest}")
}
