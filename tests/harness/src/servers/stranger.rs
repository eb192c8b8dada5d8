//! Servers of another protocol, for tests of what a client says about them.
use std::io::{Write, copy, sink};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::spawn;

/// The answer of an HTTP server to a request of another protocol.
pub const HTTP: Option<&[u8]> = Some(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
/// The answer of Redis to a request of another protocol.
pub const REDIS: Option<&[u8]> = Some(b"-ERR unknown command\r\n");
/// A connection that ends without an answer.
pub const CLOSED: Option<&[u8]> = Some(b"");
/// A connection without an answer and without an end.
pub const SILENT: Option<&[u8]> = None;

/// Starts a server that sends each client these bytes and closes the connection, or, without bytes, never answers. Returns its host
/// and port. The server ends with the process.
///
/// # Panics
/// If there is no free port.
#[must_use]
pub fn stranger(answer: Option<&'static [u8]>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no free port: {error}"));
    let address = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}")).to_string();
    spawn(move || listener.incoming().flatten().for_each(|client| drop(spawn(move || serve(&client, answer)))));
    address
}

/// Reads until the client closes the connection: a close before that could discard the answer at the client.
fn serve(mut client: &TcpStream, answer: Option<&[u8]>) {
    if let Some(bytes) = answer {
        let _ = client.write_all(bytes).and_then(|()| client.shutdown(Shutdown::Write));
    }
    let _ = copy(&mut client, &mut sink());
}
