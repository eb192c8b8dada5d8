//! Several workers on one store.
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use actix_web::dev::{Service, ServiceRequest};
use actix_web::web;
use idempotent_actix_web::IdempotencyMiddleware;
use idempotent_http_decisions::{Client, Shop, until};

use crate::support::{Server, layer, order_by, routes};

const CLIENTS: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_equal_requests_to_two_workers_one_runs() {
    let (shop, threads) = (Shop::default(), Arc::new(Mutex::new(HashSet::<ThreadId>::new())));
    let (once, services, seen) = (IdempotencyMiddleware::new(layer()), routes(&shop), threads.clone());
    let server = Server::of(2, move |config| {
        let seen = seen.clone();
        let watch = move |request: ServiceRequest, service: &_| {
            seen.lock().unwrap().insert(std::thread::current().id());
            Service::call(service, request)
        };
        config.service(web::scope("").wrap(once.clone()).wrap_fn(watch).configure(services.clone()));
    });
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Client::connect(server.address).await);
    }
    for client in &mut clients {
        client.send(&order_by("a").hold(1).bytes()).await;
    }
    let mut answers = Vec::new();
    until("the run", async || shop.runs() == 1).await;
    let mut tasks: Vec<_> =
        clients.into_iter().map(|mut client| tokio::spawn(async move { client.answer().await })).collect();
    until("the rejections", async || tasks.iter().filter(|task| task.is_finished()).count() == CLIENTS - 1).await;
    shop.open();
    for task in tasks.drain(..) {
        answers.push(task.await.unwrap());
    }
    let (ran, rejected): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
    assert_eq!((ran.len(), rejected.len(), shop.runs()), (1, CLIENTS - 1, 1));
    rejected.iter().for_each(|answer| answer.is(409, "in-flight"));
    assert_eq!(threads.lock().unwrap().len(), 2, "both workers had requests");
    for _ in 0..4 {
        assert!(Client::connect(server.address).await.ask(&order_by("a")).await.is_replay());
    }
}
