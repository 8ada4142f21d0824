//! A client of a server: RESP2, or RESP3 after `HELLO 3`; one connection, nothing hidden.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// What a server replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Status(String),
    Error(String),
    Number(i64),
    Bytes(Vec<u8>),
    Null,
    Array(Vec<Reply>),
    /// A map of RESP3.
    Map(Vec<(Reply, Reply)>),
    /// A null of RESP3, which has one of its own.
    Null3,
    /// A set of RESP3.
    Set(Vec<Reply>),
}

impl Reply {
    /// Returns it as text: elements of an array with spaces between them.
    pub fn text(&self) -> String {
        match self {
            Self::Status(text) | Self::Error(text) => text.clone(),
            Self::Number(number) => number.to_string(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Null | Self::Null3 => "nil".to_owned(),
            Self::Map(entries) => entries
                .iter()
                .map(|(key, value)| key.text() + " " + &value.text())
                .collect::<Vec<_>>()
                .join(" "),
            Self::Array(items) | Self::Set(items) => {
                items.iter().map(Self::text).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// Returns a command as it is sent.
fn request(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words.iter().map(AsRef::as_ref) {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
    request
}

/// A connection.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects to a port of this machine.
    pub fn connect(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a command and returns its reply; an error, if the connection broke.
    pub fn send(&mut self, words: &[&[u8]]) -> std::io::Result<Reply> {
        self.ask(words)?;
        self.read()
    }

    /// Sends a command whose reply is read later.
    pub fn ask(&mut self, words: &[&[u8]]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(&request(words))
    }

    /// Sends commands in one write; their replies are read later.
    pub fn ask_all(&mut self, commands: &[Vec<Vec<u8>>]) -> std::io::Result<()> {
        let requests: Vec<u8> = commands.iter().flat_map(|words| request(words)).collect();
        self.stream.get_mut().write_all(&requests)
    }

    /// Sends words that spaces separate, and returns the reply as text.
    pub fn run(&mut self, words: &str) -> String {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        self.send(&words).expect("the server replies").text()
    }

    /// Reads a reply.
    pub fn read(&mut self) -> std::io::Result<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        if !line.ends_with("\r\n") {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let rest = line[1..].trim_end().to_owned();
        let number = || rest.parse::<i64>().map_err(|_| std::io::Error::other(line.clone()));
        Ok(match line.as_bytes()[0] {
            b'+' => Reply::Status(rest),
            b'-' => Reply::Error(rest),
            b':' => Reply::Number(number()?),
            b'$' if number()? < 0 => Reply::Null,
            b'$' => {
                let mut bytes = vec![0; number()? as usize + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Bytes(bytes)
            }
            b'*' if number()? < 0 => Reply::Null,
            b'*' => Reply::Array((0..number()?).map(|_| self.read()).collect::<Result<_, _>>()?),
            b'~' => Reply::Set((0..number()?).map(|_| self.read()).collect::<Result<_, _>>()?),
            b'%' => Reply::Map(
                (0..number()?).map(|_| Ok((self.read()?, self.read()?))).collect::<std::io::Result<_>>()?,
            ),
            b'_' => Reply::Null3,
            _ => return Err(std::io::Error::other(line)),
        })
    }
}
