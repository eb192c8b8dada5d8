//! The settings of a source, and their rules.
use std::sync::Arc;

use idempotent_mq::Position;

use crate::SettingError;
use crate::client::ClientSettings;
use crate::delay_levels::DelayLevels;

#[derive(Clone, Debug)]
pub(crate) struct SourceSettings {
    pub(crate) client: ClientSettings,
    pub(crate) topic: String,
    /// The topic, for positions.
    pub(crate) topic_name: Arc<str>,
    pub(crate) group: String,
    /// An expression: `*`, or tags separated by `||`.
    pub(crate) tags: String,
    pub(crate) retry_topic: String,
    pub(crate) dead_topic: String,
    pub(crate) delay_levels: DelayLevels,
    /// Maximum number of messages in one call of the listener.
    pub(crate) batch: usize,
    pub(crate) expires_at_header: Option<String>,
    /// True if each queue is consumed in order.
    pub(crate) orderly: bool,
}

/// Maximum length of the name of a topic or group.
const MAX_NAME: usize = 127;
/// The client's maximum number of threads for listeners.
pub(crate) const MAX_LISTENERS: usize = 480;
/// The client's maximum number of messages in a call.
const MAX_BATCH: usize = 1024;
/// Prefix of the topics to which the broker sends redeliveries.
const BROKER_RETRY: &str = "%RETRY%";

impl SourceSettings {
    /// Returns the position of a message without an offset.
    pub(crate) fn position(&self) -> Position {
        Position::of(self.topic_name.clone())
    }

    /// Returns whether the expression selects this tag.
    pub(crate) fn wants(&self, tag: Option<&str>) -> bool {
        let mut wanted = self.tags.split("||").map(str::trim);
        wanted.any(|wanted| wanted == "*" || tag.is_some_and(|tag| tag == wanted))
    }

    pub(crate) fn check(&self) -> Result<(), SettingError> {
        self.client.check()?;
        for (what, name) in [
            ("topic", &self.topic),
            ("group", &self.group),
            ("retry topic", &self.retry_topic),
            ("dead letter topic", &self.dead_topic),
        ] {
            check_name(what, name)?;
        }
        let topics = [&self.topic, &self.retry_topic, &self.dead_topic];
        if topics[0] == topics[1] || topics[1] == topics[2] || topics[0] == topics[2] {
            return Err(SettingError::new(
                "retry_topic and dead_letter_topic: must differ from each other and from the topic; choose other names",
            ));
        }
        if self.retry_topic.starts_with(BROKER_RETRY) || self.dead_topic.starts_with(BROKER_RETRY) {
            return Err(SettingError::new(
                "retry_topic or dead_letter_topic: topics that begin with %RETRY% are reserved for the broker, which may \
                 dead-letter their messages; choose another name",
            ));
        }
        if self.batch == 0 || self.batch > MAX_BATCH {
            let text = format!("batch: {} is out of range; choose 1 to {MAX_BATCH}", self.batch);
            return Err(SettingError::new(text));
        }
        if self.orderly && self.batch != 1 {
            let text = format!("batch: {} does not fit `orderly`, which delivers single messages; set 1", self.batch);
            return Err(SettingError::new(text));
        }
        if self.tags.split("||").any(|tag| tag.trim().is_empty()) {
            return Err(SettingError::new(
                "tags: a tag is empty; use `*` for all messages, or a list such as `paid || refunded`",
            ));
        }
        Ok(())
    }
}

/// Checks the name of a topic or group. `what` names the setting in the error.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), SettingError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"%|_-".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(allowed) {
        let text =
            format!("{what}: the name is not allowed; use 1 to {MAX_NAME} of the characters a-z A-Z 0-9 % | _ -");
        return Err(SettingError::new(text));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn settings(tags: &str) -> SourceSettings {
        SourceSettings {
            client: ClientSettings::new(&"rocketmq://h:1".into()),
            topic: "t".to_owned(),
            topic_name: "t".into(),
            group: "g".to_owned(),
            tags: tags.to_owned(),
            retry_topic: "g-retry".to_owned(),
            dead_topic: "g-dead".to_owned(),
            delay_levels: DelayLevels::default(),
            batch: 1,
            expires_at_header: None,
            orderly: false,
        }
    }

    #[test]
    fn an_expression_selects_each_of_its_tags_and_a_star_selects_messages_without_a_tag() {
        let wants = |tags: &str, tag| settings(tags).wants(tag);
        assert!(wants("paid || refunded", Some("refunded")) && wants("paid||refunded", Some("paid")));
        assert!(!wants("paid || refunded", Some("pai")) && !wants("paid", None));
        assert!(wants("*", None) && wants("*", Some("paid")));
    }

    #[test]
    fn names_that_rocketmq_does_not_allow_are_rejected_with_the_reason() {
        assert!(check_name("topic", "orders.paid").is_err_and(|error| error.to_string().contains("topic: the name")));
        let mut bad = settings("*");
        assert!(bad.check().is_ok());
        bad.retry_topic = "%RETRY%g".to_owned();
        assert!(bad.check().is_err_and(|error| error.to_string().contains("reserved for the broker")));
        assert!(settings("a || ").check().is_err());
    }
}
