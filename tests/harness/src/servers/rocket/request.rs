//! A request to a name server or a broker: one frame of their protocol, and its answer.
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Map, Value, json};

pub(super) const PUBLISHED: u16 = 30;
pub(super) const CONSUMED: u16 = 14;
pub(super) const STATISTICS: u16 = 28;
pub(super) const ROUTE: u16 = 105;

/// The port of a name server or a broker.
pub(super) struct Ask(pub(super) u16);

/// An answer.
pub(super) struct Answer {
    header: Value,
    body: Vec<u8>,
}

const PATIENCE: Duration = Duration::from_secs(5);

impl Ask {
    /// Sends a request with this code and these fields.
    ///
    /// # Errors
    /// If the server does not answer.
    pub(super) fn of(&self, code: u16, fields: &[(&str, &str)]) -> Result<Answer, String> {
        self.ask(code, fields).map_err(|e| format!("no answer from RocketMQ: {e}"))
    }

    fn ask(&self, code: u16, fields: &[(&str, &str)]) -> io::Result<Answer> {
        let fields: Map<String, Value> = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let header = json!({
            "code": code, "language": "OTHER", "version": 0, "opaque": 1, "flag": 0, "extFields": fields,
            "serializeTypeCurrentRPC": "JSON",
        });
        let header = header.to_string();
        let length = u32::try_from(header.len()).map_err(io::Error::other)?;
        let mut stream = TcpStream::connect(("127.0.0.1", self.0))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&[&(length + 4).to_be_bytes()[..], &length.to_be_bytes(), header.as_bytes()].concat())?;
        let mut lengths = [0; 8];
        stream.read_exact(&mut lengths)?;
        let [a, b, c, d, _, f, g, h] = lengths;
        // The first byte of the header's length is the encoding of the header.
        let (frame, header) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([0, f, g, h]));
        let body = frame.checked_sub(header + 4).ok_or(io::ErrorKind::InvalidData)?;
        let header = read(&mut stream, header)?;
        Ok(Answer { header: serde_json::from_slice(&header)?, body: read(&mut stream, body)? })
    }
}

fn read(stream: &mut TcpStream, bytes: u32) -> io::Result<Vec<u8>> {
    let mut read = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    stream.read_exact(&mut read)?;
    Ok(read)
}

impl Answer {
    pub(super) fn is_good(&self) -> bool {
        self.header["code"] == 0
    }

    pub(super) fn number(&self, field: &str) -> Option<u64> {
        self.header["extFields"][field].as_str()?.parse().ok()
    }

    /// Returns a text of the table in the body.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        body["table"][name].as_str().map(str::to_owned)
    }
}
