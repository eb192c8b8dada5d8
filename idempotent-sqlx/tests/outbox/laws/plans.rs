//! What is due is found by index, however much is confirmed.
use std::time::{Duration, Instant};

use super::own::{ANALYSE, BY_INDEX, FILL, explain};
use super::world::{World, of};

#[tokio::test]
async fn b28_among_100_000_confirmed_stubs_what_is_due_is_found_by_index() {
    let world = World::new().await;
    world.sql(&FILL.replace("ROWS", "100000")).await;
    let many: Vec<_> = (0..50).map(|n| of(&format!("m{n}"), &(n % 7).to_string())).collect();
    world.put(&many).await;
    world.sql(ANALYSE).await;
    goes_by_index(&world).await;
    assert_eq!(world.round().await.sent, 50);
}

async fn goes_by_index(world: &World) {
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
}

/// `cargo xtask soak delivery`
#[tokio::test]
#[ignore = "takes minutes"]
#[allow(clippy::print_stdout, reason = "the times are the result")]
async fn a_look_for_what_is_due_costs_the_same_over_a_million_confirmed_stubs() {
    let (few, many) = (look_over(10_000).await, look_over(1_000_000).await);
    println!("a look that finds nothing due takes {few:?} over 10,000 confirmed stubs, {many:?} over 1,000,000");
    // By index they are a page or two more. What grows with their number would take a hundred times as long.
    assert!(many < 4 * few, "the cost grows with the outbox");
}

/// The median of looks among so many confirmed stubs and some that are not due.
async fn look_over(rows: u32) -> Duration {
    let world = World::new().await;
    world.sql(&FILL.replace("ROWS", &rows.to_string())).await;
    let some: Vec<_> = (0..50).map(|n| of(&format!("m{n}"), &(n % 7).to_string())).collect();
    world.put(&some).await;
    world.sql(ANALYSE).await;
    goes_by_index(&world).await;
    assert_eq!(world.round().await.sent, 50);
    let mut looks = Vec::new();
    for _ in 0..301 {
        let began = Instant::now();
        assert_eq!(world.round().await.looked_at, 0);
        looks.push(began.elapsed());
    }
    looks.sort_unstable();
    looks[looks.len() / 2]
}
