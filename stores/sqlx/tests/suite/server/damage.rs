//! Damage to a row, the same on every server.
use idempotent_testkit::Damage;

/// Returns the assignment that damages a record, or `None` if the type of the column prevents this damage.
pub(crate) fn change(damage: Damage) -> Option<&'static str> {
    match damage {
        Damage::CutOff => Some("owner = substr(owner, 1, 3)"),
        Damage::Noise => Some("attempt = 1099511627776"),
        Damage::NewerVersion => Some("v = 999"),
        Damage::NoOwner => Some("owner = NULL"),
        Damage::BadFencing => Some("fencing = -5"),
        Damage::EndlessLease => Some("until_at = 253402300799000000, expires_at = 253402300799000000"),
        Damage::UnknownState => Some("state = 9"),
        _ => None,
    }
}
