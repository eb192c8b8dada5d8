use std::io::{Error, ErrorKind};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::{Connection, RedisServer, Value};

async fn world() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server.address()).await;
    (server, proxy)
}

fn client(proxy: &Proxy) -> Connection {
    Connection::to(&proxy.address()).unwrap()
}

/// Returns whether the error is a reset, which the client may notice when it sends or when it reads.
fn is_reset(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

fn reset(answer: Result<Value, Error>) {
    let e = answer.unwrap_err();
    assert!(is_reset(&e), "{e:?}");
}

#[tokio::test]
async fn bytes_pass_and_are_counted() {
    let (server, proxy) = world().await;
    let (mut one, mut other) = (client(&proxy), client(&proxy));
    let long = "x".repeat(3_000_000);
    assert_eq!(one.ask(&["SET", "long", &long]).unwrap().text(), "OK");
    assert_eq!(other.ask(&["GET", "long"]).unwrap().text(), long);
    for _ in 0..100 {
        one.send(&["INCR", "n"]).unwrap();
    }
    for n in 1..=100 {
        assert_eq!(one.answer().unwrap(), Value::Integer(n));
    }
    let passed = proxy.passed();
    assert_eq!((passed.connections, passed.requests, passed.replies), (2, 102, 102));
    assert_eq!(server.command(&["GET", "n"]).text(), "100");
}

#[tokio::test]
async fn a_cut_before_the_request_is_sent_leaves_the_server_as_it_was_and_strikes_once() {
    let (server, proxy) = world().await;
    proxy.fail_next_with("key", Fault::CutBeforeSend);
    let mut one = client(&proxy);
    assert_eq!(one.ask(&["PING"]).unwrap().text(), "PONG");
    reset(one.ask(&["SET", "key", "v"]));
    assert_eq!((server.command(&["GET", "key"]), proxy.met(), proxy.armed()), (Value::Nil, 1, 0));
    assert_eq!(client(&proxy).ask(&["SET", "key", "v"]).unwrap().text(), "OK");
}

#[tokio::test]
async fn a_cut_after_the_server_applied_it_withholds_the_reply_and_only_that() {
    let (server, proxy) = world().await;
    proxy.fail_next_with("two", Fault::CutAfterApply);
    let mut one = client(&proxy);
    for key in ["one", "two"] {
        one.send(&["SET", key, "v"]).unwrap();
    }
    assert_eq!(one.answer().unwrap().text(), "OK");
    reset(one.answer());
    assert_eq!(server.command(&["EXISTS", "one", "two"]).integer(), Some(2));
}

#[tokio::test]
async fn a_cut_in_a_reply_leaves_half_of_it() {
    let (server, proxy) = world().await;
    server.command(&["SET", "key", "a value"]);
    proxy.fail_next_with("GET", Fault::CutMidReply);
    let mut one = client(&proxy);
    one.send(&["GET", "key"]).unwrap();
    let mut half = Vec::new();
    std::io::Read::read_to_end(&mut one, &mut half).unwrap();
    assert_eq!(half, b"$7\r\na v");
}

#[tokio::test]
async fn a_delayed_request_comes_late() {
    let (_server, proxy) = world().await;
    let delay = Duration::from_millis(60);
    proxy.fail_next(Fault::Delay(delay));
    let start = Instant::now();
    assert_eq!(client(&proxy).ask(&["INCR", "n"]).unwrap(), Value::Integer(1));
    assert!(start.elapsed() >= delay);
    proxy.delay_all(delay);
    let start = Instant::now();
    assert_eq!(client(&proxy).ask(&["INCR", "n"]).unwrap(), Value::Integer(2));
    assert!(start.elapsed() >= delay);
}

#[tokio::test]
async fn a_half_open_connection_swallows_the_request_and_stays() {
    let (server, proxy) = world().await;
    proxy.fail_next_with("key", Fault::HalfOpen);
    let mut one = client(&proxy);
    for _ in 0..2 {
        one.send(&["INCR", "key"]).unwrap();
    }
    proxy.until_met(1).await;
    assert_eq!(client(&proxy).ask(&["GET", "key"]).unwrap(), Value::Nil);
    // The client would read a pending reply before the reset.
    proxy.cut_all();
    reset(one.answer());
    assert_eq!(server.command(&["GET", "key"]), Value::Nil);
}

#[tokio::test]
async fn a_connection_half_open_after_the_server_applied_it_stays_silent() {
    let (server, proxy) = world().await;
    proxy.fail_next_with("key", Fault::HalfOpenAfterApply);
    let mut one = client(&proxy);
    one.send(&["INCR", "key"]).unwrap();
    proxy.until_met(1).await;
    one.send(&["INCR", "key"]).unwrap();
    assert_eq!(server.command(&["GET", "key"]).text(), "1");
    proxy.cut_all();
    reset(one.answer());
}

#[tokio::test]
async fn silence_is_on_all_connections_until_it_ends() {
    let (server, proxy) = world().await;
    let mut old = client(&proxy);
    assert_eq!(old.ask(&["PING"]).unwrap().text(), "PONG");
    proxy.silence();
    let mut new = client(&proxy);
    for silent in [&mut old, &mut new] {
        silent.send(&["SET", "key", "v"]).unwrap();
    }
    proxy.cut_all();
    for silent in [&mut old, &mut new] {
        reset(silent.answer());
    }
    proxy.speak();
    assert_eq!(client(&proxy).ask(&["GET", "key"]).unwrap(), Value::Nil);
    drop(server);
}

#[tokio::test]
async fn refused_connections_fail_and_existing_ones_continue() {
    let (_server, proxy) = world().await;
    let mut old = client(&proxy);
    assert_eq!(old.ask(&["PING"]).unwrap().text(), "PONG");
    proxy.refuse();
    let refused = TcpStream::connect(proxy.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(old.ask(&["PING"]).unwrap().text(), "PONG");
    proxy.listen();
    assert_eq!(client(&proxy).ask(&["PING"]).unwrap().text(), "PONG");
}

#[tokio::test]
async fn connections_can_be_reset_as_soon_as_they_are_made() {
    let (server, proxy) = world().await;
    proxy.reset_next(2);
    for _ in 0..2 {
        let answer = Connection::to(&proxy.address()).and_then(|mut client| client.ask(&["SET", "key", "v"]));
        reset(answer);
    }
    assert_eq!(client(&proxy).ask(&["GET", "key"]).unwrap(), Value::Nil);
    assert_eq!((proxy.passed().connections, server.command(&["GET", "key"])), (3, Value::Nil));
}

#[tokio::test]
async fn unsolicited_bytes_of_a_client_meet_no_fault_of_the_next_request() {
    let (_server, proxy) = world().await;
    proxy.fail_next(Fault::CutAfterApply);
    let mut one = client(&proxy);
    for request in [&["CLIENT", "SETNAME", "a"][..], &["PING"], &["SELECT", "0"]] {
        assert!(!one.ask(request).unwrap().is_error());
    }
    reset(one.ask(&["INCR", "n"]));
    proxy.fail_next(Fault::CutAfterApply);
    proxy.fail_next_if(|request| request.ends_with(b"never\r\n"), Fault::CutAfterApply);
    assert_eq!((proxy.disarm(), proxy.armed()), (2, 0));
}

#[tokio::test]
async fn messages_of_a_subscription_answer_no_request() {
    let (server, proxy) = world().await;
    let mut one = client(&proxy);
    proxy.fail_next_with("PING", Fault::CutMidReply);
    for (channel, count) in [("a", 1), ("b", 2)] {
        let told = one.ask(&["SUBSCRIBE", channel]).unwrap();
        assert_eq!(told.items()[2], Value::Integer(count));
    }
    server.command(&["PUBLISH", "a", "hello"]);
    assert_eq!(one.answer().unwrap().items()[2].text(), "hello");
    assert_eq!(proxy.met(), 0);
    // The reply is an array, and half of an array is no value.
    assert_eq!(one.ask(&["PING"]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn tls_passes_and_can_be_refused() {
    let server = RedisServer::builder().tls().start();
    let proxy = Proxy::start(&server.address()).await;
    let ping = || {
        let mut cli = std::process::Command::new("redis-cli");
        cli.args(["-p", &proxy.port().to_string(), "--tls", "--cacert"]).arg(server.certificates().ca());
        cli.arg("PING").output().unwrap().stdout
    };
    assert_eq!(ping(), b"PONG\n");
    proxy.refuse();
    assert_ne!(ping(), b"PONG\n");
    proxy.listen();
    assert_eq!((ping(), proxy.passed().connections), (b"PONG\n".to_vec(), 2));
}

#[tokio::test]
async fn a_dropped_proxy_ends_its_connections_and_frees_its_port() {
    let (_server, proxy) = world().await;
    let (mut one, address) = (client(&proxy), proxy.address());
    assert_eq!(one.ask(&["PING"]).unwrap().text(), "PONG");
    drop(proxy);
    one.ask(&["PING"]).unwrap_err();
    TcpStream::connect(address).unwrap_err();
}
