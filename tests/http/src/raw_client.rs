//! An HTTP/1.1 client without hyper: it writes requests as bytes and parses the responses itself.
use std::fmt::Write as _;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::soon;

/// A request; [`bytes`](Self::bytes) returns its wire form.
#[derive(Clone, Debug)]
pub struct Ask {
    line: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    /// The size of each chunk; `None` for `Content-Length`.
    chunk: Option<usize>,
}

impl Ask {
    /// Creates a `POST /orders` for this article, with this key.
    pub fn order(key: &str, sku: &str) -> Self {
        Self::post("/orders").header("idempotency-key", key).sku(sku)
    }

    /// Creates a request without a key, with a fixed body.
    pub fn post(target: &str) -> Self {
        Self::to("POST", target)
    }

    /// Creates a request with this method, without a key, and with a fixed body.
    pub fn to(method: &str, target: &str) -> Self {
        let body = br#"{"qty":1}"#.to_vec();
        Self { line: format!("{method} {target}"), headers: Vec::new(), body, chunk: None }
    }

    /// Creates a GET request without a body.
    pub fn get(target: &str) -> Self {
        Self { line: format!("GET {target}"), headers: Vec::new(), body: Vec::new(), chunk: None }
    }

    /// Adds a header line.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Names the article.
    pub fn sku(self, sku: &str) -> Self {
        self.header("x-sku", sku)
    }

    /// Names the caller.
    pub fn user(self, user: &str) -> Self {
        self.header("x-user", user)
    }

    /// Replaces the key by these bytes.
    pub fn key(mut self, key: &[u8]) -> Self {
        self.headers.retain(|(name, _)| name != "idempotency-key");
        self.header("idempotency-key", key)
    }

    /// Makes the handler wait for the gate of this number.
    pub fn hold(self, number: u64) -> Self {
        self.header("x-hold", number.to_string())
    }

    /// Sets the outcome of the handler.
    pub fn answer(self, answer: &str) -> Self {
        self.header("x-answer", answer)
    }

    /// Replaces the body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends the body in chunks of this size.
    pub fn chunked(mut self, bytes: usize) -> Self {
        self.chunk = Some(bytes);
        self
    }

    /// Returns the head, including the empty line.
    pub fn head(&self) -> Vec<u8> {
        let mut head = format!("{} HTTP/1.1\r\nhost: localhost\r\n", self.line).into_bytes();
        for (name, value) in &self.headers {
            head.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        let framing = match self.chunk {
            Some(_) => "transfer-encoding: chunked\r\n\r\n".to_owned(),
            None => format!("content-length: {}\r\n\r\n", self.body.len()),
        };
        head.extend(framing.into_bytes());
        head
    }

    /// Returns the request as it is sent.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head();
        let Some(chunk) = self.chunk else {
            bytes.extend(&self.body);
            return bytes;
        };
        for piece in self.body.chunks(chunk) {
            bytes.extend([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
        }
        bytes.extend(b"0\r\n\r\n");
        bytes
    }
}

/// A client with one connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    /// Opens a connection.
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = soon("a connection", TcpStream::connect(address)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, read: Vec::new() }
    }

    /// Sends bytes.
    pub async fn send(&mut self, bytes: &[u8]) {
        soon("room to write", self.stream.write_all(bytes)).await.unwrap();
    }

    /// Sends a request to a server that may have closed the connection.
    pub async fn try_send(&mut self, bytes: &[u8]) -> bool {
        soon("room to write", self.stream.write_all(bytes)).await.is_ok()
    }

    /// Writes without waiting; so few bytes always fit.
    pub fn send_now(&self, bytes: &[u8]) {
        assert_eq!(self.stream.try_write(bytes).unwrap(), bytes.len());
    }

    /// Sends a request and reads its response.
    pub async fn ask(&mut self, ask: &Ask) -> Answer {
        self.send(&ask.bytes()).await;
        self.answer().await
    }

