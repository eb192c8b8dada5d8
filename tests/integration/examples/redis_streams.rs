//! The example `redis_streams`, from outside, on a private server.
use crate::example::Running;
use crate::wait::until;

use idempotent_harness::servers::{RedisServer, Value};

fn send(server: &RedisServer, body: &str) {
    assert!(!server.command(&["XADD", "orders", "*", "body", body]).is_error());
}

fn pending(server: &RedisServer) -> Option<i64> {
    server.command(&["XPENDING", "orders", "billing"]).items()[0].integer()
}

#[test]
fn each_order_is_charged_once_and_sigterm_ends_what_runs() {
    let server = RedisServer::start();
    // Filled before it starts.
    for body in [r#"{"number": 1, "cents": 500}"#, r#"{"number": 1, "cents": 500}"#, "what?"] {
        send(&server, body);
    }
    let mut running = Running::start("redis_streams", &[&server.url()]);
    assert_eq!(running.says(2), ["order 1: asking the bank", "order 1: charged 500 cents"]);
    until("both copies are done, and the odd one is a dead letter", || pending(&server) == Some(0));
    let dead = server.command(&["XRANGE", "orders:dead", "-", "+"]);
    let [Value::Array(entry)] = dead.items() else { panic!("not one dead letter: {dead:?}") };
    assert_eq!(entry[1].items()[..2].iter().map(Value::text).collect::<Vec<_>>(), ["body", "what?"]);

    send(&server, r#"{"number": 3, "cents": 700, "takes_ms": 1500}"#);
    assert_eq!(running.says(1), ["order 3: asking the bank"]);
    running.signal("-TERM");
    assert_eq!(running.says(1), ["stopping: running handlers may end"]);
    // Not its any more: what was under way may bring it, and it is given back.
    send(&server, r#"{"number": 4, "cents": 100}"#);
    let rest = running.ends();
    assert_eq!((rest.len(), &*rest[0]), (2, "order 3: charged 700 cents"));
    assert!(rest[1].starts_with("3 acknowledged, 0 retried, 1 dead-lettered in orders:dead, "), "{rest:?}");

    // The next one knows what was charged.
    send(&server, r#"{"number": 3, "cents": 700}"#);
    let mut next = Running::start("redis_streams", &[&server.url()]);
    assert_eq!(next.says(2), ["order 4: asking the bank", "order 4: charged 100 cents"]);
    until("the copy of order 3 is done, too", || {
        let groups = server.command(&["XINFO", "GROUPS", "orders"]);
        let last = server.command(&["XINFO", "STREAM", "orders"]);
        let of = |flat: &[Value], name: &str| flat.chunks(2).find(|pair| pair[0].text() == name).unwrap()[1].text();
        of(groups.items()[0].items(), "last-delivered-id") == of(last.items(), "last-generated-id")
            && pending(&server) == Some(0)
    });
    next.signal("-INT");
    let counts = "2 acknowledged, 0 retried, 0 dead-lettered in orders:dead, 0 given back";
    assert_eq!(next.ends(), ["stopping: running handlers may end", counts]);
}
