//! Several callers: no caller receives the response of another.
use std::collections::{HashMap, HashSet};

use crate::sockets::support::{Ask, Backing, Client, Server, Volley, on_each_store};

on_each_store! {
    callers_with_equal_keys_and_payloads_each_receive_their_own_response;
    concurrent_callers_with_equal_keys_each_run_once_and_replay_their_own_response;
}

/// Some names are similar to each other, or to an anonymous caller.
const USERS: [Option<&str>; 6] = [None, Some("alice"), Some("bob"), Some("Alice"), Some("anonymous"), Some("named")];

fn ask(user: Option<&str>) -> Ask {
    let ask = Ask::order("the-same-key", "lamp");
    match user {
        Some(user) => ask.user(user),
        None => ask,
    }
}

async fn callers_with_equal_keys_and_payloads_each_receive_their_own_response(backing: &Backing) {
    let server = Server::on(backing, |layer| layer).await;
    let mut client = Client::connect(server.address).await;
    let mut orders = HashMap::new();
    for user in USERS {
        orders.insert(user, client.ask(&ask(user)).await.made());
    }
    for user in USERS {
        assert_eq!(client.ask(&ask(user)).await.replayed(), orders[&user]);
    }
    let different: HashSet<_> = orders.values().collect();
    assert_eq!((different.len(), server.shop.count("lamp")), (USERS.len(), USERS.len()));
    // A different payload does not reveal the requests of others: it is a first request.
    client.ask(&ask(Some("mallory")).body("another")).await.made();
    assert_eq!(server.shop.count("lamp"), orders.len() + 1);
}

/// Each connection belongs to one of ten callers, and all use one key.
async fn concurrent_callers_with_equal_keys_each_run_once_and_replay_their_own_response(backing: &Backing) {
    const CALLERS: usize = 10;
    let server = Server::on(backing, |layer| layer).await;
    let mut volley = Volley::connect(&[server.address], 100).await;
    for round in 1..=10 {
        let user = |number: usize| format!("user-{}", number % CALLERS);
        let ask = |number| Ask::order(&format!("k{round}"), &format!("{}-{round}", user(number))).user(&user(number));
        volley.fire(|number| ask(number).hold(round)).await;
        let answers = volley.answers(volley.len() - CALLERS, async || server.shop.open(round)).await;
        volley.fire(ask).await;
        let again = volley.answers(0, async || {}).await;
        for caller in 0..CALLERS {
            let own = |answers: &[crate::sockets::support::Answer]| {
                answers.iter().skip(caller).step_by(CALLERS).cloned().collect::<Vec<_>>()
            };
            let made: Vec<_> = own(&answers).into_iter().filter(|answer| answer.status == 201).collect();
            let [made] = &made[..] else { panic!("{} of user {caller} ran", made.len()) };
            assert!(own(&again).iter().all(|answer| answer.replayed() == made.made()));
            assert_eq!(server.shop.count(&format!("user-{caller}-{round}")), 1);
        }
    }
}
