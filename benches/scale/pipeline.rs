//! A connection that sends many commands at once.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use idempotent_harness::servers::{RedisServer, Value};

/// The number of calls in one write, as many as there would be callers.
pub const DEPTH: u64 = 64;

pub struct Pipeline {
    stream: BufReader<TcpStream>,
    out: Vec<u8>,
    unanswered: usize,
}

impl Pipeline {
    pub fn connect(server: &RedisServer) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream), out: Vec::new(), unanswered: 0 }
    }

    /// Adds a command to the next write.
    pub fn add(&mut self, parts: &[&[u8]]) {
        write!(self.out, "*{}\r\n", parts.len()).unwrap();
        for part in parts {
            write!(self.out, "${}\r\n", part.len()).unwrap();
            self.out.extend_from_slice(part);
            self.out.extend_from_slice(b"\r\n");
        }
        self.unanswered += 1;
    }

    /// Sends the added commands, and returns their answers.
    pub fn answers(&mut self) -> Vec<Value> {
        self.stream.get_mut().write_all(&self.out).unwrap();
        self.out.clear();
        let answers = std::mem::take(&mut self.unanswered);
        (0..answers).map(|_| self.answer()).collect()
    }

    /// Loads a script, and returns its hash.
    pub fn load(&mut self, script: &str) -> Vec<u8> {
        self.add(&[b"SCRIPT", b"LOAD", script.as_bytes()]);
        match self.answers().remove(0) {
            Value::Bytes(hash) => hash,
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let line = line.trim_end();
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().unwrap();
        match kind {
            "+" => Value::Status(rest.to_owned()),
            "-" => panic!("the server refused a command: {rest}"),
            ":" => Value::Integer(number()),
            "$" if number() < 0 => Value::Nil,
            "$" => {
                let mut bytes = vec![0; usize::try_from(number()).unwrap() + 2];
                self.stream.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Value::Bytes(bytes)
            }
            "*" => Value::Array((0..number()).map(|_| self.answer()).collect()),
            _ => panic!("an unknown answer: {line}"),
        }
    }
}
