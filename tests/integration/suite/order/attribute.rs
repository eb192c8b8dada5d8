//! The ordering arguments in each form of function.
use std::fmt::Display;

use super::*;
use async_trait::async_trait;
use idempotent::{Executor, Identity, Scene, idempotent};

#[idempotent(key = (user, number), after = number.checked_sub(1).map(|before| (user, before)), scope = "points", with = *on)]
async fn free(on: &Executor, user: &str, number: u64) -> Result<u64, Rejection> {
    Ok(number)
}

#[idempotent(key = *key, after = before.as_ref(), scope = "generic", on_broken_order = skip("1m"), with = *on)]
async fn generic<K>(on: &Executor, key: &K, before: Option<K>) -> Result<String, Rejection>
where
    K: idempotent::KeyPart + Display + Sync,
{
    Ok(key.to_string())
}

struct Shop {
    on: Executor,
}

impl Shop {
    fn payment(&self, order: u64) -> Identity {
        Identity::new(Scene::Mq, "payments", &order)
    }

    #[idempotent(key = order, scope = "payments", with = self.on)]
    async fn pay(&self, order: u64) -> Result<(), Rejection> {
        Ok(())
    }

    #[idempotent(key = order, after = self.payment(order), scope = "parcels", on_broken_order = halt("1m"), with = self.on)]
    async fn send(&self, order: u64) -> Result<(), Rejection> {
        Ok(())
    }
}

#[async_trait]
trait Books: Sync {
    async fn book(&self, number: u64) -> Result<u64, Rejection>;
}

#[async_trait]
impl Books for Shop {
    #[idempotent(key = number, after = number.checked_sub(1), scope = "books", with = self.on)]
    async fn book(&self, number: u64) -> Result<u64, Rejection> {
        Ok(number)
    }
}

on_all_stores! {
    points_of_one_user_in_their_order
    a_parcel_comes_after_its_payment
    a_generic_handler_has_its_own_policy
    a_method_of_an_async_trait_waits_as_any_other
}

async fn points_of_one_user_in_their_order(world: World) {
    let on = world.worker("a", Policy::new()).executor;
    for number in [2, 1] {
        assert!(matches!(free(&on, "ann", number).await, Err(Rejection::Waiting { .. })));
    }
    assert!(matches!(free(&on, "bob", 0).await, Ok(0)));
    assert!(matches!(free(&on, "ann", 1).await, Err(Rejection::Waiting { .. })), "bob's chain is not ann's");
    for number in 0..3 {
        assert_eq!(free(&on, "ann", number).await.unwrap(), number);
    }
}

async fn a_method_of_an_async_trait_waits_as_any_other(world: World) {
    let shop = Shop { on: world.worker("a", Policy::new()).executor };
    let books: &dyn Books = &shop;
    assert!(matches!(books.book(1).await, Err(Rejection::Waiting { .. })));
    assert_eq!((books.book(0).await.unwrap(), books.book(1).await.unwrap()), (0, 1));
}

async fn a_parcel_comes_after_its_payment(world: World) {
    let shop = Shop { on: world.worker("a", Policy::new()).executor };
    assert!(matches!(shop.send(17).await, Err(Rejection::Waiting { .. })));
    shop.pay(17).await.unwrap();
    shop.send(17).await.unwrap();
    assert!(matches!(shop.send(18).await, Err(Rejection::Waiting { .. })));
    world.clock.advance(secs(60)).await;
    assert!(matches!(shop.send(18).await, Err(Rejection::Dead { .. })), "halted");
}

async fn a_generic_handler_has_its_own_policy(world: World) {
    let on = world.worker("a", Policy::new()).executor;
    assert!(matches!(generic(&on, &"b", Some("a")).await, Err(Rejection::Waiting { .. })));
    world.clock.advance(secs(60)).await;
    assert_eq!(generic(&on, &"b", Some("a")).await.unwrap(), "b");
    assert_eq!(generic(&on, &1_u8, None).await.unwrap(), "1");
}
