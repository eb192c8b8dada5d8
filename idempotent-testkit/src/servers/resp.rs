//! A client of a few lines, for what a test asks a server by hand.
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A server that is paused does not answer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What a server answered.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// There is none.
    Nil,
    /// A status such as `OK`.
    Status(String),
    /// An error, its code first.
    Error(String),
    /// A number.
    Integer(i64),
    /// A string.
    Bytes(Vec<u8>),
    /// Several values.
    Array(Vec<Self>),
}

impl Value {
    /// A status, an error, a number or a string as text; empty for nil and arrays.
    pub fn text(&self) -> String {
        match self {
            Self::Status(text) | Self::Error(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Nil | Self::Array(_) => String::new(),
        }
    }

    /// A number, or a string that is one.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            other => other.text().parse().ok(),
        }
    }

    /// An array's values; none for all others.
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(values) => values,
            _ => &[],
        }
    }

    /// Whether the server refused.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

/// A connection through the server's socket file, which is there whatever it listens on, and is surely its own.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    pub(super) fn open(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub(super) fn ask<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Value> {
        let mut request = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            let argument = argument.as_ref();
            request.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            request.extend_from_slice(argument);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request)?;
        self.value()
    }

    fn value(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let line = line.strip_suffix("\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let strange = || io::Error::new(io::ErrorKind::InvalidData, line.to_owned());
        let kind = *line.as_bytes().first().ok_or_else(strange)?;
        let rest = line.get(1..).ok_or_else(strange)?;
        let number = || rest.parse::<i64>().map_err(|_| strange());
        Ok(match kind {
            b'+' => Value::Status(rest.to_owned()),
            b'-' => Value::Error(rest.to_owned()),
            b':' => Value::Integer(number()?),
            b'$' => match usize::try_from(number()?) {
                Ok(length) => Value::Bytes(self.bytes(length)?),
                Err(_) => Value::Nil,
            },
            b'*' => match usize::try_from(number()?) {
                Ok(length) => Value::Array((0..length).map(|_| self.value()).collect::<io::Result<_>>()?),
                Err(_) => Value::Nil,
            },
            _ => return Err(strange()),
        })
    }

    fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(bytes)
    }
}
