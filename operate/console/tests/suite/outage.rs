//! Targets that do not answer.
use http::StatusCode;
use idempotent::mq::DeadLetters;
use idempotent_console::{Access, Role, User};

use crate::site::{Site, store};

#[tokio::test]
async fn a_queue_that_cannot_be_opened_is_an_error_in_its_panel() {
    let site = Site::with(store(1, 0).await, |builder| {
        let open = || async { Err::<Box<dyn DeadLetters>, _>("amqp://localhost: connection refused") };
        builder.queue("payments", open).access(Access::from_request(|_| Some(User::new("ann", Role::Admin))))
    })
    .await;
    let answer = site.get("", "/dead-letters?queue=payments&read=1").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(answer.body.contains("Not available") && answer.body.contains("connection refused"), "{}", answer.body);
    assert!(!answer.body.contains("<strong>0</strong>"), "an unknown count is not zero");
    let site_ok = site.get("", "/dead-letters?queue=orders").await;
    assert!(!site_ok.body.contains("Not available"));
}

#[tokio::test(start_paused = true)]
async fn a_target_that_does_not_answer_is_an_error_in_its_panel_and_the_others_are_shown() {
    let site = Site::with(store(1, 0).await, |builder| {
        let open = || std::future::pending::<Result<Box<dyn DeadLetters>, String>>();
        builder.queue("payments", open).access(Access::from_request(|_| Some(User::new("ann", Role::Admin))))
    })
    .await;
    let answer = site.get("", "/dead-letters?queue=payments&read=1").await;
    assert!(answer.status == StatusCode::OK && answer.body.contains("no answer within 15 s"), "{}", answer.body);
    assert_eq!(site.get("", "/overview").await.status, StatusCode::OK);
}
