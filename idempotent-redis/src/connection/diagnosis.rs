//! Diagnosis of failed connection attempts.
use std::time::Duration;

use redis::ConnectionAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Returns the remedy for a connection error, or an empty text if the error is clear.
pub(crate) async fn remedy(address: &ConnectionAddr, text: &str, timeout: Duration) -> &'static str {
    let says = |part: &str| text.contains(part);
    match address {
        _ if says("NotValidForName") => "; the certificate is not valid for the host name in the URL",
        _ if says("Expired") => "; the certificate of the server or of its authority has expired",
        _ if says("invalid peer certificate") => {
            "; the authority that signed the certificate is not trusted; add it with `RedisStoreBuilder::ca_file`"
        }
        _ if says("CertificateRequired") || says("HandshakeFailure") => {
            "; the server requires a client certificate; set `RedisStoreBuilder::client_certificate`"
        }
        _ if says("corrupt message") => NO_TLS,
        ConnectionAddr::Tcp(host, port)
            if !says("refused") && first_byte(host, *port, HELLO, timeout).await.is_some_and(is_tls) =>
        {
            "; this looks like TLS; use rediss://"
        }
        _ => "",
    }
}

/// Returns the remedy for a server that sends nothing. Redis waits silently for the end of input that contains no line
/// break.
pub(crate) async fn after_silence(address: &ConnectionAddr, timeout: Duration) -> &'static str {
    match address {
        ConnectionAddr::TcpTls { host, port, .. }
            if first_byte(host, *port, b"PING\r\n", timeout).await.is_some_and(|first| b"+-".contains(&first)) =>
        {
            NO_TLS
        }
        _ => SILENT,
    }
}

/// Servers of some other protocols wait for the client to speak first, as do networks that drop packets.
pub(crate) const SILENT: &str =
    "; check that the server is not overloaded, that the host and the port are its own, and the network";

const NO_TLS: &str = "; this does not look like TLS; use redis://";

/// An empty `ClientHello`. The message is invalid, and a TLS server replies with an alert.
const HELLO: &[u8] = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00";

/// Returns whether a reply begins with a TLS record: an alert or a handshake.
fn is_tls(first: u8) -> bool {
    (0x15..=0x16).contains(&first)
}

async fn first_byte(host: &str, port: u16, reply: &[u8], timeout: Duration) -> Option<u8> {
    let asked = async {
        let mut stream = TcpStream::connect((host, port)).await.ok()?;
        stream.write_all(reply).await.ok()?;
        stream.read_u8().await.ok()
    };
    tokio::time::timeout(timeout, asked).await.ok().flatten()
}
