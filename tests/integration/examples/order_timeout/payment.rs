//! The payment of an order, or its cancellation.
use std::time::Duration;

use super::shop::PAYMENT;
use super::{LIMIT, MINUTE, World, once, until};

#[tokio::test]
async fn paid_a_millisecond_before_its_time_it_is_not_cancelled() {
    super::a_customer_who_acts_a_millisecond_before_is_first(PAYMENT, LIMIT).await;
}

#[tokio::test]
async fn unpaid_it_is_cancelled_when_its_time_is_over_and_not_before() {
    super::it_is_over_at_its_time_and_not_before(PAYMENT, LIMIT).await;
}

#[tokio::test]
async fn cancelled_twice_it_is_cancelled_once() {
    super::over_twice_it_has_one_effect_and_one_notice(PAYMENT).await;
}

#[tokio::test]
async fn a_payment_between_delivery_and_handler_wins() {
    super::a_customer_between_delivery_and_handler_is_first(PAYMENT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payment_and_cancellation_at_the_same_instant_never_both_take_effect() {
    const ORDERS: usize = 60;
    let world = World::new().await;
    let running = world.start();
    let (mut paid, mut cancelled) = (0, 0);
    for number in 0..ORDERS {
        let order = format!("o{number}");
        world.shop.place(&order, LIMIT).await.unwrap();
        let (shop, of_payment) = (world.shop.clone(), order.clone());
        // The payment a little earlier each time, or the clock.
        let wait = Duration::from_micros(400 * u64::try_from(number % 10).unwrap());
        let paying = tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            shop.pay(&of_payment).await.unwrap()
        });
        world.clock.advance(LIMIT);
        let was_paid = paying.await.unwrap();
        world.settled().await;
        let status = if was_paid { PAYMENT.in_time } else { PAYMENT.over };
        let notices: &[String] = if was_paid { &[] } else { &[format!("{order} is cancelled")] };
        let expected = (status.to_owned(), vec![status.to_owned()], notices.to_vec());
        until("one of both", async || world.state(&order).await == expected).await;
        (paid, cancelled) = if was_paid { (paid + 1, cancelled) } else { (paid, cancelled + 1) };
    }
    assert_eq!(paid + cancelled, ORDERS);
    running.ends().await;
}

#[tokio::test]
async fn a_process_that_was_down_when_it_was_due_cancels_it_when_it_starts() {
    let world = World::new().await;
    let running = world.start();
    for order in ["o", "paid"] {
        world.shop.place(order, LIMIT).await.unwrap();
    }
    // Down from 29:00 to 31:00; the payment came by another one.
    world.clock.advance(LIMIT - MINUTE);
    running.ends().await;
    assert!(world.shop.pay("paid").await.unwrap());
    world.clock.advance(2 * MINUTE);
    assert_eq!(world.shop.status("o").await.unwrap(), "unpaid", "no process runs");
    let running = world.start();
    until("it is cancelled", async || world.state("o").await == once(PAYMENT, "cancelled")).await;
    assert_eq!(world.state("paid").await, once(PAYMENT, "paid"));
    running.ends().await;
}

#[tokio::test]
async fn a_cancelled_order_and_its_notice_are_one_commit() {
    super::an_order_and_its_notice_are_one_commit(PAYMENT).await;
}
