//! The policies of an executor's scenes, and the resolved policies of their calls.
use std::array;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::policy::ResolvedPolicy;
use crate::{Policy, PolicyError, Scene};

/// The policies of the scenes. A call's policy is resolved and checked once, and then shared by equal calls.
pub(crate) struct PolicyTable {
    by_scene: HashMap<Scene, Policy>,
    /// The merged policies of the built-in scenes.
    mq: Policy,
    rest: Policy,
    /// The resolved policies, from the first slot on without gaps.
    resolved: Box<[OnceLock<SharedPolicy>; MAX_SHARED]>,
}

struct SharedPolicy {
    scene: Scene,
    /// The settings of the call, if it has any.
    overrides: Option<Policy>,
    resolved: Arc<ResolvedPolicy>,
}

/// The number of shared policies. An application has about one per handler; further ones are resolved for each call.
const MAX_SHARED: usize = 64;

impl PolicyTable {
    pub(super) fn new(by_scene: HashMap<Scene, Policy>) -> Self {
        let of = |scene| by_scene.get(&scene).copied().unwrap_or_default().or(Policy::of(&scene));
        let (mq, rest) = (of(Scene::Mq), of(Scene::Rest));
        Self { by_scene, mq, rest, resolved: Box::new(array::from_fn(|_| OnceLock::new())) }
    }

    /// Returns the policy in force for a scene: the executor's policy over the scene's default.
    pub(super) fn of(&self, scene: &Scene) -> Policy {
        match scene {
            Scene::Mq => self.mq,
            Scene::Rest => self.rest,
            Scene::Named(_) => {
                let scene = scene.clone().canonical();
                self.by_scene.get(&scene).copied().unwrap_or_default().or(Policy::of(&scene))
            }
        }
    }

    /// Returns the scenes for which the executor has a policy.
    pub(crate) fn scenes(&self) -> impl Iterator<Item = &Scene> {
        self.by_scene.keys()
    }

    /// Merges `overrides` over the policy of the scene and checks the result.
    pub(super) fn resolve(
        &self,
        scene: &Scene,
        overrides: Option<&Policy>,
    ) -> Result<Arc<ResolvedPolicy>, PolicyError> {
        let is_same = |shared: &SharedPolicy| shared.scene == *scene && shared.overrides.as_ref() == overrides;
        let known = self.resolved.iter().map_while(OnceLock::get).find(|shared| is_same(shared));
        if let Some(known) = known {
            return Ok(known.resolved.clone());
        }
        let policy = ResolvedPolicy::from(overrides.copied().unwrap_or_default().or(self.of(scene)));
        policy.check()?;
        let resolved = Arc::new(policy);
        let mut shared =
            SharedPolicy { scene: scene.clone(), overrides: overrides.copied(), resolved: resolved.clone() };
        for slot in &*self.resolved {
            match slot.set(shared) {
                Ok(()) => break,
                // Another call has set this slot.
                Err(refused) => shared = refused,
            }
        }
        Ok(resolved)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lease(millis: u64) -> Policy {
        Policy::new().lease(Duration::from_millis(millis))
    }

    #[test]
    fn equal_policies_of_a_scene_are_resolved_once_and_others_apart() {
        let table = PolicyTable::new(HashMap::from([(Scene::Mq, lease(700))]));
        let resolve = |scene: Scene, overrides| table.resolve(&scene, Some(&overrides)).unwrap();
        let (first, equal) = (resolve(Scene::Mq, lease(500)), resolve(Scene::Mq, lease(500)));
        assert!(Arc::ptr_eq(&first, &equal));
        for (scene, overrides, millis) in [
            (Scene::Mq, lease(500), 500),
            (Scene::Mq, Policy::new(), 700),
            (Scene::Rest, lease(500), 500),
            (Scene::Rest, Policy::new(), 30_000),
            (Scene::Named("custom".into()), lease(500), 500),
        ] {
            let resolved = resolve(scene.clone(), overrides);
            assert_eq!(resolved.lease, Duration::from_millis(millis), "{scene:?}");
            assert_eq!(Arc::ptr_eq(&first, &resolved), scene == Scene::Mq && overrides == lease(500));
        }
    }

    #[test]
    fn an_invalid_policy_is_refused_each_time() {
        let table = PolicyTable::new(HashMap::new());
        for _ in 0..2 {
            assert!(table.resolve(&Scene::Mq, Some(&lease(0))).is_err());
        }
    }

    #[test]
    fn policies_beyond_the_shared_ones_are_resolved_too() {
        let table = PolicyTable::new(HashMap::new());
        for millis in (1..=2 * MAX_SHARED as u64).chain(1..=2 * MAX_SHARED as u64) {
            let resolved = table.resolve(&Scene::Mq, Some(&lease(millis))).unwrap();
            assert_eq!(resolved.lease, Duration::from_millis(millis));
        }
    }
}
