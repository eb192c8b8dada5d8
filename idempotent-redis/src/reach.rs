//! Why no connection came about, and what to do.
use std::time::Duration;

use redis::ConnectionAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What to do about it; empty where the text says all.
pub(crate) async fn remedy(address: &ConnectionAddr, text: &str, patience: Duration) -> &'static str {
    let says = |part: &str| text.contains(part);
    match address {
        _ if says("NotValidForName") => "; its certificate is for another name than the url's",
        _ if says("Expired") => "; its certificate, or that of its authority, has run out",
        _ if says("invalid peer certificate") => {
            "; the authority that signed its certificate is not trusted here: name it, `RedisStoreBuilder::ca_file`"
        }
        _ if says("CertificateRequired") || says("HandshakeFailure") => {
            "; it asks for a certificate: `RedisStoreBuilder::client_certificate`"
        }
        _ if says("corrupt message") => "; it does not look like TLS: is it `redis://`?",
        ConnectionAddr::Tcp(host, port) if !says("refused") && speaks_tls(host, *port, patience).await => {
            "; this looks like TLS; use rediss://"
        }
        _ => "",
    }
}

/// An empty `ClientHello`, and a line's end: to one who speaks TLS a mistake of which it tells by an alert, to a Redis
/// a command it does not know.
const HELLO: &[u8] = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00\r\n";
/// What the first byte of an answer in TLS can be: alert, handshake.
const TLS: std::ops::RangeInclusive<u8> = 0x15..=0x16;

async fn speaks_tls(host: &str, port: u16, patience: Duration) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect((host, port)).await.ok()?;
        stream.write_all(HELLO).await.ok()?;
        stream.read_u8().await.ok()
    };
    tokio::time::timeout(patience, asked).await.ok().flatten().is_some_and(|first| TLS.contains(&first))
}
