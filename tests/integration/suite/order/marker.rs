//! The claim of a wait marker, and the number of its writes.
use idempotent::key::DisplayKey;
use idempotent::ordering::OnBrokenOrder;
use idempotent::store::OnExpiry;
use idempotent::{Executor, Fingerprint, Scene};

use super::probe::ProbeStore;
use super::*;

/// The payload and the settings of the call do not count for its marker.
#[tokio::test]
async fn a_marker_has_terms_of_its_own_and_is_written_once_per_quarter_of_the_patience() {
    for (patience, lease) in [(secs(60), secs(15)), (ms(200), ms(100)), (secs(3_600), secs(30))] {
        let store = Arc::new(ProbeStore::default());
        let policy = Policy::new()
            .lease(secs(30))
            .max_retries(1)
            .on_expiry(OnExpiry::Park)
            .display_key(DisplayKey::Full)
            .retain_failures(secs(40))
            .on_broken_order(OnBrokenOrder::Skip(patience));
        let executor = Executor::builder(store.clone()).policy(Scene::Mq, policy).build().unwrap();
        for _ in 0..2 {
            let call = after("2", "1").fingerprint(Ok(Fingerprint::of_bytes("payload")));
            let handler = PlainHandler::new(|| async { Ok::<_, Rejection>(1) });
            let (_, outcome) = Outcome::capture(executor.run(call, handler)).await;
            assert_waiting(&outcome.unwrap());
            if patience < secs(1) {
                break;
            }
        }
        let claims = store.claims.lock().unwrap();
        let [marker] = &claims[..] else { panic!("{claims:?}") };
        assert_ne!(marker.key, key_of("2"));
        assert_eq!((marker.lease, marker.retention), (lease, (patience * 2).max(secs(40))));
        assert_eq!((marker.fingerprint, marker.display.as_deref(), marker.max_attempts), (None, None, 0));
        assert_eq!(marker.on_expiry, OnExpiry::Takeover);
    }
}
