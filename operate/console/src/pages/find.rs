//! The search for one key or stream by the parts of its identity. The parts are posted, so that no log contains them.
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use idempotent_operate::KeyAddress;

use super::shown;
use crate::error::PageError;
use crate::form::UserForm;
use crate::state::Shared;

pub(crate) async fn find(State(_): State<Arc<Shared>>, form: UserForm) -> Result<Response, PageError> {
    let field = |name: &str| form.fields.get(name).trim();
    let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
    let parts: Vec<String> = field("parts").lines().map(str::trim_end).map(str::to_owned).collect();
    let address = match field("key") {
        "" => KeyAddress::Parts {
            namespace: or(field("namespace"), "idempotent"),
            tenant: Some(field("tenant").to_owned()).filter(|tenant| !tenant.is_empty()),
            scene: or(field("scene"), "mq"),
            scope: field("scope").to_owned(),
            parts,
        },
        text => KeyAddress::Text(text.to_owned()),
    };
    let key = address.key().map_err(|error| PageError::Invalid(shown(&error.to_string())))?;
    let route = if form.fields.get("kind") == "stream" { "stream?" } else { "key?" };
    let mut link = form_urlencoded::Serializer::new(route.to_owned());
    link.append_pair("store", field("store")).append_pair("k", key.as_str());
    Ok(Redirect::to(&link.finish()).into_response())
}
