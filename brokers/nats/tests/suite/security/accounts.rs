//! An operator with an account and its users, as `nsc` creates them.
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};

/// The keys of an operator and its two accounts.
pub(super) struct Operator {
    operator: KeyPair,
    system: KeyPair,
    account: KeyPair,
}

impl Operator {
    pub(super) fn new() -> Self {
        Self { operator: KeyPair::new_operator(), system: KeyPair::new_account(), account: KeyPair::new_account() }
    }

    /// Returns the settings of a server that trusts the operator.
    pub(super) fn settings(&self) -> String {
        let operator = token(&self.operator, &self.operator, json!({ "type": "operator", "version": 2 }));
        let (system, account) = (self.system.public_key(), self.account.public_key());
        format!(
            "operator: {operator}\nsystem_account: {system}\nresolver: MEMORY\n\
             resolver_preload: {{ {system}: {}, {account}: {} }}",
            self.account_token(&self.system, 0),
            self.account_token(&self.account, -1),
        )
    }

    /// Returns the text of the credentials file of a new user.
    pub(super) fn credentials(&self) -> String {
        let user = KeyPair::new_user();
        let rights =
            json!({ "type": "user", "version": 2, "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1 });
        format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            token(&self.account, &user, rights),
            user.seed().unwrap()
        )
    }

    /// Returns the token of an account with this limit for JetStream: none, or -1 without a limit.
    fn account_token(&self, account: &KeyPair, jetstream: i64) -> String {
        let limits = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
            "mem_storage": jetstream, "disk_storage": jetstream, "streams": jetstream, "consumer": jetstream,
        });
        let rights = json!({
            "type": "account", "version": 2, "limits": limits, "default_permissions": { "pub": {}, "sub": {} },
        });
        token(&self.operator, account, rights)
    }
}

/// Returns a signed token with the rights of a subject.
fn token(issuer: &KeyPair, subject: &KeyPair, rights: Value) -> String {
    let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let claims = json!({
        "jti": "test", "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject.public_key(), "name": "test",
        "nats": rights,
    });
    let encoded = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encoded(&header), encoded(&claims));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap()))
}