    /// Reads a response.
    pub async fn answer(&mut self) -> Answer {
        self.answer_or_end().await.expect("the server hung up")
    }

    /// Reads a response. Returns `None` if the server closed the connection before its end.
    pub async fn answer_or_end(&mut self) -> Option<Answer> {
        let end = loop {
            match self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None if !self.more().await => return None,
                None => {}
            }
        };
        let head = self.read.drain(..end).collect();
        let mut answer = Answer { status: 0, headers: Vec::new(), body: Vec::new(), head };
        answer.parse();
        let length = match answer.header("content-length") {
            Some(length) => length.parse().unwrap(),
            None if answer.header("transfer-encoding") == Some("chunked") => {
                answer.body = self.chunks().await?;
                return Some(answer);
            }
            None => {
                assert!(matches!(answer.status, 100 | 204 | 304), "an answer of no known length: {answer}");
                0
            }
        };
        while self.read.len() < length {
            if !self.more().await {
                return None;
            }
        }
        answer.body = self.read.drain(..length).collect();
        Some(answer)
    }

    /// Reads bytes up to and including `end`.
    pub async fn until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            match self.read.windows(end.len()).position(|window| window == end) {
                Some(at) => return self.read.drain(..at + end.len()).collect(),
                None => assert!(self.more().await, "the server hung up: {}", self.read.escape_ascii()),
            }
        }
    }

    /// Reads the chunks of a body.
    async fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = loop {
                match self.read.windows(2).position(|window| window == b"\r\n") {
                    Some(at) => break self.read.drain(..at + 2).collect::<Vec<_>>(),
                    None if !self.more().await => return None,
                    None => {}
                }
            };
            let size = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16).expect("a chunk's size");
            while self.read.len() < size + 2 {
                if !self.more().await {
                    return None;
                }
            }
            body.extend(self.read.drain(..size));
            self.read.drain(..2);
            if size == 0 {
                return Some(body);
            }
        }
    }

    async fn more(&mut self) -> bool {
        match soon("an answer", self.stream.read_buf(&mut self.read)).await {
            Ok(read) => read > 0,
            // The server closed the connection with unread data.
            Err(_) => false,
        }
    }
}

/// A response as received.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The header lines in order, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The head as received.
    pub head: Vec<u8>,
}

impl Answer {
    fn parse(&mut self) {
        let head = String::from_utf8_lossy(&self.head);
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().strip_prefix("HTTP/1.1 ").unwrap().get(..3).unwrap();
        self.status = status.parse().unwrap();
        let parted = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        self.headers = lines.map(|line| parted(line).expect("a header's line")).collect();
    }

    /// Returns the first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns whether the response is marked as a replay.
    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Returns the code of a problem, or an empty string.
    pub fn code(&self) -> String {
        let problem = serde_json::from_slice(&self.body).unwrap_or(serde_json::Value::Null);
        problem["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Checks status and code.
    #[track_caller]
    pub fn is(&self, status: u16, code: &str) {
        assert!(self.status == status && self.code() == code, "not {status} {code}: {self}");
    }

    /// Checks for a first response, and returns the number of the order.
    #[track_caller]
    pub fn made(&self) -> String {
        assert!(self.status == 201 && !self.is_replay(), "not made: {self}");
        self.text()
    }

    /// Checks for a replay, and returns the number of the order.
    #[track_caller]
    pub fn replayed(&self) -> String {
        assert!(self.status == 201 && self.is_replay(), "not replayed: {self}");
        // Cookies belong to one browser.
        assert_eq!(self.header("set-cookie"), None);
        self.text()
    }

    /// Returns the seconds of `Retry-After`.
    #[track_caller]
    pub fn retry_after(&self) -> u64 {
        let seconds = self.header("retry-after").and_then(|seconds| seconds.parse().ok()).expect("a Retry-After");
        assert!(seconds >= 1, "zero would bring it back at once");
        seconds
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::from_utf8_lossy(&self.head).into_owned();
        let _ = write!(text, "{}", self.text());
        f.write_str(&text)
    }
}
