//! The receipt of a shipped order, which its customer or the shop confirms.
use std::time::Duration;

use super::shop::{RECEIPT, RECEIPT_TIME};
use super::{LIMIT, World, once};

const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[tokio::test]
async fn unconfirmed_a_receipt_is_confirmed_by_the_shop_after_seven_days_and_not_before() {
    assert_eq!(RECEIPT_TIME, WEEK);
    super::it_is_over_at_its_time_and_not_before(RECEIPT, RECEIPT_TIME).await;
}

#[tokio::test]
async fn a_customer_who_confirms_a_millisecond_before_is_first() {
    super::a_customer_who_acts_a_millisecond_before_is_first(RECEIPT, WEEK).await;
}

#[tokio::test]
async fn a_customer_who_confirms_between_delivery_and_handler_is_first() {
    super::a_customer_between_delivery_and_handler_is_first(RECEIPT).await;
}

#[tokio::test]
async fn confirmed_twice_by_the_shop_it_is_confirmed_once() {
    super::over_twice_it_has_one_effect_and_one_notice(RECEIPT).await;
}

#[tokio::test]
async fn only_a_paid_order_is_shipped_and_only_a_shipped_one_confirmed() {
    let world = World::new().await;
    world.shop.place("o", LIMIT).await.unwrap();
    assert!(!world.shop.ship("o", WEEK).await.unwrap(), "it is unpaid");
    assert!(!world.shop.confirm("o").await.unwrap(), "it is unpaid");
    assert!(world.shop.pay("o").await.unwrap());
    assert!(!world.shop.confirm("o").await.unwrap(), "it is not shipped");
    assert!(world.shop.ship("o", WEEK).await.unwrap());
    assert!(!world.shop.ship("o", WEEK).await.unwrap(), "it is shipped once");
    assert_eq!(world.state("o").await, once(RECEIPT, "shipped"));
}

#[tokio::test]
async fn a_confirmed_receipt_and_its_notice_are_one_commit() {
    super::an_order_and_its_notice_are_one_commit(RECEIPT).await;
}
