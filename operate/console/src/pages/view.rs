//! The header, the navigation and the texts that all pages share.
use idempotent_operate::escaped;

use crate::access::Role;
use crate::assets;
use crate::gate::Visitor;
use crate::state::Shared;

/// The longest text of a record on a page, in characters.
const LONGEST: usize = 256;

/// Returns an untrusted text without control characters and truncated. The templates escape it for HTML.
pub(crate) fn shown(text: &str) -> String {
    let text = escaped(text);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}

/// Returns the value of an answer, or the default value with the error as a text of the page.
pub(crate) fn or_error<T: Default>(answer: Result<T, String>) -> (T, Option<String>) {
    match answer {
        Ok(value) => (value, None),
        Err(error) => (T::default(), Some(shown(&error))),
    }
}

/// The header and the navigation of a page.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) title: &'static str,
    pub(crate) user: String,
    pub(crate) role: &'static str,
    /// The form token.
    pub(crate) token: String,
    /// The pages that have a target.
    pub(crate) pages: Vec<(&'static str, &'static str)>,
    pub(crate) theme: &'static str,
    pub(crate) has_logout: bool,
    pub(crate) can_operate: bool,
    pub(crate) can_administer: bool,
    pub(crate) is_read_only: bool,
    pub(crate) version: &'static str,
}

impl Layout {
    pub(crate) fn new(title: &'static str, shared: &Shared, visitor: &Visitor, theme: &'static str) -> Self {
        let session = visitor.session.as_deref();
        let may = |role| !shared.is_read_only && visitor.user.role >= role;
        Self {
            title,
            user: shown(&visitor.user.name),
            role: visitor.user.role.name(),
            token: session.map(|session| shared.form_key.token(session)).unwrap_or_default(),
            pages: pages(shared),
            theme,
            has_logout: matches!(shared.access.0, crate::access::AccessKind::Tokens(_)),
            can_operate: may(Role::Operator),
            can_administer: may(Role::Admin),
            is_read_only: shared.is_read_only,
            version: assets::VERSION,
        }
    }
}

/// The header of a page without a user.
#[derive(Clone, Debug)]
pub(crate) struct LoginLayout {
    pub(crate) theme: &'static str,
    pub(crate) version: &'static str,
}

/// Returns the links of the navigation with their texts.
fn pages(shared: &Shared) -> Vec<(&'static str, &'static str)> {
    let targets = &shared.targets;
    let mut pages = vec![("overview", "Overview")];
    if !targets.stores.is_empty() {
        pages.extend([("keys", "Keys"), ("in-flight", "In flight"), ("dead", "Dead and failed")]);
    }
    if !targets.queues.is_empty() {
        pages.push(("dead-letters", "Dead letters"));
    }
    #[cfg(feature = "__outbox")]
    if !targets.outboxes.is_empty() {
        pages.push(("outbox", "Outbox"));
    }
    if !targets.delays.is_empty() {
        pages.push(("delay", "Delay queues"));
    }
    if !targets.stores.is_empty() {
        pages.extend([("order", "Ordering"), ("health", "Health")]);
    }
    pages.push(("audit", "Audit log"));
    pages
}
