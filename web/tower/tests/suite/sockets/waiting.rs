//! Duplicates that wait for the response.
use crate::sockets::support::{Ask, Backing, Client, Kind, PATIENCE, Server, Volley, on_each_store, until};

const CONNECTIONS: usize = 100;
const ROUNDS: u64 = 40;

on_each_store! {
    of_100_equal_waiting_requests_one_runs_and_99_receive_its_response;
    if_the_first_fails_one_of_99_waiting_requests_takes_over;
    a_waiting_duplicate_whose_client_disconnects_takes_nothing_over;
    a_waiting_request_that_took_over_completes_without_its_client;
}

async fn of_100_equal_waiting_requests_one_runs_and_99_receive_its_response(backing: &Backing) {
    let server = Server::on(backing, |layer| layer.wait(PATIENCE)).await;
    let mut volley = Volley::connect(&[server.address], CONNECTIONS).await;
    for round in 1..=ROUNDS {
        let (key, sku) = (format!("key-{round}"), format!("sku-{round}"));
        volley.fire(|_| Ask::order(&key, &sku).hold(round)).await;
        let all = round * CONNECTIONS as u64;
        until("all have come", async || server.executor.counts().deliveries() == all).await;
        server.shop.open(round);
        let answers = volley.answers(0, async || {}).await;
        let (made, replays): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| !answer.is_replay());
        assert_eq!((server.shop.count(&sku), made.len()), (1, 1), "round {round}");
        for replay in replays {
            assert_eq!(replay.replayed(), made[0].made());
        }
    }
}

/// The first receives 500. The response of one of the others serves all remaining ones.
async fn if_the_first_fails_one_of_99_waiting_requests_takes_over(backing: &Backing) {
    let server = Server::on(backing, |layer| layer.wait(PATIENCE)).await;
    let mut volley = Volley::connect(&[server.address], CONNECTIONS).await;
    let mut first = Client::connect(server.address).await;
    for round in 1..=ROUNDS / 4 {
        let (key, sku) = (format!("key-{round}"), format!("sku-{round}"));
        let begun = server.executor.counts().deliveries();
        first.send(&Ask::order(&key, &sku).hold(round).answer("500").bytes()).await;
        until("the first runs", async || server.shop.count(&sku) == 1).await;
        volley.fire(|_| Ask::order(&key, &sku)).await;
        let all = begun + 1 + CONNECTIONS as u64;
        until("all have come", async || server.executor.counts().deliveries() == all).await;
        server.shop.open(round);
        assert_eq!(first.answer().await.status, 500);
        let answers = volley.answers(0, async || {}).await;
        let (made, replays): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| !answer.is_replay());
        assert_eq!((server.shop.count(&sku), made.len()), (2, 1), "round {round}");
        assert!(replays.iter().all(|replay| replay.replayed() == made[0].made()));
    }
}

/// Sends an order that will fail at gate 1, and a duplicate that waits.
async fn owner_and_waiter(server: &Server, duplicate: &Ask) -> (Client, Client) {
    let (mut owner, mut waiter) = (Client::connect(server.address).await, Client::connect(server.address).await);
    owner.send(&Ask::order("k", "lamp").hold(1).answer("500").bytes()).await;
    until("it runs", async || server.shop.count("lamp") == 1).await;
    waiter.send(&duplicate.bytes()).await;
    until("the other waits", async || server.executor.counts().deliveries() == 2).await;
    (owner, waiter)
}

async fn a_waiting_duplicate_whose_client_disconnects_takes_nothing_over(backing: &Backing) {
    let server = Server::on(backing, |layer| layer.wait(PATIENCE)).await;
    let (mut owner, waiter) = owner_and_waiter(&server, &Ask::order("k", "lamp").hold(1)).await;
    drop(waiter);
    until("it is gone", async || server.executor.counts().of("cancelled") == 1).await;
    server.shop.open(1);
    assert_eq!(owner.answer().await.status, 500);
    owner.ask(&Ask::order("k", "lamp")).await.made();
    assert_eq!(server.shop.count("lamp"), 2, "the owner's two");
}

async fn a_waiting_request_that_took_over_completes_without_its_client(backing: &Backing) {
    let server = Server::on(backing, |layer| layer.wait(PATIENCE)).await;
    let (mut owner, waiter) = owner_and_waiter(&server, &Ask::order("k", "lamp").hold(2)).await;
    server.shop.open(1);
    assert_eq!(owner.answer().await.status, 500);
    until("the other runs", async || server.shop.count("lamp") == 2).await;
    let unanswered = server.shop.unanswered();
    drop(waiter);
    until("it is gone", async || server.shop.unanswered() > unanswered).await;
    server.shop.open(2);
    let answer = owner.ask(&Ask::order("k", "lamp").hold(2)).await.replayed();
    assert!(answer.ends_with("-2"), "{answer}");
    assert_eq!((server.shop.count("lamp"), server.shop.cut_off()), (2, 0));
}

/// The duplicates wait at one server for a run at another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_that_waits_at_another_server_receives_the_response() {
    let backing = Backing::new(Kind::Redis);
    let (here, there) = (
        Server::on(&backing, |layer| layer.wait(PATIENCE)).await,
        Server::on(&backing, |layer| layer.wait(PATIENCE)).await,
    );
    let mut owner = Client::connect(there.address).await;
    owner.send(&Ask::order("k", "lamp").hold(1).bytes()).await;
    until("it runs", async || there.shop.count("lamp") == 1).await;
    let mut volley = Volley::connect(&[here.address], CONNECTIONS).await;
    volley.fire(|_| Ask::order("k", "lamp")).await;
    until("all have come", async || here.executor.counts().deliveries() == CONNECTIONS as u64).await;
    there.shop.open(1);
    let order = owner.answer().await.made();
    for answer in volley.answers(0, async || {}).await {
        assert_eq!(answer.replayed(), order);
    }
    assert_eq!((here.shop.total(), there.shop.total()), (0, 1));
}
