//! Many runs of the same keys, at each isolation level.
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::backend::at_level;
use super::world::Own;
use crate::inbox::{Failure, call};

const KEYS: usize = 30;
const COPIES: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_key_has_its_effect_once_at_every_isolation_level() {
    for level in ["read committed", "repeatable read", "serializable"] {
        let world = Arc::new(at_level(level).await);
        let mut runs = JoinSet::new();
        for number in 0..KEYS * COPIES {
            let world = world.clone();
            runs.spawn(async move {
                let name = format!("k{}", number % KEYS);
                let effect = async |mut tx: Own| Ok::<_, Failure>(world.effect(&mut tx, &name).await?);
                while world.inbox.run(call(&name), effect).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
        }
        runs.join_all().await;
        for number in 0..KEYS {
            assert_eq!(world.effects(&format!("k{number}")).await, 1, "{level}");
        }
    }
}
