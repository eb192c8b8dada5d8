use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use idempotent_harness::servers::RedisServer;
use idempotent_mq::Settlement;
use tokio::time::{pause, resume};

use super::*;
use crate::StartPosition;

/// The idle time of an entry that a search takes over. No other entry is idle for so long.
const MIN_IDLE: &str = "3600000";

async fn connect(server: &RedisServer, keep: TrimPolicy) -> StreamsSource {
    let source = StreamsSource::builder(server.url(), "orders", "billing").declare(StartPosition::Beginning);
    let source = source.consumer("a").keep(keep).min_idle(Duration::from_secs(3600));
    source.connect().await.unwrap()
}

fn add(server: &RedisServer) -> String {
    server.command(&["XADD", "orders", "*", "body", "{}"]).text()
}

/// Returns the number of entries that a consumer with the same settings would take over.
fn idle(server: &RedisServer) -> usize {
    server.command(&["XPENDING", "orders", "billing", "IDLE", MIN_IDLE, "-", "+", "10"]).items().len()
}

/// Adds an entry that a consumer `b` has read, and that is idle for long enough.
fn abandoned(server: &RedisServer) -> String {
    let id = add(server);
    server.command(&["XREADGROUP", "GROUP", "billing", "b", "STREAMS", "orders", ">"]);
    server.command(&["XCLAIM", "orders", "billing", "b", "0", &id, "IDLE", MIN_IDLE]);
    id
}

#[tokio::test]
async fn a_search_is_due_when_its_time_has_come() {
    let server = RedisServer::start();
    let mut source = connect(&server, TrimPolicy::Everything).await;
    assert!(source.take_idle(1).await.unwrap().is_empty());
    assert!(source.search.next > Instant::now() && !source.search_is_due());
    pause();
    source.search.next = Instant::now();
    assert!(source.search_is_due() && source.search.cursor.is_some());
    resume();
}

#[tokio::test]
async fn only_acknowledged_entries_of_a_stream_that_is_to_be_trimmed_are_trimmed() {
    for (keep, acked, trims) in [
        (TrimPolicy::Everything, true, false),
        (TrimPolicy::Unfinished, false, false),
        (TrimPolicy::Unfinished, true, true),
    ] {
        let server = RedisServer::start();
        let source = connect(&server, keep).await;
        source.settler.acked.store(acked, Ordering::Release);
        source.trim().await.unwrap();
        assert_eq!(!server.info("cmdstat_xtrim").is_empty(), trims, "{keep:?}, acked: {acked}");
    }
}

#[tokio::test]
async fn a_wait_is_interrupted_by_a_search_that_has_room() {
    let server = RedisServer::start();
    let mut source = connect(&server, TrimPolicy::Everything).await;
    source.search.next = Instant::now();
    assert!(source.wait(1).await.unwrap().is_empty() && source.reading.is_some());

    let server = RedisServer::start();
    let mut source = connect(&server, TrimPolicy::Everything).await;
    source.search.next = Instant::now();
    // The pending read has the room of one entry.
    assert!(source.read_new(1, Some(Duration::from_secs(60))).now_or_never().is_none());
    assert!(source.wait(2).await.unwrap().is_empty() && source.reading.is_some());
    // A pending read may take the only room, so the wait is for the read.
    let (entries, id) = tokio::join!(source.wait(1), async { add(&server) });
    assert_eq!(entries.unwrap().iter().map(|entry| &entry.id).collect::<Vec<_>>(), [&id]);
}

#[tokio::test]
async fn a_closed_source_returns_what_its_dropped_calls_have_taken() {
    let server = RedisServer::start();
    let mut source = connect(&server, TrimPolicy::Everything).await;
    abandoned(&server);
    assert!(source.take(1).now_or_never().is_none());
    assert!(source.read_new(1, Some(Duration::from_secs(60))).now_or_never().is_none());
    add(&server);
    source.close().await;
    assert_eq!((idle(&server), source.taking.is_none(), source.reading.is_none()), (2, true, true));
}

#[tokio::test]
async fn a_closed_source_leaves_entries_that_a_handler_still_has() {
    let server = RedisServer::start();
    let mut source = connect(&server, TrimPolicy::Everything).await;
    let id = abandoned(&server);
    let Received::Deliveries(held) = source.receive(1).await.unwrap() else { panic!("the stream has ended") };
    assert_eq!(held.len(), 1);
    // The entry was extended too late, so the search takes it over a second time.
    server.command(&["XCLAIM", "orders", "billing", "a", "0", &id, "IDLE", MIN_IDLE]);
    assert!(source.take(1).now_or_never().is_none());
    source.close().await;
    assert_eq!(idle(&server), 0);
    let settled = source.settler().settle(&held[0].0, &held[0].1, &Settlement::Ack).await;
    assert!(settled.is_ok(), "{settled:?}");
}

/// The log of a test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_search_logs_the_entries_that_were_deleted_before_their_settlement_and_nothing_else() {
    let (server, log) = (RedisServer::start(), Log::default());
    let mut source = connect(&server, TrimPolicy::Everything).await;
    let written = log.clone();
    let _logs = idempotent_harness::logs_to(
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || log.clone()).finish(),
    );
    let mut search = async || {
        source.search.next = Instant::now();
        source.take_idle(10).await.unwrap();
        String::from_utf8(std::mem::take(&mut *written.0.lock().unwrap())).unwrap()
    };
    assert_eq!(search().await, "");
    let id = abandoned(&server);
    server.command(&["XDEL", "orders", &id]);
    let line = search().await;
    assert!(line.contains("gone=1") && line.contains("deleted or trimmed"), "{line}");
}
