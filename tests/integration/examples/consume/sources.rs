//! `--source`, `--publish` and `--idle`: what is refused, and that it says why.
use idempotent_harness::servers::RedisServer;

use crate::consume::options;
use crate::consume::queues::RABBIT;

#[track_caller]
fn refused(arguments: &[&str], parts: &[&str]) {
    let job = options::refused(arguments, parts);
    assert!(!job.path("store.db").exists() && !job.path("effects.db").exists(), "nothing is begun");
}

fn source(url: &str, parts: &[&str]) {
    refused(&["--source", url], parts);
}

#[test]
fn an_invalid_source_is_refused_with_a_valid_one() {
    source("pulsar://h/?queue=orders", &["no broker for `pulsar://`", "rabbitmq://, amqp://", "redis-streams://"]);
    if cfg!(feature = "rocketmq") {
        source("rocketmq://h", &["names no topic", "`?topic=NAME`"]);
        source("rocketmq://h?topic=a", &["names no group", "`?group=NAME`"]);
    } else {
        source("rocketmq://h?topic=a&group=b", &["needs the feature rocketmq", "--features rocketmq"]);
    }
    source("redis://h", &["no broker for `redis://`", "redis-streams://"]);
    source("orders", &["--source is no URL", "rabbitmq://USER:PASSWORD@HOST:PORT/VHOST?queue=NAME"]);
    source("rabbitmq://u:hunter2#x@h:77/?queue=a", &["--source is no URL", "%40"]);
    source("rabbitmq:///?queue=orders", &["--source names no host"]);
    source("rabbitmq://u:hunter2@h", &["--source rabbitmq://h names no queue", "`?queue=NAME`"]);
    source("amqp://u:hunter2@h/v?queue=", &["names no queue"]);
    source("rabbitmq://h?queue=a&kind=stream", &["classic, quorum or existing, not `stream`"]);
    source("rabbitmq://h?queue=a&prefetch=3", &["`prefetch` is not known", "queue, kind and heartbeat"]);
    source("rabbitmq://h?queue=a&heartbeat=often", &["RabbitMQ: the URL `amqp://h", "numbers where they are required"]);
    source("redis-streams://:hunter2@h", &["names no stream", "`?stream=NAME`"]);
    source("redis-streams://h?stream=orders", &["names no group", "`?group=NAME`"]);
    source("redis-streams://h/x?stream=a&group=b", &["cannot use the stream a", "redis"]);
}

#[test]
fn a_broker_that_is_not_there_is_named_with_the_reason() {
    let parts = ["cannot use the queue orders at amqp://127.0.0.1:1/%2f", "refused", "is RabbitMQ there"];
    source("rabbitmq://u:hunter2@127.0.0.1:1/?queue=orders", &parts);
    let parts = ["cannot use the stream orders at redis://127.0.0.1:1", "refused", "is Redis there"];
    source("redis-streams://u:hunter2@127.0.0.1:1/?stream=orders&group=g", &parts);
}

#[test]
fn the_broker_rejects_a_wrong_password_or_virtual_host() {
    let at = RABBIT.address();
    source(&format!("rabbitmq://guest:hunter2@{at}/?queue=orders"), &["ACCESS_REFUSED", "may the user"]);
    source(&format!("rabbitmq://guest:guest@{at}/nowhere?queue=orders"), &["nowhere", "virtual host"]);
    source(&format!("rabbitmq://guest:guest@{at}/?queue=orders&kind=existing"), &["NOT_FOUND", "no queue 'orders'"]);
    let redis = RedisServer::builder().password("right").start();
    let url = format!("redis-streams://:hunter2@{}/?stream=orders&group=g", redis.address());
    source(&url, &["cannot use the stream orders", "check user and password in the URL"]);
}

#[test]
fn options_of_a_source_need_one_and_no_input() {
    refused(&["--publish", "in.jsonl"], &["--source"]);
    refused(&["--idle", "5s"], &["--source"]);
    let amqp = ["--source", "amqp://127.0.0.1:1?queue=a"];
    refused(&[&amqp[..], &["--input", "in.jsonl"]].concat(), &["--input", "cannot be used with"]);
    refused(&[&amqp[..], &["--publish", "nowhere.jsonl"]].concat(), &["cannot read nowhere.jsonl: No such file"]);
    refused(&[&amqp[..], &["--idle", "1s"]].concat(), &["less than 2s"]);
    refused(&[&amqp[..], &["--idle", "soon"]].concat(), &["say `5s`"]);
}
