//! The example `rest_poem`, asked by `curl`.
use crate::example::Running;
use crate::rest::client::{Answer, curl};

/// Sends a payment of order 17.
fn pay(address: &str, user: &str, key: &[&str], cents: u64) -> Answer {
    let mut arguments = vec![format!("http://{address}/orders/17/payments")];
    let user = format!("X-User: {user}");
    for header in [&["Content-Type: application/json", &user], key].concat() {
        arguments.extend(["--header".to_owned(), header.to_owned()]);
    }
    arguments.extend(["--data-binary".to_owned(), format!(r#"{{"cents":{cents}}}"#)]);
    curl(&arguments)
}

#[test]
fn a_payment_that_is_sent_twice_is_charged_once() {
    let mut service = Running::start("rest_poem", &["127.0.0.1:0"]);
    let ready = service.says(1).remove(0);
    let address = ready.strip_prefix("listening on ").unwrap();
    let (a1, a2) = (["Idempotency-Key: a1"], ["Idempotency-Key: a2"]);

    let first = pay(address, "ada", &a1, 500).ran();
    assert_eq!((first.status, first.json()["payment"].as_u64()), (201, Some(1)));
    pay(address, "ada", &a1, 500).replays(&first);

    // The same key with another payment, without a key, and the same key of another caller.
    pay(address, "ada", &a1, 900).is_problem(422, "key-reused");
    pay(address, "ada", &[], 500).is_problem(400, "missing-key");
    pay(address, "eve", &a1, 500).ran();

    // A failure frees the key: the corrected request runs.
    assert_eq!(pay(address, "ada", &a2, 0).status, 400);
    pay(address, "ada", &a2, 300).ran();

    service.signal("-INT");
    let charged = [(1, 500), (2, 500), (3, 300)];
    assert_eq!(
        service.ends(),
        charged.map(|(payment, cents)| format!("payment {payment}: {cents} cents for order 17"))
    );
}
