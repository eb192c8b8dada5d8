//! The responses that complete a request.
use http::StatusCode;
use idempotent_tower::{ResponseRules, StorePolicy};

use crate::layer::support::{World, order_by};

/// Returns the statuses that are stored.
async fn kept(rules: ResponseRules, statuses: impl IntoIterator<Item = u16>) -> Vec<u16> {
    let mut kept = Vec::new();
    for status in statuses {
        let world = World::new();
        let shop = world.shop_behind(world.layer().response(rules.clone()));
        let ask = order_by("a").with("x-status", status.to_string());
        let (first, second) = (ask.send(&shop).await, ask.send(&shop).await);
        assert_eq!((first.status, second.status), (status, status));
        assert_eq!(second.is_replay(), shop.runs() == 1);
        if second.is_replay() {
            assert_eq!(first.body, second.body);
            kept.push(status);
        }
    }
    kept
}

fn storing(policy: StorePolicy) -> ResponseRules {
    ResponseRules::default().store(policy)
}

const STATUSES: [u16; 22] =
    [200, 201, 202, 204, 206, 299, 301, 303, 307, 400, 401, 402, 403, 404, 409, 410, 422, 429, 500, 502, 503, 599];

#[tokio::test]
async fn success_and_redirection_are_stored_and_a_retry_of_others_runs() {
    for rules in [ResponseRules::default(), storing(StorePolicy::Success)] {
        assert_eq!(kept(rules, STATUSES).await, [200, 201, 202, 204, 206, 299, 301, 303, 307]);
    }
}

#[tokio::test]
async fn the_final_policy_also_stores_statuses_that_no_retry_changes() {
    let success = [200, 201, 202, 204, 206, 299, 301, 303, 307].into_iter();
    let wanted: Vec<_> = success.chain([402, 404, 409, 410, 422]).collect();
    assert_eq!(kept(storing(StorePolicy::Final), STATUSES).await, wanted);
}

#[tokio::test]
async fn the_all_policy_stores_all_and_a_function_decides_by_itself() {
    assert_eq!(kept(storing(StorePolicy::All), STATUSES).await, STATUSES);
    let own = StorePolicy::By(|status, headers| status == StatusCode::IM_A_TEAPOT && headers.contains_key("location"));
    assert_eq!(kept(storing(own), [200, 418, 500]).await, [418]);
}

#[tokio::test]
async fn a_failed_response_reaches_its_client_unchanged() {
    let world = World::new();
    let shop = world.shop();
    let sent = order_by("a").with("x-status", "503").with("x-size", "10").send(&shop).await;
    assert_eq!((sent.status, &sent.body[..], sent.header("location")), (503, &b"1:xxxxxxxxxx"[..], Some("/orders/1")));
}

#[tokio::test]
async fn the_handler_sees_its_attempt() {
    let world = World::new();
    let shop = world.shop();
    order_by("a").with("x-status", "500").send(&shop).await;
    order_by("a").send(&shop).await.ran(2);
    let seen = shop.attempts.lock().unwrap().clone();
    assert_eq!(seen.iter().map(|attempt| (attempt.number(), attempt.is_retry())).collect::<Vec<_>>(), [(1, false); 2]);
    assert!(seen[0].fencing() < seen[1].fencing());
}

#[tokio::test]
async fn the_handler_sees_a_retry_if_attempts_are_counted() {
    let world = World::new();
    let shop = world.shop_behind(world.layer().policy(idempotent_core::Policy::new().max_retries(1)));
    let failing = order_by("a").with("x-status", "500");
    failing.send(&shop).await;
    failing.send(&shop).await;
    let seen = shop.attempts.lock().unwrap().clone();
    assert_eq!(
        seen.iter().map(|attempt| (attempt.number(), attempt.is_retry())).collect::<Vec<_>>(),
        [(1, false), (2, true)]
    );
    let given_up = failing.send(&shop).await;
    assert_eq!(given_up.problem(409, "failed-before").told()["retryable"], false);
    assert_eq!(shop.runs(), 2);
}
