//! 100 connections with one key, whose last bytes are sent in one loop.
use crate::sockets::support::process::Settings;
use crate::sockets::support::{Answer, Ask, Backing, Client, Kind, Server, ServerProcess, Volley, on_each_store};

const CONNECTIONS: usize = 100;

/// Returns the rounds of each test on each store. The variable is for longer runs.
fn rounds() -> u64 {
    std::env::var("IDEMPOTENT_FIRE_ROUNDS").map_or(40, |rounds| rounds.parse().expect("a number of rounds"))
}

on_each_store! {
    of_100_equal_requests_one_runs_and_99_receive_409;
    of_100_equal_requests_to_a_fast_handler_one_runs;
    of_100_payloads_with_one_key_one_runs_and_99_receive_422;
    concurrent_callers_with_equal_keys_each_run_once_and_replay_their_own_response;
}

/// The handler waits until the others have their responses.
async fn of_100_equal_requests_one_runs_and_99_receive_409(backing: &Backing) {
    let server = Server::on(backing, |layer| layer).await;
    let mut volley = Volley::connect(&[server.address], CONNECTIONS).await;
    for round in 1..=rounds() {
        let (key, sku) = (format!("key-{round}"), format!("sku-{round}"));
        volley.fire(|_| Ask::order(&key, &sku).hold(round)).await;
        let answers = volley.answers(CONNECTIONS - 1, async || server.shop.open(round)).await;
        assert_eq!(server.shop.count(&sku), 1, "round {round}");
        one_ran(&answers);
    }
}

#[track_caller]
fn one_ran(answers: &[Answer]) {
    let (ran, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
    assert_eq!((ran.len(), refused.len()), (1, CONNECTIONS - 1));
    ran[0].made();
    for answer in refused {
        answer.is(409, "in-flight");
        answer.retry_after();
    }
}

/// Duplicates arrive before, during and after the run.
async fn of_100_equal_requests_to_a_fast_handler_one_runs(backing: &Backing) {
    let server = Server::on(backing, |layer| layer).await;
    let mut volley = Volley::connect(&[server.address], CONNECTIONS).await;
    for round in 1..=rounds() / 4 {
        let (key, sku) = (format!("key-{round}"), format!("sku-{round}"));
        volley.fire(|_| Ask::order(&key, &sku)).await;
        let answers = volley.answers(0, async || {}).await;
        assert_eq!(server.shop.count(&sku), 1, "round {round}");
        let first: Vec<_> = answers.iter().filter(|answer| answer.status == 201 && !answer.is_replay()).collect();
        let [first] = first[..] else { panic!("{} first answers", first.len()) };
        for answer in &answers {
            match answer.status {
                409 => answer.is(409, "in-flight"),
                _ => assert!(answer == first || answer.replayed() == first.made(), "{answer}"),
            }
        }
    }
}

/// Applies during the run and after its completion.
async fn of_100_payloads_with_one_key_one_runs_and_99_receive_422(backing: &Backing) {
    let server = Server::on(backing, |layer| layer).await;
    let mut volley = Volley::connect(&[server.address], CONNECTIONS).await;
    for round in 1..=rounds() / 4 {
        let (key, sku) = (format!("key-{round}"), format!("sku-{round}"));
        let ask = |number| Ask::order(&key, &sku).body(format!("payload {number}")).hold(round);
        volley.fire(ask).await;
        let answers = volley.answers(CONNECTIONS - 1, async || server.shop.open(round)).await;
        let winner = answers.iter().position(|answer| answer.status == 201).expect("one that ran");
        let order = answers[winner].made();
        volley.fire(ask).await;
        let again = volley.answers(0, async || {}).await;
        assert_eq!(server.shop.count(&sku), 1, "round {round}");
        assert_eq!(again[winner].replayed(), order);
        let others = answers.iter().zip(&again).enumerate().filter(|(number, _)| *number != winner);
        for (_, (running, done)) in others {
            running.is(422, "key-reused");
            done.is(422, "key-reused");
            // The problem does not contain the content of the other request.
            assert!(!running.text().contains(&order) && !done.text().contains(&order));
        }
    }
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
            let own = |answers: &[Answer]| answers.iter().skip(caller).step_by(CALLERS).cloned().collect::<Vec<_>>();
            let made: Vec<_> = own(&answers).into_iter().filter(|answer| answer.status == 201).collect();
            let [made] = &made[..] else { panic!("{} of user {caller} ran", made.len()) };
            assert!(own(&again).iter().all(|answer| answer.replayed() == made.made()));
            assert_eq!(server.shop.count(&format!("user-{caller}-{round}")), 1);
        }
    }
}

/// Half of the connections go to each server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_100_equal_requests_to_two_processes_on_one_redis_runs_and_99_receive_409() {
    let (backing, folder) = (Backing::new(Kind::Redis), tempfile::tempdir().unwrap());
    let settings = Settings::new(backing.url(), folder.path());
    let servers = [ServerProcess::start(&settings).await, ServerProcess::start(&settings).await];
    let addresses = servers.each_ref().map(|server| server.address);
    let mut volley = Volley::connect(&addresses, CONNECTIONS).await;
    let mut asides = [Client::connect(addresses[0]).await, Client::connect(addresses[1]).await];
    let mut won = [0; 2];
    for round in 1..=rounds() {
        let (key, sku) = (format!("key-{round}"), format!("sku-{round}"));
        volley.fire(|_| Ask::order(&key, &sku).hold(round)).await;
        let answers = volley
            .answers(CONNECTIONS - 1, async || {
                for aside in &mut asides {
                    assert_eq!(aside.ask(&Ask::get(&format!("/open/{round}"))).await.status, 200);
                }
            })
            .await;
        one_ran(&answers);
        assert_eq!(settings.runs(&sku).len(), 1, "round {round}");
        let order = answers.iter().find(|answer| answer.status == 201).unwrap().made();
        // The other server replays the recorded response.
        for (aside, won) in asides.iter_mut().zip(&mut won) {
            assert_eq!(aside.ask(&Ask::order(&key, &sku)).await.replayed(), order);
            let ran: usize = aside.ask(&Ask::get(&format!("/count/{sku}"))).await.text().parse().unwrap();
            *won += ran;
        }
    }
    assert_eq!(won[0] + won[1], usize::try_from(rounds()).unwrap(), "{won:?}");
}
