//! SIGTERM.
use std::time::Duration;

use crate::sockets::support::process::Settings;
use crate::sockets::support::{Ask, Backing, Client, Kind, ServerProcess, until};

/// Sends requests with different keys until the server rejects new ones.
async fn draining(client: &mut Client) {
    let mut number = 0;
    until("it drains", async || {
        number += 1;
        let answer = client.ask(&Ask::order(&format!("new{number}"), "new")).await;
        if answer.status != 201 {
            answer.is(503, "draining");
            answer.retry_after();
        }
        answer.status == 503
    })
    .await;
}

async fn started(server: &ServerProcess, settings: &Settings, ask: &Ask, sku: &str) -> Client {
    let mut client = Client::connect(server.address).await;
    client.send(&ask.bytes()).await;
    until("its handler runs", async || settings.runs(sku).len() == 1).await;
    client
}

async fn open(server: &ServerProcess, number: u64) {
    let answer = Client::connect(server.address).await.ask(&Ask::get(&format!("/open/{number}"))).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_lets_running_requests_finish_rejects_new_ones_and_stops_the_server() {
    let (backing, folder) = (Backing::new(Kind::Redis), tempfile::tempdir().unwrap());
    let settings = Settings::new(backing.url(), folder.path());
    let mut server = ServerProcess::start(&settings).await;
    let mut first = started(&server, &settings, &Ask::order("k1", "lamp").hold(1), "lamp").await;
    let mut second = started(&server, &settings, &Ask::order("k2", "chair").hold(2), "chair").await;
    let mut late = Client::connect(server.address).await;
    server.terminate();
    draining(&mut late).await;
    let before = settings.runs("new").len();
    for number in 0..20 {
        late.ask(&Ask::order(&format!("late{number}"), "new")).await.is(503, "draining");
    }
    // A duplicate of a running request is rejected as well, without a wait.
    late.ask(&Ask::order("k1", "lamp")).await.is(503, "draining");
    open(&server, 1).await;
    let lamp = first.answer().await.made();
    assert!(server.is_running(), "one still runs");
    open(&server, 2).await;
    let chair = second.answer().await.made();
    assert_eq!(server.ended().await.code(), Some(0));
    assert_eq!(settings.runs("new").len(), before, "nothing new was run");

    let next = ServerProcess::start(&settings).await;
    let mut client = Client::connect(next.address).await;
    assert_eq!(client.ask(&Ask::order("k1", "lamp")).await.replayed(), lamp);
    assert_eq!(client.ask(&Ask::order("k2", "chair")).await.replayed(), chair);
    // Rejected requests claimed nothing.
    client.ask(&Ask::order("late0", "late")).await.made();
    let runs = ["lamp", "chair", "late"].map(|sku| settings.runs(sku).len());
    assert_eq!(runs, [1, 1, 1]);
}

/// Its effect is unknown, so its key stays held until the lease expires, and the next run learns of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_exceeds_the_grace_period_is_abandoned_and_taken_over_after_its_lease() {
    let (backing, folder) = (Backing::new(Kind::Redis), tempfile::tempdir().unwrap());
    let times = (Duration::from_secs(4), Duration::from_millis(500));
    let settings = Settings { lease: times.0, grace: times.1, ..Settings::new(backing.url(), folder.path()) };
    let (mut server, next) = (ServerProcess::start(&settings).await, ServerProcess::start(&settings).await);
    let mut endless = started(&server, &settings, &Ask::order("k", "lamp").hold(1), "lamp").await;
    server.terminate();
    let answer = endless.answer().await;
    assert_eq!(answer.status, 503, "{answer}");
    answer.retry_after();
    let mut client = Client::connect(next.address).await;
    let mut refused = 0;
    until("the lease is over", async || {
        let answer = client.ask(&Ask::order("k", "lamp")).await;
        refused += usize::from(answer.status == 409);
        answer.status == 201
    })
    .await;
    let [(number, None), (_, Some(taken_over))] = settings.runs("lamp")[..] else {
        panic!("{:?}", settings.runs("lamp"))
    };
    assert!(taken_over == number && refused > 0, "{refused} refused");
    assert_eq!(server.ended().await.code(), Some(0));
}
