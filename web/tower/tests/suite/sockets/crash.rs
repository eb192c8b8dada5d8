//! Servers that are killed.
use std::time::Duration;

use crate::sockets::support::process::Settings;
use crate::sockets::support::{Ask, Backing, Client, Kind, ServerProcess, until};

/// Long enough to observe the held key on a loaded machine.
const LEASE: Duration = Duration::from_secs(4);

/// The effect of a started run may have happened. It happens at most twice, and the second run knows.
async fn killed_in_the_middle(kind: Kind) {
    let (backing, folder) = (Backing::new(kind), tempfile::tempdir().unwrap());
    let settings = Settings { lease: LEASE, ..Settings::new(backing.url(), folder.path()) };
    let (doomed, next) = (ServerProcess::start(&settings).await, ServerProcess::start(&settings).await);
    let mut client = Client::connect(doomed.address).await;
    let done = client.ask(&Ask::order("done", "chair")).await.made();
    client.send(&Ask::order("k", "lamp").hold(1).bytes()).await;
    until("its handler runs", async || settings.runs("lamp").len() == 1).await;
    doomed.kill();
    assert_eq!(client.answer_or_end().await, None);

    let mut client = Client::connect(next.address).await;
    let mut refused = 0;
    let mut order = String::new();
    until("the dead one's lease is over", async || {
        let answer = client.ask(&Ask::order("k", "lamp")).await;
        if answer.status == 201 {
            order = answer.made();
            return true;
        }
        answer.is(409, "in-flight");
        answer.retry_after();
        refused += 1;
        false
    })
    .await;
    assert_eq!(client.ask(&Ask::order("k", "lamp")).await.replayed(), order);
    assert_eq!(client.ask(&Ask::order("done", "chair")).await.replayed(), done);
    let [(number, None), (second, Some(taken_over))] = settings.runs("lamp")[..] else {
        panic!("{:?}", settings.runs("lamp"))
    };
    assert!(taken_over == number && second > number, "{:?}", settings.runs("lamp"));
    assert!(refused > 0, "the lease held");
    assert_eq!(settings.runs("chair").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_on_the_same_file_takes_over_from_a_killed_server_after_its_lease() {
    killed_in_the_middle(Kind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_on_the_same_redis_takes_over_from_a_killed_server_after_its_lease() {
    killed_in_the_middle(Kind::Redis).await;
}

/// The server holds 20 keys. All of them are retried at once at two other servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_of_a_killed_server_runs_again_once() {
    const KEYS: usize = 20;
    let (backing, folder) = (Backing::new(Kind::Redis), tempfile::tempdir().unwrap());
    let settings = Settings { lease: LEASE, ..Settings::new(backing.url(), folder.path()) };
    let (doomed, other) = (ServerProcess::start(&settings).await, ServerProcess::start(&settings).await);
    let ask = |number| Ask::order(&format!("k{number}"), &format!("sku{number}"));
    let mut cut = Vec::new();
    for number in 0..KEYS {
        let mut client = Client::connect(doomed.address).await;
        client.send(&ask(number).hold(1).bytes()).await;
        cut.push(client);
    }
    let runs = |number| settings.runs(&format!("sku{number}"));
    until("all run", async || (0..KEYS).all(|number| runs(number).len() == 1)).await;
    doomed.kill();
    let third = ServerProcess::start(&settings).await;
    let mut clients = [Client::connect(other.address).await, Client::connect(third.address).await];
    for number in 0..KEYS {
        until("the lease is over", async || clients[number % 2].ask(&ask(number)).await.status == 201).await;
        clients[(number + 1) % 2].ask(&ask(number)).await.replayed();
        let [(first, None), (_, Some(taken_over))] = runs(number)[..] else { panic!("{:?}", runs(number)) };
        assert_eq!(taken_over, first);
    }
}
