//! Connecting and authenticating.
use std::time::Duration;

use idempotent_core::Store;
use idempotent_core::StoreErrorKind::{Denied, NotApplied, Schema};
use idempotent_core::store::Health;
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;

use crate::startup::{SECRET, claim, cycle, quick, said};
use crate::support::key;

#[tokio::test]
async fn user_password_and_database_of_the_url_are_used() {
    let server = RedisServer::builder().password("p@s:s/%").start();
    server.command(&["ACL", "SETUSER", "wo@rker", "on", ">hunter2", "~*", "&*", "+@all"]);
    let store = quick(format!("redis://wo%40rker:hunter2@{}/3", server.address())).connect().await.unwrap();
    cycle(&store, "database").await.unwrap();
    assert!(server.info("db3").starts_with("keys=2,"), "{}", server.info("db3"));
    let store = quick(format!("redis://:p%40s%3As%2F%25@{}", server.address())).connect().await.unwrap();
    cycle(&store, "default user").await.unwrap();
}

#[tokio::test]
async fn a_unix_socket_can_be_used() {
    let server = RedisServer::start();
    let path = server.command(&["CONFIG", "GET", "unixsocket"]).items()[1].text();
    cycle(&RedisStore::connect(format!("redis+unix://{path}")).await.unwrap(), "socket").await.unwrap();
}

#[tokio::test]
async fn the_server_rejects_a_database_that_does_not_exist() {
    let server = RedisServer::start();
    said(
        RedisStore::connect(format!("{}/99", server.url())).await,
        Schema,
        &["DB index is out of range", "database 99", "`databases`", "redis.conf"],
    );
}

#[tokio::test]
async fn a_refused_connection_names_host_port_and_attempts() {
    let server = RedisServer::start();
    let store = quick(server.url()).connect().await.unwrap();
    server.kill();
    let address = server.address();
    said(RedisStore::connect(server.url()).await, NotApplied, &["refused", &address, "(attempt 1):"]);
    // The first call finds the old connection broken or breaks it.
    let _ = claim(&store, "a").await.unwrap_err();
    let count = async || {
        let text = claim(&store, "a").await.unwrap_err().to_string();
        let (_, count) = text.split_once("(attempt ").unwrap_or_else(|| panic!("{text}"));
        count.split([',', ')']).next().unwrap().parse::<u32>().unwrap()
    };
    // A caller shortly after shares the failure; the next attempt follows soon.
    let patience = Duration::from_secs(60);
    let first = count().await;
    let again = async { while count().await == first {} };
    tokio::time::timeout(patience, again).await.unwrap();
    server.restart();
    let back = async { while store.peek(&key("a")).await.is_err() {} };
    tokio::time::timeout(patience, back).await.unwrap();
    cycle(&store, "a").await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_named_with_cause_and_remedy() {
    // A reserved address that does not accept connections.
    let silent = || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    };
    // A server that sends these bytes to each client, as a server of another protocol does.
    let greets = |bytes: &'static [u8]| {
        let (listener, address) = silent();
        std::thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                let _ = std::io::Write::write_all(&mut client, bytes);
            }
        });
        address
    };
    let (http, closed, (_quiet, quiet)) = (greets(b"HTTP/1.1 400 Bad Request\r\n\r\n"), greets(b""), silent());
    for (address, words) in [
        ("127.0.0.1:1", ["refused", "check that the server is running, and the port"]),
        ("no.such.host.invalid:7", ["no connection to no.such.host.invalid:7 (attempt 1): ", "check the host name"]),
        (&http, ["no connection to", "check the host and"]),
        (&closed, ["no connection to", "check the host and"]),
        (&quiet, ["no answer within the connect timeout of 500ms", "the host and the port are its own"]),
    ] {
        let store = quick(format!("redis://:{SECRET}@{address}")).connect_timeout(Duration::from_millis(500));
        said(store.connect().await, NotApplied, &[&words[..], &[address]].concat());
    }
}

#[tokio::test]
async fn a_missing_password_is_reported_with_a_remedy() {
    let server = RedisServer::builder().password(SECRET).start();
    let url = format!("redis://{}", server.address());
    said(RedisStore::connect(url).await, Denied, &["NOAUTH", "redis://user:password@host"]);
}

#[tokio::test]
async fn a_wrong_password_fails_even_if_none_is_required() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "worker", "on", ">right", "~*", "&*", "+@all"]);
    server.command(&["CONFIG", "RESETSTAT"]);
    for user in ["worker", "nobody"] {
        let url = format!("redis://{user}:hunter2@{}", server.address());
        said(RedisStore::connect(url).await, Denied, &["WRONGPASS", "percent-encode"]);
    }
    let stats = server.command(&["INFO", "commandstats"]).text();
    let mut asked: Vec<_> = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next()).collect();
    asked.retain(|command| !["config|resetstat", "info"].contains(command));
    assert_eq!(asked, ["hello"], "nothing else was sent as somebody who was not let in");
}

#[tokio::test]
async fn no_text_contains_a_password() {
    let server = RedisServer::builder().password(SECRET).start();
    let builder = quick(server.url());
    let debug = format!("{builder:?}");
    assert!(!debug.contains(SECRET) && debug.contains("***"), "{debug}");
    let store = builder.connect().await.unwrap();
    let debug = format!("{store:?} {:#?}", store.check().await.unwrap());
    assert!(!debug.contains(SECRET), "{debug}");
    server.kill();
    // The first call finds the old connection broken or breaks it.
    let broken = claim(&store, "a").await.unwrap_err();
    assert!(!format!("{broken:?}").contains(SECRET));
    said(claim(&store, "a").await, NotApplied, &[]);
}
