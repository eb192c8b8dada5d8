//! No statement reads a table through, however much is confirmed, logged, and noted by people.
use std::time::{Duration, Instant};

use idempotent_sqlx::OutboxStatus;

use super::backend::{ANALYZE, ID, NUMBERS, explain, read_through};
use super::world::{World, of};

/// The parameters of each statement in order: a number, a time, an id, a queue, an owner. Statements that only write
/// are not listed.
const TAKES: &[(&str, &str)] = &[
    ("digests", "ii"),
    ("plan", "tttn"),
    ("take", "tnonnttt"),
    ("taken", "tnno"),
    ("free", "nno"),
    ("known", "ii"),
    ("seen", "iiqq"),
    ("consumed", "nii"),
    ("record", "tttnnnnnqonqnnnnnqonqo"),
    ("settle", "ntiioo"),
    ("forget", "nii"),
    ("forget_own", "nio"),
    ("list", "nnn"),
    ("counts", "t"),
    ("backlog", "tntttn"),
    ("inspect", "i"),
    ("resend", "ti"),
    ("void", "ti"),
    ("notes", "i"),
    ("purge", "ntnn"),
];
/// An insert, and a statement that reads all notes of running messages. There are few notes, since each is removed
/// with its message.
const OTHERS: &[&str] = &["enqueue", "log", "note", "forget_old"];

impl World {
    /// Returns the text with values in place of the parameters: `$1` on one database, `?` on the others.
    fn filled(&self, text: &str, kinds: &str) -> String {
        let mut text = text.to_owned();
        for (at, kind) in kinds.chars().enumerate() {
            let value = match kind {
                'n' => "1".to_owned(),
                't' => self.micros().to_string(),
                'i' => self.bytes("m1"),
                'q' => self.bytes("orders#0"),
                _ => self.hex("00112233445566778899aabbccddeeff"),
            };
            let place = format!("${}", at + 1);
            // They rise: the first that begins so is this one.
            text = text.replacen(if text.contains(&place) { &place } else { "?" }, &value, 1);
        }
        text
    }
}

#[tokio::test]
async fn among_100_000_confirmed_stubs_everything_is_found_by_index() {
    let world = full(100_000).await;
    let many: Vec<_> = (0..50).map(|n| of(&format!("m{n}"), &(n % 7).to_string())).collect();
    world.put(&many).await;
    nothing_is_read_through(&world).await;
    assert_eq!(world.round().await.sent, 50);
}

#[tokio::test]
async fn a_page_of_a_billion_messages_is_one_of_10_000() {
    let world = full(10_001).await;
    let page = async |behind| world.outbox.list(OutboxStatus::Confirmed, behind, 1_000_000_000).await.unwrap();
    let first = page(0).await;
    assert_eq!((first.len(), page(first[9_999].record.seq).await.len()), (10_000, 1));
}

/// Fills the tables: with confirmed stubs, with their log, and with what people have noted.
async fn full(rows: u32) -> World {
    let world = World::new().await;
    let (empty, text) = (world.hex(""), world.hex("74"));
    let [digest, nonce] = [32, 16].map(|bytes| world.hex(&"00".repeat(bytes)));
    let numbers = NUMBERS.replace("ROWS", &rows.to_string());
    for (into, values) in [
        (
            "outbox (id,topic,headers,body,digest,nonce,status,sends,created_at,sent_at,settled_at)",
            format!("{ID},{text},{empty},{empty},{digest},{nonce},1,1,1,2,3"),
        ),
        ("outbox_log (kind,id,run,place,logged_at)", format!("1,{ID},{empty},NULL,1")),
        ("outbox_audit (id,done_by,action,reason,done_at)", format!("{ID},{text},{text},{text},1")),
    ] {
        world.sql(&format!("INSERT INTO {into} SELECT {values} FROM {numbers}")).await;
    }
    world
}

async fn nothing_is_read_through(world: &World) {
    for table in ["outbox", "outbox_log", "outbox_audit"] {
        world.sql(&format!("{ANALYZE} {table}")).await;
    }
    let mut seen = 0;
    for (name, text) in world.outbox.__statements() {
        let kinds = match TAKES.iter().find(|(known, _)| *known == name) {
            // On the database with a JOIN, the times are the last parameters.
            Some((_, kinds)) if text.contains(" JOIN ") => {
                format!("{}ttto", kinds.trim_start_matches('t').trim_end_matches('o'))
            }
            Some((_, kinds)) => (*kinds).to_owned(),
            None => {
                assert!(OTHERS.contains(&name), "{name}: which values does it take?");
                continue;
            }
        };
        let filled = world.filled(&text, &kinds);
        let plan = explain(&world.pool, &filled).await.replace(&world.table, "outbox");
        let through = read_through(&plan);
        assert!(through.is_empty(), "{name} reads {through:?} through: {filled}\n{plan}");
        seen += 1;
    }
    // One is only where taking does not answer.
    assert!(seen >= TAKES.len() - 1, "{seen}");
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
    let world = full(rows).await;
    let some: Vec<_> = (0..50).map(|n| of(&format!("m{n}"), &(n % 7).to_string())).collect();
    world.put(&some).await;
    nothing_is_read_through(&world).await;
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
