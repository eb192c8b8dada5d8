//! A server that is killed between a handler's success and its record: the same for every server.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use idempotent_core::{
    Call, DefaultReply, Event, Executor, Handler, Identity, Json, Observer, Outcome, Rejection, RunInfo, Scene,
    StateKind, Store,
};
use tokio::sync::watch;

use super::fixture::{Server, Store as ServerStore, creating};

/// A counter of store failures.
#[derive(Clone, Debug)]
struct Failed(watch::Sender<u32>);

impl Observer for Failed {
    fn on(&self, _: &RunInfo<'_>, event: &Event<'_>) {
        if let Event::StoreFailed { .. } = event {
            self.0.send_modify(|failed| *failed += 1);
        }
    }
}

/// Killed as a primary is that fails, and back on its files as the one that took over: what it has answered is on the disk.
#[tokio::test]
async fn a_flip_outlasts_a_server_that_is_killed_before_it() {
    let server = Arc::new(Server::start());
    let store = creating(ServerStore::builder(server.url())).timeout(Duration::from_secs(2)).connect().await.unwrap();
    let failed = Failed(watch::Sender::new(0));
    let executor = Executor::builder(store.clone()).observer(failed.clone()).build().unwrap();
    let identity = || Identity::new(Scene::Mq, "failover", "k");
    let (runs, killed) = (AtomicU32::new(0), server.clone());
    let deliver = || {
        let (runs, killed) = (&runs, killed.clone());
        let handler = Handler::<DefaultReply, Json, _, _>::new(move || async move {
            // Its success is the server's end.
            if runs.fetch_add(1, SeqCst) == 0 {
                tokio::task::spawn_blocking(move || killed.kill()).await.unwrap();
            }
            Ok::<_, Rejection>(17)
        });
        Outcome::capture(executor.run(Call::new(identity()), handler))
    };
    let back = async {
        failed.0.subscribe().wait_for(|failed| *failed > 0).await.unwrap();
        let server = server.clone();
        tokio::task::spawn_blocking(move || server.restart()).await.unwrap();
    };
    let ((answer, outcome), ()) = futures_util::future::join(deliver(), back).await;
    assert_eq!((answer.unwrap(), outcome), (17, Some(Outcome::Ran)));
    let record = store.peek(&identity().key("idempotent").unwrap()).await.unwrap().unwrap();
    assert_eq!(record.state.kind(), StateKind::Consumed);
    assert_eq!(deliver().await.1, Some(Outcome::Replayed));
    assert_eq!(runs.load(SeqCst), 1);
}
