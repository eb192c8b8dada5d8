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

#[test]
fn each_invalid_url_is_refused_with_its_fault_and_a_remedy_and_without_its_password() {
    for (url, words) in [
        ("redis//x", "a colon is missing"),
        ("redis:x", "`//` is missing after `redis:`"),
        ("redis://", "a host is missing"),
        ("redis+cluster://a,,b", "a host is missing"),
        ("redis+sentinel://a:1,b:2", "the name of the primary is missing"),
        ("redis+unix://h/x", "a socket path must be absolute"),
        ("redis+unix:///", "the socket path is missing"),
        ("etcd://x", "the scheme `etcd` is not one of `redis`, `rediss`"),
        ("reddis://u:hunter2@h", "did you mean `redis`?"),
        ("redis+sentinal://h/m", "did you mean `redis+sentinel`?"),
        ("rediss+clustr://h", "did you mean `rediss+cluster`?"),
        ("", "it is empty"),
        (" ", "it is empty"),
        ("redis://h\n", "a control character"),
        ("redis://u:hunter2@h:99999", "port 99999 is not between 1 and 65535"),
        ("redis+sentinel://u:hunter2@a:1,b:0/m", "port 0 "),
        ("redis://[::1]:70000", "port 70000 "),
        ("redis://u:hunter2@x@h", "percent-encode"),
        ("redis://u:hunter2%@h", "percent-encode"),
        ("redis://u:hunter2/x@h", "percent-encode"),
        ("redis+cluster://u:100%hunter2@h", "percent-encode"),
        ("redis://hunter2@h", "a user and no password"),
        ("redis://u:@h", "the password is empty"),
        ("redis://a,b", "redis+sentinel://"),
        ("redis://::1", "in brackets"),
        ("redis://[x]", "is not an IPv6 address"),
        ("redis://h/main", "the database is not a number"),
        ("redis://h/0?timeout=3", "RedisStore::builder"),
        ("redis+cluster://h/1", "one database"),
    ] {
        let error = RedisUrl::parse(url).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains(words), "{url}: {text}");
        assert!(text.contains("invalid store url") && !text.contains("hunter2"), "{url}: {text}");
    }
}
