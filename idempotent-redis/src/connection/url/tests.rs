#![allow(clippy::unwrap_used)]
use super::*;

fn tcp(host: &str, port: u16) -> ServerAddress {
    ServerAddress::new(host, port)
}

#[test]
fn each_scheme_leads_to_its_kind_of_servers() {
    let single = |url: &str, host, port, db, tls| {
        let found = RedisUrl::parse(url).unwrap();
        assert_eq!(found.location, ServerLocation::Single { server: ServerEndpoint::Tcp(tcp(host, port)) }, "{url}");
        assert_eq!((found.db, found.tls), (db, tls), "{url}");
    };
    single("redis://h", "h", 6379, 0, false);
    single("REDISS://h:1/", "h", 1, 0, true);
    single("redis://u:p@[::1]:7/15", "::1", 7, 15, false);
    let found = RedisUrl::parse("rediss+sentinel://:p@a,b:7,[::1]/my%20primary/3").unwrap();
    let sentinels = vec![tcp("a", 26379), tcp("b", 7), tcp("::1", 26379)];
    assert_eq!(found.location, ServerLocation::Sentinel { sentinels, primary: "my primary".into() });
    assert_eq!((found.db, found.tls), (3, true));
    let found = RedisUrl::parse("redis+cluster://a,b:7/0").unwrap();
    assert_eq!(found.location, ServerLocation::Cluster { nodes: vec![tcp("a", 6379), tcp("b", 7)] });
    let found = RedisUrl::parse("redis+unix:///run/redis.sock?db=2").unwrap();
    assert_eq!(found.location, ServerLocation::Single { server: ServerEndpoint::Unix("/run/redis.sock".into()) });
    assert_eq!(found.db, 2);
}

#[test]
fn user_and_password_are_decoded_and_never_shown() {
    let found = RedisUrl::parse("redis://ad%6Din:p%40s%3As%2F%25@h").unwrap();
    assert_eq!(found.credentials.user.as_deref(), Some("admin"));
    assert_eq!(found.credentials.password.as_deref(), Some("p@s:s/%"));
    assert!(!format!("{found:?}").contains("p@s"), "{found:?}");
    let found = RedisUrl::parse("redis://:hunter2@h").unwrap().credentials;
    assert_eq!((found.user, found.password.as_deref()), (None, Some("hunter2")));
}

#[track_caller]
fn refused(url: &str, part: &str) {
    let error = RedisUrl::parse(url).unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(text.contains(part), "{url}: {text}");
    assert!(text.contains("invalid store url") && !text.contains("hunter2"), "{url}: {text}");
}

#[test]
fn missing_parts_of_a_url_are_named() {
    refused("redis//x", "a colon is missing");
    refused("redis:x", "`//` is missing after `redis:`");
    refused("redis://", "a host is missing");
    refused("redis+cluster://a,,b", "a host is missing");
    refused("redis+sentinel://a:1,b:2", "the name of the primary is missing");
    refused("redis+unix://h/x", "a socket path must be absolute");
    refused("redis+unix:///", "the socket path is missing");
}

#[test]
fn an_unknown_scheme_lists_the_known_ones() {
    refused("etcd://x", "the scheme `etcd` is not one of `redis`, `rediss`");
}

#[test]
fn a_misspelt_scheme_gets_a_suggestion() {
    refused("reddis://u:hunter2@h", "did you mean `redis`?");
    refused("redis+sentinal://h/m", "did you mean `redis+sentinel`?");
    refused("rediss+clustr://h", "did you mean `rediss+cluster`?");
}

#[test]
fn an_empty_url_is_rejected() {
    refused("", "it is empty");
    refused(" ", "it is empty");
    refused("redis://h\n", "a control character");
}

#[test]
fn an_invalid_port_is_named() {
    refused("redis://u:hunter2@h:99999", "port 99999 is not between 1 and 65535");
    refused("redis+sentinel://u:hunter2@a:1,b:0/m", "port 0 ");
    refused("redis://[::1]:70000", "port 70000 ");
}

#[test]
fn an_unencoded_password_gets_a_remedy() {
    for url in
        ["redis://u:hunter2@x@h", "redis://u:hunter2%@h", "redis://u:hunter2/x@h", "redis+cluster://u:100%hunter2@h"]
    {
        refused(url, "percent-encode");
    }
}

#[test]
fn other_invalid_urls_get_a_remedy() {
    refused("redis://hunter2@h", "a user and no password");
    refused("redis://u:@h", "the password is empty");
    refused("redis://a,b", "redis+sentinel://");
    refused("redis://::1", "in brackets");
    refused("redis://[x]", "is not an IPv6 address");
    refused("redis://h/main", "the database is not a number");
    refused("redis://h/0?timeout=3", "RedisStore::builder");
    refused("redis+cluster://h/1", "one database");
}
