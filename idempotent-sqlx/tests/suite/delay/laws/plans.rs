//! What is due is found by index, however much waits and however much is dead.
use std::time::Duration;

use idempotent_sqlx::Work;

use super::own::{ANALYSE, BY_INDEX, FILL, explain};
use super::world::{Hand, World, id};
use crate::delay::clock::Moved;

#[tokio::test]
async fn s0_34_among_100_000_that_wait_or_are_dead_what_is_due_is_found_by_index() {
    let world = World::new().await;
    world.sql(&FILL.replace("ROWS", "100000").replace("FAR", &(Moved::START * 2).to_string())).await;
    world.work.put(&Work::after("k", Duration::ZERO, "")).await.unwrap();
    world.sql(ANALYSE).await;
    let now = Moved::START.to_string();
    for (plan, values) in
        world.work.__plans().into_iter().zip([vec![&*now, &*now, "3600000000", "1"], vec![&*now, "100"]])
    {
        let mut text = plan;
        for (at, value) in values.into_iter().enumerate() {
            // A place for a value is `$1` on one, `?` on others.
            let place = format!("${}", at + 1);
            text = text.replacen(if text.contains(&place) { &place } else { "?" }, value, 1);
        }
        let plan = explain(&world.pool, &text).await.replace(&world.table, "delay");
        let (must, must_not) = BY_INDEX;
        assert!(must.iter().any(|words| plan.contains(words)), "{text}\n{plan}");
        assert!(!must_not.iter().any(|words| plan.contains(words)), "{text}\n{plan}");
    }
    assert_eq!(id(&Hand::of(&world).take(9).await[0]), "k");
    let counts = world.counts().await;
    assert_eq!((counts.waiting, counts.dead), (50_000, 50_000));
}
