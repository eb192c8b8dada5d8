//! The search for one key or stream by the parts of its identity. The parts are posted, so that no log contains them.
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use idempotent_operate::{KeyAddress, KeyTenant};

use super::shown;
use crate::error::PageError;
use crate::form::UserForm;
use crate::state::Shared;

pub(crate) async fn find(State(_): State<Arc<Shared>>, form: UserForm) -> Result<Response, PageError> {
    let field = |name: &str| form.fields.get(name).trim();
    let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
    let lines = |text: &str| text.lines().map(str::trim_end).map(str::to_owned).collect::<Vec<_>>();
    let address = match field("key") {
        "" => KeyAddress::Parts {
            namespace: or(field("namespace"), "idempotent"),
            tenant: match (field("tenant"), field("caller"), field("anonymous")) {
                ("", "", "") => KeyTenant::None,
                (parts, "", "") => KeyTenant::Parts(lines(parts)),
                ("", name, "") => KeyTenant::Caller(name.to_owned()),
                ("", "", _) => KeyTenant::AnonymousCaller,
                _ => return Err(PageError::Invalid("name a tenant or a caller, not both".into())),
            },
            scene: or(field("scene"), "mq"),
            scope: field("scope").to_owned(),
            parts: lines(field("parts")),
        },
        text => KeyAddress::Text(text.to_owned()),
    };
    let key = address.key().map_err(|error| PageError::Invalid(shown(&error.to_string())))?;
    let route = if form.fields.get("kind") == "stream" { "stream?" } else { "key?" };
    let mut link = form_urlencoded::Serializer::new(route.to_owned());
    link.append_pair("store", field("store")).append_pair("k", key.as_str());
    Ok(Redirect::to(&link.finish()).into_response())
}
