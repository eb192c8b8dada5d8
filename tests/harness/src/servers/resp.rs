//! A minimal client for the Redis protocol, for single commands of a test.
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The time limit for an answer, since a paused server does not answer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// An answer of a server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// No value.
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
    /// Returns a status, an error, a number or a string as text. Nil and arrays are empty.
    pub fn text(&self) -> String {
        match self {
            Self::Status(text) | Self::Error(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Nil | Self::Array(_) => String::new(),
        }
    }

    /// Returns a number, or the value of a string that contains one.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            other => other.text().parse().ok(),
        }
    }

    /// Returns the values of an array, and no values for other answers.
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(values) => values,
            _ => &[],
        }
    }

    /// Returns whether the answer is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

/// A minimal connection for single commands of a test, which shows all connection errors.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<Stream>,
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Connection {
    /// Connects to an address such as `127.0.0.1:6379`, without TLS.
    ///
    /// # Errors
    /// If no server listens there.
    pub fn to(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { stream: BufReader::new(Stream::Tcp(stream)) })
    }

    /// Connects by the socket file of the server, which exists on any listen address and belongs to no other server.
    pub(super) fn by(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { stream: BufReader::new(Stream::Unix(stream)) })
    }

    /// Sends a command and reads the answer. A refusal is a [`Value::Error`].
    ///
    /// # Errors
    /// If the connection ends, or no answer arrives within 20 s.
    pub fn ask<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Value> {
        self.send(arguments)?;
        self.answer()
    }

    /// Sends a command without reading its answer.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            let argument = argument.as_ref();
            request.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            request.extend_from_slice(argument);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request)
    }

    /// Reads the next answer.
    ///
    /// # Errors
    /// Like [`ask`](Self::ask).
    pub fn answer(&mut self) -> io::Result<Value> {
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
                Ok(length) => Value::Array((0..length).map(|_| self.answer()).collect::<io::Result<_>>()?),
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

/// The raw bytes of the connection.
impl Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(into),
            Self::Tcp(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.flush(),
            Self::Tcp(stream) => stream.flush(),
        }
    }
}
