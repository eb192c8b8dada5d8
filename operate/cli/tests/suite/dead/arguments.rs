//! Arguments that are refused before anything is read.
use std::fs;

use crate::support::run_without_store as run;

#[test]
fn a_bad_argument_is_refused_with_the_rule_and_without_the_password() {
    let queue = |url: &'static str| vec!["list", "--name", "orders", "--queue", url];
    let redrive = |more: &[&'static str]| {
        [&["redrive", "--name", "orders", "--queue", "amqp://localhost", "--reason", "why"][..], more].concat()
    };
    let elsewhere = |url| {
        let more = ["--to", "others", "--limit", "1", "--reason", "why"];
        [&["redrive", "--name", "orders", "--queue", url][..], &more].concat()
    };
    let discard = |more: &[&'static str]| {
        [&["discard", "--name", "orders", "--queue", "amqp://localhost", "--reason", "why"][..], more].concat()
    };
    let without_group = match cfg!(feature = "rocketmq") {
        true => "name the consumer group of the topic by --group",
        false => "built without RocketMQ; install it with the feature `rocketmq`",
    };
    let cases: Vec<(Vec<&str>, i32, &str)> = vec![
        (vec!["list", "--name", "orders"], 2, "set IDEMPOTENT_QUEUE, or pass --queue URL"),
        (vec!["list", "--queue", "amqp://localhost"], 2, "--name <NAME>"),
        (vec!["list", "--queue", "amqp://localhost", "--name", ""], 2, "a value is required for '--name <NAME>'"),
        (queue("http://u:s3cret@localhost"), 2, "unknown scheme; use amqp://USER:PASSWORD@HOST:PORT/VHOST"),
        (queue("sqlite:/no/such/file"), 5, "the file `/no/such/file` is missing"),
        (queue("postgres://u:s3cret@127.0.0.1:1/shop"), 7, "Connection refused"),
        (queue("mysql://u:s3cret@127.0.0.1:99999/shop"), 2, "cannot be read"),
        (vec!["list", "--queue", "sqlite:x", "--name", "x\"; drop"], 2, "is no name of a table"),
        (queue("tiered:postgres://u:s3cret@localhost|redis://localhost"), 2, "unknown scheme"),
        (queue("ampq://localhost"), 2, "unknown scheme; did you mean `amqp`?"),
        (queue("s3cret"), 2, "unknown scheme; use amqp://USER:PASSWORD@HOST:PORT/VHOST"),
        (queue("redis://:s3cret@localhost"), 2, "use redis+stream:// or redis+delay://"),
        (queue("amqp://u:s3cret@local host"), 2, "use `amqp://USER:PASSWORD@HOST:PORT/VHOST`"),
        (queue("redis+stream://u:s3cret@local host:x"), 2, "the port is not a number"),
        (queue("amqp://u:s3cret@127.0.0.1:1"), 7, "connecting to amqp://127.0.0.1:1/"),
        (queue("redis+stream://u:s3cret@127.0.0.1:1"), 7, "the broker failed for now"),
        (queue("redis+delay://u:s3cret@127.0.0.1:1"), 7, "the broker failed for now"),
        (queue("redis+delay://u:s3cret@127.0.0.1:99999"), 5, "99999"),
        (queue("nats://127.0.0.1:1"), 7, "connecting"),
        (queue("pgmq://app@127.0.0.1:1/shop"), 7, "opening the queue"),
        #[cfg(feature = "kafka")]
        (queue("kafka://127.0.0.1:1"), 7, "connecting"),
        #[cfg(feature = "sqs")]
        (queue("sqs://eu-west-1?endpoint=http://127.0.0.1:1"), 7, "opening the queue"),
        #[cfg(feature = "sqs")]
        (queue("sqs://127.0.0.1:5000"), 2, "use `sqs://REGION`"),
        (queue("rocketmq://localhost:9876"), 2, without_group),
        ([queue("amqp://localhost"), vec!["--limit", "0"]].concat(), 2, "1..=10000"),
        ([queue("amqp://localhost"), vec!["--died-before", "yesterday"]].concat(), 2, "2026-11-22T06:00:00Z"),
        ([queue("amqp://localhost"), vec!["--slots", "0"]].concat(), 2, "1..=1024"),
        (vec!["show", "--name", "orders", "--queue", "amqp://localhost"], 2, "--id <ID>"),
        (redrive(&[]), 2, "--limit <N>"),
        (redrive(&["--limit", "0"]), 2, "1..=10000"),
        (redrive(&["--limit", "1", "--rate", "0.1"]), 2, "invalid digit"),
        (redrive(&["--limit", "1", "--reason", ""]), 2, "--reason"),
        (redrive(&["--limit", "1", "--read-only"]), 6, "--read-only forbids this command"),
        (redrive(&["--limit", "1", "--to", ""]), 2, "a value is required for '--to <NAME>'"),
        (redrive(&["--limit", "1", "--without-unreadable-headers"]), 2, "only letters of Kafka have such headers"),
        (elsewhere("redis+stream://localhost"), 2, "return only to their origin"),
        (elsewhere("redis+delay://localhost"), 2, "return only to their origin"),
        (elsewhere("sqlite:/no/such/file"), 2, "return only to their origin"),
        (discard(&[]), 2, "--limit <N>"),
        (discard(&["--cause", "no stock"]), 2, "--limit <N>"),
        (discard(&["--limit", "10001"]), 2, "1..=10000"),
        (vec!["discard", "--name", "orders", "--queue", "amqp://localhost", "--limit", "1"], 2, "--reason <TEXT>"),
    ];
    for (arguments, code, text) in cases {
        let run = run(&[&["dead"], &arguments[..]].concat());
        run.fails(code, text);
        assert!(!run.err.contains("s3cret") || arguments.contains(&"s3cret"), "{run:?}");
    }
}

#[test]
fn a_file_without_a_url_in_its_first_line_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let argument = format!("@{}", file.path().display());
    let list = || run(&["dead", "list", "--name", "orders", "--queue", &argument]);
    list().fails(2, "has no URL in its first line");
    fs::write(file.path(), "http://localhost\n").unwrap();
    list().fails(2, "unknown scheme");
}

#[test]
fn each_command_has_an_example() {
    for command in ["list", "show", "redrive", "discard"] {
        let run = run(&["dead", command, "--help"]);
        assert!(run.code == 0 && run.out.contains(&format!("  idempotent dead {command} ")), "{run:?}");
    }
}
