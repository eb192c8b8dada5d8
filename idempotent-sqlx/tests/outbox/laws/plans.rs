//! What is due is found by index, however much is confirmed.
use super::own::{ANALYSE, BY_INDEX, FILL, explain};
use super::world::{World, of};

#[tokio::test]
async fn b28_among_100_000_confirmed_stubs_what_is_due_is_found_by_index() {
    let world = World::new().await;
    world.sql(&FILL.replace("ROWS", "100000")).await;
    let many: Vec<_> = (0..50).map(|n| of(&format!("m{n}"), &(n % 7).to_string())).collect();
    world.put(&many).await;
    world.sql(ANALYSE).await;
    let mut plan = world.outbox.__plan();
    for value in 1..=5 {
        // A place for a value is `$1` on one, `?` on others; the last one is the limit.
        let what = if value == 5 { "100".to_owned() } else { world.micros().to_string() };
        let place = format!("${value}");
        plan = plan.replacen(if plan.contains(&place) { &place } else { "?" }, &what, 1);
    }
    let plan = explain(&world.pool, &plan).await.replace(&world.table, "outbox");
    let (must, must_not) = BY_INDEX;
    assert!(must.iter().all(|words| plan.contains(words)), "{plan}");
    assert!(!must_not.iter().any(|words| plan.contains(words)), "{plan}");
    assert_eq!(world.round().await.sent, 50);
}
