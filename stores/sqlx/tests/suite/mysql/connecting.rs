//! The answers of MariaDB and MySQL to a client that connects.
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use idempotent_core::StoreErrorKind::{Denied, NotApplied};
use idempotent_harness::proxy::Proxy;

use crate::mysql::explained::{all_are_explained, case};
use crate::mysql::fixture::server;
use crate::postgres::fixture as postgres;

#[tokio::test]
async fn each_refusal_of_the_server_names_its_cause_and_remedy() {
    server().sql("mysql", "CREATE USER secured@'127.0.0.1' IDENTIFIED BY 'right'");
    let (address, user) = (server().address(), |user: &str| server().url().replace("root@", &format!("{user}@")));
    let (other, proxy) = (postgres::server().address(), Proxy::start(&address).await);
    // MySQL switches TLS on by itself.
    let without_tls = |url: String| url.replace(&address, &proxy.address());
    let by_tls = ["caching_sha2_password", "enable the feature `mysql-tls`", "`ssl-mode=REQUIRED` in the URL"];
    let method = if server().is_mysql() {
        case(without_tls(user("secured:right")), Denied, &by_tls)
    } else {
        let elliptic = "INSTALL SONAME 'auth_ed25519'; \
                        CREATE USER elliptic@'127.0.0.1' IDENTIFIED VIA ed25519 USING PASSWORD('right')";
        server().sql("mysql", elliptic);
        case(user("elliptic:right"), Denied, &[&address, "client_ed25519", "another method, such as a password"])
    };
    let no_tls = without_tls(server().url()) + "?ssl-mode=REQUIRED";
    all_are_explained(vec![
        method,
        case(user("secured:wrong"), Denied, &[&address, "Access denied", "user or password rejected"]),
        case(server().url_of("nowhere"), Denied, &["/nowhere`", "does not exist", "create it"]),
        case(
            server().url_of("nowhere").replace("root@", "secured:right@"),
            Denied,
            &["/nowhere`", "does not exist, or the user has no privileges"],
        ),
        case(no_tls, Denied, &[&proxy.address(), "does not support TLS", "check `ssl-mode`"]),
        case(format!("mysql://me@{other}/shop"), NotApplied, &[&other, "no connection", "the host and the port"]),
    ])
    .await;
}

/// Sends a packet of the protocol.
fn send(client: &mut impl Write, number: u8, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    client.write_all(&[&length[..3], &[number], payload].concat()).unwrap();
}

fn receive(client: &mut impl Read) {
    let mut head = [0; 4];
    client.read_exact(&mut head).unwrap();
    let mut payload = vec![0; u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize];
    client.read_exact(&mut payload).unwrap();
}

/// Plays a MySQL server of today without TLS and with an empty cache of logins: it asks for the password itself. Over TCP, the client
/// asks for a key first; on a socket, the server takes this request for a wrong password.
fn asks_for_the_password(mut client: impl Read + Write, answer: &[u8]) {
    let capabilities: u32 = 0x0008_8208;
    let [a, b, c, d] = capabilities.to_le_bytes();
    let mut greeting = b"\x0a9.7.0\0\x01\0\0\0saltsalt\0".to_vec();
    greeting.extend([a, b, 45, 2, 0, c, d, 21]);
    greeting.extend([0; 10]);
    greeting.extend(b"saltsaltsalt\0caching_sha2_password\0");
    send(&mut client, 0, &greeting);
    receive(&mut client);
    send(&mut client, 2, &[1, 4]);
    receive(&mut client);
    send(&mut client, 4, answer);
}

#[tokio::test]
async fn a_login_that_needs_tls_names_the_feature_and_the_setting() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mysqld.sock");
    let socket = UnixListener::bind(&path).unwrap();
    let address = tcp.local_addr().unwrap().to_string();
    std::thread::spawn(move || asks_for_the_password(tcp.accept().unwrap().0, b"\x01-----BEGIN PUBLIC KEY-----"));
    std::thread::spawn(move || {
        asks_for_the_password(socket.accept().unwrap().0, b"\xff\x15\x04#28000Access denied for user 'me'@'localhost'");
    });
    let remedy = ["caching_sha2_password", "enable the feature `mysql-tls`", "`ssl-mode=REQUIRED` in the URL"];
    let path = path.to_str().unwrap();
    all_are_explained(vec![
        case(format!("mysql://me:right@{address}/shop"), Denied, &[&remedy[..], &[&address]].concat()),
        case(
            format!("mysql://me:right@localhost/shop?socket={path}"),
            Denied,
            &[path, "error 1045", "MySQL 8 and later refuse also the right password on a Unix socket", "`mysql-tls`"],
        ),
    ])
    .await;
}
