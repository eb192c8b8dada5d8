//! The rights that the sample for Compose gives to its processes, on private servers.
use idempotent_deploy_samples::documents;
use idempotent_harness::servers::{PostgresServer, RedisServer};

use crate::example;

/// The database of the sample.
pub(super) const DATABASE: &str = "shop";
/// The password in the place of each variable.
const PASSWORD: &str = "secret";

/// The texts of the sample that create roles and users.
pub(super) struct Rights {
    roles: String,
    users: String,
}

impl Rights {
    pub(super) fn of_the_sample() -> Self {
        let compose = documents(&example::checkout().join("deploy/compose/compose.yaml")).unwrap().remove(0);
        let content = |name: &str| with_passwords(compose["configs"][name]["content"].as_str().unwrap());
        Self { roles: content("postgres-roles"), users: content("redis-users") }
    }

    /// Creates the roles and the database, and the user of Redis.
    pub(super) fn apply(&self, postgres: &PostgresServer, redis: &RedisServer) {
        let mut database = "postgres".to_owned();
        for line in self.roles.lines() {
            match line.strip_prefix(r"\connect ") {
                Some(next) => next.clone_into(&mut database),
                None => _ = postgres.psql(&database, line),
            }
        }
        // The default user stays, for the test itself.
        let app = self.users.lines().find_map(|line| line.strip_prefix("user app ")).unwrap();
        let words: Vec<&str> = ["ACL", "SETUSER", "app"].into_iter().chain(app.split(' ')).collect();
        assert_eq!(redis.cli(&words).trim(), "OK");
    }

    pub(super) fn migrator(&self, postgres: &PostgresServer) -> String {
        format!("postgres://migrator:{PASSWORD}@{}/{DATABASE}", postgres.address())
    }

    pub(super) fn database(&self, postgres: &PostgresServer) -> String {
        format!("postgres://app:{PASSWORD}@{}/{DATABASE}", postgres.address())
    }

    pub(super) fn keys(&self, redis: &RedisServer) -> String {
        format!("redis://app:{PASSWORD}@{}", redis.address())
    }
}

/// Replaces each variable by a password.
fn with_passwords(text: &str) -> String {
    let mut parts = text.split("${");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |done, part| format!("{done}{PASSWORD}{}", part.split_once('}').unwrap().1))
}
