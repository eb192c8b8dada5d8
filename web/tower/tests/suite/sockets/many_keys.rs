//! Large numbers of keys.
use std::collections::HashSet;

use crate::sockets::support::{Ask, Backing, Client, Server, on_each_store};

const CONNECTIONS: usize = 20;
/// Requests per write on each connection. Their responses must fit into the socket buffer.
const PIPELINED: usize = 50;

on_each_store! {
    a_thousand_keys_run_once_each_and_replay_their_own_response;
}

mod extras {
    use super::*;

    on_each_store! {
        ten_thousand_keys_run_once_each_and_replay_their_own_response;
    }

    async fn ten_thousand_keys_run_once_each_and_replay_their_own_response(backing: &Backing) {
        keys_run_once_each(backing, 10_000).await;
    }
}

/// Sends all keys over parallel connections, and returns the responses in the order of the keys.
async fn all(server: &Server, keys: usize) -> Vec<(bool, String)> {
    let mut tasks = Vec::new();
    for connection in 0..CONNECTIONS {
        let address = server.address;
        tasks.push(tokio::spawn(async move {
            let mut client = Client::connect(address).await;
            let keys: Vec<_> = (connection * keys / CONNECTIONS..(connection + 1) * keys / CONNECTIONS).collect();
            let mut answers = Vec::new();
            for keys in keys.chunks(PIPELINED) {
                let ask = |key: &usize| Ask::order(&format!("key-{key}"), &format!("sku-{key}")).bytes();
                client.send(&keys.iter().flat_map(ask).collect::<Vec<_>>()).await;
                for _ in keys {
                    let answer = client.answer().await;
                    assert_eq!(answer.status, 201, "{answer}");
                    answers.push((answer.is_replay(), answer.text()));
                }
            }
            answers
        }));
    }
    let mut answers = Vec::new();
    for task in tasks {
        answers.extend(task.await.unwrap());
    }
    answers
}

async fn a_thousand_keys_run_once_each_and_replay_their_own_response(backing: &Backing) {
    keys_run_once_each(backing, 1_000).await;
}

async fn keys_run_once_each(backing: &Backing, keys: usize) {
    let server = Server::on(backing, |layer| layer).await;
    let (first, second) = (all(&server, keys).await, all(&server, keys).await);
    assert!(first.iter().all(|(replayed, _)| !replayed) && second.iter().all(|(replayed, _)| *replayed));
    let orders: HashSet<_> = first.iter().map(|(_, order)| order).collect();
    assert_eq!(orders.len(), keys, "each has an order of its own");
    assert!(first.iter().zip(&second).all(|((_, first), (_, second))| first == second));
    let counts = server.shop.counts();
    assert!(counts.len() == keys && counts.values().all(|count| *count == 1));
}
