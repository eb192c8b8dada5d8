//! Custom strategies for the key of a call.
use crate::key::{KeyPart, Parts, Scene};
use crate::{Fingerprint, KeyError, Policy};

/// A strategy that derives the key and the settings of a call from a source: an argument of the handler, or a tuple of
/// references to several arguments.
///
/// The attribute selects a strategy by `by`, and passes it the value of `key`. The strategy receives the scene too, so
/// one strategy can serve message handlers and REST handlers with different settings. A strategy may implement the
/// trait for several types of sources.
///
/// ```
/// use idempotent_core::{Call, DerivedKey, Fingerprint, Identity, KeyStrategy, Policy, Scene};
/// use std::time::Duration;
///
/// struct Webhook { sender: String, event: String, body: String }
///
/// struct ByEvent;
///
/// impl KeyStrategy<Webhook> for ByEvent {
///     fn derive(&self, scene: &Scene, webhook: &Webhook) -> DerivedKey {
///         let days = if *scene == Scene::Rest { 1 } else { 30 };
///         DerivedKey::new(&(&webhook.sender, &webhook.event))
///             .fingerprint(Fingerprint::of(&webhook.body))
///             .policy(Policy::new().retain(Duration::from_secs(days * 86_400)))
///     }
/// }
///
/// // `#[idempotent(by = ByEvent, key = webhook, scope = "webhooks")]` makes this call:
/// let webhook = Webhook { sender: "bank".into(), event: "e-17".into(), body: "paid".into() };
/// let derived = ByEvent.derive(&Scene::Mq, &webhook);
/// let call = Call::new(Identity::new(Scene::Mq, "webhooks", &derived)).derived(derived);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key strategy for `{Source}`",
    label = "must implement `KeyStrategy<{Source}>`",
    note = "`by` is a value whose type implements `KeyStrategy` for the type of `key`; if `key` is a reference, write \
            `key = *name`"
)]
pub trait KeyStrategy<Source: ?Sized> {
    /// Returns the key and the settings of the call in this scene.
    ///
    /// The strategy must return equal keys for equal calls, on each worker and after each restart.
    fn derive(&self, scene: &Scene, source: &Source) -> DerivedKey;
}

/// The key and the settings of one call, as a [`KeyStrategy`] derived them.
#[derive(Clone, Debug)]
#[must_use]
pub struct DerivedKey {
    parts: Parts,
    pub(crate) fingerprint: Result<Option<Fingerprint>, KeyError>,
    pub(crate) policy: Policy,
}

impl DerivedKey {
    /// Creates a key. An empty or missing part is an error of the call, never a shared constant.
    pub fn new(key: &(impl KeyPart + ?Sized)) -> Self {
        let mut parts = Parts::default();
        key.write_to(&mut parts);
        Self { parts, fingerprint: Ok(None), policy: Policy::new() }
    }

    /// Sets the fingerprint of the payload. The attribute's `fingerprint` overrides this setting.
    ///
    /// # Default
    /// No fingerprint: a key is not bound to a payload
    pub fn fingerprint(mut self, fingerprint: Result<Fingerprint, KeyError>) -> Self {
        self.fingerprint = fingerprint.map(Some);
        self
    }

    /// Sets policy settings. The settings override the executor's, and the attribute's arguments override them.
    ///
    /// # Default
    /// No setting
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }
}

impl KeyPart for DerivedKey {
    fn write_to(&self, parts: &mut Parts) {
        self.parts.write_to(parts);
    }
}

/// Derives the key of a call, for the attribute's code.
pub fn derive<S: KeyStrategy<Source> + ?Sized, Source: ?Sized>(
    strategy: &S,
    scene: &Scene,
    source: &Source,
) -> DerivedKey {
    strategy.derive(scene, source)
}
