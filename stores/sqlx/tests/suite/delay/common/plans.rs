//! Query plans: due messages are found by index, however many wait or are dead.
use std::time::Duration;

use idempotent_sqlx::ScheduledTask;

use super::backend::{ANALYZE, BY_INDEX, HEX, ID, NUMBERS, explain};
use super::world::{Hand, World, id};
use crate::delay::clock::Moved;

#[tokio::test]
async fn among_100_000_that_wait_or_are_dead_what_is_due_is_found_by_index() {
    let world = World::new().await;
    let (empty, far) = (HEX.replace("DIGITS", ""), Moved::START * 2);
    let numbers = NUMBERS.replace("ROWS", "100000");
    world
        .sql(&format!(
            "INSERT INTO delay (id,live,headers,body,scheduled_at,due_at,dead_at) \
             SELECT {ID},CASE WHEN n%2=0 THEN {ID} END,{empty},{empty},1,\
             CASE WHEN n%2=0 THEN {far}+n END,CASE WHEN n%2=1 THEN n END FROM {numbers}"
        ))
        .await;
    world.work.put(&ScheduledTask::after("k", Duration::ZERO, "")).await.unwrap();
    world.sql(&format!("{ANALYZE} delay")).await;
    let now = Moved::START.to_string();
    for (plan, values) in world.work.__plans().into_iter().zip([
        vec![&*now, &*now, "3600000000", "1"],
        vec![&*now, "100"],
        vec![&*now, "11", "11", &*now, &*now, &*now, "11"],
    ]) {
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
    let backlog = world.work.backlog(10).await.unwrap();
    let shown = [backlog.ready, backlog.waiting, backlog.in_flight, backlog.dead].map(|count| count.to_string());
    assert_eq!(shown, ["0", "10+", "1+", "10+"], "what is held returns before the rest is due");
    let counts = world.counts().await;
    assert_eq!((counts.waiting, counts.dead), (50_000, 50_000));
}
