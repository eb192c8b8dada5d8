//! Two processes and one store.
use idempotent_harness::servers::RedisServer;

use crate::rest::client::ask;
use crate::rest::service::Service;
use crate::wait::until;

const TEA: &str = r#"{"sku":"tea","qty":2}"#;

fn pair(server: &RedisServer) -> [Service; 2] {
    [(); 2].map(|()| Service::with(&["--store", &server.url(), "--lease", "2s"]))
}

#[test]
fn a_process_replays_the_response_of_another_one() {
    let server = RedisServer::start();
    let [one, other] = pair(&server);
    let key = ["Idempotency-Key: k1"];
    let first = one.post("/orders", &key, TEA).ran();
    other.post("/orders", &key, TEA).replays(&first);
    other.post("/orders", &key, r#"{"sku":"tea","qty":3}"#).is_problem(422, "key-reused");
    assert_eq!(other.executions("tea"), 0);
    let token = format!("X-Idempotent-Token: {}", one.get("/token").json()["token"].as_str().unwrap());
    other.post("/submit", &[&token], TEA).ran();
    one.post("/submit", &[&token], TEA).is_problem(409, "duplicate-request");
    one.post("/param", &[], TEA).ran();
    other.post("/param", &[], TEA).is_problem(409, "duplicate-request");
}

#[test]
fn a_record_named_as_a_token_is_an_unknown_token_and_stays() {
    let server = RedisServer::start();
    let service = Service::with(&["--store", &server.url()]);
    let first = service.post("/orders", &["Idempotency-Key: k1"], TEA).ran();
    server.command(&["SET", "session", "others"]);
    let names: Vec<String> = server.command(&["KEYS", "*"]).items().iter().map(|name| name.text()).collect();
    assert!(names.iter().any(|name| name.contains(":rest:")), "{names:?}");
    for name in &names {
        let answer = service.post("/submit", &[&format!("X-Idempotent-Token: {name}")], TEA);
        answer.is_problem(409, "unknown-token");
    }
    assert_eq!(server.command(&["GET", "session"]).text(), "others");
    service.post("/orders", &["Idempotency-Key: k1"], TEA).replays(&first);
    assert_eq!(service.executions("tea"), 1);
}

#[test]
fn one_of_many_equal_requests_to_two_processes_runs() {
    let server = RedisServer::start();
    let both = pair(&server);
    for round in 0..5 {
        let (key, sku) = (format!("Idempotency-Key: k{round}"), format!("s{round}"));
        let body = format!(r#"{{"sku":"{sku}","qty":1,"delay_ms":300}}"#);
        let asked: Vec<_> = (0..10).map(|at| ask(&both[at % 2].post_arguments("/orders", &[&key], &body))).collect();
        let answers: Vec<_> = asked.into_iter().map(|asking| asking.answer()).collect();
        let ran = answers.iter().filter(|answer| answer.status == 201 && !answer.is_replay()).count();
        assert_eq!(ran, 1, "{answers:?}");
        for answer in answers.iter().filter(|answer| answer.status != 201) {
            answer.is_problem(409, "in-flight");
            answer.retry_after();
        }
        assert_eq!(both.iter().map(|service| service.executions(&sku)).sum::<u64>(), 1);
    }
}

#[test]
fn another_process_takes_over_after_the_lease_of_a_killed_one() {
    let server = RedisServer::start();
    let [one, other] = pair(&server);
    let (key, body) = (["Idempotency-Key: k1"], r#"{"sku":"long","qty":1,"delay_ms":3600000}"#);
    let running = ask(&one.post_arguments("/orders", &key, body));
    until("it runs", || one.executions("long") == 1);
    other.post("/orders", &key, body).is_problem(409, "in-flight");
    one.kill();
    assert!(running.try_answer().is_err());
    let mut asked = Vec::new();
    until("the other runs it", || {
        asked.push(ask(&other.post_arguments("/orders", &key, body)));
        other.executions("long") == 1
    });
    asked.into_iter().for_each(|asking| asking.leave());
    assert_eq!(other.executions("long"), 1);
}

#[test]
fn without_its_store_nothing_runs_and_with_it_all_goes_on() {
    let server = RedisServer::start();
    let service = Service::with(&["--store", &server.url()]);
    server.kill();
    let told = service.post("/orders", &["Idempotency-Key: k1"], TEA);
    told.is_problem(503, "store-unavailable");
    told.retry_after();
    assert_eq!(service.executions("tea"), 0);
    server.restart();
    until("it runs", || service.post("/orders", &["Idempotency-Key: k1"], TEA).status == 201);
    assert_eq!(service.executions("tea"), 1);
}
